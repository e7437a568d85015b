//! What cannot start at once: the four policies of a turnstile, and the two ways into a group.
//!
//! `docs/rules.md#overload-1`, `docs/rules.md#overload-2`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_tasks::{
    AtLimit, Context, Entry, Overload, Rate, Refusal, TaskGroup, TenantLimits, Turnstile,
};

use crate::probe::{Busy, Count, ms};

const LATER: Duration = Duration::from_secs(30);
const HAND_BACK: Overload = Overload::HandBack { capacity: 2, retry_after: LATER };
const QUEUE: Overload = Overload::Queue { capacity: 2 };
const FULL: Refusal = Refusal::QueueFull { queued: 2, capacity: 2 };
const AT_LIMIT: Refusal = Refusal::AtLimit(AtLimit { limit: 2, in_use: 2 });

/// What becomes of six offers where two may run.
struct Case {
    overload: Overload,
    /// How many wait, with their submitter or in the queue.
    waits: u32,
    /// Why the others are refused, and when to offer them again.
    refused: Option<(Refusal, Option<Duration>)>,
}

const CASES: [Case; 4] = [
    Case { overload: Overload::Wait, waits: 4, refused: None },
    Case { overload: HAND_BACK, waits: 2, refused: Some((FULL, Some(LATER))) },
    Case { overload: QUEUE, waits: 2, refused: Some((FULL, None)) },
    Case { overload: Overload::FailFast, waits: 0, refused: Some((AT_LIMIT, None)) },
];

