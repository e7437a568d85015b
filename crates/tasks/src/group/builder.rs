//! The settings of a group, checked once when it is built.

use std::sync::{Arc, Weak};
use std::time::Duration;

use sluicegate_schedule::{Fault, Invalid};

use super::nested::Handover;
use super::shared::Shared;
use super::threads::Threads;
use super::{Handle, TaskGroup};
use crate::context::{Flag, GroupId, Lineage};
use crate::lineage::Inside;
use crate::roster::Roster;
use crate::stats::Counters;
use crate::{Context, Permits};

/// Settings of a [`TaskGroup`] that are not checked yet.
///
/// ```
/// use sluicegate_tasks::TaskGroup;
/// use std::time::Duration;
///
/// let unchecked = TaskGroup::builder("orders", 8).unwind(Duration::ZERO);
/// assert_eq!(unchecked.clone().build().unwrap_err().field, "unwind");
/// assert!(unchecked.unwind(Duration::from_secs(1)).build().is_ok());
/// ```
#[derive(Clone, Debug)]
#[must_use = "build() makes the group"]
pub struct TaskGroupBuilder {
    name: String,
    limit: u32,
    unwind: Duration,
    service: Context,
}

/// What a group has from the one it is a child of.
pub(super) struct Kin {
    pub(super) group: GroupId,
    pub(super) maker: Option<Inside>,
    pub(super) lent: Option<Arc<Permits>>,
    pub(super) handover: Option<Arc<Handover>>,
    pub(super) closing: Flag,
    pub(super) kill: Flag,
    pub(super) abort: Flag,
    pub(super) parent: Option<Arc<Shared>>,
    pub(super) threads: Arc<Threads>,
}

impl Kin {
    fn none() -> Self {
        Self {
            group: GroupId::next(),
            maker: None,
            lent: None,
            handover: None,
            closing: Flag::new(),
            kill: Flag::new(),
            abort: Flag::new(),
            parent: None,
            threads: Arc::default(),
        }
    }
}

impl TaskGroupBuilder {
    const UNWIND: Duration = Duration::from_millis(100);

    pub(super) fn new(name: String, limit: u32) -> Self {
        Self { name, limit, unwind: Self::UNWIND, service: Context::new() }
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
    /// Names the field that cannot work: `name` (empty), `limit`, `unwind` (zero).
    pub fn build(self) -> Result<TaskGroup, Invalid> {
        let permits = Arc::new(Permits::new(self.limit)?);
        self.build_with(permits, Kin::none())
    }

    pub(super) fn build_with(self, permits: Arc<Permits>, kin: Kin) -> Result<TaskGroup, Invalid> {
        if self.name.is_empty() {
            return Err(Invalid::new("name", Fault::Empty));
        }
        if self.unwind.is_zero() {
            return Err(Invalid::new("unwind", Fault::Zero));
        }
        crate::panic::watch();
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let lineage = Lineage::new(kin.group, kin.kill, Weak::<Shared>::clone(shared));
            Shared {
                name: self.name,
                permits,
                lent: kin.lent,
                handover: kin.handover,
                parent: kin.parent,
                unwind: self.unwind,
                service: self.service,
                group: kin.group,
                lineage: Arc::new(lineage.made_in(kin.maker)),
                closing: Arc::new(kin.closing),
                abort: Arc::new(kin.abort),
                roster: Roster::new(),
                names: Arc::default(),
                threads: kin.threads,
                counters: Counters::new(),
            }
        });
        Ok(TaskGroup { handle: Arc::new(Handle { shared }) })
    }
}
