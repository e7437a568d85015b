//! Faults known from elsewhere, one test each: here they must not happen.

use std::sync::Arc;

use sluicegate_tasks::{AtLimit, Context, Interrupt, Permits, Refusal, TaskError, TaskGroup};
use tokio::time::{Duration, Instant};

use crate::probe::{ByHand, Count, Delivery, Tally, ms, settle};

/// 000: workers left on cancellation while the hand-off buffer was full; up to twice as many
/// deliveries as workers were dropped without an answer.
#[tokio::test(start_paused = true)]
async fn workers_that_stop_with_submitters_waiting_answer_for_every_delivery() {
    let group = TaskGroup::new("consumers", 4).unwrap();
    let tally = Arc::<Tally>::default();
    let submitters: Vec<_> = (0..16)
        .map(|n| {
            let (group, delivery) = (group.clone(), Delivery::of(&tally));
            tokio::spawn(async move {
                let work = move |cx: Context| async move {
                    let takes = if n < 2 { ms(1) } else { ms(60_000) };
                    if cx.until_interrupted(tokio::time::sleep(takes)).await.is_ok() {
                        delivery.ack();
                    }
                };
                group.run(Context::new(), work).await
            })
        })
        .collect();
    settle().await;
    let report = group.drain(Instant::now() + ms(50)).await;
    assert!(report.abandoned.is_empty(), "{report}");
    let mut told = 0;
    for submitter in submitters {
        drop(submitter.await.unwrap());
        told += 1;
    }
    assert_eq!(told, 16, "every submitter is told");
    assert_eq!((tally.acked.get(), tally.handed_back.get()), (2, 14), "each exactly once");
}

/// 002: a shutdown interrupted the calls in flight, and then retried them.
#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_calls_in_flight_finish_and_tries_none_again() {
    let group = TaskGroup::new("router", 1).unwrap();
    let calls = Arc::<Count>::default();
    let counted = Arc::clone(&calls);
    let call = group.submit(Context::new(), |cx| async move {
        counted.add();
        cx.until_interrupted(tokio::time::sleep(ms(900))).await
    });
    let call = call.await.unwrap();
    settle().await;
    let report = group.drain(Instant::now() + ms(1000)).await;
    assert_eq!((report.finished, report.took, report.is_clean()), (1, ms(900), true));
    assert_eq!((call.await, calls.get()), (Ok(Ok(())), 1));
}

/// 003: an early error in a stream kept its permit, until the store had none left.
#[tokio::test(start_paused = true)]
async fn early_errors_keep_no_permit() {
    async fn project(permits: &Permits, n: u32) -> Result<u32, AtLimit> {
        let _permit = permits.try_acquire()?;
        let more = permits.try_acquire()?;
        tokio::task::yield_now().await;
        if n.is_multiple_of(3) {
            return Err(AtLimit { limit: n, in_use: n });
        }
        drop(more);
        Ok(n)
    }
    let permits = Permits::new(2).unwrap();
    for n in 0..1000 {
        let mut projection = ByHand::new(project(&permits, n));
        assert!(projection.poll().is_none());
        if !n.is_multiple_of(7) {
            assert!(projection.poll().is_some());
        }
    }
    assert_eq!((permits.in_use(), permits.waiting()), (0, 0));
    assert_eq!(project(&permits, 1).await, Ok(1));
}

/// 004: a panic in a worker was logged and the submitter waited for ever, or never knew.
#[tokio::test(start_paused = true)]
async fn a_submitter_hears_of_the_panic() {
    let group = TaskGroup::new("workers", 1).unwrap();
    let begun = Instant::now();
    let heard = group.run(Context::new().with_timeout(ms(1000)), move |cx| async move {
        cx.deadline().filter(|at| *at < begun).expect("a worker")
    });
    let Err(TaskError::Panicked(panic)) = heard.await else { unreachable!() };
    assert_eq!(panic.message(), "a worker");
}

/// 004: a worker submitted to its own pool and waited; with all workers doing so, none ever ended.
#[tokio::test(start_paused = true)]
async fn a_pool_whose_workers_all_submit_to_it_does_not_wedge() {
    let group = TaskGroup::new("workers", 2).unwrap();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let pool = group.clone();
        let task = group.submit(Context::new(), |cx| async move {
            tokio::task::yield_now().await;
            pool.run(&cx, |cx| async move { cx.check() }).await
        });
        tasks.push(task.await.unwrap());
    }
    for task in tasks {
        let nested = Refusal::Nested { group: "workers".to_owned() };
        assert_eq!(task.await, Ok(Err(TaskError::Refused(nested))));
    }
}

/// 004: a request's own context was replaced on the way into the pool: its end was never seen.
#[tokio::test(start_paused = true)]
async fn a_request_that_ended_is_seen_to_end_inside_the_pool() {
    let group = TaskGroup::new("workers", 1).unwrap();
    let begun = Instant::now();
    let request = Context::new().with_timeout(ms(80));
    let saw = group.run(&request, |cx| async move {
        cx.until_interrupted(tokio::time::sleep(Duration::from_secs(3600))).await
    });
    assert_eq!(saw.await, Ok(Err(Interrupt::TimedOut)));
    assert_eq!(begun.elapsed(), ms(80));
}
