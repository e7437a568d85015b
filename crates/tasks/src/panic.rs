//! A panic as a value: what it said, and where.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::task::Waker;

/// A panic that was caught at a task's edge.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskError, TaskGroup};
///
/// let group = TaskGroup::new("images", 2)?;
/// let decode = |cx: Context| async move { cx.deadline().expect("no deadline") };
/// let Err(TaskError::Panicked(panic)) = group.run(Context::new(), decode).await else {
///     unreachable!("this context has none")
/// };
/// assert_eq!(panic.message(), "no deadline");
/// assert!(panic.location().is_some_and(|at| at.line > 0));
/// assert_eq!(group.stats().panicked, 1); // counted; the group lives on
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// Boxed: a result that holds one is moved about far more often than one is looked at.
    what: Box<What>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct What {
    message: String,
    location: Option<PanicLocation>,
}

/// Where a panic happened.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskError, TaskGroup};
///
/// let group = TaskGroup::new("images", 2)?;
/// let decode = |cx: Context| async move { cx.deadline().expect("no deadline") };
/// let Err(TaskError::Panicked(panic)) = group.run(Context::new(), decode).await else {
///     unreachable!("this context has none")
/// };
/// let at = panic.location().ok_or("unknown")?;
/// assert!(at.file.ends_with(".rs") && at.line > 0 && at.column > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanicLocation {
    /// The source file, as the compiler names it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl Panic {
    /// What it said.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskError, TaskGroup};
    ///
    /// let group = TaskGroup::new("images", 2)?;
    /// let decode = |cx: Context| async move { cx.deadline().expect("no deadline") };
    /// let Err(TaskError::Panicked(panic)) = group.run(Context::new(), decode).await else {
    ///     unreachable!("this context has none")
    /// };
    /// assert_eq!(panic.message(), "no deadline");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn message(&self) -> &str {
        &self.what.message
    }

    /// Where; unknown when somebody replaced the process's panic hook by one that calls no other.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskError, TaskGroup};
    ///
    /// let group = TaskGroup::new("images", 2)?;
    /// let decode = |cx: Context| async move { cx.deadline().expect("no deadline") };
    /// let Err(TaskError::Panicked(panic)) = group.run(Context::new(), decode).await else {
    ///     unreachable!("this context has none")
    /// };
    /// assert!(panic.location().is_some_and(|at| panic.to_string().contains(&at.file)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn location(&self) -> Option<&PanicLocation> {
        self.what.location.as_ref()
    }

    fn of(payload: Box<dyn Any + Send>) -> Self {
        let text = payload
            .downcast_ref::<&'static str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        // Before the payload goes, which may panic elsewhere. A panic that was resumed passed no
        // hook: what is noted then is another's, unless it is the same that was caught before.
        let noted = NOTED.take().filter(|noted| noted.message == text);
        discard(payload);
        let message = text.unwrap_or_else(|| "a panic with a value that is not text".to_owned());
        Self { what: Box::new(What { message, location: noted.map(|noted| noted.location) }) }
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.what.message)?;
        match &self.what.location {
            Some(at) => write!(f, " at {}:{}:{}", at.file, at.line, at.column),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Panic {}

/// What the hook saw of a panic.
struct Noted {
    message: Option<String>,
    location: PanicLocation,
}

thread_local! {
    /// The thread's last panic, left by the hook for the task's edge.
    static NOTED: RefCell<Option<Noted>> = const { RefCell::new(None) };
}

/// Drops a payload. It may panic itself, and so may what it panics with: there is nobody left to
/// tell. One that goes on and on is let be.
fn discard(mut payload: Box<dyn Any + Send>) {
    for _ in 0..16 {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(another) => payload = another,
        }
    }
    Box::leak(payload);
}

/// Calls `work`; a panic becomes a value.
pub(crate) fn catch<R>(work: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(work)).map_err(Panic::of)
}

/// Calls every waker. One that panics keeps none of the others from being called.
#[inline]
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        drop(catch(|| waker.wake()));
    }
}

/// A payload carries no location; only a panic hook sees it. Ours notes it and calls the one that
/// was there before, so what used to be printed still is.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if let Some(at) = info.location() {
                let file = at.file().to_owned();
                let location = PanicLocation { file, line: at.line(), column: at.column() };
                let message = info.payload_as_str().map(str::to_owned);
                // The thread may be on its way out: then nobody will ask.
                drop(NOTED.try_with(|noted| noted.replace(Some(Noted { message, location }))));
            }
            earlier(info);
        }));
    });
}
