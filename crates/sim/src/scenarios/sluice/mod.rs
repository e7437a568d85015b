//! The kernel's queue as its users see it: callers that wait, workers that pull, both on one sluice,
//! on one thread and in simulated time.
//!
//! Items come one by one and in batches; their turns are finished, failed, dropped, retried, postponed
//! and kept by their keys; whoever waits gives up at any moment; limits, rates and tenants change, and
//! starting is paused; at the end all is drained.
//!
//! | file | is |
//! |---|---|
//! | `actors` | callers, workers, and whoever changes the sluice |
//! | `watch` | what must not be, from what the actors saw and nothing else |

mod actors;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_tasks::{Overload, Rate, Sluice, SluiceBuilder, TaskGroup, TenantLimits};
use tokio::time::{Instant, sleep};

use crate::oracles::Broken;
use crate::rng::Rng;
use crate::scenarios::Report;
use crate::trace::Trace;
use watch::Watch;

/// What waits in the sluice: the item's number.
type Item = u64;

/// Runs the scenario.
///
/// # Errors
/// What was seen and must not be.
pub fn run(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can always be built");
    let kept = std::mem::take(trace);
    let (kept, result) = runtime.block_on(drive(Rng::new(seed), kept));
    *trace = kept;
    result
}

fn settings(rng: &mut Rng, watch: &Arc<Watch>) -> SluiceBuilder<Item> {
    let (concurrency, capacity) = (rng.between_u32(1, 6), rng.between_u32(4, 40));
    let overload = match rng.between(1, 10) {
        1..=4 => Overload::Queue,
        5..=6 => Overload::HandBack { retry_after: Duration::from_secs(1) },
        7..=9 => Overload::Wait,
        _ => Overload::FailFast,
    };
    watch.limit(concurrency, capacity);
    let dropped = Arc::clone(watch);
    let mut builder = Sluice::builder("sim", concurrency, capacity)
        .overload(overload)
        .on_dropped(move |item| dropped.came_back(item))
        .recent_times();
    if rng.percent(30) {
        builder = builder.queue_timeout(Duration::from_millis(rng.between(20, 400)));
    }
    if rng.percent(30) {
        let rate = Rate::sliding(rng.between_u32(1, 20), Duration::from_millis(100));
        builder = builder.rate(rate.expect("a sound rate"));
    }
    if rng.percent(30) {
        builder = builder.each_tenant(TenantLimits::new().max_running(rng.between_u32(1, 3)));
    }
    builder
}

async fn drive(mut rng: Rng, trace: Trace) -> (Trace, Result<Report, Broken>) {
    let watch = Arc::new(Watch::new(trace));
    let sluice = settings(&mut rng, &watch).build().expect("sound settings");
    let group = TaskGroup::new("actors", 10_000).expect("a limit");
    let workers = rng.between(1, 8);
    for n in 0..workers {
        let worker = actors::Actor::new(&sluice, &watch, rng.any());
        group.submit_detached(format!("worker {n}"), |cx| worker.work(cx)).await.ok();
    }
    for n in 0..rng.between(20, 120) {
        let caller = actors::Actor::new(&sluice, &watch, rng.any());
        let after = Duration::from_millis(rng.between(0, 1_000));
        if rng.percent(50) {
            group
                .submit_detached(format!("caller {n}"), move |cx| caller.call(cx, after))
                .await
                .ok();
        } else {
            group
                .submit_detached(format!("feeder {n}"), move |cx| caller.feed(cx, after))
                .await
                .ok();
        }
    }
    let changer = actors::Actor::new(&sluice, &watch, rng.any());
    group.submit_detached("changer", |cx| changer.change(cx)).await.ok();
    // Some are drained while they are busy, some when nearly all has ended.
    sleep(Duration::from_millis(if rng.percent(50) { 700 } else { 30_000 })).await;
    watch.note("drain");
    let report = sluice.drain(Instant::now() + Duration::from_millis(500)).await;
    watch.drained(&report);
    let ended = group.drain(Instant::now() + Duration::from_secs(60)).await;
    let result = watch.end(&sluice.stats(), &ended);
    (watch.take_trace(), result)
}
