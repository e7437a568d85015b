//! Groups within a task: they run on what the task holds, and on what is free.

use std::sync::Arc;

use sluicegate_tasks::{Context, Refusal, TaskError, TaskGroup};
use tokio::sync::oneshot;

use crate::probe::{Count, settle};

#[tokio::test(start_paused = true)]
async fn a_child_makes_progress_with_every_permit_taken() {
    let group = TaskGroup::new("pool", 2).unwrap();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let parent = group.clone();
        let task = group.submit(Context::new(), |cx| async move {
            let child = parent.child("parts").unwrap();
            tokio::task::yield_now().await;
            let mut done = 0;
            for _ in 0..3 {
                done += child.run(&cx, |cx| async move { cx.check().map_or(0, |()| 1) }).await?;
            }
            Ok::<_, TaskError>(done)
        });
        tasks.push(task.await.unwrap());
    }
    for task in tasks {
        assert_eq!(task.await, Ok(Ok(3)));
    }
    assert_eq!((group.stats().gauges.running, group.stats().completed), (0, 2));
}

/// Runs `many` parts at once in a child made inside a task; the most at once.
async fn most_at_once(limit: u32, many: u32) -> (u32, TaskGroup) {
    let group = TaskGroup::new("pool", limit).unwrap();
    let parent = group.clone();
    let most = group.run(Context::new(), move |cx| async move {
        let child = parent.child("parts").unwrap();
        let (inside, most) = (Arc::<Count>::default(), Arc::<Count>::default());
        let parts = (0..many).map(|_| {
            let (child, cx) = (child.clone(), cx.clone());
            let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
            let part = |cx: Context| async move {
                let now = inside.add();
                while most.get() < now {
                    most.add();
                }
                cx.until_interrupted(tokio::task::yield_now()).await.unwrap();
                inside.sub();
            };
            tokio::spawn(async move { child.run(&cx, part).await })
        });
        for part in parts.collect::<Vec<_>>() {
            part.await.unwrap().unwrap();
        }
        assert!(parent.stats().gauges.running <= limit);
        most.get()
    });
    (most.await.unwrap(), group)
}

#[tokio::test(start_paused = true)]
async fn it_borrows_free_permits_and_no_more() {
    for (limit, most) in [(1, 1), (2, 2), (4, 4)] {
        let (at_once, group) = most_at_once(limit, 10).await;
        assert_eq!(at_once, most, "its own by hand-over, and {} free", limit - 1);
        assert_eq!(group.stats().gauges.running, 0, "all given back");
    }
}

#[tokio::test(start_paused = true)]
async fn it_never_waits_for_its_parents_permits() {
    let group = TaskGroup::new("pool", 2).unwrap();
    let (release, released) = oneshot::channel::<()>();
    let other = group.submit(Context::new(), |cx| async move {
        released.await.unwrap();
        cx.check()
    });
    let other = other.await.unwrap();
    let parent = group.clone();
    let within = group.submit(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let first = child.try_submit(&cx, |cx| async move { cx.cancelled().await }).unwrap();
        let second = child.try_submit(&cx, |cx| async move { cx.check() });
        let refused = matches!(second.unwrap_err().why, Refusal::AtLimit(_));
        let stats = child.stats();
        drop(child);
        drop(first.await);
        (refused, stats.gauges.queued, parent.stats().gauges.queued)
    });
    assert_eq!(within.await.unwrap().await, Ok((true, 0, 0)));
    release.send(()).unwrap();
    assert_eq!(other.await, Ok(Ok(())));
    assert_eq!(group.stats().gauges.running, 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_child_runs_is_what_its_gauge_says() {
    let group = TaskGroup::new("pool", 3).unwrap();
    let parent = group.clone();
    let within = group.run(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let mut parts = Vec::new();
        for _ in 0..3 {
            parts.push(child.try_submit(&cx, |cx| async move { cx.cancelled().await }).unwrap());
        }
        let seen = (child.stats().gauges.running, child.running().len());
        drop(child);
        for part in parts {
            drop(part.await);
        }
        (seen, parent.stats().gauges.running)
    });
    assert_eq!(within.await, Ok(((3, 3), 1)), "one by hand-over, two borrowed");
}

