//! What a group is asked: to change, to say what it does, and to end.

use std::future::{Future, poll_fn};
use std::pin::pin;

use sluicegate_schedule::{Fault, Invalid};
use tokio::time::Instant;

use super::TaskGroup;
use crate::current::DrainMark;
use crate::drain::drain;
use crate::stats::Gauges;
use crate::{DrainReport, Running, Stats};

impl TaskGroup {
    /// Changes how many may run at once: see [`Permits::resize`](crate::Permits::resize).
    ///
    /// ```
    /// use sluicegate_tasks::TaskGroup;
    ///
    /// let group = TaskGroup::new("thumbnails", 8)?;
    /// group.resize(16)?;
    /// assert_eq!(group.stats().gauges.limit, 16);
    /// assert_eq!(group.resize(0).unwrap_err().field, "limit");
    /// # Ok::<(), sluicegate_tasks::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// Names `limit` when it is zero or too large, or not one where the group was made inside a task
    /// ([`TaskGroup::child`]): that task has one permit to hand over. Then nothing changes.
    pub fn resize(&self, limit: u32) -> Result<(), Invalid> {
        if self.shared().handover.is_some() && limit > 1 {
            return Err(Invalid::new("limit", Fault::TooLarge { max: 1 }));
        }
        self.shared().permits.resize(limit)
    }

    /// Ends the group: nothing more is let in, who waits to submit is told, what runs goes on
    /// until the deadline and is then cancelled. The report names what was abandoned.
    ///
    /// Safe to call twice, also at once; dropped before it resolves, admission stays closed and
    /// nothing else happens. Called from one of the group's own tasks it is for all the others: it
    /// neither waits for that task nor names it, and does not drop it while it waits here. Its
    /// context ends with the others'.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, Refusal, TaskGroup};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let group = TaskGroup::new("thumbnails", 8)?;
    /// let task = group.submit(Context::new(), |cx| async move { cx.check() }).await?;
    /// let report = group.drain(Instant::now() + Duration::from_secs(5)).await;
    /// assert_eq!((report.finished, task.await?), (1, Ok(())));
    /// let late = group.submit(Context::new(), |cx| async move { cx.check() }).await;
    /// assert_eq!(late.unwrap_err().why, Refusal::Draining);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn drain(&self, deadline: Instant) -> DrainReport {
        let shared = self.shared();
        let mut drained = pin!(drain(&**shared, deadline));
        // Dropped when the drain is over or given up: from then on the task is one like all others.
        let mut mark = DrainMark::default();
        poll_fn(|poller| {
            let polled = drained.as_mut().poll(poller);
            mark.set(&shared.lineage, poller.waker());
            polled
        })
        .await
    }

    /// All tasks that run, longest first: detached ones by their name, others by the place they
    /// were submitted from.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("jobs", 2)?;
    /// let refresh = |cx: Context| async move { cx.cancelled().await };
    /// let _task = group.submit_detached("refresh", refresh).await?;
    /// assert_eq!(group.running()[0].name, "refresh");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn running(&self) -> Vec<Running> {
        self.shared().roster.list(&[])
    }

    /// The counters and gauges.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("thumbnails", 8)?;
    /// group.run(Context::new(), |cx| async move { cx.check() }).await??;
    /// let stats = group.stats();
    /// assert_eq!((stats.admitted, stats.completed, stats.gauges.running), (1, 1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let permits = &shared.permits;
        // A child counts its own tasks, whoever's permits they hold.
        let listed = || u32::try_from(shared.roster.list(&[]).len()).unwrap_or(u32::MAX);
        let gauges = Gauges {
            queued: permits.waiting(),
            running: if shared.parent.is_some() { listed() } else { permits.in_use() },
            limit: permits.limit(),
            oldest_wait: permits.oldest_wait(),
        };
        shared.counters.snapshot(gauges, shared.roster.ledger())
    }
}
