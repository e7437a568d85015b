//! A child that was made inside a task: it belongs to that task, runs on its permit while it waits,
//! and ends with it.
//!
//! `docs/rules.md#task-5`.

use std::future::pending;
use std::sync::{Arc, mpsc};

use proptest::prelude::*;
use sluicegate_tasks::{Context, Refusal, TaskError, TaskGroup};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::probe::{Busy, ByHand, Count, Guard, ms, settle};

fn group(limit: u32) -> TaskGroup {
    TaskGroup::new("pool", limit).unwrap()
}

async fn never(cx: Context) {
    drop(cx);
    pending::<()>().await;
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_escapes_gets_refusals_once_its_maker_is_over() {
    let group = group(3);
    let parent = group.clone();
    let escaped = group.run(Context::new(), |cx| async move {
        drop(cx);
        parent.child("parts").unwrap()
    });
    let escaped = escaped.await.unwrap();
    let why = escaped.try_submit(Context::new(), never).unwrap_err().why;
    assert_eq!(why, Refusal::Draining);
    let why = escaped.submit(Context::new(), never).await.unwrap_err().why;
    assert_eq!(why, Refusal::Draining);
    let why = escaped.child("more").unwrap().try_submit(Context::new(), never).unwrap_err().why;
    assert_eq!(why, Refusal::Draining);
}

#[tokio::test(start_paused = true)]
async fn however_its_maker_ends_its_tasks_are_gone_before_the_permit_is_back() {
    for ends in ["returns", "panics", "is aborted"] {
        let group = TaskGroup::builder("pool", 3).unwind(ms(10)).build().unwrap();
        let (parent, (guard, dropped)) = (group.clone(), Guard::new());
        let held = Arc::new(guard);
        let task = group.submit(Context::new(), move |cx| async move {
            let child = parent.child("parts").unwrap();
            for _ in 0..3 {
                let held = Arc::clone(&held);
                let part = |cx: Context| async move {
                    let _held = (held, cx);
                    pending::<()>().await;
                };
                drop(child.try_submit(&cx, part).unwrap());
            }
            drop(held);
            tokio::task::yield_now().await;
            assert_eq!(parent.stats().gauges.running, 3);
            match ends {
                "returns" => child,
                "panics" => panic!("with a child"),
                _ => pending().await,
            }
        });
        let task = task.await.unwrap();
        if ends == "is aborted" {
            settle().await;
            drop(group.drain(Instant::now()).await);
        }
        let ended = task.await;
        assert_eq!(dropped.get(), 1, "{ends}: all of it is gone when anybody hears of the end");
        assert_eq!((group.running().len(), group.stats().gauges.running), (0, 0), "{ends}");
        match ends {
            "returns" => assert!(ended.is_ok()),
            "panics" => assert!(matches!(ended, Err(TaskError::Panicked(_)))),
            _ => assert!(matches!(ended, Err(TaskError::Aborted))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_parent_was_drained_nothing_of_it_runs() {
    let group = group(4);
    let (parent, ran) = (group.clone(), Arc::<Count>::default());
    let counted = Arc::clone(&ran);
    let (tell, told) = oneshot::channel();
    let task = group.submit(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        tell.send(child.clone()).ok();
        cx.cancelled().await;
        // Also while its maker is on its way out.
        while child.try_submit(Context::new(), never).is_ok() {
            counted.add();
        }
    });
    let task = task.await.unwrap();
    let escaped = told.await.unwrap();
    let report = group.drain(Instant::now() + ms(5)).await;
    assert!(report.abandoned.is_empty(), "{report}");
    assert!(task.is_finished());
    assert_eq!((group.running(), escaped.running()), (vec![], vec![]));
    assert_eq!(escaped.try_submit(Context::new(), never).unwrap_err().why, Refusal::Draining);
}

/// A parent's drain cancels, then drops, the tasks of its children and of theirs.
#[tokio::test(start_paused = true)]
async fn a_parents_drain_ends_tasks_at_every_depth() {
    let group = TaskGroup::builder("pool", 4).unwind(ms(10)).build().unwrap();
    let child = group.child("child").unwrap();
    let grandchild = child.child("grandchild").unwrap();
    let mut tasks = Vec::new();
    for group in [&group, &child, &grandchild] {
        tasks.push(group.submit(Context::new(), never).await.unwrap());
    }
    let inside = grandchild.clone();
    tasks.push(
        grandchild
            .submit(Context::new(), |cx| async move {
                let child = inside.child("inside").unwrap();
                child.run(&cx, never).await.ok();
            })
            .await
            .unwrap(),
    );
    settle().await;
    assert_eq!((group.running().len(), child.running().len()), (5, 4));
    let report = group.drain(Instant::now() + ms(5)).await;
    assert!(report.abandoned.is_empty(), "{report}");
    for (n, task) in tasks.into_iter().enumerate() {
        // The last one is a maker, whose part may go first: then it returns.
        assert!(task.await.is_err() || n == 3);
    }
    for group in [&group, &child, &grandchild] {
        assert_eq!((group.running().len(), group.stats().gauges.running), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn work_on_the_makers_permit_goes_on_whenever_the_maker_waits_and_never_while_it_runs() {
    let group = group(1);
    let (parent, ran) = (group.clone(), Arc::<Count>::default());
    let counted = Arc::clone(&ran);
    let done = group.run(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let part = |cx: Context| async move {
            counted.add();
            cx.until_interrupted(tokio::time::sleep(ms(5))).await
        };
        let task = child.submit(&cx, part).await.unwrap();
        let before = ran.get();
        tokio::time::sleep(ms(50)).await;
        (before, ran.get(), task.is_finished(), task.await)
    });
    assert_eq!(done.await, Ok((0, 1, true, Ok(Ok(())))));
}

/// Where the maker may wait while one that borrowed a permit waits for the one that has the maker's.
#[tokio::test(start_paused = true)]
async fn awaiting_a_task_that_borrowed_drives_the_one_on_the_makers_permit() {
    let group = group(2);
    let parent = group.clone();
    let done = group.run(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let (tell, told) = oneshot::channel::<u32>();
        let takes = |cx: Context| async move { cx.until_interrupted(told).await };
        let takes = child.submit(&cx, takes).await.unwrap();
        let gives = |cx: Context| async move { (tell.send(7), cx.check()) };
        let gives = child.submit(&cx, gives).await.unwrap();
        (takes.await, gives.await)
    });
    let done = tokio::time::timeout(ms(1000), done).await.unwrap();
    assert_eq!(done, Ok((Ok(Ok(Ok(7))), Ok((Ok(()), Ok(()))))));
}

#[tokio::test(start_paused = true)]
async fn a_maker_that_drains_its_own_group_drives_its_child() {
    let group = group(1);
    let parent = group.clone();
    let report = group.run(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let task = child.submit(&cx, |cx| async move { cx.check() }).await.unwrap();
        let report = parent.drain(Instant::now() + ms(5000)).await;
        (report.is_clean(), task.await)
    });
    assert_eq!(report.await, Ok((true, Ok(Ok(())))));
}

#[tokio::test]
async fn at_a_makers_end_its_children_go_on_whichever_is_waited_for() {
    let group = group(2);
    let parent = group.clone();
    let done = group.run(Context::new(), |cx| async move {
        let (first, second) = (parent.child("first").unwrap(), parent.child("second").unwrap());
        let (tell, told) = mpsc::channel::<()>();
        // On a borrowed permit and a thread, until the other one is over.
        let waits = move |cx: Context| (told.recv().is_err(), cx);
        drop(first.submit_blocking(&cx, waits).await.unwrap());
        let holds = |cx: Context| async move {
            let _held = (tell, cx);
            pending::<()>().await;
        };
        drop(second.submit(&cx, holds).await.unwrap());
    });
    assert_eq!(tokio::time::timeout(ms(5000), done).await.unwrap(), Ok(()));
}

/// Only the maker's own poll drives: were it whoever awaits the task, both would run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_task_awaited_elsewhere_does_not_run_beside_its_maker() {
    let group = group(1);
    let (parent, running) = (group.clone(), Arc::<Count>::default());
    let most = group.run(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let counted = Arc::clone(&running);
        let works = move |cx: Context| async move { (busy(&counted), cx).0 };
        let task = child.submit(&cx, works).await.unwrap();
        let elsewhere = tokio::spawn(task);
        let own = busy(&running);
        own.max(elsewhere.await.unwrap().unwrap())
    });
    assert_eq!(most.await, Ok(1));
}

/// Works for a while. Returns how many do.
fn busy(running: &Count) -> u32 {
    let at_once = running.add();
    std::thread::sleep(ms(30));
    running.sub();
    at_once
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_children_of_a_maker_share_its_one_permit() {
    let group = group(1);
    let (parent, running) = (group.clone(), Arc::<Count>::default());
    let most = group.run(Context::new(), |cx| async move {
        let mut tasks = Vec::new();
        for name in ["first", "second", "third"] {
            let (child, running) = (parent.child(name).unwrap(), Arc::clone(&running));
            let works = move |cx: Context| (busy(&running), cx).0;
            tasks.push((child.submit_blocking(&cx, works).await.unwrap(), child));
        }
        let mut most = 0;
        for (task, _child) in tasks {
            most = most.max(task.await.unwrap());
        }
        most
    });
    assert_eq!(most.await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_task_of_one_child_that_submits_to_another_of_the_same_maker_is_nested() {
    let group = group(1);
    let parent = group.clone();
    let why = group.run(Context::new(), |cx| async move {
        let (first, second) = (parent.child("first").unwrap(), parent.child("second").unwrap());
        let submits = |cx: Context| async move { second.submit(&cx, never).await.unwrap_err().why };
        first.run(&cx, submits).await.unwrap()
    });
    assert_eq!(why.await, Ok(Refusal::Nested { group: "second".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn a_child_made_inside_a_task_cannot_be_resized() {
    let group = group(1);
    let parent = group.clone();
    let refused = group.run(Context::new(), |cx| async move {
        drop(cx);
        let child = parent.child("parts").unwrap();
        (child.resize(4).unwrap_err().field, child.resize(1).is_ok())
    });
    assert_eq!(refused.await, Ok(("limit", true)));
}

#[tokio::test]
async fn a_thread_of_a_child_only_borrows() {
    for limit in [1, 2] {
        let group = group(limit);
        let parent = group.clone();
        let done = group.run(Context::new(), |cx| async move {
            drop(cx);
            let child = parent.child("parts").unwrap();
            let (jobs, work) = mpsc::channel::<u32>();
            // It waits for its maker, who would wait for it to give the permit back.
            let sums = child.submit_thread("sums", move |cx| (work.iter().sum::<u32>(), cx).0);
            let sums = sums.await.map_err(|refused| refused.why.label())?;
            for n in 0..4 {
                tokio::task::yield_now().await;
                jobs.send(n).unwrap();
            }
            drop(jobs);
            sums.await.map_err(|_| "no sum")
        });
        let done = tokio::time::timeout(ms(5000), done).await.unwrap().unwrap();
        assert_eq!(done, if limit == 1 { Err("at_limit") } else { Ok(6) });
    }
}

#[tokio::test]
async fn a_maker_that_blocks_lends_nothing_to_what_blocks_but_runs_what_it_awaits() {
    let group = group(1);
    let parent = group.clone();
    let runtime = tokio::runtime::Handle::current();
    let done = group.submit_blocking(Context::new(), move |cx| {
        let child = parent.child("parts").unwrap();
        let thread = child.try_submit_thread("beside", |cx| cx.check()).unwrap_err().why.label();
        let blocks = runtime.block_on(child.submit_blocking(&cx, |cx| cx.check()));
        let awaited = runtime.block_on(child.run(&cx, |cx| async move { cx.check() }));
        (thread, blocks.unwrap_err().why.label(), awaited)
    });
    assert_eq!(done.await.unwrap().await, Ok(("at_limit", "at_limit", Ok(Ok(())))));
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a value that nobody wants");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_nobody_wants_does_not_take_its_maker_down() {
    for limit in [1, 2] {
        let group = group(limit);
        let parent = group.clone();
        let done = group.run(Context::new(), |cx| async move {
            let child = parent.child("parts").unwrap();
            drop(child.submit(&cx, |cx| async move { (Bomb, cx).0 }).await.unwrap());
            let clean = child.drain(Instant::now() + ms(10)).await.is_clean();
            (clean, child.stats().completed)
        });
        assert_eq!(done.await, Ok((true, 1)), "of {limit}");
    }
}

#[test]
fn a_runtime_that_goes_away_drops_the_work_before_its_permit_is_back() {
    struct Looks(TaskGroup, mpsc::Sender<u32>);
    impl Drop for Looks {
        fn drop(&mut self) {
            self.1.send(self.0.stats().gauges.running).ok();
        }
    }
    let (group, (tell, told)) = (group(1), mpsc::channel());
    let looks = Looks(group.clone(), tell);
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let work = |cx: Context| async move {
            let _held = (looks, cx);
            pending::<()>().await;
        };
        drop(group.submit(Context::new(), work).await.unwrap());
        settle().await;
    });
    drop(runtime);
    assert_eq!((told.recv(), group.stats().gauges.running), (Ok(1), 0));
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_is_held_up_and_a_drain_drive_what_has_the_permit() {
    let group = group(1);
    let parent = group.clone();
    let done = group.run(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let part =
            |cx: Context| async move { cx.until_interrupted(tokio::time::sleep(ms(5))).await };
        for _ in 0..3 {
            drop(child.submit(&cx, part).await.unwrap());
        }
        child.drain(Instant::now() + ms(1000)).await.is_clean() && child.stats().completed == 3
    });
    assert_eq!(done.await, Ok(true));
}

#[tokio::test]
async fn blocking_work_has_the_permit_to_itself_until_it_is_back() {
    let group = group(1);
    let (parent, (release, released)) = (group.clone(), mpsc::channel::<()>());
    let (begins, begun) = mpsc::channel::<()>();
    let polls = Arc::<Count>::default();
    let polled = Arc::clone(&polls);
    let maker = group.submit(Context::new(), |cx| async move {
        let child = parent.child("parts").unwrap();
        let task = child.submit_blocking(&cx, move |cx| {
            begins.send(()).unwrap();
            released.recv().unwrap();
            cx.check()
        });
        let task = task.await.unwrap();
        let ticks = async {
            loop {
                polled.add();
                tokio::time::sleep(ms(1)).await;
            }
        };
        tokio::select! {
            done = task => done,
            () = ticks => unreachable!("it never ends"),
        }
    });
    let maker = maker.await.unwrap();
    tokio::task::yield_now().await;
    while begun.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    settle().await;
    let before = polls.get();
    tokio::time::sleep(ms(20)).await;
    assert_eq!(polls.get(), before, "the maker does nothing while its permit is on a thread");
    assert_eq!(group.running().len(), 2, "and the thread is listed");
    release.send(()).unwrap();
    assert_eq!(maker.await, Ok(Ok(Ok(()))));
    assert_eq!(group.running(), []);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_goes_away_leaves_nothing_of_a_child_behind() {
    let (guard, dropped) = Guard::new();
    let thread = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let group = group(1);
            let parent = group.clone();
            let maker = group.submit(Context::new(), |cx| async move {
                let child = parent.child("parts").unwrap();
                let part = |cx: Context| async move {
                    let _held = (guard, cx);
                    pending::<()>().await;
                };
                child.run(&cx, part).await.ok();
            });
            drop(maker.await.unwrap());
            settle().await;
            assert_eq!(group.running().len(), 2);
        });
        drop(runtime);
    });
    thread.join().unwrap();
    assert_eq!(dropped.get(), 1);
}

/// `docs/rules.md#task-3`: what counts is the permit that is held.
#[tokio::test(start_paused = true)]
async fn a_context_kept_after_its_task_ended_is_not_nested() {
    let (outer, inner) = (group(1), group(1));
    let inside = inner.clone();
    let kept = outer.run(Context::new(), |cx| async move {
        inside.run(&cx, |cx| async move { cx }).await.unwrap()
    });
    let kept = kept.await.unwrap();
    for group in [&outer, &inner] {
        let task = group.try_submit(&kept, |cx| async move { cx.check() }).unwrap();
        assert_eq!(task.await, Ok(Ok(())));
    }
    // And another task that now holds the permit is not mistaken for it.
    let busy = Busy::all_of(&outer).await;
    let mut waits = ByHand::new(outer.submit(&kept, |cx| async move { cx.check() }));
    assert!(waits.poll().is_none(), "it waits like everybody");
    busy.end().await;
    assert_eq!(waits.poll().unwrap().unwrap().await, Ok(Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_context_handed_out_while_its_task_runs_is_nested_until_it_ends() {
    let group = group(2);
    let (tell, told) = oneshot::channel();
    let (release, released) = oneshot::channel::<()>();
    let task = group.submit(Context::new(), |cx| async move {
        tell.send(cx).ok();
        released.await.ok();
    });
    let task = task.await.unwrap();
    let cx = told.await.unwrap();
    let why = group.try_submit(&cx, |cx| async move { cx.check() }).unwrap_err().why;
    assert_eq!(why, Refusal::Nested { group: "pool".to_owned() });
    release.send(()).unwrap();
    task.await.unwrap();
    assert!(group.try_submit(&cx, |cx| async move { cx.check() }).is_ok());
}

/// What a task does: so many steps, and so many parts in a child of its own.
#[derive(Clone, Debug)]
struct Plan {
    steps: u8,
    parts: Vec<Self>,
    at_once: bool,
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let leaf = (0u8..3).prop_map(|steps| Plan { steps, parts: Vec::new(), at_once: false });
    let plan = leaf.prop_recursive(3, 24, 4, |inner| {
        let parts = prop::collection::vec(inner, 0..4);
        (0u8..3, parts, any::<bool>()).prop_map(|(steps, parts, at_once)| Plan {
            steps,
            parts,
            at_once,
        })
    });
    prop::collection::vec(plan, 1..8)
}

/// Runs, counted whenever it does something itself: not while it awaits its child.
fn run(
    plan: Plan,
    group: TaskGroup,
    running: Arc<Count>,
    limit: u32,
    cx: Context,
) -> std::pin::Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async move {
        let works = async |steps: u8| {
            assert!(running.add() <= limit, "more than {limit} at once");
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            running.sub();
        };
        works(plan.steps).await;
        let mut done = 1;
        let child = group.child("parts").unwrap();
        let submit = |part: Plan| {
            let (child, running) = (child.clone(), Arc::clone(&running));
            let own = child.clone();
            let work = move |cx| run(part, own, running, limit, cx);
            let cx = cx.clone();
            async move { child.run(&cx, work).await.unwrap() }
        };
        if plan.at_once {
            let mut parts: Vec<_> =
                plan.parts.into_iter().map(|part| Box::pin(submit(part))).collect();
            let mut left = parts.len();
            std::future::poll_fn(|poller| {
                parts.retain_mut(|part| match part.as_mut().poll(poller) {
                    std::task::Poll::Ready(parts) => {
                        done += parts;
                        left -= 1;
                        false
                    }
                    std::task::Poll::Pending => true,
                });
                if left == 0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        } else {
            for part in plan.parts {
                done += submit(part).await;
            }
        }
        works(plan.steps).await;
        done
    })
}

fn size(plan: &Plan) -> u32 {
    1 + plan.parts.iter().map(size).sum::<u32>()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_more_than_the_limit_ever_run_and_all_of_it_ends(plans in plans(), limit in 1u32..4) {
        let runtime = Builder::new_multi_thread().worker_threads(3).enable_time().build().unwrap();
        runtime.block_on(async {
            let (group, running) = (group(limit), Arc::<Count>::default());
            let all: u32 = plans.iter().map(size).sum();
            let mut tasks = Vec::new();
            for plan in plans {
                let (own, running) = (group.clone(), Arc::clone(&running));
                let work = move |cx| run(plan, own, running, limit, cx);
                tasks.push(group.submit(Context::new(), work).await.unwrap());
            }
            let mut done = 0;
            for task in tasks {
                done += tokio::time::timeout(ms(20_000), task).await.unwrap().unwrap();
            }
            assert_eq!((done, running.get()), (all, 0));
            assert_eq!((group.stats().gauges.running, group.running()), (0, vec![]));
        });
    }
}
