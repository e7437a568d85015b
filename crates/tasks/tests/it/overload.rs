//! What cannot start at once: the four policies, for groups, as one table.
//!
//! `docs/rules.md#overload-1`, `docs/rules.md#overload-2`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_tasks::{AtLimit, Context, GroupOverload as Overload, Refusal, TaskGroup};

use crate::probe::{Busy, ByHand, Count, settle};

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
async fn a_group_does_with_six_offers_what_its_policy_says() {
    for Case { overload, waits, refused } in CASES {
        let group = TaskGroup::builder("group", 2).overload(overload).build().unwrap();
        let (end, ran) = (Context::new(), Arc::<Count>::default());
        let mut offers: Vec<_> = (0..6)
            .map(|_| {
                let (end, ran) = (end.clone(), Arc::clone(&ran));
                ByHand::new(group.submit(Context::new(), |cx| async move {
                    ran.add();
                    end.cancelled().await;
                    cx.check()
                }))
            })
            .collect();
        let mut tasks = Vec::new();
        let mut refusals = Vec::new();
        offers.retain_mut(|offer| match offer.poll() {
            None => true,
            Some(Ok(task)) => {
                tasks.push(task);
                false
            }
            Some(Err(refusal)) => {
                refusals.push((refusal.why, refusal.retry_after));
                false
            }
        });
        settle().await;
        let gauges = group.stats().gauges;
        assert_eq!((gauges.running, gauges.queued, ran.get()), (2, waits, 2), "{overload:?}");
        let expected = refused.map_or(Vec::new(), |why| vec![why; 4 - waits as usize]);
        assert_eq!(refusals, expected, "{overload:?}");
        end.cancel();
        while let Some(mut offer) = (!offers.is_empty()).then(|| offers.remove(0)) {
            settle().await;
            tasks.push(offer.poll().unwrap().unwrap());
        }
        for task in tasks {
            assert_eq!(task.await, Ok(Ok(())));
        }
        let gauges = group.stats().gauges;
        assert_eq!((gauges.running, gauges.queued, ran.get()), (0, 0, 2 + waits), "{overload:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_policy_to_wait_a_try_is_refused_at_once() {
    let group = TaskGroup::new("group", 2).unwrap();
    let busy = Busy::all_of(&group).await;
    let refused = group.try_submit(Context::new(), |cx| async move { cx.check() }).unwrap_err();
    assert_eq!((refused.why, refused.retry_after), (AT_LIMIT, None));
    busy.end().await;
    let task = group.try_submit(Context::new(), |cx| async move { cx.check() }).unwrap();
    assert_eq!(task.await, Ok(Ok(())));
}

/// Submits a hundred to a group of one; the order in which they started.
async fn order_of_starts(overload: Overload) -> Vec<u32> {
    let group = TaskGroup::builder("group", 1).overload(overload).build().unwrap();
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
    let started = started.lock().unwrap();
    started.clone()
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_first_come_first_served() {
    let order = order_of_starts(Overload::Queue { capacity: 100 }).await;
    assert_eq!(order, Vec::from_iter(0..100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_queue_is_first_come_first_served_on_many_threads() {
    for overload in [
        Overload::Queue { capacity: 100 },
        Overload::HandBack { capacity: 100, retry_after: LATER },
        Overload::Wait,
    ] {
        assert_eq!(order_of_starts(overload).await, Vec::from_iter(0..100), "{overload:?}");
    }
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
async fn a_groups_capacity_is_exact_under_many_submitters() {
    for round in 0..20 {
        let group = TaskGroup::builder("group", 2).overload(Overload::Queue { capacity: 10 });
        let group = group.build().unwrap();
        let busy = Busy::all_of(&group).await;
        let to = group.clone();
        let work = |cx: Context| async move { cx.check() };
        let offers = crowd(move || to.try_submit(Context::new(), work).map_err(Refusal::from));
        let (let_in, refused) = offers.await;
        assert_eq!(let_in.len(), 10, "round {round}");
        assert_eq!(refused, BTreeMap::from([("queue full: 10 of 10".to_owned(), 190)]));
        assert_eq!(group.stats().gauges.queued, 10);
        busy.end().await;
        for task in let_in {
            assert_eq!(task.await, Ok(Ok(())));
        }
        assert_eq!((group.stats().gauges.queued, group.stats().gauges.running), (0, 0));
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
