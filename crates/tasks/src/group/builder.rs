//! The settings of a group, checked once when it is built.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::{Fault, Invalid};

use super::{Handle, TaskGroup};
use crate::context::{Flag, GroupId, Lineage, Path};
use crate::place::Shared;
use crate::roster::Roster;
use crate::stats::Counters;
use crate::{Context, GroupOverload, Permits};

/// Settings of a [`TaskGroup`] that are not checked yet.
///
/// ```
/// use sluicegate_tasks::{GroupOverload, TaskGroup};
///
/// let unchecked = TaskGroup::builder("orders", 8).overload(GroupOverload::Queue { capacity: 0 });
/// assert_eq!(unchecked.clone().build().unwrap_err().field, "capacity");
/// assert!(unchecked.overload(GroupOverload::Queue { capacity: 160 }).build().is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use = "build() makes the group"]
pub struct TaskGroupBuilder {
    name: String,
    limit: u32,
    overload: GroupOverload,
    unwind: Duration,
    service: Context,
}

/// What a group has from the one it is a child of.
pub(super) struct Kin {
    pub(super) group: GroupId,
    pub(super) path: Path,
    pub(super) closing: Flag,
    pub(super) kill: Flag,
    pub(super) abort: Flag,
    pub(super) parent: Option<Arc<Shared>>,
}

impl Kin {
    fn none() -> Self {
        let ((closing, kill, abort), group) = (Default::default(), GroupId::next());
        let path = Path::NONE.within(group);
        Self { group, path, closing, kill, abort, parent: None }
    }
}

impl TaskGroupBuilder {
    const UNWIND: Duration = Duration::from_millis(100);

    pub(super) fn new(name: String, limit: u32) -> Self {
        let (overload, unwind) = (GroupOverload::Wait, Self::UNWIND);
        Self { name, limit, overload, unwind, service: Context::new() }
    }

    /// What to do with work that cannot start at once; [`GroupOverload::Wait`] unless told.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, GroupOverload, TaskGroup};
    ///
    /// let group = TaskGroup::builder("orders", 1).overload(GroupOverload::FailFast).build()?;
    /// let _first = group.submit(Context::new(), |cx| async move { cx.cancelled().await }).await?;
    /// let second = group.submit(Context::new(), |cx| async move { cx.check() }).await;
    /// assert_eq!(second.unwrap_err().why.label(), "at_limit"); // at once
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn overload(mut self, overload: GroupOverload) -> Self {
        self.overload = overload;
        self
    }

    /// The context of detached tasks: the service's own, not a request's.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    /// use std::time::Duration;
    ///
    /// let service = Context::new().with_timeout(Duration::from_secs(3600));
    /// let group = TaskGroup::builder("jobs", 2).service_context(service.clone()).build()?;
    /// let job = group.submit_detached("refresh", |cx| async move { cx.deadline() }).await?;
    /// assert_eq!(job.await?, service.deadline());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn service_context(mut self, cx: Context) -> Self {
        self.service = cx;
        self
    }

    /// How long tasks that are cancelled at the drain deadline get to end by themselves before they
    /// are dropped at their next await; 100 ms unless told.
    ///
    /// ```
    /// # let mut builder = tokio::runtime::Builder::new_current_thread();
    /// # builder.enable_time().start_paused(true).build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskError, TaskGroup};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let group = TaskGroup::builder("uploads", 1).unwind(Duration::from_millis(1)).build()?;
    /// let stuck = |cx: Context| async move {
    ///     cx.cancelled().await;
    ///     std::future::pending::<()>().await // heard it, and goes on even so
    /// };
    /// let task = group.submit(Context::new(), stuck).await?;
    /// let report = group.drain(Instant::now() + Duration::from_millis(1)).await;
    /// assert_eq!((report.cancelled.len(), task.await), (1, Err(TaskError::Aborted)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub const fn unwind(mut self, unwind: Duration) -> Self {
        self.unwind = unwind;
        self
    }

    /// Checks the settings and makes the group.
    ///
    /// ```
    /// use sluicegate_tasks::TaskGroup;
    /// use std::time::Duration;
    ///
    /// assert!(TaskGroup::builder("orders", 8).build().is_ok());
    /// let refused = TaskGroup::builder("orders", 8).unwind(Duration::ZERO).build().unwrap_err();
    /// assert_eq!(refused.field, "unwind");
    /// ```
    ///
    /// # Errors
    /// Names the field that cannot work: `name` (empty), `limit`, `capacity`, `unwind` (zero).
    pub fn build(self) -> Result<TaskGroup, Invalid> {
        let permits = Arc::new(Permits::new(self.limit)?);
        self.build_with(permits, None, Kin::none())
    }

    pub(super) fn build_with(
        self,
        permits: Arc<Permits>,
        lent: Option<Arc<Permits>>,
        kin: Kin,
    ) -> Result<TaskGroup, Invalid> {
        if self.name.is_empty() {
            return Err(Invalid::new("name", Fault::Empty));
        }
        if self.unwind.is_zero() {
            return Err(Invalid::new("unwind", Fault::Zero));
        }
        self.overload.check()?;
        crate::panic::watch();
        let Kin { group, path, closing, kill, abort, parent } = kin;
        let lineage = Arc::new(Lineage::of(path, kill));
        let shared = Shared {
            name: self.name,
            permits,
            lent,
            parent,
            overload: self.overload,
            unwind: self.unwind,
            service: self.service,
            group,
            lineage,
            closing: Arc::new(closing),
            abort,
            roster: Roster::new(),
            names: Arc::default(),
            counters: Counters::new(),
        };
        Ok(TaskGroup { handle: Arc::new(Handle { shared: Arc::new(shared) }) })
    }
}
