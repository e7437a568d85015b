//! The last starts, and how things were before each: so that one that is taken back leaves no trace,
//! though others started beside it that are taken back too.
//!
//! Invariant: what stands here is in the order of the starts, and what is taken back last of all that
//! started since leads back to where things were before the first of them.
//!
//! `docs/rules.md#schedule-8`.

use std::collections::VecDeque;

use crate::Class;
use crate::class::ClassPicker;
use crate::lanes::Rounds;

/// How many are remembered. With more starts in between, one that is taken back gives back its charge
/// and what it moved newcomers by; the turns of the classes stay as they are.
const REMEMBERED: usize = 32;

#[derive(Debug)]
pub(crate) struct RecentStarts {
    starts: VecDeque<Before>,
    /// How many there ever were.
    count: u64,
    /// Per class: after how many of them it was last taken out of wait to the last item.
    emptied: [u64; Class::COUNT],
}

/// What a start changes for others, as it was before.
#[derive(Clone, Debug)]
pub(crate) struct Before {
    /// The number of the item that started.
    pub(crate) item: u64,
    pub(crate) class: Class,
    pub(crate) picker: ClassPicker,
    pub(crate) rounds: Rounds,
    /// Which start it was.
    at: u64,
    taken_back: bool,
}

impl Before {
    pub(crate) const fn new(item: u64, class: Class, picker: ClassPicker, rounds: Rounds) -> Self {
        Self { item, class, picker, rounds, at: 0, taken_back: false }
    }
}

impl RecentStarts {
    pub(crate) fn new() -> Self {
        let starts = VecDeque::with_capacity(REMEMBERED);
        Self { starts, count: 0, emptied: [0; Class::COUNT] }
    }

    pub(crate) fn add(&mut self, before: Before) {
        if self.starts.len() == REMEMBERED {
            self.starts.pop_front();
        }
        self.count += 1;
        self.starts.push_back(Before { at: self.count, ..before });
    }

    /// Nothing of the class waits any more, and not because it started.
    pub(crate) const fn empty(&mut self, class: Class) {
        self.emptied[class.index()] = self.count;
    }

    pub(crate) fn clear(&mut self) {
        self.starts.clear();
    }

    /// The item's start is taken back. Those that came after it and stay: what it moved is to be taken
    /// off what is remembered of them.
    pub(crate) fn take_back(&mut self, item: u64, moved: impl Fn(&mut Before)) {
        if let Some(at) = self.starts.iter().rposition(|start| start.item == item) {
            self.starts[at].taken_back = true;
            self.starts.iter_mut().skip(at + 1).for_each(moved);
        }
    }

    /// The last start, if it was taken back: how things were before it. Where nothing of a class waited
    /// any more since, the class is owed nothing.
    pub(crate) fn pop_taken_back(&mut self) -> Option<Before> {
        let mut last = self.starts.pop_back_if(|start| start.taken_back)?;
        for class in Class::ALL {
            if self.emptied[class.index()] >= last.at {
                last.picker.forget(class);
            }
        }
        Some(last)
    }
}
