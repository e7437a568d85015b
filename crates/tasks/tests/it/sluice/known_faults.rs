//! Faults known from elsewhere, one test each: here they must not happen.

use std::sync::Arc;

use sluicegate_tasks::{Class, Context, Entry, Refusal};
use tokio::sync::Barrier;
use tokio::time::Instant;

use super::{ROOM, enter};
use crate::probe::{ByHand, Count, Delivery, Tally, ms, settle};

/// 001: a slot stayed taken when a request went away while it waited or ran.
#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_at_any_point_leaves_no_slot_taken() {
    let sluice = super::sluice(2, ROOM);
    let mut requests = Vec::new();
    for leaves_at in 0..60 {
        let cx = Context::new().with_timeout(ms(1 + leaves_at % 20));
        let entry = Entry::of("chat").key(format!("session-{}", leaves_at % 3));
        let request = enter(&sluice, &cx, entry, ()).unwrap();
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
    let gauges = sluice.stats().gauges;
    assert_eq!((gauges.running, gauges.queued), (0, 0));
    assert_eq!(sluice.running(), []);
}

/// 001: two processes wrote one session file at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_session_is_never_run_twice_at_once() {
    let sluice = super::sluice(8, ROOM);
    let writers = Arc::<Count>::default();
    let sessions: Vec<_> = (0..100)
        .map(|_| {
            let (sluice, writers) = (sluice.clone(), Arc::clone(&writers));
            tokio::spawn(async move {
                let entry = Entry::of("chat").key("session-7");
                let turn = enter(&sluice, &Context::new(), entry, ()).unwrap().turn();
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
    let sluice = super::sluice(1, ROOM);
    for delay in [5, 1000, 47_000] {
        let admitted = enter(&sluice, &Context::new(), Entry::of("shop").key("k"), ()).unwrap();
        let turn = admitted.turn().await.unwrap();
        let begun = Instant::now();
        turn.wait_again(begun + ms(delay)).turn().await.unwrap().finish();
        assert_eq!(begun.elapsed(), ms(delay));
    }
}

/// 002: a group's queue was removed by its idle thread while a submitter held it; the message never
/// ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_goes_idle_as_an_item_arrives_runs_it() {
    let sluice = super::sluice(4, ROOM);
    for _ in 0..500 {
        let start = Arc::new(Barrier::new(2));
        let both = [(); 2].map(|()| {
            let (sluice, start) = (sluice.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                let entry = Entry::of("shop").key("order-1");
                let admitted = enter(&sluice, &Context::new(), entry, ()).unwrap();
                admitted.turn().await.unwrap().finish();
            })
        });
        for one in both {
            one.await.unwrap();
        }
    }
    assert_eq!(sluice.stats().completed, 1000);
}

/// 002: a drain cleared the queues and left the messages tracked: redeliveries were refused as
/// duplicates for ever.
#[tokio::test(start_paused = true)]
async fn a_drain_leaves_nothing_tracked() {
    let tally = Arc::<Tally>::default();
    let sluice = super::sluice(1, ROOM);
    let entry = || Entry::of("shop").key("order-1");
    let cx = Context::new();
    let runs = enter(&sluice, &cx, entry(), Delivery::of(&tally)).unwrap().turn().await.unwrap();
    let waits = enter(&sluice, &cx, entry(), Delivery::of(&tally)).unwrap();
    let id = waits.id().unwrap();
    let draining = sluice.clone();
    let drain = tokio::spawn(async move { draining.drain(Instant::now() + ms(1000)).await });
    settle().await;
    let refused = waits.turn().await.unwrap_err();
    assert_eq!((refused.why, sluice.why(id)), (Refusal::Draining, None));
    drop(refused.work);
    runs.finish().ack();
    assert!(drain.await.unwrap().is_clean());
    assert_eq!((tally.acked.get(), tally.handed_back.get()), (1, 1));
    assert_eq!(sluice.tenants(), []);
    let gauges = sluice.stats().gauges;
    assert_eq!((gauges.running, gauges.queued), (0, 0));
}

/// 002: high priority did not wake a worker that was parked on the regular queue.
#[tokio::test(start_paused = true)]
async fn high_priority_wakes_whoever_is_parked() {
    let sluice = super::sluice(1, ROOM);
    let admit = |class| {
        let entry = Entry::of("shop").class(class);
        enter(&sluice, &Context::new(), entry, class).unwrap()
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

/// 002: a shutdown interrupted the calls in flight, and then retried them.
#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_calls_in_flight_finish_and_tries_none_again() {
    let sluice = super::sluice(1, ROOM);
    let turn = super::turn_now(&sluice, Entry::of("shop"), ());
    let mut drain = ByHand::new(sluice.drain(Instant::now() + ms(1000)));
    assert!(drain.poll().is_none());
    assert_eq!(turn.context().check(), Ok(()));
    let again = turn.wait_again(Instant::now());
    assert_eq!(again.turn().await.unwrap_err().why, Refusal::Draining);
    assert!(drain.poll().unwrap().is_clean());
}
