//! Work that blocks its thread.

use std::sync::mpsc;

use sluicegate_tasks::{Context, Interrupt, TaskError, TaskGroup};
use tokio::runtime::Builder;

use crate::probe::{Guard, settle};

#[test]
fn cancelled_before_a_thread_was_free_it_never_runs() {
    let one_thread =
        Builder::new_current_thread().enable_time().max_blocking_threads(1).build().unwrap();
    one_thread.block_on(async {
        let group = TaskGroup::new("group", 2).unwrap();
        let (release, released) = mpsc::channel::<()>();
        let first = group.submit_blocking(Context::new(), move |cx| {
            released.recv().unwrap();
            cx.check()
        });
        let first = first.await.unwrap();
        let (cx, (guard, dropped)) = (Context::new(), Guard::new());
        let second = group.submit_blocking(&cx, |cx| {
            drop(guard);
            cx.check()
        });
        let second = second.await.unwrap();
        settle().await;
        cx.cancel();
        release.send(()).unwrap();
        assert_eq!(first.await, Ok(Ok(())));
        assert_eq!(second.await, Err(TaskError::Interrupted(Interrupt::Cancelled)));
        let stats = group.stats();
        assert_eq!((stats.started, stats.completed, stats.cancelled), (1, 1, 1));
        assert_eq!((stats.gauges.running, dropped.get()), (0, 1));
    });
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_in_use_for_as_long_as_the_thread_is() {
    let group = TaskGroup::new("group", 1).unwrap();
    let (release, released) = mpsc::channel::<()>();
    let task = group.submit_blocking(Context::new(), move |cx| {
        released.recv().unwrap();
        cx.check()
    });
    let task = task.await.unwrap();
    settle().await;
    assert_eq!(group.stats().gauges.running, 1);
    assert_eq!(group.running().len(), 1);
    release.send(()).unwrap();
    assert_eq!(task.await, Ok(Ok(())));
    assert_eq!((group.stats().gauges.running, group.running().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn its_panic_is_a_value_too() {
    let group = TaskGroup::new("group", 1).unwrap();
    let (guard, dropped) = Guard::new();
    let task = group.submit_blocking(Context::new(), |cx| {
        let _held = (guard, cx);
        panic!("the disk is gone");
    });
    let line = line!() - 2;
    let Err(TaskError::Panicked(panic)) = task.await.unwrap().await else { unreachable!() };
    assert_eq!(panic.message(), "the disk is gone");
    let at = panic.location().unwrap();
    assert_eq!((at.file.as_str(), at.line), (file!(), line));
    let stats = group.stats();
    assert_eq!((stats.panicked, stats.completed, stats.gauges.running), (1, 0, 0));
    assert_eq!(dropped.get(), 1);
    assert_eq!(group.run(Context::new(), |cx| async move { cx.check() }).await, Ok(Ok(())));
}
