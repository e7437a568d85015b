//! What cannot start at once: the four policies, for callers and for workers, as one table.
//!
//! `docs/rules.md#overload-1`, `docs/rules.md#overload-2`.

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate_tasks::{
    AtLimit, Class, Context, Entry, Overload, Rate, Refusal, Sluice, SluiceBuilder, TenantLimits,
};

use super::{ROOM, batch, cart, enter, gauges, run_all};
use crate::probe::{ByHand, ms};

const LATER: Duration = Duration::from_secs(30);
const FULL: Refusal = Refusal::QueueFull { queued: 2, capacity: 2 };
const AT_LIMIT: Refusal = Refusal::AtLimit(AtLimit { limit: 2, in_use: 2 });

/// What becomes of six callers' offers where two may run and two may wait.
struct Case {
    overload: Overload,
    /// How many wait in the queue, and how many at the door.
    waits: (u32, usize),
    /// Why the others are refused, and when to offer them again.
    refused: Option<(Refusal, Option<Duration>)>,
}

const CASES: [Case; 4] = [
    Case { overload: Overload::Wait, waits: (2, 2), refused: None },
    Case {
        overload: Overload::HandBack { retry_after: LATER },
        waits: (2, 0),
        refused: Some((FULL, Some(LATER))),
    },
    Case { overload: Overload::Queue, waits: (2, 0), refused: Some((FULL, None)) },
    Case { overload: Overload::FailFast, waits: (0, 0), refused: Some((AT_LIMIT, None)) },
];

#[tokio::test(start_paused = true)]
async fn six_callers_fare_as_the_policy_says() {
    for Case { overload, waits: (queued, at_door), refused } in CASES {
        let sluice = Sluice::builder("sluice", 2, 2).overload(overload).build().unwrap();
        let cx = Context::new();
        let mut offers: Vec<_> =
            (0..6).map(|n| ByHand::new(sluice.enter(&cx, Entry::of("alice"), n))).collect();
        let (mut admitted, mut refusals) = (Vec::new(), Vec::new());
        offers.retain_mut(|offer| match offer.poll() {
            None => true,
            Some(Ok(one)) => {
                admitted.push(one);
                false
            }
            Some(Err(refused)) => {
                refusals.push(((refused.why, refused.retry_after), refused.work));
                false
            }
        });
        assert_eq!((gauges(&sluice), offers.len()), ((queued, 2), at_door), "{overload:?}");
        let expected = refused.into_iter().flat_map(|why| {
            let numbers = 2 + queued..6;
            numbers.map(move |n| (why.clone(), n))
        });
        assert_eq!(refusals, expected.collect::<Vec<_>>(), "{overload:?}");
        let rejected: u64 = sluice.stats().rejected.iter().map(|(_, count)| count).sum();
        assert_eq!(rejected, refusals.len() as u64);
        let mut numbers = 0..6;
        for admitted in admitted {
            assert_eq!(Some(admitted.turn().await.unwrap().finish()), numbers.next());
        }
        for mut offer in offers {
            let admitted = offer.poll().expect("there is room").unwrap();
            assert_eq!(Some(admitted.turn().await.unwrap().finish()), numbers.next());
        }
        assert_eq!(gauges(&sluice), (0, 0), "{overload:?}");
    }
}

/// Without a worker nothing starts: two values wait, and what does not fit comes back at once.
#[tokio::test(start_paused = true)]
async fn values_for_workers_never_wait_to_get_in() {
    for (overload, fit, why, later) in [
        (Overload::Wait, 2_u32, FULL, None),
        (Overload::HandBack { retry_after: LATER }, 2, FULL, Some(LATER)),
        (Overload::Queue, 2, FULL, None),
        (Overload::FailFast, 0, Refusal::NoWorker, None),
    ] {
        let sluice = Sluice::builder("sluice", 2, 2).overload(overload).build().unwrap();
        for n in 0..4 {
            match sluice.admit(Entry::of("alice"), n) {
                Ok(_) => assert!(n < fit, "{overload:?}"),
                Err(refused) => {
                    assert!(n >= fit, "{overload:?}");
                    assert_eq!((refused.why, refused.work), (why.clone(), n), "{overload:?}");
                    assert_eq!(refused.retry_after, later);
                }
            }
        }
        let both = || batch(|| Entry::of("alice"), 4..6);
        let refused = sluice.admit_all(both()).unwrap_err();
        assert_eq!((refused.why, refused.retry_after), (why, later), "{overload:?}");
        assert_eq!(refused.work, both(), "{overload:?}");
        assert_eq!(run_all(&sluice), Vec::from_iter(0..fit));
        assert_eq!((gauges(&sluice), sluice.stats().admitted), ((0, 0), u64::from(fit)));
    }
}

fn fails_fast<V>(concurrency: u32, each: TenantLimits) -> SluiceBuilder<V> {
    let builder = Sluice::builder("sluice", concurrency, ROOM).each_tenant(each);
    builder.overload(Overload::FailFast)
}

