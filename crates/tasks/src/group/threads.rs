//! Threads of a group's own: named, listed, joined.
//!
//! `docs/rules.md#task-6`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::TaskGroup;
use super::shared::Place;
use crate::panic::catch;
use crate::roster::{Label, Name};
use crate::task::{TaskGuard, on_thread};
use crate::{Context, Refusal, Refused, Task, TaskError};

/// The threads of a group and its children that were not joined yet.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    running: Mutex<Vec<Thread>>,
    /// Held while threads are joined: who finds it taken waits for them too.
    joining: Mutex<()>,
}

#[derive(Debug)]
struct Thread {
    /// Set before the thread leaves the roster: what follows is its way out, and short.
    has_ended: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl Threads {
    /// Joins those whose work is over: they are on their way out.
    pub(crate) fn join_ended(&self) {
        let _joining = self.joining.lock();
        let is_over = |thread: &mut Thread| thread.has_ended.load(Ordering::SeqCst);
        let ended: Vec<_> = self.running.lock().extract_if(.., is_over).collect();
        for thread in ended {
            // Panics of the work were caught; one on the way out is nobody's.
            drop(thread.handle.join());
        }
    }
}

impl TaskGroup {
    /// Lets in work that gets a thread of its own: for a connection that must stay on one thread, or
    /// a loop that blocks for as long as the service runs.
    ///
    /// The thread has the name, as far as the system shows it (15 bytes on Linux), and is listed by
    /// it ([`TaskGroup::running`]); no other detached task or thread of the group may have the name
    /// meanwhile. It runs under the service's own context and sees it end where it looks:
    /// [`Context::check`], [`Context::wait_timeout`], [`Context::cancelled_blocking`]. A drain waits
    /// for it and joins it: once the report is there, the thread is gone, or named as abandoned. No
    /// runtime is needed, neither here nor there, unless every permit is in use.
    ///
    /// Nothing interrupts a thread that blocks elsewhere, and a drain would abandon it. So wait in
    /// steps and look in between, also when idle; or drop the sender before the drain.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    /// use std::sync::mpsc::{RecvTimeoutError, sync_channel};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let stop = Context::new();
    /// let group = TaskGroup::builder("store", 1).service_context(stop.clone()).build()?;
    /// let (jobs, work) = sync_channel::<u32>(0);
    /// let writer = group.submit_thread("store-writer", move |cx: Context| {
    ///     let mut sum = 0;
    ///     while cx.check().is_ok() {
    ///         match work.recv_timeout(Duration::from_millis(20)) {
    ///             Ok(job) => sum += job,
    ///             Err(RecvTimeoutError::Timeout) => {} // idle: looks at its context again
    ///             Err(RecvTimeoutError::Disconnected) => break,
    ///         }
    ///     }
    ///     sum
    /// });
    /// let writer = writer.await?;
    /// jobs.send(20)?;
    /// jobs.send(22)?;
    /// stop.cancel(); // `jobs` is still there, so nothing else would end it
    /// assert!(group.drain(Instant::now() + Duration::from_secs(5)).await.is_clean());
    /// assert_eq!(writer.await?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// A thread pulls from a [`Sluice`](crate::Sluice) by the handle of a runtime:
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Entry, Sluice, TaskGroup};
    /// use std::time::Duration;
    /// use tokio::runtime::Handle;
    /// use tokio::time::Instant;
    ///
    /// let (group, rows) = (TaskGroup::new("store", 1)?, Sluice::builder("rows", 1, 10).build()?);
    /// let (runtime, queue) = (Handle::current(), rows.clone());
    /// let writer = group.submit_thread("store-writer", move |cx: Context| {
    ///     let mut sum = 0;
    ///     while let Ok(Some(turn)) = runtime.block_on(cx.until_interrupted(queue.next())) {
    ///         sum += turn.finish();
    ///     }
    ///     sum
    /// });
    /// let writer = writer.await?;
    /// rows.admit(Entry::of("alice"), 20)?;
    /// rows.admit(Entry::of("bob"), 22)?;
    /// rows.room_for(10).await; // both are out
    /// let deadline = Instant::now() + Duration::from_secs(5);
    /// assert!(rows.drain(deadline).await.is_clean()); // now `next` says `None`
    /// assert!(group.drain(deadline).await.is_clean());
    /// assert_eq!(writer.await?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the work inside. Where the system has no thread to give, the task ends with
    /// [`TaskError::NoThread`].
    pub fn submit_thread<F, T>(
        &self,
        name: impl Into<Arc<str>>,
        work: F,
    ) -> impl Future<Output = Result<Task<T>, Refused<F>>> + Send
    where
        F: FnOnce(Context) -> T + Send + 'static,
        T: Send + 'static,
    {
        let name = name.into();
        async move {
            let shared = self.shared();
            match Name::claim(Arc::clone(&name), &shared.names) {
                None => Err(shared.refuse(Refusal::NameTaken { name: name.to_string() }, work)),
                Some(claimed) => {
                    let spawn = move |guard, cx, work| spawn(&name, guard, cx, work);
                    self.launch(
                        (Label::Named(claimed), Place::Thread),
                        &shared.service,
                        work,
                        spawn,
                    )
                    .await
                }
            }
        }
    }

