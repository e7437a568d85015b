//! Groups within groups.
//!
//! `docs/rules.md#task-5`.

use std::sync::Arc;

use sluicegate_schedule::Invalid;

use super::TaskGroup;
use super::builder::Kin;
use crate::context::Flag;
use crate::current;

impl TaskGroup {
    /// A group within a task, for work that this task waits for.
    ///
    /// Made inside one of this group's tasks, it belongs to that task, its maker. Each of its tasks
    /// borrows a permit of this group where one is free, and never waits for one; without, one of
    /// all children of a maker runs on the maker's own permit, whenever the maker waits, for whatever
    /// it is, and never while the maker itself runs. So it cannot deadlock, and no more than the limit
    /// run at once. It ends with its maker: what is left of it then is cancelled and dropped, and only
    /// after that is the maker's permit free. A handle that is kept gets refusals.
    ///
    /// A thread of the child ([`TaskGroup::submit_thread`]) only borrows, and so does blocking work
    /// where the maker itself blocks a thread: without a free permit they are refused
    /// ([`AtLimit`](crate::AtLimit)). Such a maker runs what has its permit only while it awaits the
    /// child. What runs on the maker's permit is one task at a time: it cannot be resized.
    ///
    /// Made outside, it shares this group's permits, and this group answers for its tasks: its drain
    /// closes the child and waits for them. When this group's drain deadline passes, so does the
    /// child's.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    ///
    /// let group = TaskGroup::new("reports", 1)?;
    /// let own = group.clone();
    /// let report = group.run(Context::new(), |cx| async move {
    ///     let pages = own.child("pages").ok()?;
    ///     pages.run(&cx, |cx| async move { cx.check().is_ok() }).await.ok()
    /// });
    /// assert_eq!(report.await?, Some(true)); // although the report holds the only permit
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Names `name` when it is empty.
    pub fn child(&self, name: impl Into<String>) -> Result<Self, Invalid> {
        let parent = self.shared();
        let builder = Self::builder(name, 1).service_context(parent.service.child());
        let kill = parent.lineage.kill.below();
        let (abort, threads) = (parent.abort.below(), Arc::clone(&parent.threads));
        // In a task that the parent's drain waits for. Any other may go on after it.
        if current::is_within(&parent.lineage) {
            // Permits that were handed over cannot be borrowed once more.
            let lent = parent.lent.as_ref().unwrap_or(&parent.permits);
            let handover = current::handover()?;
            let permits = Arc::clone(&handover.permits);
            let kin = Kin {
                group: handover.group,
                maker: current::inside(),
                lent: Some(Arc::clone(lent)),
                handover: Some(handover),
                // Its parent's drain lets a running task finish, with what it hands to its child.
                closing: Flag::new(),
                kill,
                abort,
                parent: Some(Arc::clone(parent)),
                threads,
            };
            let child = builder.build_with(permits, kin)?;
            current::made(Arc::clone(child.shared()));
            Ok(child)
        } else {
            let kin = Kin {
                // The same permits, so the same group to whoever holds one and asks for another.
                group: parent.group,
                maker: parent.lineage.maker().cloned(),
                lent: parent.lent.clone(),
                handover: parent.handover.clone(),
                closing: parent.closing.below(),
                kill,
                abort,
                parent: Some(Arc::clone(parent)),
                threads,
            };
            builder.build_with(Arc::clone(&parent.permits), kin)
        }
    }
}
