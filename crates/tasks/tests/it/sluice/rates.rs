//! Rates and costs through the sluice: bounded starts, bounded entry, shares by what was measured.
//!
//! `docs/rules.md#rate-3`, `docs/rules.md#rate-4`, `docs/rules.md#schedule-2`.

use std::collections::VecDeque;
use std::time::Duration;

use sluicegate_tasks::{Context, Entry, Overload, Rate, Refusal, Sluice, TenantLimits};
use tokio::time::Instant;

use super::{ROOM, batch, enter, gauges, pull, run_all, sluice};
use crate::probe::ms;

fn alice() -> Entry {
    Entry::of("alice")
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_comes_too_often_is_told_when_to_come_again() {
    let rate = Rate::new(2, Duration::from_secs(1), 2).unwrap();
    let each = TenantLimits::new().admission_rate(rate);
    let sluice = Sluice::builder("sluice", 1, 10).each_tenant(each).build().unwrap();
    let cx = Context::new();
    sluice.admit(alice(), 1).unwrap();
    let second = enter(&sluice, &cx, alice(), 2).unwrap();
    tokio::time::advance(ms(100)).await;
    let too_soon = Refusal::TenantRateLimited { retry_in: ms(400) };
    let refused = sluice.admit(alice(), 3).unwrap_err();
    assert_eq!((refused.why, refused.work), (too_soon.clone(), 3));
    let refused = enter(&sluice, &cx, alice(), 4).unwrap_err();
    assert_eq!((refused.why, refused.work), (too_soon, 4));
    let refused = sluice.admit_all(batch(alice, [5, 6])).unwrap_err();
    assert_eq!((refused.why.label(), refused.work.len()), ("tenant_rate_limited", 2));
    assert!(sluice.admit(Entry::of("bob"), 7).is_ok(), "another's is another");
    assert_eq!(sluice.stats().rejected, [("tenant_rate_limited", 4)]);
    tokio::time::advance(ms(400)).await;
    assert!(sluice.admit(alice(), 8).is_ok(), "and so it was");
    drop(second);
    assert_eq!(gauges(&sluice), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_sliding_rate_bounds_every_span() {
    let rate = Rate::sliding(3, Duration::from_secs(1)).unwrap();
    let sluice = Sluice::builder("sluice", 9, ROOM).rate(rate).build().unwrap();
    let begun = Instant::now();
    let mut starts = VecDeque::new();
    // Callers and workers in turn, and pauses in between.
    for n in 0..40_u64 {
        if n % 7 == 0 {
            tokio::time::advance(ms(n * 37)).await;
        }
        if n % 2 == 0 {
            sluice.turn(&Context::new(), alice(), n).await.unwrap().finish();
        } else {
            sluice.admit(alice(), n).unwrap();
            sluice.next().await.unwrap().finish();
        }
        starts.push_back(begun.elapsed());
        while starts.front().is_some_and(|first| begun.elapsed() - *first >= ms(1000)) {
            starts.pop_front();
        }
        assert!(starts.len() <= 3, "{starts:?}");
    }
}

/// Timers come to the millisecond at best: what is due in between starts with the next.
#[tokio::test(start_paused = true)]
async fn a_rate_above_a_thousand_a_second_is_kept_though_timers_are_coarser() {
    for per_second in [1_500, 3_000, 10_000, 64_000] {
        let rate = Rate::per_second(per_second).unwrap();
        assert_eq!(rate.burst(), 1);
        let sluice = Sluice::builder("sluice", 9, ROOM).rate(rate).build().unwrap();
        let (begun, count) = (Instant::now(), per_second);
        for n in 0..count {
            sluice.turn(&Context::new(), alice(), n).await.unwrap().finish();
        }
        let took = begun.elapsed();
        assert!((ms(990)..ms(1_010)).contains(&took), "{count} callers took {took:?}");
        sluice.set_rate(None);
        sluice.set_rate(Some(rate));
        let begun = Instant::now();
        for n in 0..count {
            sluice.admit(alice(), n).unwrap();
            sluice.next().await.unwrap().finish();
        }
        let took = begun.elapsed();
        assert!((ms(990)..ms(1_010)).contains(&took), "{count} values took {took:?}");
    }
}

#[tokio::test]
async fn it_is_kept_by_a_real_clock_too() {
    let rate = Rate::per_second(4_000).unwrap();
    let sluice = Sluice::builder("sluice", 9, ROOM).rate(rate).build().unwrap();
    let begun = Instant::now();
    for n in 0..1_200 {
        sluice.turn(&Context::new(), alice(), n).await.unwrap().finish();
    }
    let took = begun.elapsed();
    // 300 ms at the rate; with one token a millisecond it would be 1.2 seconds and more.
    assert!((ms(290)..ms(800)).contains(&took), "{took:?}");
}

/// Alice's and bob's shares of the first twelve starts, where hers are measured at so much.
fn share_at(cost: u32) -> (usize, usize) {
    let sluice = sluice(1, 100);
    sluice.admit_all(batch(alice, ["alice"; 40])).unwrap();
    sluice.admit_all(batch(|| Entry::of("bob"), ["bob"; 40])).unwrap();
    let mut came = Vec::new();
    while came.len() < 12 {
        let turn = pull(&sluice);
        let cost = if *turn.value() == "alice" { cost } else { 100 };
        came.push(turn.finish_with_cost(cost));
    }
    let hers = came.iter().filter(|name| **name == "alice").count();
    (hers, came.len() - hers)
}

#[tokio::test(start_paused = true)]
async fn shares_follow_the_costs_that_were_measured() {
    assert_eq!(share_at(100), (6, 6));
    let (hers, his) = share_at(300);
    assert!((2..=4).contains(&hers), "one of hers for three of his: {hers} to {his}");
    let (hers, his) = share_at(50);
    assert!((7..=9).contains(&hers), "two of hers for one of his: {hers} to {his}");
}

#[tokio::test(start_paused = true)]
async fn a_key_is_everybodys_or_a_tenants_own() {
    let sluice = sluice(9, 10);
    let of = |tenant: &str| Entry::of(tenant).key("session-1");
    sluice.admit_all(vec![(of("alice"), 1), (of("bob"), 2)]).unwrap();
    let first = pull(&sluice);
    assert!(sluice.try_next().is_none(), "one name for all");
    first.finish();
    assert_eq!(run_all(&sluice), [2]);
    let own = |tenant: &str| Entry::of(tenant).tenant_key("session-1");
    sluice.admit_all(vec![(own("alice"), 1), (own("bob"), 2), (own("alice"), 3)]).unwrap();
    let out = [pull(&sluice), pull(&sluice)];
    assert!(sluice.try_next().is_none());
    assert_eq!(out.map(|turn| turn.finish()), [1, 2]);
    assert_eq!(run_all(&sluice), [3]);
}

/// `docs/rules.md#rate-4`: what was not let in after all has cost its tenant nothing.
#[tokio::test(start_paused = true)]
async fn a_refusal_for_want_of_a_place_spends_no_admission_rate() {
    let each = TenantLimits::new().admission_rate(Rate::sliding(2, ms(60_000)).unwrap());
    let builder = Sluice::<u32>::builder("fast", 1, 10).each_tenant(each);
    let sluice = builder.overload(Overload::FailFast).build().unwrap();
    let cx = Context::new();
    let turn = sluice.turn(&cx, Entry::of("alice"), 1).await.unwrap();
    let refused = sluice.turn(&cx, Entry::of("alice"), 2).await.unwrap_err();
    assert_eq!(refused.why.label(), "at_limit");
    assert_eq!(sluice.admit(Entry::of("alice"), 3).unwrap_err().why.label(), "at_limit");
    turn.finish();
    sluice.turn(&cx, Entry::of("alice"), 4).await.unwrap().finish();
    let refused = sluice.turn(&cx, Entry::of("alice"), 5).await.unwrap_err();
    assert_eq!(refused.why, Refusal::TenantRateLimited { retry_in: ms(60_000) });
}

/// `docs/rules.md#rate-4`: whether it waited or its turn had come.
#[tokio::test(start_paused = true)]
async fn what_was_not_let_in_after_all_gives_back_what_it_took() {
    let each = TenantLimits::new().admission_rate(Rate::sliding(2, ms(60_000)).unwrap());
    let builder = Sluice::<u32>::builder("agents", 1, 10).each_tenant(each);
    let (sluice, cx) = (builder.build().unwrap(), Context::new());
    for _ in 0..3 {
        let runs = sluice.enter(&cx, Entry::of("alice"), 1).await.unwrap();
        let waits = sluice.enter(&cx, Entry::of("alice"), 2).await.unwrap();
        assert_eq!((waits.refuse(), runs.refuse()), (2, 1));
    }
    let runs = sluice.enter(&cx, Entry::of("alice"), 1).await.unwrap();
    drop(sluice.enter(&cx, Entry::of("alice"), 2).await.unwrap());
    let refused = sluice.enter(&cx, Entry::of("alice"), 3).await.unwrap_err();
    assert_eq!(refused.why, Refusal::TenantRateLimited { retry_in: ms(60_000) });
    drop(runs);
    let gauges = sluice.stats().gauges;
    assert_eq!((gauges.queued, gauges.running), (0, 0));
}

/// A batch is told when all of it may come, not when its first item may.
#[tokio::test(start_paused = true)]
async fn a_batch_that_comes_too_soon_is_told_when_all_of_it_may() {
    let rate = Rate::new(2, ms(1_000), 2).unwrap();
    let each = TenantLimits::new().admission_rate(rate);
    let sluice = Sluice::<u32>::builder("batches", 1, 10).each_tenant(each).build().unwrap();
    let batch = || (0..2).map(|n| (Entry::of("alice"), n)).collect::<Vec<_>>();
    sluice.admit_all(batch()).unwrap();
    tokio::time::advance(ms(100)).await;
    let refused = sluice.admit_all(batch()).unwrap_err();
    assert_eq!(refused.why, Refusal::TenantRateLimited { retry_in: ms(900) });
}

/// `docs/rules.md#rate-4`: no wait would help, so none is promised.
#[tokio::test(start_paused = true)]
async fn a_batch_that_may_never_come_is_not_told_to_wait() {
    let each = TenantLimits::new().admission_rate(Rate::per_second(5).unwrap());
    let sluice = Sluice::<u32>::builder("batches", 1, 10).each_tenant(each).build().unwrap();
    let batch = (0..2).map(|n| (Entry::of("alice"), n)).collect();
    let refused = sluice.admit_all(batch).unwrap_err();
    assert_eq!(refused.why, Refusal::BatchTooLarge { items: 2, max: 1 });
    assert_eq!((refused.retry_after, refused.work.len()), (None, 2));
}
