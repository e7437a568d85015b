//! The end of a group or a sluice: one deadline, and a report.
//!
//! `docs/rules.md#drain-1`, `docs/rules.md#drain-2`, `docs/rules.md#drain-3`.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::Running;

/// What became of everything when a group or a sluice was drained.
///
/// ```
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # builder.enable_time().start_paused(true).build()?.block_on(async {
/// use sluicegate_tasks::{Context, TaskGroup};
/// use std::time::Duration;
/// use tokio::time::Instant;
///
/// let group = TaskGroup::new("uploads", 2)?;
/// let waits = |cx: Context| async move { cx.cancelled().await };
/// let task = group.submit_detached("slow", waits).await?;
/// let report = group.drain(Instant::now() + Duration::from_millis(5)).await;
/// assert_eq!(report.cancelled[0].name, "slow"); // it heeded its context, so not abandoned
/// assert!(report.abandoned.is_empty() && task.is_finished());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the report names what was abandoned"]
pub struct DrainReport {
    /// Whose.
    pub name: String,
    /// Items of a sluice that were handed back: let in and still waiting, or to be tried again. Not
    /// those who waited outside, which are refused; so a group hands nothing back.
    pub handed_back: u64,
    /// How many ended by the deadline, those of a group's children among them.
    /// A thread whose work is over, but which is not gone in time, is counted and named.
    pub finished: u64,
    /// Turns of a sluice that were dropped instead of ended, or panicked: handed to whom they belong.
    pub dropped: u64,
    /// Those that still ran at the deadline, when their contexts were cancelled, and have ended since:
    /// by themselves, or because a group dropped them.
    pub cancelled: Vec<Running>,
    /// Those that run on even so: turns and threads that do not look at their contexts, tasks that
    /// never come to an await.
    pub abandoned: Vec<Running>,
    /// How long it took.
    pub took: Duration,
}

impl DrainReport {
    /// Whether everything ended by itself.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_tasks::{Context, TaskGroup};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let group = TaskGroup::new("uploads", 2)?;
    /// group.submit(Context::new(), |cx| async move { cx.check() }).await?;
    /// let report = group.drain(Instant::now() + Duration::from_secs(5)).await;
    /// assert!(report.is_clean());
    /// assert_eq!(report.finished, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.dropped == 0 && self.cancelled.is_empty() && self.abandoned.is_empty()
    }
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, handed_back, finished, dropped, cancelled, abandoned, took } = self;
        write!(f, "{name} drained in {took:.1?}: {finished} finished, {handed_back} handed back")?;
        if *dropped > 0 {
            write!(f, ", {dropped} dropped")?;
        }
        for (what, those) in [("cancelled", cancelled), ("abandoned", abandoned)] {
            if !those.is_empty() {
                let names: Vec<&str> = those.iter().map(|one| one.name.as_str()).collect();
                write!(f, ", {} {what} ({})", those.len(), names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// What can be drained: a group or a sluice, as the drain sees it.
pub(crate) trait Drained {
    fn name(&self) -> &str;
    /// How long what is cancelled gets to end by itself, and again once it is dropped.
    fn unwind(&self) -> Duration;
    /// How many that had started have ended so far, all whom it answers for.
    fn ended(&self) -> u64;
    /// How many were handed back unrun so far.
    fn handed_back(&self) -> u64;
    /// How many were given up while they ran, ever, if that is counted apart.
    fn dropped(&self) -> u64 {
        0
    }
    /// Lets nothing more in and hands back what waits.
    fn close(&self);
    /// Who is there, longest first.
    fn list(&self) -> Vec<Running>;
    /// How many have ended, and who is there: nobody is counted as both.
    fn look(&self) -> (u64, Vec<Running>) {
        (self.ended(), self.list())
    }
    /// Waits until nobody is. Cancel safe.
    async fn emptied(&self);
    /// Cancels the contexts of all that run.
    fn kill(&self);
    /// Drops what does not heed that, at its next await. `false` where that cannot be done.
    fn abort(&self) -> bool;
}

/// Closes, waits for all that run until the deadline, ends the rest, and reports.
pub(crate) async fn drain<D: Drained>(of: &D, deadline: Instant) -> DrainReport {
    let (begun, ended, handed_back) = (Instant::now(), of.ended(), of.handed_back());
    let dropped = of.dropped();
    of.close();
    let ends = end(of, deadline).await;
    DrainReport {
        name: of.name().to_owned(),
        handed_back: of.handed_back() - handed_back,
        finished: ends.ended - ended,
        dropped: of.dropped() - dropped,
        cancelled: ends.cancelled,
        abandoned: ends.abandoned,
        took: begun.elapsed(),
    }
}

struct Ends {
    /// How many had ended at the deadline, or when nobody was there before it.
    ended: u64,
    cancelled: Vec<Running>,
    abandoned: Vec<Running>,
}

/// What still runs at the deadline is ended: first its contexts, then by force.
async fn end<D: Drained>(of: &D, deadline: Instant) -> Ends {
    if timeout_at(deadline, of.emptied()).await.is_ok() {
        return Ends { ended: of.ended(), cancelled: Vec::new(), abandoned: Vec::new() };
    }
    let (ended, cancelled) = of.look();
    of.kill();
    if timeout(of.unwind(), of.emptied()).await.is_ok() {
        return Ends { ended, cancelled, abandoned: Vec::new() };
    }
    if of.abort() && timeout(of.unwind(), of.emptied()).await.is_ok() {
        return Ends { ended, cancelled, abandoned: Vec::new() };
    }
    let abandoned = of.list();
    Ends { ended, cancelled: without(cancelled, &abandoned), abandoned }
}

/// Takes those out that are still there, by their names.
fn without(mut cancelled: Vec<Running>, abandoned: &[Running]) -> Vec<Running> {
    let mut left = HashMap::<&str, usize>::new();
    abandoned.iter().for_each(|one| *left.entry(&one.name).or_default() += 1);
    cancelled.retain(|one| match left.get_mut(one.name.as_str()) {
        Some(count @ 1..) => {
            *count -= 1;
            false
        }
        _ => true,
    });
    cancelled
}
