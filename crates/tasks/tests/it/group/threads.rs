//! Threads of a group's own: named, listed, cancelled by their context, joined by the drain.
//!
//! `docs/rules.md#task-6`.

mod leaving;

use std::sync::mpsc;
use std::time::Duration;

use sluicegate_tasks::{Context, Interrupt, Refusal, TaskError, TaskGroup};
use tokio::time::Instant;

use crate::probe::{Busy, ByHand, Guard, ms};

fn group(limit: u32) -> TaskGroup {
    TaskGroup::new("store", limit).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Whether the system has a thread of that name in this process. One that was joined may be listed for a
/// moment more: nothing of it runs then but the system's own end of it.
fn exists(comm: &str) -> bool {
    const EXITING: u64 = 4;
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    threads.flatten().any(|thread| {
        // A thread may end while it is looked at.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let Some((name, fields)) = stat.rsplit_once(')') else { return false };
        let flags = fields.split_whitespace().nth(6).and_then(|flags| flags.parse::<u64>().ok());
        name.split_once('(').is_some_and(|(_, name)| name == comm)
            && flags.is_some_and(|flags| flags & EXITING == 0)
    })
}

#[test]
fn it_has_its_name_and_its_value_and_needs_no_runtime() {
    let group = group(1);
    let (release, released) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let work = move |cx: Context| {
        tell.send(exists("a-writer-with-a")).unwrap();
        released.recv().unwrap();
        cx.check()
    };
    let task = group.try_submit_thread("a-writer-with-a-long-name", work).unwrap();
    assert!(told.recv().unwrap(), "as far as the system shows it");
    assert_eq!(group.running()[0].name, "a-writer-with-a-long-name");
    let taken = group.try_submit_thread("a-writer-with-a-long-name", |cx| cx.check()).unwrap_err();
    assert!(matches!(taken.why, Refusal::NameTaken { .. }));
    let full = group.try_submit_thread("another", |cx| cx.check()).unwrap_err();
    assert!(matches!(full.why, Refusal::AtLimit(_)));
    assert!(!task.is_finished());
    release.send(()).unwrap();
    assert_eq!(ByHand::wait(task), Ok(Ok(())));
    assert_eq!((group.running(), group.stats().completed), (vec![], 1));
}

#[tokio::test]
async fn a_drain_joins_it() {
    for n in 0..50 {
        let (group, name) = (group(2), format!("joined-{n}"));
        let task = group.submit_thread(name.as_str(), |cx| cx.cancelled_blocking()).await.unwrap();
        let report = group.drain(Instant::now()).await;
        assert!(!exists(&name), "the thread is gone when the drain says so");
        assert_eq!((report.cancelled.len(), report.abandoned.len()), (1, 0), "{report}");
        // It may have been cancelled before it began.
        let never_ran = Err(TaskError::Interrupted(Interrupt::Cancelled));
        assert!([Ok(Interrupt::Cancelled), never_ran].contains(&task.await));
    }
}

#[tokio::test]
async fn what_does_not_heed_its_context_is_named_as_abandoned() {
    let group = TaskGroup::builder("store", 1).unwind(ms(5)).build().unwrap();
    let ((begin, begun), (release, released)) = (mpsc::channel(), mpsc::channel::<()>());
    let task = group.submit_thread("stuck", move |cx| {
        begin.send(()).unwrap();
        released.recv().unwrap();
        cx.check()
    });
    let task = task.await.unwrap();
    begun.recv().unwrap(); // else it could be cancelled before it begins
    let report = group.drain(Instant::now()).await;
    assert_eq!(report.abandoned[0].name, "stuck");
    release.send(()).unwrap();
    assert!(task.await.is_ok());
    assert!(group.drain(soon()).await.is_clean());
    assert!(!exists("stuck"), "joined later");
}

#[tokio::test]
async fn its_panic_is_a_value_and_its_name_is_free_again() {
    let group = group(1);
    let (guard, dropped) = Guard::new();
    let work = |cx: Context| {
        let _held = (guard, cx);
        panic!("the disk is gone")
    };
    let panics: Result<(), _> = group.submit_thread("writer", work).await.unwrap().await;
    let Err(TaskError::Panicked(panic)) = panics else { unreachable!() };
    assert_eq!((panic.message(), dropped.get()), ("the disk is gone", 1));
    let again = group.submit_thread("writer", |cx| cx.check()).await.unwrap();
    assert_eq!(again.await, Ok(Ok(())));
    assert_eq!((group.stats().panicked, group.stats().completed), (1, 1));
    assert!(group.drain(soon()).await.is_clean());
}

#[tokio::test]
async fn it_waits_for_a_permit_and_is_told_when_the_group_closes() {
    let group = group(1);
    let busy = Busy::all_of(&group).await;
    let mut waits = ByHand::new(group.submit_thread("writer", |cx| cx.check()));
    assert!(waits.poll().is_none());
    let mut drain = ByHand::new(group.drain(soon()));
    assert!(drain.poll().is_none());
    assert_eq!(waits.poll().unwrap().unwrap_err().why, Refusal::Draining);
    busy.end().await;
    assert!(drain.poll().unwrap().is_clean());
}

#[tokio::test]
async fn submitting_to_its_own_group_is_refused_and_a_child_ends_with_it() {
    let group = group(2);
    let own = group.clone();
    let work = move |cx: Context| {
        let refused = own.try_submit_thread("another", |cx| cx.check()).unwrap_err().why;
        let child = own.child("parts").unwrap();
        let part = child.try_submit_thread("part", |cx| cx.cancelled_blocking()).unwrap();
        drop(part);
        (refused, child, cx)
    };
    let (refused, child, _cx) = group.submit_thread("writer", work).await.unwrap().await.unwrap();
    assert_eq!(refused, Refusal::Nested { group: "store".to_owned() });
    assert_eq!((child.running(), group.running()), (vec![], vec![]));
    assert!(child.try_submit_thread("late", |cx| cx.check()).is_err());
    assert!(group.drain(soon()).await.is_clean());
}

#[test]
fn blocking_waits_end_with_the_context_or_in_time() {
    let cx = Context::new();
    assert_eq!(cx.wait_timeout(ms(1)), Ok(()));
    let canceller = std::thread::spawn({
        let cx = cx.clone();
        move || cx.cancel()
    });
    assert_eq!(cx.child().wait_timeout(Duration::from_secs(60)), Err(Interrupt::Cancelled));
    canceller.join().unwrap();
    let late = Context::new().with_timeout(ms(1));
    assert_eq!(late.wait_timeout(Duration::from_secs(60)), Err(Interrupt::TimedOut));
    assert_eq!(late.cancelled_blocking(), Interrupt::TimedOut);
}

/// A value that takes until it is told to be dropped.
struct SlowToGo {
    going: mpsc::Sender<()>,
    may_go: mpsc::Receiver<()>,
}

impl Drop for SlowToGo {
    fn drop(&mut self) {
        self.going.send(()).unwrap();
        self.may_go.recv().unwrap();
    }
}

/// The drain's own runtime lets the value go: a drain that blocked it would never end.
#[tokio::test]
async fn a_value_nobody_wants_is_dropped_before_the_thread_counts_as_gone() {
    let group = group(1);
    let ((going, is_going), (go, may_go)) = (mpsc::channel(), mpsc::channel());
    let (end, may_end) = mpsc::channel();
    let work = move |_| {
        may_end.recv().unwrap();
        SlowToGo { going, may_go }
    };
    drop(group.submit_thread("slow", work).await.unwrap());
    end.send(()).unwrap();
    is_going.recv().unwrap();
    assert_eq!(group.running()[0].name, "slow");
    let release = async {
        tokio::time::sleep(ms(10)).await;
        go.send(()).unwrap();
    };
    let (report, ()) = tokio::join!(group.drain(soon()), release);
    assert!(report.is_clean() && !exists("slow"), "{report}");
}

/// However short it is, and however soon the drain comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_is_clean_leaves_no_thread() {
    for _ in 0..500 {
        let group = group(1);
        let own = group.clone();
        let starter = std::thread::spawn(move || drop(own.try_submit_thread("quick", |_| ())));
        while group.stats().admitted == 0 {
            std::thread::yield_now();
        }
        let report = group.drain(soon()).await;
        assert!(report.is_clean() && !exists("quick"), "{report}");
        starter.join().unwrap();
    }
}

/// Whether the pool has a permit to spare or not, and wherever the thread was started.
#[test]
fn a_child_of_a_thread_runs_tasks_with_or_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    for limit in [1, 2] {
        for inside in [true, false] {
            let group = group(limit);
            let own = group.clone();
            let _inside = inside.then(|| runtime.enter());
            let work = move |cx: Context| {
                let child = own.child("parts").unwrap();
                let part = child.try_submit(&cx, |_| async { 1 }).unwrap();
                ByHand::wait(part)
            };
            let task = group.try_submit_thread("maker", work).unwrap();
            assert_eq!(ByHand::wait(task), Ok(Ok(1)), "limit {limit}, in a runtime: {inside}");
        }
    }
}
