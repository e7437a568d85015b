//! Changing it while items wait and run: pauses, limits of tenants.
//!
//! `docs/rules.md#schedule-9`, `docs/rules.md#schedule-4`.

use std::sync::Arc;

use sluicegate_tasks::{Context, Entry, Overload, Refusal, Sluice, TenantLimits, Why};

use super::{batch, cart, enter, gauges, in_line, pull, run_all, sluice, turn_now};
use crate::probe::{ByHand, Count, ms, settle};

fn why<V>(sluice: &Sluice<V>, id: sluicegate_tasks::ItemId) -> Why {
    sluice.why(id).expect("it is here").why
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_while_it_is_paused_for_any_reason() {
    let sluice = sluice(9, 10);
    let running = turn_now(&sluice, Entry::of("bob"), 0);
    let (memory, disk, again) =
        (sluice.pause("memory"), sluice.pause("disk"), sluice.pause("disk"));
    let mut caller = in_line(&sluice, cart(), 1);
    let id = sluice.admit(Entry::of("carol"), 2).unwrap();
    let mut worker = ByHand::new(sluice.next());
    assert!(worker.poll().is_none() && sluice.try_next().is_none());
    let (_, next) = running.finish_and_next();
    assert!(next.is_none(), "what ran goes on, and nothing follows");
    assert!(matches!(why(&sluice, id), Why::Paused { .. }));
    assert_eq!((sluice.why(id).unwrap().until, gauges(&sluice)), (None, (2, 0)));
    drop(disk);
    drop(memory);
    assert_eq!(why(&sluice, id), Why::Paused { reason: "disk" }, "it was paused twice for that");
    assert_eq!((caller.wakes(), worker.wakes()), (0, 0));
    drop(again);
    assert_eq!((caller.wakes(), worker.wakes()), (1, 1), "both, at once");
    assert_eq!(caller.poll().unwrap().unwrap().finish(), 1);
    assert_eq!(worker.poll().unwrap().unwrap().finish(), 2);
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_start_when_it_goes_on() {
    let sluice: Sluice<u32> = sluice(9, 20);
    let (pause, started) = (sluice.pause("memory"), Arc::<Count>::default());
    for n in 0..3 {
        let (sluice, started) = (sluice.clone(), Arc::clone(&started));
        tokio::spawn(async move {
            let _turn = sluice.turn(&Context::new(), Entry::of("alice"), n).await;
            started.add();
            std::future::pending::<()>().await;
        });
    }
    for _ in 0..3 {
        let (sluice, started) = (sluice.clone(), Arc::clone(&started));
        tokio::spawn(async move {
            let _turn = sluice.next().await;
            started.add();
            std::future::pending::<()>().await;
        });
    }
    sluice.admit_all(batch(|| Entry::of("bob"), 0..3)).unwrap();
    settle().await;
    tokio::time::advance(ms(10_000)).await;
    assert_eq!((started.get(), gauges(&sluice)), (0, (6, 0)));
    drop(pause);
    settle().await;
    assert_eq!((started.get(), gauges(&sluice)), (6, (0, 6)));
}

#[tokio::test(start_paused = true)]
async fn failing_fast_it_says_what_it_is_paused_for() {
    let sluice = Sluice::builder("sluice", 1, 10).overload(Overload::FailFast).build().unwrap();
    let _pause = sluice.pause("memory");
    let paused = Refusal::Paused { reason: "memory" };
    let refused = enter(&sluice, &Context::new(), cart(), 1).unwrap_err();
    assert_eq!((refused.why, refused.work), (paused.clone(), 1));
    let mut worker = ByHand::new(sluice.next());
    assert!(worker.poll().is_none());
    assert_eq!(sluice.admit(cart(), 2).unwrap_err().why, paused);
    assert_eq!(sluice.stats().rejected, [("paused", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_may_outlive_the_sluice_and_its_end() {
    let sluice = sluice(1, 10);
    let pause = sluice.pause("memory");
    sluice.admit(cart(), 1).unwrap();
    assert_eq!(sluice.close(), [1]);
    drop(sluice);
    drop(pause);
}

#[tokio::test(start_paused = true)]
async fn tenants_limits_come_and_go() {
    let sluice = sluice(9, 20);
    sluice.set_each_tenant(TenantLimits::new().max_running(2)).unwrap();
    sluice.set_tenant("alice", TenantLimits::new().max_running(1)).unwrap();
    sluice.admit_all(batch(|| Entry::of("alice"), [1; 4])).unwrap();
    sluice.admit_all(batch(|| Entry::of("bob"), [2; 4])).unwrap();
    let pull_all = || std::iter::from_fn(|| sluice.try_next()).collect::<Vec<_>>();
    let mut out = pull_all();
    assert_eq!(out.iter().map(|turn| *turn.value()).sum::<i32>(), 1 + 2 + 2);
    assert!(sluice.unset_tenant("alice") && !sluice.unset_tenant("alice"));
    assert_eq!(
        pull_all().into_iter().map(|turn| (*turn.value(), out.push(turn)).0).sum::<i32>(),
        1
    );
    sluice.set_each_tenant(TenantLimits::new()).unwrap();
    assert_eq!(run_all(&sluice).into_iter().sum::<i32>(), 2 + 4);
    drop(out);
    assert_eq!(gauges(&sluice), (0, 0));
    drop(sluice.admit(cart(), 5).map(|_| pull(&sluice).finish()));
}
