//! Queue timeouts: to the moment, counted as what they are, told to whom the item belongs.
//!
//! `docs/rules.md#sluice-8`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use allocation_counter::measure;
use sluicegate_tasks::{Context, Entry, Refusal, Sluice, Stats};
use tokio::time::Instant;

use super::{batch, cart, enter, gauges, in_line, pull, turn_now};
use crate::probe::{ByHand, ms, settle};

const LIMIT: Duration = ms(100);
const TIMED_OUT: Refusal = Refusal::QueueTimeout { after: LIMIT };

type Values = Arc<Mutex<Vec<(u32, Duration)>>>;

/// One in which items wait for 100 ms, and what became of its values, and when.
fn sluice(concurrency: u32) -> (Sluice<u32>, Values) {
    let (values, begun) = (Values::default(), Instant::now());
    let kept = Arc::clone(&values);
    let builder = Sluice::builder("sluice", concurrency, 100).queue_timeout(LIMIT);
    let builder = builder.on_dropped(move |value| {
        kept.lock().unwrap().push((value, begun.elapsed()));
    });
    (builder.build().unwrap(), values)
}

async fn pass(millis: u64) {
    tokio::time::advance(ms(millis)).await;
    settle().await;
}

/// Queue timeouts, cancelled, timed out, handed back, completed.
fn counts(stats: &Stats) -> [u64; 5] {
    let Stats { queue_timeouts, cancelled, timed_out, handed_back, completed, .. } = stats;
    [*queue_timeouts, *cancelled, *timed_out, *handed_back, *completed]
}

#[tokio::test(start_paused = true)]
async fn values_leave_at_the_moment_and_go_to_their_owner() {
    let (sluice, values) = sluice(1);
    let first = sluice.admit(cart(), 1).unwrap();
    pass(60).await;
    sluice.admit(cart(), 2).unwrap();
    pass(39).await;
    assert_eq!((gauges(&sluice), values.lock().unwrap().len()), ((2, 0), 0));
    pass(1).await;
    assert_eq!((gauges(&sluice), sluice.why(first)), ((1, 0), None));
    pass(60).await;
    assert_eq!(*values.lock().unwrap(), [(1, ms(100)), (2, ms(160))]);
    assert_eq!((counts(&sluice.stats()), gauges(&sluice)), ([2, 0, 0, 0, 0], (0, 0)));
    assert!(sluice.tenants().is_empty());
}