/// As many as there are idle workers and free places, however fast they come.
#[tokio::test(start_paused = true)]
async fn failing_fast_a_value_is_let_in_for_each_idle_worker() {
    let sluice = fails_fast(2, TenantLimits::new()).build().unwrap();
    let mut workers = [(); 3].map(|()| ByHand::new(sluice.next()));
    assert!(workers.iter_mut().all(|worker| worker.poll().is_none()));
    assert!(sluice.admit(Entry::of("alice"), 1).is_ok());
    assert!(sluice.admit(Entry::of("alice"), 2).is_ok(), "the first has not been pulled yet");
    let refused = sluice.admit(Entry::of("alice"), 3).unwrap_err();
    assert_eq!((refused.why, refused.work), (AT_LIMIT, 3));
    let [first, second, third] = &mut workers;
    let turn = first.poll().unwrap().unwrap();
    assert_eq!(*second.poll().unwrap().unwrap().value(), 2);
    // The second was dropped: one place is free, and the third worker.
    let refused = sluice.admit_all(batch(cart, [4, 5])).unwrap_err();
    assert_eq!((refused.why, refused.work.len()), (Refusal::KeyBusy, 2));
    assert!(sluice.admit_all(batch(cart, [4])).is_ok());
    assert_eq!(third.poll().unwrap().unwrap().finish(), 4);
    turn.finish();
    assert_eq!(sluice.admit(cart(), 6).unwrap_err().why, Refusal::NoWorker);
    assert_eq!((gauges(&sluice), sluice.stats().admitted), ((0, 0), 3));
}

/// Whatever is missing for it, also what those take that were let in just before: it does not wait.
#[tokio::test(start_paused = true)]
async fn failing_fast_no_value_waits_for_its_tenant_or_the_rate() {
    let rate = Rate::new(2, Duration::from_secs(60), 2).unwrap();
    let builder = fails_fast(8, TenantLimits::new().max_running(1)).rate(rate);
    let sluice = builder.build().unwrap();
    let mut workers = [(); 4].map(|()| ByHand::new(sluice.next()));
    assert!(workers.iter_mut().all(|worker| worker.poll().is_none()));
    let both = sluice.admit_all(batch(|| Entry::of("alice"), [1, 2])).unwrap_err();
    let at_limit = Refusal::TenantAtLimit(AtLimit { limit: 1, in_use: 1 });
    assert_eq!((both.why, both.work.len()), (at_limit.clone(), 2));
    assert_eq!((gauges(&sluice), sluice.stats().admitted), ((0, 0), 0), "nothing of it came in");
    sluice.admit(Entry::of("alice"), 1).unwrap();
    assert_eq!(sluice.admit(Entry::of("alice"), 2).unwrap_err().why, at_limit);
    sluice.admit(Entry::of("bob"), 3).unwrap();
    let why = sluice.admit(Entry::of("carol"), 4).unwrap_err().why;
    assert!(matches!(why, Refusal::RateLimited { .. }), "{why}");
    let [first, second, ..] = &mut workers;
    assert_eq!(first.poll().unwrap().unwrap().finish(), 1);
    assert_eq!(second.poll().unwrap().unwrap().finish(), 3);
    assert_eq!((gauges(&sluice), sluice.stats().completed), ((0, 0), 2));
}

/// What was put back waits; it does not stand in the way of what can start.
#[tokio::test(start_paused = true)]
async fn failing_fast_values_start_beside_those_that_come_again() {
    let sluice = fails_fast(8, TenantLimits::new()).build().unwrap();
    let mut workers = [(); 3].map(|()| ByHand::new(sluice.next()));
    assert!(workers.iter_mut().all(|worker| worker.poll().is_none()));
    sluice.admit(cart(), 1).unwrap();
    let [first, second, third] = &mut workers;
    let again = first.poll().unwrap().unwrap().retry_at(None).unwrap();
    sluice.admit(Entry::of("bob"), 2).unwrap();
    assert_eq!(sluice.admit(cart(), 3).unwrap_err().why, Refusal::KeyBusy);
    assert_eq!(second.poll().unwrap().unwrap().finish(), 2);
    assert!(sluice.release(again));
    // One worker waits, and the one that comes again is before it.
    assert_eq!(sluice.admit(Entry::of("bob"), 4).unwrap_err().why, Refusal::NoWorker);
    assert_eq!(third.poll().unwrap().unwrap().finish(), 1);
    assert_eq!(gauges(&sluice), (0, 0));
}

