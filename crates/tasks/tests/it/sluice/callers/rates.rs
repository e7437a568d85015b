//! Rates: woken at the right moment, in order, by nobody's polling.

use std::time::Duration;

use sluicegate_tasks::{Context, Entry, Rate, Sluice};
use tokio::time::Instant;

use crate::probe::{ms, settle};
use crate::sluice::{ROOM, enter, in_line, turn_now};

/// So many a second, in a bucket so deep.
fn rate(count: u32, burst: u32) -> Rate {
    Rate::new(count, Duration::from_secs(1), burst).unwrap()
}

fn sluice<V: Send + 'static>(rate: Rate) -> Sluice<V> {
    Sluice::builder("sluice", 100, ROOM).rate(rate).build().unwrap()
}

async fn pass(millis: u64) {
    tokio::time::advance(ms(millis)).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn turns_come_at_exactly_the_right_moment_and_in_order() {
    let sluice = sluice(rate(10, 2));
    let begun = Instant::now();
    let mut waits = Vec::new();
    for n in 0..6 {
        let admitted = enter(&sluice, &Context::new(), Entry::of("alice"), n).unwrap();
        waits.push(tokio::spawn(async move {
            let turn = admitted.turn().await.unwrap();
            (turn.finish(), begun.elapsed())
        }));
    }
    for (n, at) in [0, 0, 100, 200, 300, 400].into_iter().enumerate() {
        assert_eq!(waits.remove(0).await.unwrap(), (n, ms(at)));
    }
    pass(10_000).await;
    let begun = Instant::now();
    for at in [0, 0, 100] {
        let admitted = enter(&sluice, &Context::new(), Entry::of("alice"), 0).unwrap();
        admitted.turn().await.unwrap().finish();
        assert_eq!(begun.elapsed(), ms(at), "the bucket is two deep, however long it filled");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_woken_once_and_nobody_polls() {
    let sluice = sluice(rate(1, 1));
    turn_now(&sluice, Entry::of("alice"), ()).finish();
    let mut first = in_line(&sluice, Entry::of("alice"), ());
    let mut second = in_line(&sluice, Entry::of("alice"), ());
    for _ in 0..9 {
        pass(111).await;
        assert_eq!((first.wakes(), second.wakes()), (0, 0));
    }
    pass(1).await;
    assert_eq!((first.wakes(), second.wakes()), (1, 0), "at 1000 ms, and one only");
    assert!(first.poll().unwrap().is_ok());
    pass(999).await;
    assert_eq!(second.wakes(), 0);
    pass(1).await;
    assert_eq!(second.wakes(), 1);
    assert!(second.poll().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_changes_applies_at_once_to_those_who_wait() {
    let sluice = sluice(rate(1, 1));
    turn_now(&sluice, Entry::of("alice"), ()).finish();
    let mut first = in_line(&sluice, Entry::of("alice"), ());
    let mut second = in_line(&sluice, Entry::of("alice"), ());
    pass(500).await;
    // Half a token is there; at ten a second the other half takes 50 ms.
    sluice.set_rate(Some(rate(10, 1)));
    pass(49).await;
    assert_eq!(first.wakes(), 0);
    pass(1).await;
    assert_eq!((first.wakes(), second.wakes()), (1, 0), "sooner");
    assert!(first.poll().unwrap().is_ok());
    sluice.set_rate(Some(rate(1, 1)));
    pass(999).await;
    assert_eq!(second.wakes(), 0, "later");
    pass(1).await;
    assert_eq!(second.wakes(), 1);
    assert!(second.poll().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_is_removed_lets_all_go_and_one_that_is_added_holds_them() {
    let sluice = sluice(rate(1, 1));
    turn_now(&sluice, Entry::of("alice"), ()).finish();
    let mut line: Vec<_> = (0..3).map(|_| in_line(&sluice, Entry::of("alice"), ())).collect();
    sluice.set_rate(None);
    assert!(line.iter_mut().all(|next| next.wakes() == 1 && next.poll().unwrap().is_ok()));

    sluice.resize(1, ROOM).unwrap();
    let held = turn_now(&sluice, Entry::of("alice"), ());
    let mut line = [(); 2].map(|()| in_line(&sluice, Entry::of("alice"), ()));
    sluice.set_rate(Some(rate(1, 1)));
    held.finish();
    assert!(line[0].poll().unwrap().is_ok(), "a new bucket is full");
    assert!(line[1].poll().is_none(), "and then empty");
    pass(1000).await;
    assert!(line[1].poll().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_dropped_unheard_gives_its_token_to_the_next() {
    let sluice = sluice(rate(1, 1));
    let unheard = enter(&sluice, &Context::new(), Entry::of("alice"), ()).unwrap();
    let mut next = in_line(&sluice, Entry::of("alice"), ());
    drop(unheard);
    assert_eq!(next.wakes(), 1, "at once");
    assert!(next.poll().unwrap().is_ok());
    let mut last = in_line(&sluice, Entry::of("alice"), ());
    pass(999).await;
    assert!(last.poll().is_none(), "that one ran: its token is spent");
    pass(1).await;
    assert!(last.poll().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_turn_refused_at_the_last_look_gives_its_token_to_the_next() {
    let sluice = sluice(rate(1, 1));
    let cx = Context::new();
    let given = enter(&sluice, &cx, Entry::of("alice"), ()).unwrap();
    let mut next = in_line(&sluice, Entry::of("alice"), ());
    cx.cancel();
    assert!(given.turn().await.is_err());
    assert!(next.poll().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_waiting_for_a_token_spends_none() {
    let sluice = sluice(rate(1, 1));
    turn_now(&sluice, Entry::of("alice"), ()).finish();
    let leaves = in_line(&sluice, Entry::of("alice"), ());
    let mut next = in_line(&sluice, Entry::of("alice"), ());
    pass(600).await;
    drop(leaves);
    pass(399).await;
    assert_eq!(next.wakes(), 0);
    pass(1).await;
    assert!(next.poll().unwrap().is_ok(), "in its stead, at the same moment");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_not_spent_by_what_cannot_run_for_another_reason() {
    let sluice = Sluice::builder("sluice", 1, ROOM).rate(rate(1, 1)).build().unwrap();
    let held = turn_now(&sluice, Entry::of("alice"), ());
    let mut next = in_line(&sluice, Entry::of("alice"), ());
    pass(5000).await;
    assert_eq!(next.wakes(), 0);
    held.finish();
    assert!(next.poll().unwrap().is_ok(), "the token was there all the time");
}

#[tokio::test(start_paused = true)]
async fn a_rate_finer_than_the_clock_keeps_its_average() {
    let sluice = sluice(rate(7, 1));
    let begun = Instant::now();
    for _ in 0..71 {
        let admitted = enter(&sluice, &Context::new(), Entry::of("alice"), ()).unwrap();
        admitted.turn().await.unwrap().finish();
    }
    assert_eq!(begun.elapsed().as_secs(), 10, "70 after the first, at 7 a second");
    assert!(begun.elapsed() < ms(10_071), "{:?}", begun.elapsed());
}
