//! Drain against many submitters on many threads, round after round.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sluicegate_tasks::{Context, Refusal, TaskGroup};
use tokio::sync::Barrier;
use tokio::time::{Duration, Instant};

use crate::probe::{Count, Guard};

/// What many submitters saw of one group.
#[derive(Default)]
struct Seen {
    over: AtomicBool,
    started_after: Count,
    ran: AtomicU64,
}

/// Submits until it is told that the group drains; returns how many guards it handed in.
async fn submitter(
    group: TaskGroup,
    waits: bool,
    seen: Arc<Seen>,
    held: Arc<Guard>,
    start: Arc<Barrier>,
) {
    start.wait().await;
    let mut tasks = Vec::new();
    loop {
        let (seen, held) = (Arc::clone(&seen), Arc::clone(&held));
        let work = |cx: Context| async move {
            if seen.over.load(Ordering::SeqCst) {
                seen.started_after.add();
            }
            drop(held);
            cx.until_interrupted(tokio::task::yield_now()).await.ok();
        };
        let submitted = if waits {
            group.submit(Context::new(), work).await
        } else {
            group.try_submit(Context::new(), work)
        };
        match submitted {
            Ok(task) => tasks.push(task),
            Err(refused) if refused.why == Refusal::Draining => break,
            Err(_) => tokio::task::yield_now().await,
        }
    }
    for task in tasks {
        match task.await {
            Ok(()) => seen.ran.fetch_add(1, Ordering::SeqCst),
            Err(other) => panic!("{other}"),
        };
    }
}

async fn round(round: u32) {
    let (group, waits) = (TaskGroup::new("orders", 2).unwrap(), round.is_multiple_of(2));
    let (seen, start) = (Arc::<Seen>::default(), Arc::new(Barrier::new(5)));
    let (guard, dropped) = Guard::new();
    let guard = Arc::new(guard);
    let submitters: Vec<_> = (0..4)
        .map(|_| {
            let (seen, held) = (Arc::clone(&seen), Arc::clone(&guard));
            tokio::spawn(submitter(group.clone(), waits, seen, held, Arc::clone(&start)))
        })
        .collect();
    start.wait().await;
    for _ in 0..round % 7 {
        tokio::task::yield_now().await;
    }
    let before = group.stats();
    let report = group.drain(Instant::now() + Duration::from_secs(60)).await;
    seen.over.store(true, Ordering::SeqCst);
    let stats = group.stats();
    assert_eq!(stats.admitted, stats.completed + stats.handed_back, "round {round}");
    assert_eq!(stats.started, stats.completed);
    assert_eq!((report.handed_back, report.is_clean()), (stats.handed_back, true));
    assert!(report.finished <= stats.completed - before.completed);
    for submitter in submitters {
        submitter.await.unwrap();
    }
    let after = group.stats();
    assert_eq!((after.started, after.admitted), (stats.started, stats.admitted), "{round}");
    assert_eq!(seen.started_after.get(), 0, "nothing starts once the drain is over");
    assert_eq!(seen.ran.load(Ordering::SeqCst), after.completed);
    assert_eq!((after.gauges.queued, after.gauges.running, group.running().len()), (0, 0, 0));
    drop(guard);
    assert_eq!(dropped.get(), 1, "round {round}: a closure was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_starts_after_a_drain_and_every_task_ends_exactly_once() {
    for n in 0..400 {
        round(n).await;
    }
}
