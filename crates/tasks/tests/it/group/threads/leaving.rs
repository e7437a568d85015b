//! A thread on its way out: its work is over, and destructors of its thread-locals still run.

use std::cell::RefCell;
use std::process::Command;
use std::sync::mpsc;

use sluicegate_tasks::{TaskError, TaskGroup};
use tokio::time::Instant;

use super::{exists, group, soon};
use crate::probe::{ByHand, ms};

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Keeps a thread from leaving until it is told to.
struct Last(mpsc::Receiver<()>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.recv().ok();
    }
}

/// Starts a thread that has ended, and leaves once that is dropped.
async fn leaving(group: &TaskGroup, name: &str) -> mpsc::Sender<()> {
    let (go, may_go) = mpsc::channel();
    let work = move |_| LAST.with_borrow_mut(|last| *last = Some(Last(may_go)));
    group.submit_thread(name, work).await.unwrap().await.unwrap();
    go
}

/// The test's own runtime lets it go, so a drain that blocks it would never end.
#[tokio::test]
async fn a_drain_waits_for_it_without_blocking_its_runtime() {
    let group = group(1);
    let go = leaving(&group, "slow").await;
    let release = async {
        tokio::time::sleep(ms(20)).await;
        assert!(exists("slow"));
        drop(go);
    };
    let (report, ()) = tokio::join!(group.drain(soon()), release);
    assert!(report.is_clean() && !exists("slow"), "{report}");
}

#[tokio::test]
async fn what_is_not_gone_in_time_is_named_and_joined_by_the_next_drain() {
    let group = TaskGroup::builder("store", 1).unwind(ms(5)).build().unwrap();
    let go = leaving(&group, "slow").await;
    let report = group.drain(Instant::now() + ms(5)).await;
    assert_eq!((report.abandoned.len(), report.abandoned[0].name.as_str()), (1, "slow"));
    drop(go);
    assert!(group.drain(soon()).await.is_clean() && !exists("slow"));
}

#[tokio::test]
async fn another_thread_is_started_meanwhile_and_a_clean_drain_has_seen_both_go() {
    let group = group(1);
    let go = leaving(&group, "slow").await;
    let next = group.try_submit_thread("next", |_| ()).unwrap();
    next.await.unwrap();
    let mut drain = Box::pin(group.drain(soon()));
    assert!(tokio::time::timeout(ms(20), &mut drain).await.is_err(), "one is still there");
    drop(go);
    let report = drain.await;
    assert!(report.is_clean() && !exists("slow") && !exists("next"), "{report}");
}

#[tokio::test]
async fn a_childs_drain_does_not_wait_for_the_threads_of_its_parent() {
    let group = group(2);
    let go = leaving(&group, "slow").await;
    let child = group.child("share").unwrap();
    drop(leaving(&child, "quick").await);
    assert!(child.drain(soon()).await.is_clean());
    assert!(exists("slow") && !exists("quick"));
    drop(go);
    assert!(group.drain(soon()).await.is_clean());
}

#[tokio::test]
async fn a_thread_that_drains_its_own_group_does_not_wait_for_itself() {
    let group = group(2);
    drop(leaving(&group, "other").await);
    let own = group.clone();
    let drains = group.submit_thread("drains", move |_| {
        let report = tokio::runtime::Handle::current().block_on(own.drain(soon()));
        (report.is_clean(), exists("other"))
    });
    assert_eq!(drains.await.unwrap().await, Ok((true, false)));
}

/// Starts another thread when it is dropped.
struct Cleanup(TaskGroup);

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(self.0.try_submit_thread("cleanup", |_| ()));
    }
}

/// In a process of its own, since no thread of it can be started.
#[test]
fn where_the_system_has_no_thread_the_work_is_dropped_under_no_lock() {
    const NAME: &str =
        "group::threads::leaving::where_the_system_has_no_thread_the_work_is_dropped_under_no_lock";
    if std::env::var_os("SLUICEGATE_NO_THREADS").is_some() {
        let group = group(2);
        let cleanup = Cleanup(group.clone());
        let task = group.try_submit_thread("writer", move |_| drop(cleanup)).unwrap();
        assert!(matches!(ByHand::wait(task), Err(TaskError::NoThread { .. })));
        assert_eq!((group.running(), group.stats().gauges.running), (vec![], 0));
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([NAME, "--exact", "--test-threads=1"])
        .env("SLUICEGATE_NO_THREADS", "1")
        .env("RUST_MIN_STACK", (1u64 << 46).to_string())
        .spawn()
        .unwrap();
    for _ in 0..1000 {
        if let Some(status) = child.try_wait().unwrap() {
            return assert!(status.success(), "{status}");
        }
        std::thread::sleep(ms(10));
    }
    child.kill().unwrap();
    panic!("it waits for itself");
}
