//! The router: beside a bare client loop, under a great backlog, by itself, and idle.

mod alone;
mod backlog;
mod bare;
pub(crate) mod endpoint;
mod http;
mod portion;
mod rig;
mod sample;
mod spring;
mod stock;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};

use crate::child::{cpu_time, number};
use crate::report::Report;
use endpoint::Endpoint;

pub(crate) use alone::{COUNTED, idle, no_op};
pub(crate) use backlog::{dispatch_some, dispatched, held};
pub(crate) use http::COUNTED as COUNTED_CALLS;

/// A part of it.
type Part = fn(&mut Report, &Scene, bool) -> Result<(), String>;

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    run_parts("router", &[http::run, alone::run, backlog::in_a_pool, backlog::in_a_file], quick)
}

/// Over HTTP alone.
pub(crate) fn run_http(quick: bool) -> Result<Report, String> {
    run_parts("router-http", &[http::run], quick)
}

/// By itself alone.
pub(crate) fn run_alone(quick: bool) -> Result<Report, String> {
    run_parts("router-alone", &[alone::run], quick)
}

/// The backlogs alone.
pub(crate) fn run_backlog(quick: bool) -> Result<Report, String> {
    run_parts("router-backlog", &[backlog::in_a_pool, backlog::in_a_file], quick)
}

/// One side of the comparison over HTTP alone, for a profiler.
pub(crate) fn spin(words: &[String]) -> Result<(), String> {
    let threads = number(words, 3).unwrap_or(2) as usize;
    http::spin(&Scene::with(Builder::new_multi_thread().worker_threads(threads))?, words)
}

/// Under callgrind: one side of the comparison over HTTP.
pub(crate) fn count_http(side: &str) -> Result<(), String> {
    http::count(&Scene::with(&mut Builder::new_current_thread())?, side)
}

fn run_parts(name: &'static str, parts: &[Part], quick: bool) -> Result<Report, String> {
    let mut report = Report::new(name, quick);
    let scene = Scene::new()?;
    parts.iter().try_for_each(|part| part(&mut report, &scene, quick))?;
    Ok(report)
}

/// What all measurements share: two threads, the endpoint, numbers for messages.
struct Scene {
    runtime: Runtime,
    endpoint: Endpoint,
    numbers: AtomicU64,
    /// The nanoseconds that this process and the endpoint's ran in the last turn.
    ran: Mutex<(f64, f64)>,
}

impl Scene {
    fn new() -> Result<Self, String> {
        Self::with(Builder::new_multi_thread().worker_threads(2))
    }

    fn with(threads: &mut Builder) -> Result<Self, String> {
        let runtime = threads.enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let (endpoint, numbers) = (Endpoint::start()?, AtomicU64::new(0));
        Ok(Self { runtime, endpoint, numbers, ran: Mutex::default() })
    }

    /// The nanoseconds that this process and the endpoint's have run.
    fn cpu_times(&self) -> (f64, f64) {
        let of = |process: &str| cpu_time(process).unwrap_or_default();
        (of("self"), of(&self.endpoint.id()))
    }

    /// Numbers that no message has had.
    fn number(&self, count: u64) -> u64 {
        self.numbers.fetch_add(count, Ordering::Relaxed)
    }
}
