//! Faults known from elsewhere, one test each: here they must not happen.

use std::sync::Arc;

use sluicegate_tasks::{
    AtLimit, Class, Context, Entry, Interrupt, Permits, Refusal, TaskError, TaskGroup, Turnstile,
};
use tokio::sync::Barrier;
use tokio::time::{Duration, Instant};

use crate::probe::{ByHand, Count, ms, settle};

/// A message from a broker: acknowledged once, or handed back when it is dropped.
#[derive(Debug)]
struct Delivery {
    settled: bool,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    acked: Count,
    handed_back: Count,
}

impl Delivery {
    fn of(tally: &Arc<Tally>) -> Self {
        Self { settled: false, tally: Arc::clone(tally) }
    }

    fn ack(mut self) {
        self.settled = true;
        self.tally.acked.add();
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.settled {
            self.tally.handed_back.add();
        }
    }
}

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

/// 001: a slot stayed taken when a request went away while it waited or ran.
#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_at_any_point_leaves_no_slot_taken() {
    let turnstile = Turnstile::new("agents", 2).unwrap();
    let mut requests = Vec::new();
    for leaves_at in 0..60 {
        let cx = Context::new().with_timeout(ms(1 + leaves_at % 20));
        let entry = Entry::of("chat").key(format!("session-{}", leaves_at % 3));
        let request = turnstile.admit(&cx, entry, ()).unwrap();
        let runs = async {
            let turn = request.turn().await.map_err(Refusal::from)?;
            tokio::time::sleep(ms(1)).await;
            turn.finish();
            Ok::<_, Refusal>(())
        };
        requests.push(tokio::spawn(tokio::time::timeout(ms(leaves_at % 13), runs)));
    }
    let mut ends = [0; 3];
    for request in requests {
        match request.await.unwrap() {
            Ok(Ok(())) => ends[0] += 1,
            Ok(Err(_)) => ends[1] += 1,
            Err(_) => ends[2] += 1,
        }
    }
    assert!(ends.iter().all(|count| *count > 0), "all three happen: {ends:?}");
    let gauges = turnstile.stats().gauges;
    assert_eq!((gauges.running, gauges.queued), (0, 0));
    assert_eq!(turnstile.running(), []);
}

/// 001: two processes wrote one session file at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_session_is_never_run_twice_at_once() {
    let turnstile = Turnstile::new("agents", 8).unwrap();
    let writers = Arc::<Count>::default();
    let sessions: Vec<_> = (0..100)
        .map(|_| {
            let (turnstile, writers) = (turnstile.clone(), Arc::clone(&writers));
            tokio::spawn(async move {
                let entry = Entry::of("chat").key("session-7");
                let turn = turnstile.admit(&Context::new(), entry, ()).unwrap().turn();
                let turn = turn.await.unwrap();
                assert_eq!(writers.add(), 1);
                tokio::task::yield_now().await;
                writers.sub();
                turn.finish();
            })
        })
        .collect();
    for session in sessions {
        session.await.unwrap();
    }
}

/// 002: every retry came after 30 s, whatever delay was computed: a second answer overwrote it.
#[tokio::test(start_paused = true)]
async fn a_retry_comes_after_the_delay_it_was_given() {
    let turnstile = Turnstile::new("router", 1).unwrap();
    for delay in [5, 1000, 47_000] {
        let admitted = turnstile.admit(&Context::new(), Entry::of("shop").key("k"), ()).unwrap();
        let turn = admitted.turn().await.unwrap();
        let begun = Instant::now();
        turn.retry_at(begun + ms(delay)).turn().await.unwrap().finish();
        assert_eq!(begun.elapsed(), ms(delay));
    }
}

/// 002: a group's queue was removed by its idle thread while a submitter held it; the message never
/// ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_goes_idle_as_an_item_arrives_runs_it() {
    let turnstile = Turnstile::new("router", 4).unwrap();
    for _ in 0..500 {
        let start = Arc::new(Barrier::new(2));
        let both = [(); 2].map(|()| {
            let (turnstile, start) = (turnstile.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                let entry = Entry::of("shop").key("order-1");
                let admitted = turnstile.admit(&Context::new(), entry, ()).unwrap();
                admitted.turn().await.unwrap().finish();
            })
        });
        for one in both {
            one.await.unwrap();
        }
    }
    assert_eq!(turnstile.stats().completed, 1000);
}

/// 002: a drain cleared the queues and left the messages tracked: redeliveries were refused as
/// duplicates for ever.
#[tokio::test(start_paused = true)]
async fn a_drain_leaves_nothing_tracked() {
    let tally = Arc::<Tally>::default();
    let turnstile = Turnstile::new("router", 1).unwrap();
    let entry = || Entry::of("shop").key("order-1");
    let cx = Context::new();
    let runs = turnstile.admit(&cx, entry(), Delivery::of(&tally)).unwrap().turn().await.unwrap();
    let waits = turnstile.admit(&cx, entry(), Delivery::of(&tally)).unwrap();
    let id = waits.id().unwrap();
    let draining = turnstile.clone();
    let drain = tokio::spawn(async move { draining.drain(Instant::now() + ms(1000)).await });
    settle().await;
    let refused = waits.turn().await.unwrap_err();
    assert_eq!((refused.why, turnstile.why(id)), (Refusal::Draining, None));
    drop(refused.work);
    runs.finish().ack();
    assert!(drain.await.unwrap().is_clean());
    assert_eq!((tally.acked.get(), tally.handed_back.get()), (1, 1));
    assert_eq!(turnstile.tenants(), []);
    let gauges = turnstile.stats().gauges;
    assert_eq!((gauges.running, gauges.queued), (0, 0));
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

    let turnstile = Turnstile::new("router", 1).unwrap();
    let admitted = turnstile.admit(&Context::new(), Entry::of("shop"), ()).unwrap();
    let turn = admitted.turn().await.unwrap();
    let mut drain = ByHand::new(turnstile.drain(Instant::now() + ms(1000)));
    assert!(drain.poll().is_none());
    assert_eq!(turn.context().check(), Ok(()));
    let again = turn.retry_at(Instant::now());
    assert_eq!(again.turn().await.unwrap_err().why, Refusal::Draining);
    assert!(drain.poll().unwrap().is_clean());
}

/// 002: high priority did not wake a worker that was parked on the regular queue.
#[tokio::test(start_paused = true)]
async fn high_priority_wakes_whoever_is_parked() {
    let turnstile = Turnstile::new("router", 1).unwrap();
    let admit = |class| {
        let entry = Entry::of("shop").class(class);
        turnstile.admit(&Context::new(), entry, class).unwrap()
    };
    let held = admit(Class::Normal).turn().await.unwrap();
    let parked = admit(Class::Normal);
    let parked = tokio::spawn(async move { parked.turn().await.map(|turn| turn.finish()) });
    settle().await;
    let urgent = admit(Class::System);
    let urgent = tokio::spawn(async move {
        let turn = urgent.turn().await.unwrap();
        tokio::time::sleep(ms(5)).await;
        turn.finish()
    });
    settle().await;
    let begun = Instant::now();
    held.finish();
    assert_eq!(urgent.await.unwrap(), Class::System);
    assert_eq!(begun.elapsed(), ms(5), "first, and at once");
    assert_eq!(parked.await.unwrap().unwrap(), Class::Normal);
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
