//! Callers: order, fairness and rates before one bound, to the moment.
//!
//! `docs/rules.md#sluice-5`.

mod drain;
mod model;
mod rates;
mod retries;
mod why;

use std::sync::{Arc, Mutex};

use sluicegate_tasks::{
    Class, Context, Entry, Interrupt, Refusal, Sluice, TaskGroup, TenantLimits,
};
use tokio::time::Instant;

use super::{ROOM, enter, in_line, turn_now};
use crate::probe::{ByHand, Count, ms, settle};

fn sluice<V: Send + 'static>(concurrency: u32) -> Sluice<V> {
    super::sluice(concurrency, ROOM)
}

/// The values in the order in which their turns come, each over at once.
async fn order<V: Send + 'static>(
    sluice: &Sluice<V>,
    entries: impl IntoIterator<Item = (Entry, V)>,
) -> Vec<V> {
    let came = Arc::new(Mutex::new(Vec::new()));
    let held = sluice.pause("until all have come");
    let mut waits = Vec::new();
    for (entry, value) in entries {
        let admitted = enter(sluice, &Context::new(), entry, value).unwrap();
        let came = Arc::clone(&came);
        waits.push(tokio::spawn(async move {
            let turn = admitted.turn().await.unwrap();
            tokio::task::yield_now().await;
            came.lock().unwrap().push(turn.finish());
        }));
    }
    settle().await;
    drop(held);
    for wait in waits {
        wait.await.unwrap();
    }
    std::mem::take(&mut came.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_key_runs_in_order_and_one_at_a_time() {
    let sluice = sluice(4);
    let entry = || Entry::of("alice").key("cart");
    let first = turn_now(&sluice, entry(), 1);
    let mut second = in_line(&sluice, entry(), 2);
    let mut third = in_line(&sluice, entry(), 3);
    let other = turn_now(&sluice, Entry::of("alice").key("other"), 4);
    let free = turn_now(&sluice, Entry::of("alice"), 5);
    assert_eq!(first.finish(), 1);
    assert!(third.poll().is_none(), "not before the second");
    assert_eq!((second.wakes(), third.wakes()), (1, 0));
    let second = second.poll().unwrap().unwrap();
    assert!(third.poll().is_none());
    drop(second);
    assert_eq!(third.poll().unwrap().unwrap().finish(), 3);
    assert_eq!((other.finish(), free.finish()), (4, 5));
    assert_eq!(sluice.stats().gauges.running, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_runs_in_order_and_one_at_a_time_on_many_threads() {
    let sluice = sluice(3);
    let mut items = Vec::new();
    let states: Vec<_> = (0..5).map(|_| Arc::new((Count::default(), Count::default()))).collect();
    for n in 0..400_u32 {
        let key = n as usize % states.len();
        let entry = Entry::of("alice").key(key.to_string());
        let admitted = enter(&sluice, &Context::new(), entry, n / 5).unwrap();
        let state = Arc::clone(&states[key]);
        items.push(tokio::spawn(async move {
            let turn = admitted.turn().await.unwrap();
            let (inside, done) = &*state;
            assert_eq!(inside.add(), 1, "two of a key at once");
            assert_eq!(*turn.value(), done.get(), "out of order");
            tokio::task::yield_now().await;
            done.add();
            inside.sub();
            turn.finish();
        }));
    }
    for item in items {
        item.await.unwrap();
    }
    let stats = sluice.stats();
    assert_eq!((stats.completed, stats.gauges.running, stats.gauges.queued), (400, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn higher_classes_go_first_and_within_a_class_the_first_to_come() {
    let sluice = sluice(1);
    let classes = [Class::Low, Class::Normal, Class::Admin, Class::System];
    let entries = classes.into_iter().cycle().take(8).zip(0..);
    let entries = entries.map(|(class, n)| (Entry::of("alice").class(class), (class, n)));
    let came = order(&sluice, entries).await;
    let mut expected = came.clone();
    expected.sort();
    assert_eq!(came, expected);
}

#[tokio::test(start_paused = true)]
async fn within_a_key_too() {
    let sluice = sluice(1);
    let entry = |class| Entry::of("alice").key("cart").class(class);
    let entries = [Class::Low, Class::Normal, Class::Low, Class::System, Class::Normal];
    let came = order(&sluice, entries.into_iter().zip(0..).map(|(c, n)| (entry(c), n))).await;
    assert_eq!(came, [3, 1, 4, 0, 2]);
}

#[tokio::test(start_paused = true)]
async fn no_class_starves() {
    let sluice = Sluice::builder("sluice", 1, ROOM).class_period(4).build().unwrap();
    let low = (Entry::of("alice").class(Class::Low), Class::Low);
    let normal = (0..20).map(|_| (Entry::of("alice"), Class::Normal));
    let came = order(&sluice, std::iter::once(low).chain(normal)).await;
    let at = came.iter().position(|class| *class == Class::Low).unwrap();
    assert!(at < 4, "one of every four, but it came as number {at}");
}

#[tokio::test(start_paused = true)]
async fn high_priority_arrival_is_next_even_when_every_waiter_is_parked() {
    let sluice = sluice(1);
    let held = turn_now(&sluice, Entry::of("alice"), ());
    let mut parked: Vec<_> = (0..3).map(|_| in_line(&sluice, Entry::of("alice"), ())).collect();
    let mut urgent = in_line(&sluice, Entry::of("bob").class(Class::System), ());
    held.finish();
    assert_eq!(urgent.wakes(), 1, "woken");
    assert!(parked.iter_mut().all(|one| one.wakes() == 0 && one.poll().is_none()));
    assert!(urgent.poll().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn tenants_share_by_weight() {
    let sluice = Sluice::builder("sluice", 1, ROOM)
        .tenant("gold", TenantLimits::new().weight(3))
        .build()
        .unwrap();
    let entries = (0..80).map(|n| if n < 40 { "gold" } else { "silver" });
    let came = order(&sluice, entries.map(|tenant| (Entry::of(tenant), tenant))).await;
    let gold = came[..40].iter().filter(|tenant| **tenant == "gold").count();
    assert!((28..=32).contains(&gold), "{gold} of 40");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_a_thousand_queued_does_not_hold_up_one_at_a_time() {
    let sluice = sluice(1);
    let held = turn_now(&sluice, Entry::of("crowd"), ());
    for _ in 0..1000 {
        let admitted = enter(&sluice, &Context::new(), Entry::of("crowd"), ()).unwrap();
        tokio::spawn(async move {
            let turn = admitted.turn().await.unwrap();
            tokio::time::sleep(ms(10)).await;
            turn.finish();
        });
    }
    settle().await;
    held.finish();
    for n in 0..20 {
        let begun = Instant::now();
        let admitted = enter(&sluice, &Context::new(), Entry::of("single"), ()).unwrap();
        let turn = admitted.turn().await.unwrap();
        let waited = begun.elapsed();
        assert!(waited <= ms(20), "number {n} waited {waited:?}");
        tokio::time::sleep(ms(10)).await;
        turn.finish();
    }
    assert!(sluice.stats().gauges.queued > 900);
}

#[tokio::test(start_paused = true)]
async fn a_tenants_running_cap_holds_and_changes_live() {
    let sluice = Sluice::builder("sluice", 5, ROOM)
        .each_tenant(TenantLimits::new().max_running(1))
        .build()
        .unwrap();
    let first = turn_now(&sluice, Entry::of("alice"), ());
    let mut second = in_line(&sluice, Entry::of("alice"), ());
    let mut third = in_line(&sluice, Entry::of("alice"), ());
    let bob = turn_now(&sluice, Entry::of("bob"), ());
    sluice.set_tenant("alice", TenantLimits::new().max_running(2)).unwrap();
    assert_eq!((second.wakes(), third.wakes()), (1, 0), "at once, and no more than that");
    let second = second.poll().unwrap().unwrap();
    sluice.set_tenant("alice", TenantLimits::new().max_running(1)).unwrap();
    drop(first);
    assert!(third.poll().is_none(), "lowered: met first");
    drop(second);
    drop(third.poll().unwrap().unwrap());
    let left: Vec<_> = sluice.tenants().into_iter().filter(|one| one.running > 0).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!((&*left[0].tenant, left[0].running, left[0].queued), ("bob", 1, 0));
    drop(bob);
    assert_eq!(sluice.stats().gauges.running, 0);
}

#[tokio::test(start_paused = true)]
async fn resize_is_live_both_ways() {
    let sluice = sluice(1);
    let mut held = vec![turn_now(&sluice, Entry::of("alice"), ())];
    let mut line: Vec<_> = (0..4).map(|_| in_line(&sluice, Entry::of("alice"), ())).collect();
    sluice.resize(3, ROOM).unwrap();
    held.extend(line.drain(..2).map(|mut next| next.poll().unwrap().unwrap()));
    let gauges = sluice.stats().gauges;
    assert_eq!((gauges.running, gauges.queued, gauges.limit), (3, 2, 3));
    sluice.resize(1, ROOM).unwrap();
    for running in [2, 1] {
        held.pop();
        assert_eq!(sluice.stats().gauges.running, running, "holders finish, nobody enters");
        assert!(line.iter_mut().all(|next| next.poll().is_none()));
    }
    held.pop();
    assert!(line[0].poll().is_some_and(|turn| turn.is_ok()));
    assert!(line[1].poll().is_some_and(|turn| turn.is_ok()));
    assert_eq!(sluice.stats().gauges.running, 0);
}

#[tokio::test(start_paused = true)]
async fn one_deadline_covers_the_wait_and_the_run() {
    let sluice = sluice(1);
    let held = turn_now(&sluice, Entry::of("alice"), "held");
    let (begun, cx) = (Instant::now(), Context::new().with_timeout(ms(100)));
    let late = enter(&sluice, &cx, Entry::of("bob"), "late").unwrap();
    let later = enter(&sluice, &cx.with_timeout(ms(30)), Entry::of("bob"), "later").unwrap();
    let refused = later.turn().await.unwrap_err();
    assert_eq!(refused.why, Refusal::Interrupted(Interrupt::TimedOut));
    assert_eq!((refused.work, begun.elapsed()), ("later", ms(30)));
    tokio::time::advance(ms(30)).await;
    held.finish();
    let turn = late.turn().await.unwrap();
    assert_eq!(turn.context().remaining(), Some(ms(40)), "what is left for the run");
    assert_eq!(turn.context().cancelled().await, Interrupt::TimedOut);
    assert_eq!(begun.elapsed(), ms(100));
    turn.finish();
    assert_eq!((sluice.stats().timed_out, sluice.stats().gauges.running), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_context_that_ends_takes_its_item_out_of_line() {
    let sluice = sluice(1);
    let held = turn_now(&sluice, Entry::of("alice"), 0);
    let cx = Context::new();
    let mut waits = ByHand::new(enter(&sluice, &cx, Entry::of("alice"), 1).unwrap().turn());
    assert!(waits.poll().is_none());
    let idle = enter(&sluice, &cx, Entry::of("alice"), 2).unwrap();
    cx.cancel();
    let refused = waits.poll().unwrap().unwrap_err();
    let cancelled = Refusal::Interrupted(Interrupt::Cancelled);
    assert_eq!((refused.why, refused.work), (cancelled.clone(), 1));
    held.finish();
    let refused = idle.turn().await.unwrap_err();
    assert_eq!((refused.why, refused.work), (cancelled.clone(), 2), "though its turn had come");
    assert_eq!(enter(&sluice, &cx, Entry::of("alice"), 3).unwrap_err().why, cancelled);
    let stats = sluice.stats();
    assert_eq!((stats.cancelled, stats.started, stats.gauges.running), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_again_wherever_its_item_is_dropped() {
    for dropped_at in 0..5 {
        let sluice = sluice(1);
        let held = turn_now(&sluice, Entry::of("alice").key("k"), ());
        let cx = Context::new();
        let admitted = enter(&sluice, &cx, Entry::of("alice").key("k"), ()).unwrap();
        let mut next = in_line(&sluice, Entry::of("alice").key("k"), ());
        let mut turn = None;
        match dropped_at {
            0 => drop(admitted),
            1 => drop(admitted.turn()),
            2 => assert!(ByHand::new(admitted.turn()).poll().is_none()),
            3 => {
                let mut waits = ByHand::new(admitted.turn());
                assert!(waits.poll().is_none());
                turn = Some(waits);
            }
            _ => {
                held.finish();
                drop(admitted);
                assert!(next.poll().is_some(), "handed on unheard");
                continue;
            }
        }
        held.finish();
        drop(turn);
        assert!(next.poll().unwrap().is_ok(), "dropped at {dropped_at}");
        let gauges = sluice.stats().gauges;
        assert_eq!((gauges.running, gauges.queued), (0, 0));
        assert!(sluice.tenants().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_turn_ends_it_and_is_counted() {
    let sluice = sluice(1);
    let turn = turn_now(&sluice, Entry::of("alice").key("k"), ());
    let mut next = in_line(&sluice, Entry::of("alice").key("k"), ());
    let holder = tokio::spawn(async move {
        let _turn = turn;
        panic!("mid-turn");
    });
    assert!(holder.await.unwrap_err().is_panic());
    next.poll().unwrap().unwrap().finish();
    let stats = sluice.stats();
    assert_eq!((stats.panicked, stats.completed, stats.gauges.running), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn admitting_from_inside_a_turn_is_an_error_at_once() {
    let sluice = sluice(2);
    let turn = turn_now(&sluice, Entry::of("alice"), 1);
    let nested = Refusal::Nested { group: "sluice".to_owned() };
    for cx in [turn.context(), turn.context().child(), turn.context().with_timeout(ms(5))] {
        let refused = enter(&sluice, &cx, Entry::of("bob"), 7).unwrap_err();
        assert_eq!((refused.why, refused.work), (nested.clone(), 7));
    }
    let (group, to) = (TaskGroup::new("group", 1).unwrap(), sluice.clone());
    let through = group.run(turn.context(), |cx| async move {
        enter(&to, &cx, Entry::of("bob"), 1).map(drop).map_err(Refusal::from)
    });
    assert_eq!(through.await, Ok(Err(nested)), "through a group's task too");
    let other = super::sluice(1, ROOM);
    assert!(enter(&other, &turn.context(), Entry::of("bob"), 1).is_ok());
}

#[tokio::test(start_paused = true)]
async fn values_can_be_looked_at_and_changed_on_the_way() {
    let sluice = sluice(1);
    let admitted = enter(&sluice, &Context::new(), Entry::of("alice"), vec![1]).unwrap();
    assert_eq!(*admitted.value(), [1]);
    let mut turn = admitted.turn().await.unwrap();
    turn.value_mut().push(2);
    assert_eq!(*turn.value(), [1, 2]);
    assert_eq!(turn.fail(), [1, 2]);
    let stats = sluice.stats();
    assert_eq!((stats.failed, stats.completed), (1, 1));
    assert_eq!(sluice.name(), "sluice");
}
