//! What starts is decided when somebody is there to run it.
//!
//! `docs/rules.md#sluice-7`, `docs/rules.md#sluice-1`.

use std::sync::Arc;

use sluicegate_tasks::{Class, Entry, Rate, Sluice, TenantLimits, Why};

use super::{batch, cart, gauges, pull, run_all, sluice};
use crate::probe::{ByHand, Count, ms, settle};

fn free() -> Entry {
    Entry::of("alice")
}

#[tokio::test(start_paused = true)]
async fn a_later_urgent_item_goes_before_earlier_ones_that_nobody_pulled() {
    let sluice = sluice(4, 10);
    let low = || Entry::of("alice").class(Class::Low);
    sluice.admit_all(batch(low, ["low"; 4])).unwrap();
    sluice.admit(Entry::of("bob").class(Class::System), "system").unwrap();
    assert_eq!(pull(&sluice).finish(), "system", "though there were places for all the others");
    assert_eq!(run_all(&sluice), ["low"; 4]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_pulled_holds_no_place_no_token_and_no_share() {
    let rate = Rate::new(1, ms(60_000), 1).unwrap();
    let each = TenantLimits::new().max_running(1);
    let builder = Sluice::<u32>::builder("sluice", 1, 10).rate(rate).each_tenant(each);
    let sluice = builder.build().unwrap();
    let ids = sluice.admit_all(batch(cart, [1, 2])).unwrap();
    settle().await;
    assert_eq!((gauges(&sluice), sluice.stats().started), ((2, 0), 0));
    assert_eq!(sluice.why(ids[0]).unwrap().why, Why::NoWorker);
    assert_eq!(sluice.why(ids[1]).unwrap().why, Why::KeyBusy { head: ids[0] });
    assert_eq!((sluice.tenants()[0].running, sluice.tenants()[0].served), (0, 0));
    assert!(sluice.running().is_empty());
    // The place, the token and the tenant's place are there for what is next now.
    let urgent = Entry::of("alice").class(Class::System);
    sluice.admit(urgent, 3).unwrap();
    assert_eq!(pull(&sluice).finish(), 3);
    assert!(matches!(sluice.why(ids[0]).unwrap().why, Why::RateLimited { .. }));
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_was_called_for_is_decided_when_it_looks() {
    let sluice = sluice(1, 10);
    let mut worker = ByHand::new(sluice.next());
    assert!(worker.poll().is_none());
    let first = sluice.admit(Entry::of("alice").class(Class::Low), "low").unwrap();
    assert_eq!((worker.wakes(), gauges(&sluice)), (1, (1, 0)));
    assert_eq!(sluice.why(first).unwrap().why, Why::Ready, "a worker is on its way");
    sluice.admit(Entry::of("bob").class(Class::System), "system").unwrap();
    assert_eq!(worker.poll().unwrap().unwrap().finish(), "system");
    assert_eq!(sluice.why(first).unwrap().why, Why::NoWorker);
}

/// One is called, and each that looks calls the next.
#[tokio::test(start_paused = true)]
async fn as_many_idle_workers_start_as_there_are_items_without_any_further_event() {
    for (workers, items, places, start) in [(4, 4, 9, 4), (6, 3, 9, 3), (3, 6, 9, 3), (5, 5, 2, 2)]
    {
        let sluice: Sluice<u32> = sluice(places, 10);
        let started = Arc::<Count>::default();
        for _ in 0..workers {
            let (sluice, started) = (sluice.clone(), Arc::clone(&started));
            tokio::spawn(async move {
                let _turn = sluice.next().await;
                started.add();
                std::future::pending::<()>().await;
            });
        }
        settle().await;
        sluice.admit_all(batch(free, 0..items)).unwrap();
        settle().await;
        assert_eq!(started.get(), start, "{workers} workers, {items} items, {places} places");
        assert_eq!(gauges(&sluice), (items - start, start));
    }
}

#[tokio::test(start_paused = true)]
async fn when_places_grow_or_a_rate_goes_all_that_may_start_do() {
    let rate = Rate::new(1, ms(60_000), 1).unwrap();
    let sluice = Sluice::<u32>::builder("sluice", 1, 10).rate(rate).build().unwrap();
    for _ in 0..5 {
        let sluice = sluice.clone();
        tokio::spawn(async move {
            let _turn = sluice.next().await;
            std::future::pending::<()>().await;
        });
    }
    sluice.admit_all(batch(free, 0..5)).unwrap();
    settle().await;
    assert_eq!(gauges(&sluice), (4, 1));
    sluice.resize(4, 10).unwrap();
    settle().await;
    assert_eq!(gauges(&sluice), (4, 1));
    sluice.set_rate(None);
    settle().await;
    assert_eq!(gauges(&sluice), (1, 4));
}

/// As a `select!` does, whose other branches have something to do.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_polled_for_nothing_keeps_its_place() {
    let sluice = sluice(4, 10);
    let mut workers = [(); 3].map(|()| ByHand::new(sluice.next()));
    assert!(workers.iter_mut().all(|worker| worker.poll().is_none()));
    assert!(workers[0].poll().is_none());
    sluice.admit(free(), 1).unwrap();
    assert_eq!(workers.each_ref().map(ByHand::wakes), [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_the_next_with_the_end_of_the_last_calls_nobody_for_it() {
    let sluice = sluice(1, 10);
    sluice.admit_all(batch(cart, [1, 2, 3])).unwrap();
    let turn = pull(&sluice);
    let mut idle = ByHand::new(sluice.next());
    assert!(idle.poll().is_none());
    let (first, second) = turn.finish_and_next();
    assert_eq!((first, idle.wakes()), (1, 0));
    let (second, hold, none) = second.unwrap().linger_and_next();
    assert!(second == 2 && none.is_none() && idle.wakes() == 0, "the key is kept");
    drop(hold);
    assert_eq!(idle.wakes(), 1);
    let (third, none) = idle.poll().unwrap().unwrap().finish_and_next();
    assert!(third == 3 && none.is_none());
    assert_eq!((sluice.stats().started, sluice.stats().completed), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn why_is_told_as_of_now_though_nobody_looked_meanwhile() {
    let sluice = sluice(1, 10);
    sluice.admit(cart(), 1).unwrap();
    let at = tokio::time::Instant::now() + ms(100);
    let id = pull(&sluice).retry_at(Some(at)).unwrap();
    assert_eq!(sluice.why(id).unwrap().until, Some(at));
    tokio::time::advance(ms(100)).await;
    assert_eq!(sluice.why(id).unwrap().why, Why::NoWorker, "its time has come");
    assert_eq!(sluice.waiting(1)[0].why.why, Why::NoWorker);
    assert!(!sluice.release(id));
}
