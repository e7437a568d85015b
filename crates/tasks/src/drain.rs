//! The end of a group or a turnstile: one deadline, and a report.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::Running;
use crate::context::Flag;
use crate::roster::Roster;

/// What became of everything when a group or a turnstile was drained.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the report names what was abandoned"]
pub struct DrainReport {
    /// Whose.
    pub name: String,
    /// How many that waited were handed back unrun.
    pub handed_back: u64,
    /// How many ran to their end by the deadline.
    pub finished: u64,
    /// Those that still ran at the deadline and ended once they were cancelled.
    pub cancelled: Vec<Running>,
    /// Those that run on even so, cancelled but not heeding it.
    pub abandoned: Vec<Running>,
    /// How long it took.
    pub took: Duration,
}

impl DrainReport {
    /// Whether everything ended by itself.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.cancelled.is_empty() && self.abandoned.is_empty()
    }
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            handed_back,
            finished,
            cancelled,
            abandoned,
            took,
        } = self;
        write!(
            f,
            "{name} drained in {took:.1?}: {finished} finished, {handed_back} handed back"
        )?;
        for (what, those) in [("cancelled", cancelled), ("abandoned", abandoned)] {
            if !those.is_empty() {
                let names: Vec<&str> = those.iter().map(|one| one.name.as_str()).collect();
                write!(f, ", {} {what} ({})", those.len(), names.join(", "))?;
            }
        }
        Ok(())
    }
}

/// How what still runs at the deadline is ended: first its contexts, then by force.
pub(crate) struct Ending<'a> {
    pub(crate) roster: &'a Roster,
    /// Cancels the contexts of all that run.
    pub(crate) kill: &'a Flag,
    /// Drops what did not heed that, at its next await.
    pub(crate) abort: &'a Flag,
    /// How long each of the two may take to have its effect.
    pub(crate) unwind: Duration,
}

impl Ending<'_> {
    /// Waits for all that run until the deadline, then ends the rest. Returns who was cancelled and
    /// who is still there.
    pub(crate) async fn by(self, deadline: Instant) -> (Vec<Running>, Vec<Running>) {
        if timeout_at(deadline, self.roster.emptied()).await.is_ok() {
            return (Vec::new(), Vec::new());
        }
        let late = self.roster.list();
        for means in [self.kill, self.abort] {
            means.raise();
            if timeout_at(Instant::now() + self.unwind, self.roster.emptied())
                .await
                .is_ok()
            {
                return (late, Vec::new());
            }
        }
        let abandoned = self.roster.list();
        let mut cancelled = late;
        for left in &abandoned {
            if let Some(at) = cancelled.iter().position(|one| one.name == left.name) {
                cancelled.remove(at);
            }
        }
        (cancelled, abandoned)
    }
}
