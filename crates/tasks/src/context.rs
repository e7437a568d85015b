//! The context work runs under: cancellation and one deadline, handed down from caller to task.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context as Poller, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::Hearing;

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
    node: Arc<Node>,
    deadline: Option<Instant>,
    /// The groups around: each cancels what runs in it when its drain deadline passes.
    lineage: Option<Arc<Lineage>>,
}

/// One point in the tree of contexts.
#[derive(Debug)]
struct Node {
    flag: Flag,
    parent: Option<Arc<Node>>,
}

/// A one-way switch: looking at it is a load, waiting for it is the token's business.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    raised: AtomicBool,
    token: CancellationToken,
    /// Raised with it; a context looks at those above it by itself.
    above: Option<Arc<Self>>,
}

/// Waits for a flag, by many polls of one task.
#[derive(Debug)]
pub(crate) struct Watch {
    raised: Pin<Box<WaitForCancellationFutureOwned>>,
    waker: Option<Waker>,
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

/// The chain of groups that a task runs in, innermost first.
#[derive(Debug)]
pub(crate) struct Lineage {
    pub(crate) path: Path,
    /// Cancelled when the group's drain deadline passes.
    pub(crate) kill: Arc<Flag>,
    pub(crate) outer: Option<Arc<Self>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupId(NonZeroU32);

/// The innermost groups of a lineage, small enough to be copied at every poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path([Option<GroupId>; 4]);

impl Path {
    pub(crate) const NONE: Self = Self([None; 4]);

    pub(crate) fn within(self, group: GroupId) -> Self {
        let [first, second, third, _] = self.0;
        Self([Some(group), first, second, third])
    }

    /// These groups, and around them those of `outer`.
    fn inside(self, outer: Self) -> Self {
        let mut groups = self.0.into_iter().chain(outer.0).flatten();
        Self(std::array::from_fn(|_| groups.next()))
    }

    fn contains(self, group: GroupId) -> bool {
        self.0.contains(&Some(group))
    }
}

impl Lineage {
    /// A group's own, as it is for tasks that were submitted from outside of any. The group itself
    /// may be inside others: a child that was made in one of their tasks.
    pub(crate) fn of(path: Path, kill: Flag) -> Self {
        Self { path, kill: Arc::new(kill), outer: None }
    }
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
        let node = Node { flag: Flag::default(), parent: None };
        Self { node: Arc::new(node), deadline: None, lineage: None }
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
        let flag = self.node.flag.child();
        let node = Node { flag, parent: Some(Arc::clone(&self.node)) };
        Self { node: Arc::new(node), deadline: self.deadline, lineage: self.lineage.clone() }
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
        self.node.flag.raise();
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
        if self.node.is_cancelled() || self.lineage().any(|group| group.kill.is_raised()) {
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
        let killed = async {
            let mut groups = self.lineage();
            match (groups.next(), groups.next()) {
                (None, _) => std::future::pending().await,
                (Some(group), None) => group.kill.raised().await,
                (Some(_), Some(_)) => any_killed(self.lineage()).await,
            }
        };
        tokio::select! {
            biased;
            () = self.node.flag.raised() => Interrupt::Cancelled,
            () = killed => Interrupt::Cancelled,
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

    /// The same context as seen from inside a group.
    pub(crate) fn inside(&self, group: &Arc<Lineage>) -> Self {
        let lineage = match &self.lineage {
            None => Arc::clone(group),
            Some(outer) => Arc::new(Lineage {
                path: group.path.inside(outer.path),
                kill: Arc::clone(&group.kill),
                outer: Some(Arc::clone(outer)),
            }),
        };
        Self { node: Arc::clone(&self.node), deadline: self.deadline, lineage: Some(lineage) }
    }

    /// Whether this context, made for a task of `group`, comes out of another of its tasks.
    pub(crate) fn reenters(&self, group: GroupId) -> bool {
        self.lineage().skip(1).any(|around| around.path.contains(group)) || is_current(group)
    }

    /// The groups around whatever runs under it.
    pub(crate) fn path(&self) -> Path {
        self.lineage.as_ref().map_or(Path::NONE, |innermost| innermost.path)
    }

    /// [`Context::path`], where there is more around a task than its own group says.
    pub(crate) fn path_beyond(&self, group: &Lineage) -> Option<Box<Path>> {
        let innermost = self.lineage.as_ref().filter(|innermost| innermost.outer.is_some())?;
        (innermost.path != group.path).then(|| Box::new(innermost.path))
    }

    fn lineage(&self) -> impl Iterator<Item = &Arc<Lineage>> {
        chain(self.lineage.as_ref())
    }
}

impl Node {
    /// Whether it or one above it is. Contexts are seldom nested deep, so the walk is short.
    fn is_cancelled(&self) -> bool {
        let above = std::iter::successors(Some(self), |node| node.parent.as_deref());
        above.into_iter().any(|node| node.flag.is_raised())
    }
}

impl Flag {
    /// A flag that is waited for as raised once this one is.
    pub(crate) fn child(&self) -> Self {
        let raised = AtomicBool::new(self.is_raised());
        Self { raised, token: self.token.child_token(), above: None }
    }

    /// A flag that is raised once this one is, to look at and to wait for.
    pub(crate) fn below(self: &Arc<Self>) -> Self {
        Self { above: Some(Arc::clone(self)), ..self.child() }
    }

    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
            || self.above.as_ref().is_some_and(|above| above.is_raised())
    }

    pub(crate) fn raise(&self) {
        // The load first: whoever is woken by the token finds the flag raised.
        self.raised.store(true, Ordering::SeqCst);
        self.token.cancel();
    }

    pub(crate) async fn raised(&self) {
        self.token.cancelled().await;
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch { raised: Box::pin(self.token.clone().cancelled_owned()), waker: None }
    }
}

impl Watch {
    /// Whether the flag it was made for is raised; else the poller is woken once it is.
    pub(crate) fn poll(&mut self, flag: &Flag, poller: &mut Poller<'_>) -> Poll<()> {
        if flag.is_raised() {
            return Poll::Ready(());
        }
        // Taking a place in the token's list is dear; it is taken once for each waker.
        if self.waker.as_ref().is_some_and(|known| known.will_wake(poller.waker())) {
            return Poll::Pending;
        }
        self.waker = Some(poller.waker().clone());
        self.raised.as_mut().poll(poller)
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
    let mut kills: Vec<_> = groups.map(|group| Box::pin(group.kill.raised())).collect();
    std::future::poll_fn(|poller| {
        let ready = kills.iter_mut().any(|kill| kill.as_mut().poll(poller).is_ready());
        if ready { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

impl GroupId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        // Zero comes round once in four billion groups; two that share an id then could only
        // mistake each other for nested if one were made inside the other's task.
        Self(NonZeroU32::new(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap_or(NonZeroU32::MAX))
    }
}

thread_local! {
    /// The groups around the task that this thread polls right now.
    static CURRENT: Cell<Path> = const { Cell::new(Path::NONE) };
}

/// The groups around the task that this thread polls right now.
pub(crate) fn current() -> Path {
    CURRENT.get()
}

/// Whether this thread polls a task of that group, or of one inside it, right now.
pub(crate) fn is_current(group: GroupId) -> bool {
    current().contains(group)
}

/// Runs `work` as part of a task inside the groups of `path`, for as long as the call takes.
pub(crate) fn within<R>(path: Path, work: impl FnOnce() -> R) -> R {
    struct Restore(Path);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _restore = Restore(CURRENT.replace(path));
    work()
}