#[tokio::test(start_paused = true)]
async fn callers_are_woken_at_the_moment_and_keep_their_value() {
    let (sluice, values) = sluice(1);
    let held = turn_now(&sluice, cart(), 0);
    let mut waits = in_line(&sluice, cart(), 1);
    let idle = enter(&sluice, &Context::new(), cart(), 2).unwrap();
    pass(99).await;
    assert_eq!(waits.wakes(), 0);
    pass(1).await;
    assert_eq!(waits.wakes(), 1);
    let refused = waits.poll().unwrap().unwrap_err();
    assert_eq!((refused.why.clone(), refused.work), (TIMED_OUT, 1));
    assert_eq!((refused.why.label(), gauges(&sluice)), ("queue_timeout", (0, 1)));
    drop(idle);
    assert_eq!(counts(&sluice.stats()), [2, 0, 0, 0, 0], "once, awaited or not");
    assert_eq!((held.finish(), values.lock().unwrap().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_started_or_is_tried_again_has_no_such_limit() {
    let (sluice, values) = sluice(3);
    let begun = Instant::now();
    sluice.admit_all(vec![(cart(), 1), (Entry::of("bob"), 2)]).unwrap();
    let (runs, postponed) = (pull(&sluice), pull(&sluice));
    let again = turn_now(&sluice, Entry::of("carol"), 3).wait_again(begun + ms(500));
    postponed.postpone(begun + ms(300)).unwrap();
    pass(250).await;
    let blocked = runs.retry_at(None).unwrap();
    pass(100).await;
    assert_eq!((gauges(&sluice), counts(&sluice.stats())[0]), ((3, 0), 0));
    assert_eq!(pull(&sluice).finish(), 2);
    assert_eq!(again.turn().await.unwrap().finish(), 3);
    assert_eq!(begun.elapsed(), ms(500));
    assert!(sluice.release(blocked));
    pass(1_000).await;
    assert_eq!(pull(&sluice).finish(), 1);
    assert!(values.lock().unwrap().is_empty());
}

/// The clock is what counts, not when somebody gets round to look at it.
#[tokio::test(start_paused = true)]
async fn what_waited_too_long_does_not_start_though_the_timer_is_late() {
    let (sluice, values) = sluice(1);
    let turn = turn_now(&sluice, Entry::of("bob"), 0);
    sluice.admit(cart(), 1).unwrap();
    let mut caller = in_line(&sluice, cart(), 2);
    // Without letting anybody else run.
    let mut clock = ByHand::new(tokio::time::advance(ms(100)));
    assert!(clock.poll().is_none());
    let (_, next) = turn.finish_and_next();
    assert!(next.is_none() && sluice.try_next().is_none());
    assert_eq!(caller.poll().unwrap().unwrap_err().why, TIMED_OUT);
    assert_eq!((values.lock().unwrap()[0].0, counts(&sluice.stats())[0]), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn whoever_timed_out_before_the_end_is_told_that_and_not_the_end() {
    let (sluice, _) = sluice(1);
    let _held = turn_now(&sluice, cart(), 0);
    let mut waits = in_line(&sluice, cart(), 1);
    pass(50).await;
    let late = enter(&sluice, &Context::new(), cart(), 2).unwrap();
    pass(50).await;
    assert!(sluice.close().is_empty());
    assert_eq!(waits.poll().unwrap().unwrap_err().why, TIMED_OUT);
    assert_eq!(late.turn().await.unwrap_err().why, Refusal::Draining);
    assert_eq!(counts(&sluice.stats()), [1, 0, 0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_when_its_head_has_waited_too_long() {
    let (sluice, _) = sluice(1);
    let held = turn_now(&sluice, Entry::of("bob"), 0);
    sluice.admit(cart(), 1).unwrap();
    pass(50).await;
    let mut second = in_line(&sluice, cart(), 2);
    held.finish();
    assert!(second.poll().is_none(), "the head waits for a worker");
    pass(50).await;
    assert_eq!((second.wakes(), second.poll().unwrap().unwrap().finish()), (1, 2));
}

/// The room of what has left is there for those who wait for it.
#[tokio::test(start_paused = true)]
async fn whoever_waits_for_room_gets_it() {
    let (sluice, _) = sluice(1);
    sluice.admit_all(batch(cart, 0..100)).unwrap();
    let mut room = ByHand::new(sluice.room_for(1));
    assert!(room.poll().is_none());
    pass(100).await;
    assert!(room.wakes() == 1 && room.poll().is_some());
}

/// What is over leaves the list of moments, long before its moment.
#[tokio::test(start_paused = true)]
async fn a_million_that_pass_quickly_are_not_remembered() {
    let (sluice, _) = sluice(4);
    sluice.admit_all(batch(cart, 0..4)).unwrap();
    let tenant: Arc<str> = "alice".into();
    let passing = measure(|| {
        for n in 0..1_000_000 {
            assert!(sluice.admit(Entry::of(Arc::clone(&tenant)), n).is_ok());
            pull(&sluice).finish();
        }
    });
    assert!(passing.bytes_max < 10_000, "{} bytes", passing.bytes_max);
    let stats = sluice.stats();
    assert_eq!((counts(&stats), gauges(&sluice)), ([0, 0, 0, 0, 1_000_000], (4, 0)));
    pass(100).await;
    assert_eq!(counts(&sluice.stats())[0], 4);
}