    /// [`TaskGroup::submit_thread`] without ever waiting to get in.
    ///
    /// ```
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("store", 1)?; // and no runtime anywhere
    /// let (tell, told) = std::sync::mpsc::sync_channel(1);
    /// let work = move |cx: Context| tell.send(cx.check());
    /// let _writer = group.try_submit_thread("store-writer", work)?;
    /// assert_eq!(told.recv()?, Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], with the work inside.
    pub fn try_submit_thread<F, T>(
        &self,
        name: impl Into<Arc<str>>,
        work: F,
    ) -> Result<Task<T>, Refused<F>>
    where
        F: FnOnce(Context) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (name, shared) = (name.into(), self.shared());
        let Some(claimed) = Name::claim(Arc::clone(&name), &shared.names) else {
            return Err(shared.refuse(Refusal::NameTaken { name: name.to_string() }, work));
        };
        let cx = shared.service.inside(&shared.lineage);
        match shared.admit(&cx, &Label::Named(claimed), Place::Thread) {
            Ok(guard) => Ok(spawn(&name, guard, cx, work)),
            Err(why) => Err(shared.refuse(why, work)),
        }
    }
}

fn spawn<F, T>(name: &str, guard: TaskGuard, cx: Context, work: F) -> Task<T>
where
    F: FnOnce(Context) -> T + Send + 'static,
    T: Send + 'static,
{
    let threads = Arc::clone(&guard.entry.of.threads);
    threads.join_ended();
    let (tell, told) = oneshot::channel();
    let has_ended = Arc::<AtomicBool>::default();
    let own = Arc::clone(&has_ended);
    // What the work submits runs where the thread was asked for.
    let runtime = Handle::try_current().ok();
    // Until it is noted nobody looks for what has ended, however short it is.
    let mut running = threads.running.lock();
    let started = Builder::new().name(name.replace('\0', " ")).spawn(move || {
        let _inside = runtime.as_ref().map(Handle::enter);
        let wanted = on_thread(guard, cx, work, |ended| {
            // A value that nobody waits for is dropped while the thread still counts as running: that may
            // take its time, and what comes after is short.
            let mut wanted = Some(ended);
            if tell.is_closed() {
                drop(catch(|| wanted = None));
            }
            own.store(true, Ordering::SeqCst);
            wanted
        });
        // Whoever asked may be gone just now.
        drop(wanted.map(|ended| tell.send(ended)));
    });
    match started {
        Ok(handle) => {
            running.push(Thread { has_ended, handle });
            drop(running);
            Task::told(told, None)
        }
        Err(error) => Task::failed(TaskError::NoThread { cause: error.kind() }),
    }
}
