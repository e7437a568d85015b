//! The context work runs under: cancellation and one deadline, handed down from caller to task.

pub(crate) mod blocking;
mod cancel_on_drop;

#[cfg(all(test, sluicegate_loom))]
mod loom_tests;

pub(crate) use crate::flag::Flag;
pub(crate) use crate::lineage::{GroupId, Lineage};
pub use cancel_on_drop::CancelOnDrop;

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::flag::Registration;
use crate::lineage::{Inside, PermitId};
use crate::{Hearing, current};

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
    flag: Arc<Flag>,
    deadline: Option<Instant>,
    /// The groups around: each cancels what runs in it when its drain deadline passes.
    inside: Option<Inside>,
}

/// Why a context ended.
///
/// ```
/// use sluicegate_tasks::{Context, Interrupt};
/// use std::time::Duration;
///
/// let late = Context::new().with_timeout(Duration::ZERO);
/// assert_eq!(late.check(), Err(Interrupt::TimedOut));
/// late.cancel(); // whoever cancels it says more than the clock
/// assert_eq!(late.check(), Err(Interrupt::Cancelled));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// It, or one it descends from, was cancelled.
    Cancelled,
    /// Its deadline passed.
    TimedOut,
}

impl Context {
    /// A context of its own: cancelled by nobody else, without a deadline.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    ///
    /// let service = Context::new();
    /// assert_eq!(service.check(), Ok(()));
    /// assert_eq!(service.deadline(), None);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self { flag: Arc::new(Flag::new()), deadline: None, inside: None }
    }

    /// A context that ends with this one, and can be cancelled by itself.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    ///
    /// let request = Context::new();
    /// let (one, other) = (request.child(), request.child());
    /// one.cancel();
    /// assert!(!other.is_cancelled() && !request.is_cancelled());
    /// request.cancel();
    /// assert!(other.is_cancelled());
    /// ```
    #[must_use]
    pub fn child(&self) -> Self {
        let flag = Arc::new(self.flag.below());
        Self { flag, deadline: self.deadline, inside: self.inside.clone() }
    }

    /// A child that ends at `deadline`, or when this one does, whichever is sooner.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let (soon, late) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    /// let request = Context::new().with_deadline(soon);
    /// assert_eq!(request.with_deadline(late).deadline(), Some(soon)); // no more time than it
    /// ```
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        let deadline = self.deadline.map_or(deadline, |own| own.min(deadline));
        Self { deadline: Some(deadline), ..self.child() }
    }

    /// A child that ends after `timeout`, or when this one does, whichever is sooner.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    /// use std::time::Duration;
    ///
    /// let request = Context::new().with_timeout(Duration::from_secs(30));
    /// let part = request.with_timeout(Duration::from_secs(5));
    /// assert!(part.deadline() < request.deadline());
    /// assert_eq!(Context::new().with_timeout(Duration::MAX).deadline(), None); // past every clock
    /// ```
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self.child(),
        }
    }

    /// Ends this context and all its children.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    ///
    /// let request = Context::new();
    /// let part = request.child();
    /// request.cancel();
    /// assert!(part.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        self.flag.raise();
    }

    /// When it ends by itself.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    /// use tokio::time::Instant;
    ///
    /// let at = Instant::now();
    /// assert_eq!(Context::new().with_deadline(at).deadline(), Some(at));
    /// assert_eq!(Context::new().deadline(), None);
    /// ```
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// How long it may still go on; `None` without a deadline.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    /// use std::time::Duration;
    ///
    /// let request = Context::new().with_timeout(Duration::from_secs(30));
    /// assert!(request.remaining().is_some_and(|left| left <= Duration::from_secs(30)));
    /// let late = request.with_timeout(Duration::ZERO);
    /// assert_eq!(late.remaining(), Some(Duration::ZERO)); // and never less
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether it may still go on.
    ///
    /// ```
    /// use sluicegate_tasks::{Context, Interrupt};
    ///
    /// fn sum(cx: &Context, numbers: &[u64]) -> Result<u64, Interrupt> {
    ///     numbers.chunks(1024).try_fold(0, |sum, chunk| {
    ///         cx.check()?; // once for each piece of the work
    ///         Ok(sum + chunk.iter().sum::<u64>())
    ///     })
    /// }
    /// let cx = Context::new();
    /// assert_eq!(sum(&cx, &[1; 3000]), Ok(3000));
    /// cx.cancel();
    /// assert_eq!(sum(&cx, &[1; 3000]), Err(Interrupt::Cancelled));
    /// ```
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Interrupt> {
        if self.is_raised() {
            Err(Interrupt::Cancelled)
        } else if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            Err(Interrupt::TimedOut)
        } else {
            Ok(())
        }
    }

    /// Whether it has ended, for whatever reason.
    ///
    /// ```
    /// use sluicegate_tasks::Context;
    /// use std::time::Duration;
    ///
    /// assert!(!Context::new().is_cancelled());
    /// assert!(Context::new().with_timeout(Duration::ZERO).is_cancelled()); // time is up, too
    /// ```
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Waits until it ends, and says why. Cancel safe.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Interrupt};
    ///
    /// let cx = Context::new();
    /// let other = cx.clone();
    /// let (why, ()) = tokio::join!(cx.cancelled(), async { other.cancel() });
    /// assert_eq!(why, Interrupt::Cancelled);
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn cancelled(&self) -> Interrupt {
        let timed_out = async {
            match self.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = Cancelled::new(self) => Interrupt::Cancelled,
            () = timed_out => Interrupt::TimedOut,
        }
    }

    /// Waits for its end as [`cancelled`](Self::cancelled) does, made to be polled often.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Interrupt};
    /// use std::time::Duration;
    ///
    /// let cx = Context::new().with_timeout(Duration::from_millis(5));
    /// assert_eq!(cx.hearing().await, Interrupt::TimedOut);
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn hearing(&self) -> Hearing {
        Hearing::new(self)
    }

    /// Runs a future until the context ends; then drops it where it stands.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
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

    /// The same context as seen from inside a group, by a task that is not let in yet.
    pub(crate) fn inside(&self, group: &Arc<Lineage>) -> Self {
        let lineage = group.around(self.inside.as_ref());
        let inside = Some(Inside { lineage, permit: PermitId::NONE });
        Self { flag: Arc::clone(&self.flag), deadline: self.deadline, inside }
    }

    /// The same context for whoever holds that permit of the group it was made for by
    /// [`Context::inside`].
    pub(crate) fn holding(mut self, permit: PermitId) -> Self {
        if let Some(inside) = &mut self.inside {
            inside.permit = permit;
        }
        self
    }

    /// Whether this context, made for a task of `group`, comes out of another of its tasks that
    /// still runs.
    pub(crate) fn reenters(&self, group: GroupId) -> bool {
        self.inside.as_ref().is_some_and(|inside| inside.lineage.is_held_beyond(group))
            || current::holds(group)
    }

    /// Whether a permit of the group is held for this context, or by whatever this thread runs.
    pub(crate) fn holds(&self, group: GroupId) -> bool {
        let held = |inside: &Inside| inside.is_of(group) || inside.lineage.is_held_beyond(group);
        self.inside.as_ref().is_some_and(held) || current::holds(group)
    }

    /// The groups around whatever runs under it.
    pub(crate) const fn around(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    /// [`Context::flags`] by hand: a look at a context is in every task's way, twice.
    #[inline]
    fn is_raised(&self) -> bool {
        let mut around = self.inside.as_ref();
        while let Some(inside) = around {
            if inside.lineage.kill.is_raised() {
                return true;
            }
            around = inside.lineage.outer();
        }
        self.flag.is_raised()
    }

    /// Every flag that ends it.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &Flag> + Clone {
        let groups = std::iter::successors(self.inside.as_ref(), |group| group.lineage.outer());
        self.flag.chain().chain(groups.flat_map(|group| group.lineage.kill.chain()))
    }
}

/// Waits until a context is cancelled; its deadline is another matter.
struct Cancelled<'a> {
    cx: &'a Context,
    registration: Registration,
}

impl<'a> Cancelled<'a> {
    const fn new(cx: &'a Context) -> Self {
        Self { cx, registration: Registration::new() }
    }
}

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<()> {
        let Self { cx, registration } = &mut *self;
        registration.poll(cx.flags(), poller)
    }
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        self.registration.leave(self.cx.flags());
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
