//! Threads of a group's own: named, listed, joined.
//!
//! `docs/rules.md#task-6`.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::TaskGroup;
use super::shared::Place;
use crate::context::Flag;
use crate::panic::catch;
use crate::roster::{Label, Name};
use crate::task::{TaskGuard, on_thread};
use crate::{Context, Refusal, Refused, Running, Task, TaskError};

/// The threads of a group and its children that are not known to be gone.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    all: Mutex<Vec<Arc<Thread>>>,
    changed: Notify,
}

/// Noted before it is started, so that whoever finds it off the roster finds it here.
#[derive(Debug)]
struct Thread {
    name: Arc<str>,
    /// Its number on the roster.
    number: u64,
    since: Instant,
    /// Its group's: a group answers for it whose own is the same or above.
    kill: Arc<Flag>,
    /// Set before it leaves the roster. What follows is its way out, on which destructors of
    /// thread-locals may take their time.
    has_ended: AtomicBool,
    /// Once it is started, until somebody joins it.
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Thread {
    fn is_leaving(&self, group: &Flag) -> bool {
        self.has_ended.load(Ordering::SeqCst)
            && self.kill.chain().any(|flag| std::ptr::eq(flag, group))
    }
}

impl Threads {
    /// Waits until those of a group are gone whose work is over. Cancel safe.
    pub(crate) async fn gone(self: &Arc<Self>, group: &Flag) {
        loop {
            // Registered before looking, so that a change in between is not missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let leaving = self.leaving(group);
            if leaving.is_empty() {
                return;
            }
            self.join(&leaving);
            changed.await;
        }
    }

    /// Those of a group whose work is over, by their numbers on its roster.
    pub(crate) fn list(&self, group: &Flag) -> Vec<(u64, Running)> {
        let running = |thread: &Arc<Thread>| {
            let name = thread.name.to_string();
            (thread.number, Running { name, running_for: thread.since.elapsed() })
        };
        self.leaving(group).iter().map(running).collect()
    }

    fn leaving(&self, group: &Flag) -> Vec<Arc<Thread>> {
        let all = self.all.lock();
        all.iter().filter(|thread| thread.is_leaving(group)).cloned().collect()
    }

    /// Has them joined where it blocks no runtime, each once.
    fn join(self: &Arc<Self>, leaving: &[Arc<Thread>]) {
        for thread in leaving {
            let Some(handle) = thread.handle.lock().take() else { continue };
            let (threads, thread) = (Arc::clone(self), Arc::clone(thread));
            let joining = Joining { threads, thread, handle: Some(handle) };
            // Where there is no thread for it, another look will find it again.
            drop(catch(|| match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn_blocking(|| joining.join())),
                Err(_) => drop(Builder::new().spawn(|| joining.join())),
            }));
        }
    }

    fn remove(&self, gone: &Arc<Thread>) {
        self.all.lock().retain(|thread| !Arc::ptr_eq(thread, gone));
    }
}

/// A thread while it is joined. Dropped before that, the thread waits for somebody else to do it.
struct Joining {
    threads: Arc<Threads>,
    thread: Arc<Thread>,
    handle: Option<JoinHandle<()>>,
}

impl Joining {
    fn join(mut self) {
        if let Some(handle) = self.handle.take() {
            // Panics of the work were caught; one on the way out is nobody's.
            drop(handle.join());
            self.threads.remove(&self.thread);
            self.threads.changed.notify_waiters();
        }
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            *self.thread.handle.lock() = Some(handle);
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

fn spawn<F, T>(name: &Arc<str>, guard: TaskGuard, cx: Context, work: F) -> Task<T>
where
    F: FnOnce(Context) -> T + Send + 'static,
    T: Send + 'static,
{
    let group = Arc::clone(&guard.entry.of);
    let threads = &group.threads;
    // Those that came before are not kept until a drain.
    threads.join(&threads.leaving(group.lineage.kill.topmost()));
    let thread = Arc::new(Thread {
        name: Arc::clone(name),
        number: guard.entry.permit().number,
        since: Instant::now(),
        kill: Arc::clone(&group.lineage.kill),
        has_ended: AtomicBool::new(false),
        handle: Mutex::new(None),
    });
    threads.all.lock().push(Arc::clone(&thread));
    let (tell, told) = oneshot::channel();
    let own = Arc::clone(&thread);
    // What the work submits runs where the thread was asked for.
    let runtime = Handle::try_current().ok();
    let started = Builder::new().name(name.replace('\0', " ")).spawn(move || {
        let _inside = runtime.as_ref().map(Handle::enter);
        let wanted = on_thread(guard, cx, work, |ended| {
            // A value that nobody waits for is dropped while the thread still counts as running.
            let mut wanted = Some(ended);
            if tell.is_closed() {
                drop(catch(|| wanted = None));
            }
            own.has_ended.store(true, Ordering::SeqCst);
            wanted
        });
        // Whoever asked may be gone just now.
        drop(wanted.map(|ended| tell.send(ended)));
    });
    match started {
        Ok(handle) => {
            *thread.handle.lock() = Some(handle);
            // It may be over by now, and waited for.
            threads.changed.notify_waiters();
            Task::told(told, None)
        }
        Err(error) => {
            threads.remove(&thread);
            Task::failed(TaskError::NoThread { cause: error.kind() })
        }
    }
}
