//! Why an item is not running yet, and until when.

use std::time::Duration;

use sluicegate_tasks::{Context, Entry, Rate, Sluice, TenantLimits, Why};
use tokio::time::Instant;

use super::sluice;
use crate::probe::ms;
use crate::sluice::{ROOM, enter, turn_now};

#[tokio::test(start_paused = true)]
async fn it_runs() {
    let sluice = sluice(1);
    let given = enter(&sluice, &Context::new(), Entry::of("alice"), ()).unwrap();
    let id = given.id().unwrap();
    assert_eq!(sluice.why(id).unwrap().why, Why::Running);
    drop(given);
    assert_eq!(sluice.why(id), None, "it neither waits nor runs");
}

#[tokio::test(start_paused = true)]
async fn everything_that_may_run_does() {
    let sluice = sluice(2);
    let _held = [(); 2].map(|()| turn_now(&sluice, Entry::of("alice"), ()));
    let waits = enter(&sluice, &Context::new(), Entry::of("alice"), ()).unwrap();
    let why = sluice.why(waits.id().unwrap()).unwrap();
    assert_eq!((why.why, why.until), (Why::AtLimit { running: 2, limit: 2 }, None));
}

#[tokio::test(start_paused = true)]
async fn its_tenant_runs_as_many_as_it_may() {
    let each = TenantLimits::new().max_running(1);
    let sluice = Sluice::builder("sluice", 9, ROOM).each_tenant(each).build().unwrap();
    let _held = turn_now(&sluice, Entry::of("alice"), ());
    let waits = enter(&sluice, &Context::new(), Entry::of("alice"), ()).unwrap();
    let why = sluice.why(waits.id().unwrap()).unwrap();
    assert_eq!((why.why, why.until), (Why::TenantAtLimit { running: 1, max: 1 }, None));
}

#[tokio::test(start_paused = true)]
async fn another_of_its_key_goes_first() {
    let sluice = sluice(9);
    let entry = || Entry::of("alice").key("k");
    let first = enter(&sluice, &Context::new(), entry(), ()).unwrap();
    let head = first.id().unwrap();
    let second = enter(&sluice, &Context::new(), entry(), ()).unwrap();
    let why = sluice.why(second.id().unwrap()).unwrap();
    assert_eq!((why.why, why.until), (Why::KeyBusy { head }, None));
}

#[tokio::test(start_paused = true)]
async fn its_key_is_tried_again_later() {
    let sluice = sluice(9);
    let entry = || Entry::of("alice").key("k");
    let at = Instant::now() + ms(750);
    let again = turn_now(&sluice, entry(), ()).wait_again(at);
    let head = again.id().unwrap();
    let behind = enter(&sluice, &Context::new(), entry(), ()).unwrap();
    for id in [head, behind.id().unwrap()] {
        let why = sluice.why(id).unwrap();
        assert!(matches!(why.why, Why::KeyRetrying { head: first, .. } if first == head));
        assert_eq!(why.until, Some(at));
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_no_token() {
    let rate = Rate::new(2, Duration::from_secs(1), 1).unwrap();
    let sluice = Sluice::builder("sluice", 9, ROOM).rate(rate).build().unwrap();
    let _held = turn_now(&sluice, Entry::of("alice"), ());
    let waits = enter(&sluice, &Context::new(), Entry::of("alice"), ()).unwrap();
    let until = Instant::now() + ms(500);
    tokio::time::advance(ms(100)).await;
    let why = sluice.why(waits.id().unwrap()).unwrap();
    assert!(matches!(why.why, Why::RateLimited { .. }));
    assert_eq!(why.until, Some(until));
    drop(waits.turn().await.unwrap());
    assert_eq!(Instant::now(), until, "and so it was");
}
