//! Turns that are done, until whoever takes the line's lock next counts them off.
//!
//! While nobody waits for anything, the end of a turn starts nothing and nobody needs to hear of it. It
//! is noted here, beside the lock, and so a turn takes the lock once.
//!
//! Invariants:
//! 1. Whoever takes the line's lock first counts off what is noted: nobody sees a turn that is done as
//!    one that runs.
//! 2. Nothing is noted while somebody waits. Whoever leaves the line with somebody waiting says so here
//!    first, and counts off what was noted until then.

use sluicegate_schedule::{ItemId, Moment};

use super::workers::Ran;
use crate::sync::BriefMutex;

/// On lines of the cache of its own: the threads that end turns need not disturb the one in the lock.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Done {
    noted: BriefMutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    turns: Vec<DoneTurn>,
    /// Somebody waits, who must hear of each end.
    somebody_waits: bool,
}

/// A turn that is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoneTurn {
    pub(super) at: Moment,
    pub(super) id: ItemId,
    pub(super) ran: Ran,
}

impl Done {
    /// So many at most, so that whoever counts them off is not held up.
    const MOST: usize = 64;

    pub(super) fn new() -> Self {
        Self { noted: BriefMutex::new(Noted::default()) }
    }

    /// Notes it, unless somebody must hear of it.
    pub(super) fn note(&self, turn: DoneTurn) -> bool {
        let mut noted = self.noted.lock();
        let takes = !noted.somebody_waits && noted.turns.len() < Self::MOST;
        if takes {
            noted.turns.push(turn);
        }
        takes
    }

    /// Moves what is noted to the end of an empty list.
    pub(super) fn take(&self, to: &mut Vec<DoneTurn>) {
        std::mem::swap(&mut self.noted.lock().turns, to);
    }

    /// The same, and says whether somebody waits from now on.
    pub(super) fn take_and_say(&self, to: &mut Vec<DoneTurn>, somebody_waits: bool) {
        let mut noted = self.noted.lock();
        noted.somebody_waits = somebody_waits;
        std::mem::swap(&mut noted.turns, to);
    }
}