#[tokio::test(start_paused = true)]
async fn made_outside_it_shares_its_parents_permits() {
    let parent = TaskGroup::new("pool", 2).unwrap();
    let child = parent.child("share").unwrap();
    let mut ends = Vec::new();
    let mut tasks = Vec::new();
    for group in [&parent, &child] {
        let (end, ended) = oneshot::channel::<()>();
        let work = |cx: Context| async move {
            ended.await.unwrap();
            cx.check()
        };
        tasks.push(group.try_submit(Context::new(), work).unwrap());
        ends.push(end);
    }
    for group in [&parent, &child] {
        let refused = group.try_submit(Context::new(), |cx| async move { cx.check() });
        assert!(matches!(refused.unwrap_err().why, Refusal::AtLimit(_)), "{}", group.name());
    }
    assert_eq!(
        (parent.running().len(), child.running().len()),
        (2, 1),
        "the parent answers for both"
    );
    assert_eq!((parent.stats().gauges.running, child.stats().gauges.running), (2, 1));
    for end in ends {
        end.send(()).unwrap();
    }
    for task in tasks {
        assert_eq!(task.await, Ok(Ok(())));
    }
    assert_eq!(parent.stats().gauges.running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_child_dropped_with_work_in_it_gives_what_it_borrowed_back() {
    let group = TaskGroup::new("pool", 3).unwrap();
    let parent = group.clone();
    let task = group.submit(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        for _ in 0..3 {
            drop(child.try_submit(&cx, |cx| async move { cx.cancelled().await }).unwrap());
        }
        assert_eq!(parent.stats().gauges.running, 3);
    });
    assert_eq!(task.await.unwrap().await, Ok(()));
    settle().await;
    assert_eq!((group.stats().gauges.running, group.running().len()), (0, 0));
}

/// `docs/rules.md#drain-1`, `docs/rules.md#drain-2`: what runs on a group's permits is drained with it.
#[tokio::test(start_paused = true)]
async fn made_outside_it_is_drained_with_its_parent() {
    let group = TaskGroup::new("pool", 1).unwrap();
    let child = group.child("parts").unwrap();
    let (release, released) = oneshot::channel::<()>();
    let runs = child
        .submit(Context::new(), |cx| async move { cx.until_interrupted(released).await.is_ok() });
    let runs = runs.await.unwrap();
    assert_eq!(group.running().len(), 1);
    assert_eq!((group.stats().admitted, child.stats().admitted), (0, 1));

    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let drain = tokio::spawn({
        let group = group.clone();
        async move { group.drain(deadline).await }
    });
    settle().await;
    assert!(!drain.is_finished());
    let late = child.submit(Context::new(), |cx| async move { cx.check() }).await;
    assert_eq!(late.unwrap_err().why, Refusal::Draining);
    release.send(()).unwrap();
    assert!(drain.await.unwrap().is_clean());
    assert_eq!(runs.await, Ok(true));
    assert_eq!((group.running().len(), group.stats().gauges.running), (0, 0));
}

/// A task that runs within one of the pool's may go on after that one: it has no permit of the pool to
/// hand over.
#[tokio::test(start_paused = true)]
async fn a_child_made_in_a_task_of_another_group_has_no_permit_of_its_own() {
    let (pool, other) = (TaskGroup::new("pool", 1).unwrap(), TaskGroup::new("other", 1).unwrap());
    let ((made, is_made), (go, may_go)) = (oneshot::channel(), oneshot::channel());
    let (own, inner) = (pool.clone(), other.clone());
    let outer = pool.run(Context::new(), move |cx| async move {
        let task = inner.submit(&cx, move |_| async move {
            let child = own.child("parts").unwrap();
            let nested = child.run(Context::new(), |_| async {}).await;
            made.send(nested).unwrap();
            may_go.await.unwrap();
            child.try_submit(Context::new(), |_| async {}).map(drop).map_err(|refused| refused.why)
        });
        (task.await.unwrap(), is_made.await.unwrap())
    });
    let (task, nested) = outer.await.unwrap();
    assert_eq!(nested, Err(TaskError::Refused(Refusal::Nested { group: "parts".to_owned() })));
    // The pool's task has ended; another has the only permit.
    let (hold, held) = oneshot::channel::<()>();
    let second = pool.submit(Context::new(), |_| async { drop(held.await) }).await.unwrap();
    go.send(()).unwrap();
    let why = task.await.unwrap().unwrap_err();
    assert!(matches!(why, Refusal::AtLimit(_)), "{why}");
    hold.send(()).unwrap();
    second.await.unwrap();
}

/// What the task holds is no matter of that group's: its drain does not wait for the task.
#[tokio::test(start_paused = true)]
async fn a_child_made_in_a_task_that_its_parent_does_not_answer_for_is_drained_with_its_parent() {
    let pool = TaskGroup::new("pool", 4).unwrap();
    let share = pool.child("share").unwrap();
    let (go, may_go) = oneshot::channel::<()>();
    let parent = share.clone();
    let task = pool.submit(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        may_go.await.unwrap();
        let why = child.submit(&cx, |_| async {}).await.unwrap_err().why;
        (why, child)
    });
    let task = task.await.unwrap();
    settle().await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    assert!(share.drain(deadline).await.is_clean());
    go.send(()).unwrap();
    let (why, child) = task.await.unwrap();
    assert_eq!(why, Refusal::Draining);
    assert_eq!((share.running(), child.running()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_child_of_a_sibling_ends_with_the_sibling() {
    let pool = TaskGroup::new("pool", 4).unwrap();
    let own = pool.clone();
    let maker = pool.run(Context::new(), |cx| async move {
        let (one, other) = (own.child("one").unwrap(), own.child("other").unwrap());
        let (go, may_go) = oneshot::channel::<()>();
        let parent = other.clone();
        let part = one.submit(&cx, |_| async move {
            let child = parent.child("parts").unwrap();
            may_go.await.unwrap();
            child.submit(Context::new(), |_| async {}).await.unwrap_err().why
        });
        let part = part.await.unwrap();
        settle().await;
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        assert!(other.drain(deadline).await.is_clean());
        go.send(()).unwrap();
        part.await.unwrap()
    });
    assert_eq!(maker.await, Ok(Refusal::Draining));
}

#[test]
fn a_child_of_a_runtime_that_is_gone_is_finished() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let group = TaskGroup::new("pool", 1).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let own = group.clone();
    let maker = group.submit(Context::new(), move |cx| async move {
        let child = own.child("parts").unwrap();
        let waits = |_| async { std::future::pending::<()>().await };
        tell.send(child.submit(&cx, waits).await.unwrap()).unwrap();
        std::future::pending::<()>().await;
    });
    let _maker = runtime.block_on(maker).unwrap();
    let part = told.recv().unwrap();
    assert!(!part.is_finished());
    drop(runtime);
    assert!(part.is_finished());
}
