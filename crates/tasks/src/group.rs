//! A group of tasks: it bounds them, owns them, names them, and ends them. It has no queue: who
//! cannot start at once waits itself, or is refused.
//!
//! Invariants:
//! 1. A task is counted before admission is checked for being open, and a drain closes admission
//!    before it counts: it waits for every task that was let in.
//! 2. A task holds its permit exactly while it runs, and is on the roster exactly as long: its own
//!    group's, and that of every group that answers for it.
//! 3. A handle's last drop ends the tasks; the tasks themselves hold no handle.
//!
//! `docs/rules.md#task-3`, `docs/rules.md#task-4`.

mod builder;
mod child;
mod end;
mod launch;
pub(crate) mod nested;
pub(crate) mod shared;
pub(crate) mod threads;

pub use builder::TaskGroupBuilder;

use std::borrow::Borrow;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use crate::roster::{Label, Name};
use crate::task::{AnyValue, ByResult, TaskGuard};
use crate::{Context, Refusal, Refused, Task, TaskError};
use launch::Launch;
use shared::{Place, Shared};
use sluicegate_schedule::Invalid;

/// A bounded group of tasks with one end.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// let group = TaskGroup::new("thumbnails", 8)?; // at most 8 at once; submitters wait
/// let request = Context::new().with_timeout(Duration::from_secs(30));
///
/// let task = group.submit(&request, |cx| async move {
///     cx.check()?; // blocking points see the cancellation
///     Ok::<_, sluicegate_tasks::Interrupt>("done")
/// });
/// assert_eq!(task.await?.await?, Ok("done"));
///
/// let report = group.drain(Instant::now() + Duration::from_secs(5)).await;
/// assert!(report.is_clean());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Clones are the same group. When the last one is dropped, nothing more starts, and the contexts of
/// running tasks are cancelled and their futures dropped at the next await.
#[derive(Clone, Debug)]
pub struct TaskGroup {
    handle: Arc<Handle>,
}

