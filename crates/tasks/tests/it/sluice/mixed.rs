//! Callers and workers at one sluice: one order for all, and either may run what the other put back.
//!
//! `docs/rules.md#sluice-5`, `docs/rules.md#sluice-7`.

use sluicegate_tasks::{Class, Context, Entry, Refusal, Sluice, TenantLimits, Why};
use tokio::time::Instant;

use super::{batch, cart, enter, gauges, in_line, pull, sluice, turn_now};
use crate::probe::{ByHand, ms, settle};

#[tokio::test(start_paused = true)]
async fn items_of_a_key_come_in_order_whoever_runs_them() {
    let sluice = sluice(4, 10);
    sluice.admit(cart(), 1).unwrap();
    let mut second = in_line(&sluice, cart(), 2);
    sluice.admit(cart(), 3).unwrap();
    let mut fourth = in_line(&sluice, cart(), 4);
    assert_eq!((pull(&sluice).finish(), second.wakes()), (1, 1));
    assert!(sluice.try_next().is_none() && fourth.poll().is_none());
    let mut worker = ByHand::new(sluice.next());
    assert!(worker.poll().is_none());
    assert_eq!((second.poll().unwrap().unwrap().finish(), worker.wakes()), (2, 1));
    assert_eq!((worker.poll().unwrap().unwrap().finish(), fourth.wakes()), (3, 1));
    assert_eq!(fourth.poll().unwrap().unwrap().finish(), 4);
    assert_eq!(gauges(&sluice), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn workers_and_callers_share_the_places_by_class_and_by_tenant() {
    let sluice = sluice(1, 10);
    let held = turn_now(&sluice, Entry::of("holder"), "held");
    let mut worker = ByHand::new(sluice.next());
    assert!(worker.poll().is_none());
    let mut low = in_line(&sluice, Entry::of("alice").class(Class::Low), "low");
    sluice.admit(Entry::of("bob"), "normal").unwrap();
    let mut urgent = in_line(&sluice, Entry::of("carol").class(Class::System), "urgent");
    held.finish();
    assert_eq!((urgent.wakes(), worker.wakes(), low.wakes()), (1, 0, 0));
    urgent.poll().unwrap().unwrap().finish();
    assert_eq!((worker.wakes(), low.wakes()), (1, 0));
    assert_eq!(worker.poll().unwrap().unwrap().finish(), "normal");
    assert_eq!(low.poll().unwrap().unwrap().finish(), "low");
}

/// A worker that ends one finds a caller's next: that is the caller's, and it gets nothing.
#[tokio::test(start_paused = true)]
async fn a_worker_is_not_given_what_a_caller_waits_for() {
    let sluice = sluice(1, 10);
    sluice.admit_all(batch(cart, [1])).unwrap();
    let turn = pull(&sluice);
    let mut caller = in_line(&sluice, cart(), 2);
    sluice.admit(cart(), 3).unwrap();
    let (first, next) = turn.finish_and_next();
    assert!(first == 1 && next.is_none());
    assert_eq!((caller.wakes(), caller.poll().unwrap().unwrap().finish()), (1, 2));
    assert_eq!(pull(&sluice).finish(), 3);
    let mine = enter(&sluice, &Context::new(), cart(), 4).unwrap();
    assert_eq!(sluice.withdraw(mine.id().unwrap()), None, "nor is it anybody's to take out");
    assert_eq!(mine.turn().await.unwrap().finish(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_puts_back_a_worker_may_run_and_the_other_way_round() {
    let sluice = sluice(1, 10);
    let begun = Instant::now();
    let id = turn_now(&sluice, cart(), 1).retry_at(Some(begun + ms(50))).unwrap();
    let worker = sluice.next().await.unwrap();
    assert_eq!((worker.id(), begun.elapsed()), (id, ms(50)));
    let again = worker.wait_again(begun + ms(80));
    assert_eq!((again.id(), *again.value()), (Some(id), 1));
    assert!(sluice.try_next().is_none());
    let turn = again.turn().await.unwrap();
    assert_eq!((turn.id(), begun.elapsed()), (id, ms(80)));
    let id = turn.postpone(begun + ms(90)).unwrap();
    let worker = sluice.next().await.unwrap();
    assert_eq!((worker.id(), begun.elapsed(), worker.finish()), (id, ms(90), 1));
}

#[tokio::test(start_paused = true)]
async fn a_workers_turn_has_a_context_that_says_where_it_is() {
    let sluice = sluice(2, 10);
    sluice.admit(cart(), 1).unwrap();
    let turn = pull(&sluice);
    let refused = enter(&sluice, &turn.context(), cart(), 2).unwrap_err();
    assert_eq!(refused.why, Refusal::Nested { group: "sluice".to_owned() });
    assert!(sluice.admit(cart(), 3).is_ok(), "what is not waited for is let in");
}

#[tokio::test(start_paused = true)]
async fn a_drain_with_both_hands_back_what_waits_and_lets_what_runs_finish() {
    let builder = Sluice::<u32>::builder("sluice", 2, 10);
    let (dropped, mut values) = tokio::sync::mpsc::channel(10);
    let builder = builder.on_dropped(move |value| dropped.try_send(value).unwrap());
    let sluice = builder.build().unwrap();
    sluice.admit(cart(), 1).unwrap();
    let (by_worker, by_caller) = (pull(&sluice), turn_now(&sluice, Entry::of("bob"), 2));
    let mut caller = in_line(&sluice, cart(), 3);
    sluice.admit(cart(), 4).unwrap();
    let mut worker = ByHand::new(sluice.next());
    assert!(worker.poll().is_none());
    // From several tasks at once.
    let deadline = Instant::now() + ms(100);
    let drains = [(); 3].map(|()| {
        let sluice = sluice.clone();
        tokio::spawn(async move { sluice.drain(deadline).await })
    });
    settle().await;
    assert!(worker.poll().unwrap().is_none(), "nothing starts any more");
    assert_eq!(caller.poll().unwrap().unwrap_err().work, 3);
    assert_eq!(values.try_recv(), Ok(4));
    assert_eq!(by_worker.context().check(), Ok(()));
    by_worker.finish();
    drop(by_caller);
    assert_eq!(values.try_recv(), Ok(2));
    let (mut handed_back, mut finished) = (0, 0);
    for drain in drains {
        let report = drain.await.unwrap();
        assert!(report.cancelled.is_empty() && report.took == ms(0), "{report}");
        assert_eq!(report.dropped, 1, "by the caller");
        handed_back += report.handed_back;
        finished = report.finished.max(finished);
    }
    assert_eq!((handed_back, finished), (2, 1), "handed back once");
    assert_eq!(gauges(&sluice), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_a_workers_context_is_cancelled_too() {
    let sluice = Sluice::builder("sluice", 1, 10).unwind(ms(20)).build().unwrap();
    sluice.admit(cart(), 1).unwrap();
    let turn = pull(&sluice);
    let cx = turn.context();
    let report = sluice.drain(Instant::now() + ms(30)).await;
    assert_eq!(report.abandoned[0].name, "alice/cart", "{report}");
    assert!(cx.check().is_err() && turn.context().check().is_err());
    assert_eq!((turn.finish(), gauges(&sluice)), (1, (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_tenants_limit_counts_both() {
    let each = TenantLimits::new().max_running(1);
    let sluice = Sluice::builder("sluice", 9, 10).each_tenant(each).build().unwrap();
    let held = turn_now(&sluice, Entry::of("alice"), 1);
    let waits = sluice.admit(Entry::of("alice"), 2).unwrap();
    let why = sluice.why(waits).unwrap().why;
    assert_eq!(why, Why::TenantAtLimit { running: 1, max: 1 });
    assert!(sluice.try_next().is_none());
    held.finish();
    assert_eq!(pull(&sluice).finish(), 2);
}

/// A value that no worker takes is before the caller: `why` says what is missing, and a worker helps.
#[tokio::test(start_paused = true)]
async fn a_caller_behind_a_value_that_nobody_pulls_is_told_so() {
    let sluice = Sluice::<u32>::builder("mixed", 4, 10).build().unwrap();
    sluice.admit(Entry::of("alice"), 1).unwrap();
    let waits = sluice.enter(&Context::new(), Entry::of("bob"), 2).await.unwrap();
    let id = waits.id().unwrap();
    assert_eq!(sluice.why(id).unwrap().why, Why::NoWorker);
    assert!(sluice.waiting(9).iter().all(|item| item.why.why == Why::NoWorker));
    assert_eq!(sluice.try_next().unwrap().finish(), 1);
    assert_eq!(waits.turn().await.unwrap().finish(), 2);
}