/// A worker that goes before it looked leaves what was let in for it to the next, or to the close.
#[tokio::test(start_paused = true)]
async fn failing_fast_what_a_worker_leaves_behind_is_not_lost() {
    let sluice = fails_fast(8, TenantLimits::new()).build().unwrap();
    let mut goes = ByHand::new(sluice.next());
    assert!(goes.poll().is_none());
    sluice.admit(cart(), 1).unwrap();
    assert_eq!(gauges(&sluice), (0, 1));
    drop(goes);
    assert_eq!(gauges(&sluice), (1, 0));
    assert_eq!(sluice.try_next().unwrap().finish(), 1);
    let mut late = ByHand::new(sluice.next());
    assert!(late.poll().is_none());
    sluice.admit(cart(), 2).unwrap();
    assert_eq!(sluice.close(), [2]);
    assert!(late.poll().unwrap().is_none());
    assert_eq!((gauges(&sluice), sluice.stats().handed_back), ((0, 0), 1));
}

#[tokio::test(start_paused = true)]
async fn failing_fast_a_caller_is_told_for_want_of_what() {
    let each = TenantLimits::new();
    let one_a_second = Rate::new(1, Duration::from_secs(1), 1).unwrap();
    let one = AtLimit { limit: 1, in_use: 1 };
    let retry_in = ms(600);
    let cases = [
        (fails_fast(1, each), "b", "2", Refusal::AtLimit(one)),
        (fails_fast(9, each), "b", "1", Refusal::KeyBusy),
        (fails_fast(9, each.max_running(1)), "a", "2", Refusal::TenantAtLimit(one)),
        (fails_fast(9, each).rate(one_a_second), "b", "2", Refusal::RateLimited { retry_in }),
    ];
    for (builder, tenant, key, why) in cases {
        let sluice = builder.build().unwrap();
        let cx = Context::new();
        let first = enter(&sluice, &cx, Entry::of("a").key("1"), 0).unwrap();
        tokio::time::advance(ms(400)).await;
        let refused = enter(&sluice, &cx, Entry::of(tenant).key(key), 7).unwrap_err();
        assert_eq!((refused.why.clone(), refused.work), (why.clone(), 7));
        assert_eq!(sluice.stats().rejected, [(why.label(), 1)]);
        assert_eq!(sluice.stats().gauges.queued, 0, "{why}");
        drop(first);
        assert!(enter(&sluice, &cx, Entry::of(tenant).key(key), 8).is_ok(), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenants_own_depth_is_kept_but_for_those_who_run_the_system() {
    let sluice = Sluice::builder("sluice", 1, 5)
        .each_tenant(TenantLimits::new().max_queued(2))
        .build()
        .unwrap();
    let (cx, mut kept) = (Context::new(), Vec::new());
    let mut admit = |entry: Entry| match enter(&sluice, &cx, entry, ()) {
        Ok(admitted) => {
            kept.push(admitted);
            Ok(())
        }
        Err(refused) => Err(refused.why),
    };
    let tenant_full = Err(Refusal::TenantQueueFull { queued: 2, max: 2 });
    for expected in [Ok(()), Ok(()), Ok(()), tenant_full] {
        assert_eq!(admit(Entry::of("alice")), expected, "one runs, two wait");
    }
    assert_eq!(admit(Entry::of("alice").class(Class::Admin)), Ok(()));
    assert_eq!(admit(Entry::of("alice").class(Class::System)), Ok(()));
    assert_eq!(admit(Entry::of("bob")), Ok(()));
    let full = Err(Refusal::QueueFull { queued: 5, capacity: 5 });
    assert_eq!(
        admit(Entry::of("bob").class(Class::System)),
        full,
        "nobody passes the whole queue's"
    );
}

/// Four callers, fifty offers each, at once; how many were let in, and the refusals by count.
async fn crowd<T: Send + 'static>(
    offer: impl Fn() -> Result<T, Refusal> + Clone + Send + 'static,
) -> (Vec<T>, BTreeMap<String, u32>) {
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let offer = offer.clone();
            tokio::spawn(async move { (0..50).map(|_| offer()).collect::<Vec<_>>() })
        })
        .collect();
    let (mut let_in, mut refused) = (Vec::new(), BTreeMap::new());
    for caller in callers {
        for offered in caller.await.unwrap() {
            match offered {
                Ok(one) => let_in.push(one),
                Err(why) => *refused.entry(why.to_string()).or_default() += 1,
            }
        }
    }
    (let_in, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_capacity_is_exact_under_many_submitters() {
    for round in 0..20 {
        let sluice = Sluice::builder("sluice", 2, 10).build().unwrap();
        let to = sluice.clone();
        let offers = crowd(move || {
            enter(&to, &Context::new(), Entry::of("alice"), ()).map_err(Refusal::from)
        });
        let (let_in, refused) = offers.await;
        assert_eq!(let_in.len(), 12, "round {round}");
        assert_eq!(refused, BTreeMap::from([("queue full: 10 of 10".to_owned(), 188)]));
        drop(let_in);
        let gauges = sluice.stats().gauges;
        assert_eq!((gauges.queued, gauges.running), (0, 0));
    }
}