#[tokio::test(start_paused = true)]
async fn a_turnstile_does_with_six_offers_what_its_policy_says() {
    for Case { overload, waits, refused } in CASES {
        let turnstile = Turnstile::builder("turnstile", 2).overload(overload).build().unwrap();
        let cx = Context::new();
        let offers: Vec<_> = (0..6).map(|n| turnstile.admit(&cx, Entry::of("alice"), n)).collect();
        let (admitted, refusals): (Vec<_>, Vec<_>) = offers.into_iter().partition(Result::is_ok);
        let gauges = turnstile.stats().gauges;
        assert_eq!((gauges.running, gauges.queued), (2, waits), "{overload:?}");
        let refusals = refusals.into_iter().map(Result::unwrap_err);
        let refusals: Vec<_> = refusals.map(|one| ((one.why, one.retry_after), one.work)).collect();
        let numbers = 2 + waits..6;
        let expected =
            refused.into_iter().flat_map(|why| numbers.clone().map(move |n| (why.clone(), n)));
        assert_eq!(refusals, expected.collect::<Vec<_>>(), "{overload:?}");
        for (n, admitted) in (0..).zip(admitted) {
            assert_eq!(admitted.unwrap().turn().await.unwrap().finish(), n);
        }
        let gauges = turnstile.stats().gauges;
        assert_eq!((gauges.running, gauges.queued), (0, 0), "{overload:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turnstile_that_fails_fast_says_for_want_of_what() {
    let build = |concurrency, each: TenantLimits| {
        let builder = Turnstile::builder("turnstile", concurrency).each_tenant(each);
        builder.overload(Overload::FailFast)
    };
    let each = TenantLimits::new();
    let one_a_second = Rate::new(1, Duration::from_secs(1), 1).unwrap();
    let one = AtLimit { limit: 1, in_use: 1 };
    let retry_in = ms(600);
    let cases = [
        (build(1, each), "b", "2", Refusal::AtLimit(one)),
        (build(9, each), "b", "1", Refusal::KeyBusy),
        (build(9, each.max_running(1)), "a", "2", Refusal::TenantAtLimit(one)),
        (build(9, each).rate(one_a_second), "b", "2", Refusal::RateLimited { retry_in }),
    ];
    for (builder, tenant, key, why) in cases {
        let turnstile = builder.build().unwrap();
        let cx = Context::new();
        let first = turnstile.admit(&cx, Entry::of("a").key("1"), ()).unwrap();
        tokio::time::advance(ms(400)).await;
        let refused = turnstile.admit(&cx, Entry::of(tenant).key(key), 7).unwrap_err();
        assert_eq!((refused.why.clone(), refused.work), (why.clone(), 7));
        assert_eq!(turnstile.stats().rejected, [(why.label(), 1)]);
        assert_eq!(turnstile.stats().gauges.queued, 0, "{why}");
        drop(first);
        assert!(turnstile.admit(&cx, Entry::of(tenant).key(key), ()).is_ok(), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenants_own_depth_is_kept_but_for_those_who_run_the_system() {
    use sluicegate_tasks::Class;
    let turnstile = Turnstile::builder("turnstile", 1)
        .overload(Overload::Queue { capacity: 5 })
        .each_tenant(TenantLimits::new().max_queued(2))
        .build()
        .unwrap();
    let (cx, mut kept) = (Context::new(), Vec::new());
    let mut admit = |entry: Entry| match turnstile.admit(&cx, entry, ()) {
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

#[tokio::test(start_paused = true)]
async fn a_try_is_refused_at_once_by_a_group() {
    let group = TaskGroup::new("group", 2).unwrap();
    let busy = Busy::all_of(&group).await;
    let refused = group.try_submit(Context::new(), |cx| async move { cx.check() }).unwrap_err();
    assert_eq!((refused.why, refused.retry_after), (AT_LIMIT, None));
    busy.end().await;
    let task = group.try_submit(Context::new(), |cx| async move { cx.check() }).unwrap();
    assert_eq!(task.await, Ok(Ok(())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_submitted_one_after_the_other_starts_so() {
    let group = TaskGroup::new("group", 1).unwrap();
    let (started, mut tasks) = (Arc::<Mutex<Vec<u32>>>::default(), Vec::new());
    for n in 0..100 {
        let started = Arc::clone(&started);
        let work = move |cx: Context| async move {
            started.lock().unwrap().push(n);
            cx.until_interrupted(tokio::task::yield_now()).await
        };
        tasks.push(group.submit(Context::new(), work).await.unwrap());
    }
    for task in tasks {
        assert_eq!(task.await, Ok(Ok(())));
    }
    assert_eq!(*started.lock().unwrap(), Vec::from_iter(0..100));
}

/// Four submitters, fifty offers each, at once; how many were let in, and the refusals by count.
async fn crowd<T: Send + 'static>(
    offer: impl Fn() -> Result<T, Refusal> + Clone + Send + 'static,
) -> (Vec<T>, BTreeMap<String, u32>) {
    let submitters: Vec<_> = (0..4)
        .map(|_| {
            let offer = offer.clone();
            tokio::spawn(async move { (0..50).map(|_| offer()).collect::<Vec<_>>() })
        })
        .collect();
    let (mut let_in, mut refused) = (Vec::new(), BTreeMap::new());
    for submitter in submitters {
        for offered in submitter.await.unwrap() {
            match offered {
                Ok(one) => let_in.push(one),
                Err(why) => *refused.entry(why.to_string()).or_default() += 1,
            }
        }
    }
    (let_in, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_groups_refusals_are_exact_under_many_submitters() {
    for round in 0..20 {
        let group = TaskGroup::new("group", 10).unwrap();
        let (to, end) = (group.clone(), Context::new());
        let ended = end.clone();
        let offers = crowd(move || {
            let ended = ended.clone();
            let work = |cx: Context| async move {
                ended.cancelled().await;
                cx.check()
            };
            to.try_submit(Context::new(), work).map_err(Refusal::from)
        });
        let (let_in, refused) = offers.await;
        assert_eq!(let_in.len(), 10, "round {round}");
        let all = BTreeMap::from([("at the limit: 10 of 10 in use".to_owned(), 190)]);
        assert_eq!(refused, all);
        end.cancel();
        for task in let_in {
            assert_eq!(task.await, Ok(Ok(())));
        }
        assert_eq!((group.stats().gauges.queued, group.stats().gauges.running), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_turnstiles_capacity_is_exact_under_many_submitters() {
    for round in 0..20 {
        let turnstile = Turnstile::builder("turnstile", 2);
        let turnstile = turnstile.overload(Overload::Queue { capacity: 10 }).build().unwrap();
        let to = turnstile.clone();
        let offers =
            crowd(move || to.admit(&Context::new(), Entry::of("alice"), ()).map_err(Refusal::from));
        let (let_in, refused) = offers.await;
        assert_eq!(let_in.len(), 12, "round {round}");
        assert_eq!(refused, BTreeMap::from([("queue full: 10 of 10".to_owned(), 188)]));
        drop(let_in);
        let gauges = turnstile.stats().gauges;
        assert_eq!((gauges.queued, gauges.running), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_run_than_the_limit_under_many_submitters() {
    let group = TaskGroup::new("group", 3).unwrap();
    let inside = Arc::<Count>::default();
    let submitters: Vec<_> = (0..8)
        .map(|_| {
            let (group, inside) = (group.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                for _ in 0..100 {
                    let inside = Arc::clone(&inside);
                    let work = |cx: Context| async move {
                        assert!(inside.add() <= 3);
                        cx.until_interrupted(tokio::task::yield_now()).await.unwrap();
                        inside.sub();
                    };
                    group.run(Context::new(), work).await.unwrap();
                    assert!(group.stats().gauges.running <= 3);
                }
            })
        })
        .collect();
    for submitter in submitters {
        submitter.await.unwrap();
    }
    let stats = group.stats();
    assert_eq!((stats.completed, stats.gauges.running, stats.gauges.queued), (800, 0, 0));
}
