//! Coming in: one by one, in batches, and waiting for room.
//!
//! `docs/rules.md#sluice-2`.

use sluicegate_tasks::{Class, Entry, Refusal, TenantLimits};

use super::{batch, cart, gauges, pull, run_all, sluice};
use crate::probe::ByHand;

#[tokio::test(start_paused = true)]
async fn order_is_the_schedules() {
    let sluice = sluice(1, 20);
    let first = sluice.admit(Entry::of("holder"), "first").unwrap();
    let entries = [
        (cart(), "add"),
        (Entry::of("alice").class(Class::Low), "report"),
        (cart(), "pay"),
        (Entry::of("bob"), "browse"),
        (Entry::of("alice").class(Class::System), "check"),
    ];
    sluice.admit_all(entries.into()).unwrap();
    assert_eq!(sluice.withdraw(first), Some("first"));
    assert_eq!(run_all(&sluice), ["check", "add", "browse", "pay", "report"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_enters_whole_or_not_at_all() {
    struct Case {
        what: &'static str,
        batch: Vec<(Entry, u32)>,
        why: Option<Refusal>,
    }
    let of = |tenant: &'static str, count: u32| -> Vec<(Entry, u32)> {
        (0..count).map(|n| (Entry::of(tenant), n)).collect()
    };
    let mixed = |count: u32| -> Vec<(Entry, u32)> {
        of("bob", count).into_iter().flat_map(|item| [item, (Entry::of("carol"), 9)]).collect()
    };
    let urgent = |count: u32| -> Vec<(Entry, u32)> {
        (0..count).map(|n| (Entry::of("bob").class(Class::Admin), n)).collect()
    };
    // Two of alice's wait; bob's queue holds 3.
    let full = |queued| Refusal::QueueFull { queued, capacity: 8 };
    let tenant_full = Refusal::TenantQueueFull { queued: 0, max: 3 };
    for Case { what, batch, why } in [
        Case { what: "nothing", batch: vec![], why: None },
        Case { what: "to the brim", batch: of("dave", 6), why: None },
        Case { what: "one too many", batch: of("dave", 7), why: Some(full(2)) },
        Case { what: "more than ever fit", batch: of("dave", 9), why: Some(full(2)) },
        Case { what: "the tenant's brim", batch: mixed(3), why: None },
        Case { what: "one too many of a tenant", batch: of("bob", 4), why: Some(tenant_full) },
        Case { what: "urgent ones pass", batch: urgent(5), why: None },
        Case {
            what: "urgent ones count",
            batch: urgent(3).into_iter().chain(of("bob", 1)).collect(),
            why: Some(Refusal::TenantQueueFull { queued: 0, max: 3 }),
        },
    ] {
        let sluice = sluice(1, 8);
        sluice.set_tenant("bob", TenantLimits::new().max_queued(3)).unwrap();
        sluice.admit_all(of("alice", 2)).unwrap();
        let count = batch.len() as u32;
        match sluice.admit_all(batch.clone()) {
            Ok(ids) => {
                assert_eq!((ids.len() as u32, why), (count, None), "{what}");
                assert!(ids.is_sorted_by_key(|id| id.number()), "{what}");
                assert_eq!(
                    (gauges(&sluice), sluice.stats().admitted),
                    ((2 + count, 0), 2 + u64::from(count))
                );
            }
            Err(refused) => {
                let rejected = refused.why.label();
                assert_eq!((Some(refused.why), refused.work), (why, batch), "{what}");
                assert_eq!((gauges(&sluice), sluice.stats().admitted), ((2, 0), 2), "{what}");
                assert_eq!(sluice.stats().rejected, [(rejected, u64::from(count))], "{what}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_keeps_its_order_within_each_key() {
    let sluice = sluice(3, 100);
    let keys = ["a", "b", "c"];
    let entries = (0..30usize).map(|n| (Entry::of("alice").key(keys[n % 3]), n));
    sluice.admit_all(entries.collect()).unwrap();
    let order = run_all(&sluice);
    for key in 0..3 {
        let of_key: Vec<usize> = order.iter().copied().filter(|n| n % 3 == key).collect();
        assert!(of_key.is_sorted() && of_key.len() == 10, "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_room_is_woken_once_there_is() {
    // Queued so many of so many: so many more are waited for, and this many ends let it pass.
    for (queued, capacity, count, ends) in [
        (0, 4, 0, 0),
        (0, 4, 4, 0),
        (3, 4, 1, 0),
        (4, 4, 0, 0),
        (4, 4, 1, 1),
        (4, 4, 3, 3),
        (4, 4, 4, 4),
        (4, 4, 9, 4),
        (2, 4, u32::MAX, 2),
    ] {
        let sluice = sluice(1, capacity);
        sluice.admit_all(batch(cart, 0..queued)).unwrap();
        let mut room = ByHand::new(sluice.room_for(count));
        for end in 0..ends {
            assert!(room.poll().is_none(), "{queued} of {capacity}, {count}, after {end}");
            assert_eq!(room.wakes(), 0, "{queued} of {capacity}, {count}, after {end}");
            pull(&sluice).finish();
        }
        assert_eq!(room.wakes(), u32::from(ends > 0), "{queued} of {capacity}, {count}");
        assert!(room.poll().is_some(), "{queued} of {capacity}, {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn room_comes_by_resizing_withdrawing_and_closing_too() {
    let sluice = sluice(1, 1);
    let waits = sluice.admit(cart(), 1).unwrap();
    let mut room = [1, 2, 3].map(|count| ByHand::new(sluice.room_for(count)));
    assert!(room.iter_mut().all(|room| room.poll().is_none()));
    sluice.resize(1, 2).unwrap();
    assert_eq!(room.each_ref().map(ByHand::wakes), [1, 0, 0]);
    assert_eq!(sluice.withdraw(waits), Some(1));
    assert_eq!(room.each_ref().map(ByHand::wakes), [1, 1, 1], "two is all that ever fits");
    assert!(room.iter_mut().all(|room| room.poll().is_some()));

    sluice.admit_all(batch(cart, [2, 3])).unwrap();
    let mut room = ByHand::new(sluice.room_for(1));
    assert!(room.poll().is_none());
    // Somebody else is faster: it waits again.
    pull(&sluice).finish();
    assert_eq!(room.wakes(), 1);
    sluice.admit(cart(), 4).unwrap();
    assert!(room.poll().is_none());
    sluice.close();
    assert_eq!(room.wakes(), 2);
    assert!(room.poll().is_some());
    assert!(ByHand::new(sluice.room_for(100)).poll().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_takes_room_and_is_never_without() {
    let sluice = sluice(1, 1);
    sluice.admit_all(batch(cart, [1])).unwrap();
    let out = pull(&sluice);
    sluice.admit(cart(), 2).unwrap();
    let mut room = ByHand::new(sluice.room_for(1));
    out.retry_at(None).unwrap();
    assert_eq!(gauges(&sluice), (2, 0), "one more than the capacity");
    assert!(room.poll().is_none());
    let refused = sluice.admit(Entry::of("bob"), 3).unwrap_err();
    assert_eq!(refused.why, Refusal::QueueFull { queued: 2, capacity: 1 });
    let refused = sluice.admit_all(batch(cart, [4])).unwrap_err();
    assert_eq!(refused.why, Refusal::QueueFull { queued: 2, capacity: 1 });
}

#[tokio::test(start_paused = true)]
async fn limits_change_together_or_not_at_all() {
    let sluice = sluice(1, 2);
    sluice.admit_all(batch(|| Entry::of("alice"), 0..2)).unwrap();
    for (concurrency, capacity, field) in [(0, 5, "concurrency"), (5, 0, "capacity")] {
        assert_eq!(sluice.resize(concurrency, capacity).unwrap_err().field, field);
        assert_eq!((sluice.stats().gauges.limit, sluice.capacity()), (1, 2));
        assert_eq!(gauges(&sluice), (2, 0));
    }
    let mut waits = ByHand::new(sluice.next());
    let first = waits.poll().unwrap();
    let mut waits = ByHand::new(sluice.next());
    assert!(waits.poll().is_none());
    sluice.resize(2, 1).unwrap();
    assert_eq!((waits.wakes(), sluice.capacity()), (1, 1));
    assert!(waits.poll().unwrap().is_some());
    drop(first);
    let wrong = sluice.set_tenant("alice", TenantLimits::new().weight(0));
    assert_eq!(wrong.unwrap_err().field, "weight");
}
