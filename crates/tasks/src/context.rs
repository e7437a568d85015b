//! The context work runs under: cancellation and one deadline, handed down from caller to task.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// What a task runs under: whether it is cancelled, and until when it may go on.
///
/// A context is cheap to clone; clones are one context. [`Context::child`] makes one that is
/// cancelled with its parent but not the other way round. One deadline covers everything done under
/// it: waiting for a permit, for a rate, and running.
///
/// ```
/// use sluicegate_tasks::{Context, Interrupt};
/// use std::time::Duration;
///
/// let request = Context::new().with_timeout(Duration::from_secs(30));
/// let part = request.child();
/// part.cancel();
/// assert_eq!(part.check(), Err(Interrupt::Cancelled));
/// assert_eq!(request.check(), Ok(()));
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    token: CancellationToken,
    deadline: Option<Instant>,
    /// The groups around: each cancels what runs in it when its drain deadline passes.
    pub(crate) lineage: Option<Arc<Lineage>>,
}

/// Why a context ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// It, or one it descends from, was cancelled.
    Cancelled,
    /// Its deadline passed.
    TimedOut,
}

/// The chain of groups that a task runs in, innermost first.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) group: GroupId,
    /// Cancelled when the group's drain deadline passes.
    pub(crate) kill: CancellationToken,
    pub(crate) outer: Option<Arc<Self>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupId(u64);

impl Context {
    /// A context of its own: cancelled by nobody else, without a deadline.
    #[must_use]
    pub fn new() -> Self {
        Self { token: CancellationToken::new(), deadline: None, lineage: None }
    }

    /// A context that ends with this one, and can be cancelled by itself.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            token: self.token.child_token(),
            deadline: self.deadline,
            lineage: self.lineage.clone(),
        }
    }

    /// A child that ends at `deadline`, or when this one does, whichever is sooner.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        let deadline = self.deadline.map_or(deadline, |own| own.min(deadline));
        Self { deadline: Some(deadline), ..self.child() }
    }

    /// A child that ends after `timeout`, or when this one does, whichever is sooner.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self.child(),
        }
    }

    /// Ends this context and all its children.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// When it ends by itself.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long it may still go on; `None` without a deadline.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether it may still go on.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Interrupt> {
        if self.token.is_cancelled() || self.lineage().any(|group| group.kill.is_cancelled()) {
            Err(Interrupt::Cancelled)
        } else if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            Err(Interrupt::TimedOut)
        } else {
            Ok(())
        }
    }

    /// Whether it has ended, for whatever reason.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Waits until it ends, and says why. Cancel safe.
    pub async fn cancelled(&self) -> Interrupt {
        let timed_out = async {
            match self.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let killed = async {
            let mut groups = self.lineage();
            match (groups.next(), groups.next()) {
                (None, _) => std::future::pending().await,
                (Some(group), None) => group.kill.cancelled().await,
                (Some(_), Some(_)) => any_killed(self.lineage()).await,
            }
        };
        tokio::select! {
            biased;
            () = self.token.cancelled() => Interrupt::Cancelled,
            () = killed => Interrupt::Cancelled,
            () = timed_out => Interrupt::TimedOut,
        }
    }

    /// Runs a future until the context ends; then drops it where it stands.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Interrupt};
    /// use std::time::Duration;
    ///
    /// let cx = Context::new().with_timeout(Duration::from_millis(5));
    /// let never = std::future::pending::<()>();
    /// assert_eq!(cx.until_interrupted(never).await, Err(Interrupt::TimedOut));
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Why the context ended, if it ended first.
    pub async fn until_interrupted<F: Future>(&self, future: F) -> Result<F::Output, Interrupt> {
        let mut future = pin!(future);
        tokio::select! {
            biased;
            output = &mut future => Ok(output),
            why = self.cancelled() => Err(why),
        }
    }

    /// The same context as seen from inside a group.
    pub(crate) fn inside(&self, group: &Arc<Lineage>) -> Self {
        let lineage = match &self.lineage {
            None => Arc::clone(group),
            Some(outer) => Arc::new(Lineage {
                group: group.group,
                kill: group.kill.clone(),
                outer: Some(Arc::clone(outer)),
            }),
        };
        Self { token: self.token.clone(), deadline: self.deadline, lineage: Some(lineage) }
    }

    /// Whether this context, made for a task of `group`, comes out of another of its tasks.
    pub(crate) fn reenters(&self, group: GroupId) -> bool {
        self.lineage().skip(1).any(|around| around.group == group) || is_current(group)
    }

    fn lineage(&self) -> impl Iterator<Item = &Arc<Lineage>> {
        chain(self.lineage.as_ref())
    }
}

impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
        })
    }
}

impl std::error::Error for Interrupt {}

fn chain(innermost: Option<&Arc<Lineage>>) -> impl Iterator<Item = &Arc<Lineage>> {
    std::iter::successors(innermost, |group| group.outer.as_ref())
}

/// The rare case of groups within groups: a future each.
async fn any_killed<'a>(groups: impl Iterator<Item = &'a Arc<Lineage>>) {
    let mut kills: Vec<_> = groups.map(|group| Box::pin(group.kill.cancelled())).collect();
    std::future::poll_fn(|poller| {
        let ready = kills.iter_mut().any(|kill| kill.as_mut().poll(poller).is_ready());
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

impl GroupId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

thread_local! {
    /// The lineage of the task that this thread polls right now.
    static CURRENT: RefCell<Option<Arc<Lineage>>> = const { RefCell::new(None) };
}

/// Whether this thread polls a task of that group, or of one inside it, right now.
pub(crate) fn is_current(group: GroupId) -> bool {
    CURRENT.with_borrow(|current| chain(current.as_ref()).any(|around| around.group == group))
}

/// Runs `work` as part of `lineage`, for as long as the call takes.
///
/// The lineage is moved in and out, not counted, so this costs two moves a poll.
pub(crate) fn within<R>(lineage: &mut Option<Arc<Lineage>>, work: impl FnOnce() -> R) -> R {
    struct Restore<'a> {
        lineage: &'a mut Option<Arc<Lineage>>,
        outer: Option<Arc<Lineage>>,
    }
    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            *self.lineage = CURRENT.replace(self.outer.take());
        }
    }
    let outer = CURRENT.replace(lineage.take());
    let _restore = Restore { lineage, outer };
    work()
}
