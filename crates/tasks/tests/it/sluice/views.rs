//! Looking in: what waits and why, by class, and how long things took within the last minute.
//!
//! `docs/rules.md#schedule-6`, `docs/rules.md#count-1`.

use sluicegate_tasks::{Class, Context, Entry, Sluice, Why};
use tokio::time::Instant;

use super::{cart, enter, pull, sluice, turn_now};
use crate::probe::ms;

#[tokio::test(start_paused = true)]
async fn what_waits_is_listed_with_whose_it_is_how_long_and_why() {
    let sluice = sluice(1, 10);
    let begun = Instant::now();
    let held = turn_now(&sluice, Entry::of("carol").key("c"), 0);
    let low = sluice.admit(Entry::of("alice").class(Class::Low), 1).unwrap();
    tokio::time::advance(ms(30)).await;
    let caller = enter(&sluice, &Context::new(), Entry::of("bob").key("c"), 2).unwrap();
    held.finish();
    let head = caller.id().unwrap();
    let turn = caller.turn().await.unwrap();
    sluice.admit(cart().class(Class::System), 3).unwrap();
    let again = turn.wait_again(begun + ms(500));
    let waiting = sluice.waiting(10);
    let seen: Vec<_> = waiting
        .iter()
        .map(|item| (&*item.tenant, item.key.as_deref(), item.class, item.waited, item.again))
        .collect();
    assert_eq!(
        seen,
        [
            ("alice", None, Class::Low, ms(30), false),
            ("alice", Some("cart"), Class::System, ms(0), false),
            ("bob", Some("c"), Class::Normal, ms(0), true),
        ]
    );
    assert_eq!((waiting[0].id, waiting[0].why.why), (low, Why::NoWorker));
    let retrying = &waiting[2].why;
    assert!(matches!(retrying.why, Why::KeyRetrying { head: first, .. } if first == head));
    assert_eq!((waiting[2].id, retrying.until), (head, Some(begun + ms(500))));
    assert_eq!((sluice.waiting(2).len(), sluice.waiting(0).len()), (2, 0));
    assert_eq!(sluice.queued_by_class(), [1, 0, 1, 1]);
    drop(again);
    assert_eq!(sluice.queued_by_class(), [1, 0, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_listed_longest_first() {
    let sluice = sluice(9, 10);
    let _first = turn_now(&sluice, Entry::of("alice"), 1);
    tokio::time::advance(ms(30)).await;
    sluice.admit(Entry::of("bob").key("k"), 2).unwrap();
    let second = pull(&sluice);
    tokio::time::advance(ms(5)).await;
    let running = sluice.running();
    let seen: Vec<_> = running.iter().map(|one| (&*one.name, one.running_for)).collect();
    assert_eq!(seen, [("alice", ms(35)), ("bob/k", ms(5))]);
    second.finish();
    assert_eq!(sluice.running().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn times_of_the_last_minute_are_kept_where_asked_for() {
    assert!(sluice::<u32>(1, 10).recent_times().is_none());
    let sluice = Sluice::builder("sluice", 1, 10).recent_times().build().unwrap();
    let run = async |waits: u64, runs: u64| {
        sluice.admit(cart(), 1).unwrap();
        tokio::time::advance(ms(waits)).await;
        let turn = pull(&sluice);
        tokio::time::advance(ms(runs)).await;
        turn.finish();
    };
    run(2_000, 300).await;
    let recent = || sluice.recent_times().unwrap();
    assert_eq!((recent().wait_time.sum(), recent().run_time.sum()), (ms(2_000), ms(300)));
    tokio::time::advance(ms(57_000)).await;
    run(10, 20).await;
    assert_eq!((recent().wait_time.count(), recent().run_time.count()), (2, 2));
    tokio::time::advance(ms(10_000)).await;
    assert_eq!((recent().wait_time.sum(), recent().run_time.sum()), (ms(10), ms(20)));
    tokio::time::advance(ms(65_000)).await;
    assert_eq!((recent().wait_time.count(), recent().run_time.count()), (0, 0));
    assert_eq!(sluice.stats().run_time.count(), 2, "all of them are in the whole");
    // A turn that was dropped is not done, so it has no run time.
    sluice.admit(cart(), 1).unwrap();
    drop(pull(&sluice));
    assert_eq!((recent().wait_time.count(), recent().run_time.count()), (1, 0));
}
