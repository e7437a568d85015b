//! Why an item is not running yet, and until when.

use std::time::Duration;

use sluicegate_tasks::{Context, Entry, Rate, TenantLimits, Turnstile, Why};
use tokio::time::Instant;

use super::{turn_now, turnstile};
use crate::probe::ms;

#[tokio::test(start_paused = true)]
async fn it_runs() {
    let turnstile = turnstile(1);
    let given = turnstile.admit(&Context::new(), Entry::of("alice"), ()).unwrap();
    let id = given.id().unwrap();
    assert_eq!(turnstile.why(id).unwrap().why, Why::Running);
    drop(given);
    assert_eq!(turnstile.why(id), None, "it neither waits nor runs");
}

#[tokio::test(start_paused = true)]
async fn everything_that_may_run_does() {
    let turnstile = turnstile(2);
    let _held = [(); 2].map(|()| turn_now(&turnstile, Entry::of("alice"), ()));
    let waits = turnstile.admit(&Context::new(), Entry::of("alice"), ()).unwrap();
    let why = turnstile.why(waits.id().unwrap()).unwrap();
    assert_eq!((why.why, why.until), (Why::AtLimit { running: 2, limit: 2 }, None));
}

#[tokio::test(start_paused = true)]
async fn its_tenant_runs_as_many_as_it_may() {
    let each = TenantLimits::new().max_running(1);
    let turnstile = Turnstile::builder("turnstile", 9).each_tenant(each).build().unwrap();
    let _held = turn_now(&turnstile, Entry::of("alice"), ());
    let waits = turnstile.admit(&Context::new(), Entry::of("alice"), ()).unwrap();
    let why = turnstile.why(waits.id().unwrap()).unwrap();
    assert_eq!((why.why, why.until), (Why::TenantAtLimit { running: 1, max: 1 }, None));
}

#[tokio::test(start_paused = true)]
async fn another_of_its_key_goes_first() {
    let turnstile = turnstile(9);
    let entry = || Entry::of("alice").key("k");
    let first = turnstile.admit(&Context::new(), entry(), ()).unwrap();
    let head = first.id().unwrap();
    let second = turnstile.admit(&Context::new(), entry(), ()).unwrap();
    let why = turnstile.why(second.id().unwrap()).unwrap();
    assert_eq!((why.why, why.until), (Why::KeyBusy { head }, None));
}

#[tokio::test(start_paused = true)]
async fn its_key_is_tried_again_later() {
    let turnstile = turnstile(9);
    let entry = || Entry::of("alice").key("k");
    let at = Instant::now() + ms(750);
    let again = turn_now(&turnstile, entry(), ()).retry_at(at);
    let head = again.id().unwrap();
    let behind = turnstile.admit(&Context::new(), entry(), ()).unwrap();
    for id in [head, behind.id().unwrap()] {
        let why = turnstile.why(id).unwrap();
        assert!(matches!(why.why, Why::KeyRetrying { head: first, .. } if first == head));
        assert_eq!(why.until, Some(at));
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_no_token() {
    let rate = Rate::new(2, Duration::from_secs(1), 1).unwrap();
    let turnstile = Turnstile::builder("turnstile", 9).rate(rate).build().unwrap();
    let _held = turn_now(&turnstile, Entry::of("alice"), ());
    let waits = turnstile.admit(&Context::new(), Entry::of("alice"), ()).unwrap();
    let until = Instant::now() + ms(500);
    tokio::time::advance(ms(100)).await;
    let why = turnstile.why(waits.id().unwrap()).unwrap();
    assert!(matches!(why.why, Why::RateLimited { .. }));
    assert_eq!(why.until, Some(until));
    drop(waits.turn().await.unwrap());
    assert_eq!(Instant::now(), until, "and so it was");
}
