//! Records that fell idle a moment ago: kept, in case they are needed again at once.
//!
//! A name that comes and goes is looked up, made and forgotten each time, which costs more than all
//! the rest of a decision. The last few are kept instead. What is listed here is a hint only: whoever
//! takes one out looks whether it is still idle.

use crate::arena::NIL;

const KEPT: usize = 8;

/// The last few records that fell idle.
#[derive(Debug)]
pub(crate) struct RecentlyIdle {
    records: [u32; KEPT],
    next: usize,
}

impl RecentlyIdle {
    pub(crate) const fn new() -> Self {
        Self { records: [NIL; KEPT], next: 0 }
    }

    /// A record fell idle. Returns the one that was listed for longest, if it has to make room.
    pub(crate) fn push(&mut self, record: u32) -> Option<u32> {
        if self.records.contains(&record) {
            return None;
        }
        let oldest = std::mem::replace(&mut self.records[self.next], record);
        self.next = (self.next + 1) % KEPT;
        Some(oldest).filter(|oldest| *oldest != NIL)
    }
}
