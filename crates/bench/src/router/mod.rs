//! The router beside a bare client loop.

mod bare;
pub(crate) mod endpoint;
mod rig;
mod sample;
mod stock;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Uri;
use sluicegate_dispatch::PoolSettings;
use tokio::runtime::{Builder, Runtime};

use crate::report::{Promise, Report, Row};
use crate::timing::{Compared, by_turns};
use bare::Bare;
use endpoint::Endpoint;
use rig::{File, Rig, batch};
use sample::POOL;
use stock::Stock;

/// Many groups, so that order holds nobody up.
const GROUPS: u64 = 10_000;
const CONCURRENCIES: [u32; 2] = [32, 64];

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    let mut report = Report::new("router", quick);
    let scene = Scene::new()?;
    for concurrency in CONCURRENCIES {
        eprintln!("a fast endpoint, {concurrency} at once …");
        from_memory(&mut report, &scene, concurrency, quick);
        from_file(&mut report, &scene, concurrency, quick);
    }
    Ok(report)
}

/// What all measurements share: two threads, the endpoint, numbers for messages.
struct Scene {
    runtime: Runtime,
    endpoint: Endpoint,
    numbers: AtomicU64,
}

impl Scene {
    fn new() -> Result<Self, String> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        Ok(Self { runtime, endpoint: Endpoint::start()?, numbers: AtomicU64::new(0) })
    }

    /// Numbers that no message has had.
    fn number(&self, count: u64) -> u64 {
        self.numbers.fetch_add(count, Ordering::Relaxed)
    }

    fn bare(&self, url: &str, loops: u32) -> impl FnMut(u32) -> std::time::Duration {
        let (uri, bare): (Uri, _) = (url.parse().expect("it is a URL"), Bare::new());
        let body = Bytes::from_static(
            br#"{"messageId":"msg-0000000000000000","payload":{"order":0,"amount":"19.90"}}"#,
        );
        move |calls| {
            let calling = bare.call(&uri, &body, u64::from(calls), loops as usize);
            self.runtime.block_on(calling)
        }
    }
}

/// A rate beside the rate of a bare loop, of which it must be a part.
fn rate(what: String, compared: Compared, part: f64) -> Row {
    Row::new(what, "/s", 1e9 / compared.ours)
        .beside("bare client loop", 1e9 / compared.baseline)
        .promised(Promise::RatioAtLeast(part))
}

fn from_memory(report: &mut Report, scene: &Scene, concurrency: u32, quick: bool) {
    let url = scene.endpoint.fast();
    let stock = Arc::new(Stock::default());
    let rig = scene.runtime.block_on(async {
        let rig = Rig::over_http().pool(PoolSettings::new(POOL, concurrency));
        rig.queue("memory", Arc::clone(&stock) as _).await;
        rig
    });
    let compared = by_turns(
        if quick { 3 } else { 21 },
        if quick { 2_000 } else { 10_000 },
        |count| {
            let count = u64::from(count);
            let messages = batch(scene.number(count), count, GROUPS, &url);
            scene.runtime.block_on(rig.from_memory(&stock, messages))
        },
        scene.bare(&url, concurrency),
    );
    report.rows.push(rate(format!("from memory, {concurrency} at once"), compared, 0.8));
}

fn from_file(report: &mut Report, scene: &Scene, concurrency: u32, quick: bool) {
    let url = scene.endpoint.fast();
    let (rig, file) = scene.runtime.block_on(async {
        let rig = Rig::over_http().pool(PoolSettings::new(POOL, concurrency));
        (rig, File::new().await)
    });
    let compared = by_turns(
        if quick { 3 } else { 21 },
        if quick { 2_000 } else { 10_000 },
        |count| {
            let count = u64::from(count);
            let first = scene.number(count);
            let (messages, name) = (batch(first, count, GROUPS, &url), format!("queue-{first}"));
            scene.runtime.block_on(rig.from_file(&file.store, &name, messages))
        },
        scene.bare(&url, concurrency),
    );
    report.rows.push(rate(format!("from SQLite, {concurrency} at once"), compared, 0.5));
}
