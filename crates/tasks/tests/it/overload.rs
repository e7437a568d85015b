//! What cannot start at once: the two ways into a group.
//!
//! `docs/rules.md#overload-2`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sluicegate_tasks::{AtLimit, Context, Refusal, TaskGroup};

use crate::probe::{Busy, Count};

const AT_LIMIT: Refusal = Refusal::AtLimit(AtLimit { limit: 2, in_use: 2 });

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
