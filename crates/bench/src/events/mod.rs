//! The event store: appending on both engines beside bare INSERTs of the same rows, and the embedded one beside another
//! embeddable store; projecting, following, and who is refused when too many project.
//!
//! The sides take turns of less than a second, so that none has the better hour, and the medians are compared. Every side
//! is durable: it syncs before it answers.

mod bare;
mod gate;
mod load;
mod postgres;
mod sqlite;
mod tephra;
mod turns;

use std::time::Duration;

use sluicegate_event_store::EventStore;
use tokio::runtime::{Builder, Runtime};

use crate::child::number;
use crate::report::{Promise, Report, Row};
use turns::{Crowd, Extent, medians, ours};

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    let (mut report, runtime) = (Report::new("events", quick), runtime()?);
    sqlite::run(&mut report, &runtime, Extent::of(quick))?;
    postgres::run_all(&mut report, &runtime, Extent::of(quick))?;
    gate::run(&mut report, &runtime)?;
    Ok(report)
}

/// The embedded engine alone.
pub(crate) fn run_sqlite(quick: bool) -> Result<Report, String> {
    let (mut report, runtime) = (Report::new("events", quick), runtime()?);
    sqlite::run(&mut report, &runtime, Extent::of(quick))?;
    Ok(report)
}

/// The engine of PostgreSQL alone.
pub(crate) fn run_postgres(quick: bool) -> Result<Report, String> {
    let (mut report, runtime) = (Report::new("events", quick), runtime()?);
    postgres::run_all(&mut report, &runtime, Extent::of(quick))?;
    Ok(report)
}

/// What 1,000 callers at a limit of 100 hear.
pub(crate) fn run_gate(quick: bool) -> Result<Report, String> {
    let (mut report, runtime) = (Report::new("events", quick), runtime()?);
    gate::run(&mut report, &runtime)?;
    Ok(report)
}

/// Our side alone, for a profiler: which engine, how many writers, how many events each time, how many are there before,
/// and for how many seconds.
pub(crate) fn spin(words: &[String]) -> Result<(), String> {
    let engine = words.first().ok_or("which engine?")?;
    let crowd = Crowd { writers: number(words, 1)?, batch: number(words, 2)? };
    let (present, runtime) = (number(words, 3)?, runtime()?);
    let turn = Duration::from_secs(number(words, 4)?);
    let rate = match engine.as_str() {
        "sqlite" => sqlite::spin(&runtime, crowd, present, turn)?,
        "postgres" => postgres::spin(&runtime, crowd, present, turn)?,
        _ => return Err("there is no such engine".to_owned()),
    };
    println!("{rate:.0} events a second");
    Ok(())
}

fn runtime() -> Result<Runtime, String> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| error.to_string())
}

/// A row's name.
fn named(what: &str, crowd: Crowd, present: u64) -> String {
    let Crowd { writers, batch } = crowd;
    let present = match present {
        0 => "none".to_owned(),
        1_000_000 => "1 million".to_owned(),
        some => some.to_string(),
    };
    format!("{what}: {writers} x {batch}, {present} present")
}

/// What an event costs that is appended under a condition: in a long log beside a short one.
fn cost(
    report: &mut Report,
    runtime: &Runtime,
    extent: Extent,
    engine: &str,
    writers: u64,
    [long, short]: [&EventStore; 2],
) -> Result<(), String> {
    let crowd = Crowd { writers, batch: 1 };
    let [long, short] = medians(
        extent,
        crowd,
        [&|crowd, turn| ours(runtime, long, crowd, turn, true), &|crowd, turn| {
            ours(runtime, short, crowd, turn, true)
        }],
    )?;
    let what = format!("{engine} append_if, cost of an event in the long log: {writers} x 1");
    let row = Row::new(what, "us", 1e6 / long).beside("with 1000", 1e6 / short);
    report.rows.push(row.promised(Promise::RatioAtMost(1.5)));
    Ok(())
}