/// Ends the group when the last handle goes.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl TaskGroup {
    /// A group that runs at most `limit` tasks at once and lets submitters wait.
    ///
    /// ```
    /// use sluicegate_tasks::TaskGroup;
    ///
    /// assert_eq!(TaskGroup::new("thumbnails", 8)?.name(), "thumbnails");
    /// assert_eq!(TaskGroup::new("", 8).unwrap_err().field, "name");
    /// # Ok::<(), sluicegate_tasks::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// Names `name` when it is empty and `limit` when it is zero.
    pub fn new(name: impl Into<String>, limit: u32) -> Result<Self, Invalid> {
        Self::builder(name, limit).build()
    }

    /// A group with more to say about it.
    ///
    /// ```
    /// use sluicegate_tasks::TaskGroup;
    /// use std::time::Duration;
    ///
    /// let group = TaskGroup::builder("thumbnails", 8).unwind(Duration::from_secs(1)).build()?;
    /// assert_eq!(group.stats().gauges.limit, 8);
    /// # Ok::<(), sluicegate_tasks::Invalid>(())
    /// ```
    pub fn builder(name: impl Into<String>, limit: u32) -> TaskGroupBuilder {
        TaskGroupBuilder::new(name.into(), limit)
    }

    /// Lets a task in under the caller's context.
    ///
    /// Resolves once it is let in: while every permit is in use, the caller is held up, first come,
    /// first served, for as long as its context lets it. Await the [`Task`] for its result. Dropped
    /// before it resolves, the work does not run.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("thumbnails", 1)?;
    /// let request = Context::new();
    /// let task = group.submit(&request, |cx| async move { cx.check().map(|()| "done") }).await?;
    /// assert_eq!(task.await?, Ok("done"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the work inside.
    #[track_caller]
    pub fn submit<F, Fut, T>(
        &self,
        cx: impl Borrow<Context>,
        work: F,
    ) -> impl Future<Output = Result<Task<T>, Refused<F>>> + Send
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let label = Label::Site(Location::caller());
        self.launch(
            (label, Place::Polled),
            cx.borrow(),
            work,
            TaskGuard::spawn::<F, Fut, T, AnyValue>,
        )
    }

    /// [`TaskGroup::submit`] for work that may fail: an `Err` is counted as failed.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("uploads", 1)?;
    /// let late = |cx: Context| async move { cx.remaining().ok_or("no deadline") };
    /// assert_eq!(group.submit_fallible(Context::new(), late).await?.await?, Err("no deadline"));
    /// assert_eq!(group.stats().failed, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the work inside.
    #[track_caller]
    pub fn submit_fallible<F, Fut, T, E>(
        &self,
        cx: impl Borrow<Context>,
        work: F,
    ) -> impl Future<Output = Result<Task<Result<T, E>>, Refused<F>>> + Send
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let label = Label::Site(Location::caller());
        self.launch(
            (label, Place::Polled),
            cx.borrow(),
            work,
            TaskGuard::spawn::<F, Fut, Result<T, E>, ByResult>,
        )
    }

    /// [`TaskGroup::submit`] without ever waiting: a task that cannot start at once is refused.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("thumbnails", 1)?;
    /// let _first = group.try_submit(Context::new(), |cx| async move { cx.cancelled().await })?;
    /// let refused = group.try_submit(Context::new(), |cx| async move { cx.check() }).unwrap_err();
    /// assert_eq!(refused.why.label(), "at_limit");
    /// group.resize(2)?;
    /// assert_eq!(group.try_submit(Context::new(), refused.work)?.await?, Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the work inside.
    #[track_caller]
    pub fn try_submit<F, Fut, T>(
        &self,
        cx: impl Borrow<Context>,
        work: F,
    ) -> Result<Task<T>, Refused<F>>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let label = Label::Site(Location::caller());
        let cx = cx.borrow().inside(&self.shared().lineage);
        match self.shared().admit(&cx, &label, Place::Polled) {
            Ok(guard) => Ok(guard.spawn::<F, Fut, T, AnyValue>(cx, work)),
            Err(why) => Err(self.shared().refuse(why, work)),
        }
    }

    /// Lets a task in and waits for its result.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("thumbnails", 8)?;
    /// let done = group.run(Context::new(), |cx| async move { cx.check().is_ok() }).await?;
    /// assert!(done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Why there is no result: refused, never run, panicked or aborted.
    #[track_caller]
    pub fn run<F, Fut, T>(
        &self,
        cx: impl Borrow<Context>,
        work: F,
    ) -> impl Future<Output = Result<T, TaskError>> + Send
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let submitted = self.submit(cx, work);
        async { submitted.await.map_err(|refused| TaskError::Refused(refused.why))?.await }
    }

    /// Lets in work that blocks its thread, such as a computation or a synchronous call. It cannot
    /// be interrupted, so it should look at its context from time to time.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("hashes", 2)?;
    /// let sum = |cx: Context| (1..=100u64).take_while(|_| cx.check().is_ok()).sum::<u64>();
    /// assert_eq!(group.submit_blocking(Context::new(), sum).await?.await?, 5050);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the work inside.
    #[track_caller]
    pub fn submit_blocking<F, T>(
        &self,
        cx: impl Borrow<Context>,
        work: F,
    ) -> impl Future<Output = Result<Task<T>, Refused<F>>> + Send
    where
        F: FnOnce(Context) -> T + Send + 'static,
        T: Send + 'static,
    {
        let label = Label::Site(Location::caller());
        self.launch((label, Place::Blocking), cx.borrow(), work, TaskGuard::spawn_blocking::<F, T>)
    }

    /// Lets a task in that belongs to no caller: it runs under the service's own context, and is
    /// listed under its name ([`TaskGroup::running`]), which no other may have meanwhile.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Refusal, TaskGroup};
    ///
    /// let group = TaskGroup::new("jobs", 2)?;
    /// let refresh = |cx: Context| async move { cx.cancelled().await };
    /// let _task = group.submit_detached("refresh", refresh).await?;
    /// let refused = group.submit_detached("refresh", refresh).await.unwrap_err();
    /// assert_eq!(refused.why, Refusal::NameTaken { name: "refresh".to_owned() });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the work inside.
    pub fn submit_detached<F, Fut, T>(
        &self,
        name: impl Into<Arc<str>>,
        work: F,
    ) -> impl Future<Output = Result<Task<T>, Refused<F>>> + Send
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let name = name.into();
        async move {
            let shared = self.shared();
            match Name::claim(Arc::clone(&name), &shared.names) {
                None => Err(shared.refuse(Refusal::NameTaken { name: name.to_string() }, work)),
                Some(name) => {
                    let spawn = TaskGuard::spawn::<F, Fut, T, AnyValue>;
                    self.launch((Label::Named(name), Place::Polled), &shared.service, work, spawn)
                        .await
                }
            }
        }
    }

    /// The group's name.
    ///
    /// ```
    /// use sluicegate_tasks::TaskGroup;
    ///
    /// assert_eq!(TaskGroup::new("thumbnails", 8)?.name(), "thumbnails");
    /// # Ok::<(), sluicegate_tasks::Invalid>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    fn launch<F, T, S>(
        &self,
        what: (Label, Place),
        cx: &Context,
        work: F,
        spawn: S,
    ) -> Launch<'_, F, S>
    where
        S: FnOnce(TaskGuard, Context, F) -> Task<T>,
    {
        let shared = self.shared();
        Launch::new(shared, what, cx.inside(&shared.lineage), work, spawn)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end();
    }
}
