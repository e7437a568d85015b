//! Panics: caught at the task's edge, told to the submitter as a value, counted, and survived.

use std::future::{Future, pending};
use std::panic::panic_any;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};

use sluicegate_tasks::{Context, Panic, TaskError, TaskGroup};

use crate::probe::{Guard, settle};

/// What the submitter is told; the group must be none the worse.
async fn panic_of<F, Fut, T>(work: F) -> Panic
where
    F: FnOnce(Context) -> Fut + Send + 'static,
    Fut: Future<Output = T> + Send + 'static,
    T: Send + std::fmt::Debug + 'static,
{
    let group = TaskGroup::new("group", 1).unwrap();
    let Err(TaskError::Panicked(panic)) = group.run(Context::new(), work).await else {
        unreachable!("it panics")
    };
    let stats = group.stats();
    assert_eq!((stats.started, stats.panicked, stats.completed), (1, 1, 0));
    assert_eq!((stats.gauges.running, group.running().len()), (0, 0), "its permit is back");
    assert_eq!(group.run(Context::new(), |cx| async move { cx.check() }).await, Ok(Ok(())));
    panic
}

#[tokio::test(start_paused = true)]
async fn message_and_location_are_told() {
    let count = 3;
    let with_text = panic_of(|cx| async move {
        cx.check().unwrap();
        panic!("no such codec")
    });
    let line = line!() - 2;
    let panic = with_text.await;
    assert_eq!(panic.message(), "no such codec");
    let at = panic.location().unwrap();
    assert_eq!((at.file.as_str(), at.line), (file!(), line));
    assert_eq!(
        panic.to_string(),
        format!("panicked: no such codec at {}:{line}:{}", at.file, at.column)
    );

    let formatted = panic_of(move |cx| async move {
        cx.check().unwrap();
        panic!("{count} codecs")
    });
    assert_eq!(formatted.await.message(), "3 codecs");

    let unwrapped = panic_of(|cx| async move { cx.check().unwrap_err() });
    let line = line!() - 1;
    let panic = unwrapped.await;
    assert!(panic.message().starts_with("called `Result::unwrap_err()`"), "{panic}");
    assert_eq!(panic.location().unwrap().line, line);
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_is_not_text_says_so_and_is_located() {
    let any = panic_of(|cx| async move {
        cx.check().unwrap();
        panic_any(17_u32)
    });
    let line = line!() - 2;
    let panic = any.await;
    assert_eq!(panic.message(), "a panic with a value that is not text");
    assert_eq!(panic.location().unwrap().line, line);
}

#[tokio::test(start_paused = true)]
async fn a_panic_after_an_await_is_told_too() {
    let (guard, dropped) = Guard::new();
    let later = panic_of(|cx| async move {
        let _held = guard;
        cx.until_interrupted(tokio::task::yield_now()).await.unwrap();
        panic!("later")
    });
    assert_eq!((later.await.message(), dropped.get()), ("later", 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_closure_before_there_is_a_future() {
    let early = panic_of(|cx| {
        cx.check().unwrap();
        if cx.deadline().is_none() {
            panic!("before the future");
        }
        async move { cx.check() }
    });
    let line = line!() - 4;
    let panic = early.await;
    assert_eq!((panic.message(), panic.location().unwrap().line), ("before the future", line));
}

/// Panics when dropped, unless the thread panics already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("in a drop");
        }
    }
}

/// A future with a value in it that panics when the future is dropped, not before.
struct Armed<F> {
    future: Pin<Box<F>>,
    _bomb: Bomb,
}

impl<F: Future> Future for Armed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<F::Output> {
        self.future.as_mut().poll(poller)
    }
}

fn armed<F: Future>(future: F) -> Armed<F> {
    Armed { future: Box::pin(future), _bomb: Bomb }
}

#[tokio::test(start_paused = true)]
async fn a_panic_when_the_finished_future_is_dropped() {
    let panic = panic_of(|cx| armed(async move { cx.check() })).await;
    assert_eq!(panic.message(), "in a drop");
}

#[tokio::test(start_paused = true)]
async fn of_two_panics_the_first_is_told() {
    let twice = panic_of(|cx| {
        armed(async move {
            cx.check().unwrap();
            panic!("the cause")
        })
    });
    let line = line!() - 3;
    let panic = twice.await;
    assert_eq!((panic.message(), panic.location().unwrap().line), ("the cause", line));
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_panics_when_dropped_is_survived_and_located() {
    let once = panic_of(|cx| async move {
        cx.check().unwrap();
        panic_any(Bomb)
    });
    let line = line!() - 2;
    let panic = once.await;
    assert_eq!(panic.message(), "a panic with a value that is not text");
    assert_eq!(panic.location().unwrap().line, line, "where it began, not where it was dropped");
}

/// Panics when dropped with another that does, so many times over.
struct Matryoshka(u32);

impl Drop for Matryoshka {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Self(self.0 - 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_whose_drop_panics_with_another_such_is_survived() {
    for deep in [1, 2, 3] {
        let nested = panic_of(move |cx| async move {
            cx.check().unwrap();
            panic_any(Matryoshka(deep))
        });
        assert_eq!(nested.await.message(), "a panic with a value that is not text");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_future_is_dropped_by_force_is_told_and_survived() {
    let group = TaskGroup::new("group", 1).unwrap();
    let task = group.submit(Context::new(), |cx| {
        armed(async move {
            drop(cx);
            pending::<()>().await;
        })
    });
    let task = task.await.unwrap();
    settle().await;
    let report = group.drain(tokio::time::Instant::now()).await;
    assert_eq!((report.cancelled.len(), report.abandoned.len()), (1, 0), "{report}");
    let Err(TaskError::Panicked(panic)) = task.await else { unreachable!() };
    assert_eq!(panic.message(), "in a drop");
    assert_eq!((group.stats().panicked, group.stats().gauges.running), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_that_is_resumed_is_not_located_where_another_was() {
    let caught = panic_of(|cx| async move {
        let of_another = std::panic::catch_unwind(|| panic!("caught inside"));
        drop((of_another, cx));
        std::panic::resume_unwind(Box::new("resumed"))
    });
    let panic = caught.await;
    assert_eq!(panic.message(), "resumed");
    assert_eq!(panic.location(), None, "nobody knows where");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_panics_at_once_are_each_told_their_own() {
    let group = TaskGroup::new("group", 8).unwrap();
    let mut tasks = Vec::new();
    for n in 0..200 {
        let work = move |cx: Context| async move {
            cx.until_interrupted(tokio::task::yield_now()).await.unwrap();
            if n % 2 == 0 { panic!("even {n}") } else { panic!("odd {n}") }
        };
        tasks.push((n, group.submit(Context::new(), work).await.unwrap()));
    }
    for (n, task) in tasks {
        let ended: Result<(), _> = task.await;
        let Err(TaskError::Panicked(panic)) = ended else { unreachable!() };
        let parity = if n % 2 == 0 { "even" } else { "odd" };
        assert_eq!(panic.message(), format!("{parity} {n}"));
        assert_eq!(panic.location().unwrap().file, file!());
    }
    assert_eq!((group.stats().panicked, group.stats().gauges.running), (200, 0));
}
