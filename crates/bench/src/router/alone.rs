//! The router with nothing at its ends: what it costs by itself, and what it costs idle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_dispatch::{PoolSettings, Source};
use tokio::runtime::{Builder, Runtime};

use super::Scene;
use super::rig::{File, Rig, VISIBILITY, batch, publication};
use super::sample::POOL;
use super::stock::Stock;
use crate::child::{cpu_time, figures, number};
use crate::probe::Probe;
use crate::report::{Promise, Report, Row};
use crate::timing::median;

const GROUPS: u64 = 10_000;
const URL: &str = "http://hooks.example.com/v1/orders/created?source=shop-00001";

/// All of it.
pub(super) fn run(report: &mut Report, scene: &Scene, quick: bool) -> Result<(), String> {
    eprintln!("the router by itself …");
    overhead(report, quick);
    eprintln!("publishing …");
    publishing(report, scene, quick);
    let seconds: u32 = if quick { 1 } else { 10 };
    eprintln!("idle for {seconds} s …");
    let [percent] = figures(&["idle".to_owned(), seconds.to_string()])?;
    let what = format!("idle for {seconds} s: SQLite queue, 10 pools");
    report.rows.push(Row::new(what, "% of a core", percent).promised(Promise::AtMost(1.0)));
    Ok(())
}

fn overhead(report: &mut Report, quick: bool) {
    let threads = [
        ("one thread", Builder::new_current_thread().enable_all().build()),
        ("two threads", Builder::new_multi_thread().worker_threads(2).enable_all().build()),
    ];
    let mut of_one = None;
    for (name, runtime) in threads {
        let runtime = runtime.expect("a runtime");
        let (rig, stock) = memory(&runtime);
        let (rounds, count) = if quick { (3, 5_000) } else { (21, 20_000) };
        let mut first = 0;
        let nanos = median(rounds, count, || {
            let messages = batch(first, u64::from(count), GROUPS, URL);
            first += u64::from(count);
            runtime.block_on(rig.memory(&stock, messages))
        });
        let what = format!("receive to settle, nothing to do, {name}");
        let row = Row::new(what, "ns", nanos);
        report.rows.push(match of_one.replace(nanos) {
            None => row,
            Some(one) => row.beside("one thread", one).promised(Promise::RatioAtMost(1.0)),
        });
    }
    match Probe::RouterNoOp.instructions() {
        Err(why) => eprintln!("skipped: {why}"),
        Ok(count) => {
            report.rows.push(Row::new("receive to settle, nothing to do", "instr", count));
        }
    }
}

fn memory(runtime: &Runtime) -> (Rig, Arc<Stock>) {
    let stock = Arc::new(Stock::default());
    let rig = runtime.block_on(async {
        let rig = Rig::in_process().pool(PoolSettings::new(POOL, 64));
        rig.queue("memory", Arc::clone(&stock) as _).await;
        rig
    });
    (rig, stock)
}

/// How many messages are counted under callgrind.
pub(crate) const COUNTED: u64 = 10_000;

/// Under callgrind: messages through a router to an executor that does nothing.
pub(crate) fn no_op() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (rig, stock) = memory(&runtime);
    runtime.block_on(rig.memory(&stock, batch(0, COUNTED, GROUPS, URL)));
    let messages = batch(COUNTED, COUNTED, GROUPS, URL);
    router_no_op(|| runtime.block_on(rig.memory(&stock, messages)));
}

#[inline(never)]
fn router_no_op(work: impl FnOnce() -> Duration) {
    std::hint::black_box(work());
}

fn publishing(report: &mut Report, scene: &Scene, quick: bool) {
    let calls: u32 = if quick { 50 } else { 500 };
    for (callers, per_call) in [(1, 1), (1, 100), (8, 1)] {
        let file = scene.runtime.block_on(File::new());
        let rounds = if quick { 3 } else { 11 };
        let nanos = median(rounds, calls * per_call, || {
            scene.runtime.block_on(publish(scene, &file, callers, calls, per_call))
        });
        let what = format!("published into SQLite, {callers} at once, {per_call} a call");
        report.rows.push(Row::new(what, "/s", 1e9 / nanos));
    }
}

/// So many calls by so many callers together.
async fn publish(scene: &Scene, file: &File, callers: u32, calls: u32, per_call: u32) -> Duration {
    let source = file.store.queue("published", VISIBILITY).await.expect("it can be used");
    let source = Arc::new(source);
    let per_call = u64::from(per_call);
    let mut parts = Vec::new();
    for caller in 0..callers {
        let calls = u64::from(calls / callers + u32::from(caller < calls % callers));
        let messages = batch(scene.number(calls * per_call), calls * per_call, GROUPS, URL);
        let lots: Vec<Vec<_>> = messages
            .chunks(per_call as usize)
            .map(|lot| lot.iter().map(publication).collect())
            .collect();
        parts.push(lots);
    }
    let begun = Instant::now();
    let callers: Vec<_> = parts
        .into_iter()
        .map(|lots| {
            let source = Arc::clone(&source);
            tokio::spawn(async move {
                for lot in lots {
                    source.publish(lot).await.expect("the file takes messages");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no call panics");
    }
    begun.elapsed()
}

/// In a process of its own: says the part of a core that a router takes while nothing happens.
pub(crate) fn idle(words: &[String]) -> Result<(), String> {
    let seconds = number(words, 0)?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let file = File::new().await;
        let mut rig = Rig::over_http();
        for pool in 0..10 {
            rig = rig.pool(PoolSettings::new(format!("POOL-{pool}"), 32));
        }
        let source = file.store.queue("idle", VISIBILITY).await.map_err(|e| e.to_string())?;
        rig.queue("idle", Arc::new(source)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (begun, before) = (Instant::now(), cpu_time("self")?);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let used = cpu_time("self")? - before;
        println!("{}", 100.0 * used / begun.elapsed().as_nanos() as f64);
        rig.stop().await;
        Ok(())
    })
}
