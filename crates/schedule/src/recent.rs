//! The last starts, and how things were before each: so that one that is taken back leaves no trace,
//! though others started beside it that are taken back too.
//!
//! Invariant: what stands here is in the order of the starts, and what is taken back last of all that
//! started since leads back to where things were before the first of them.
//!
//! `docs/rules.md#schedule-8`.

use crate::Class;
use crate::class::ClassPicker;
use crate::lanes::Rounds;

/// How many are remembered. With more starts in between, one that is taken back gives back its charge
/// and what it moved newcomers by; the turns of the classes stay as they are.
const REMEMBERED: usize = 32;

#[derive(Debug)]
pub(crate) struct RecentStarts {
    /// The start number `n` is at `n % REMEMBERED`.
    starts: Vec<Before>,
    /// The number of the last start.
    last: u64,
    /// The number of the last start that is not remembered any more.
    forgotten: u64,
    /// Per class: after which of them it was last taken out of wait to the last item.
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
    taken_back: bool,
}

impl Before {
    pub(crate) const fn new(item: u64, class: Class, picker: ClassPicker, rounds: Rounds) -> Self {
        Self { item, class, picker, rounds, taken_back: false }
    }
}

impl RecentStarts {
    pub(crate) const fn new() -> Self {
        Self { starts: Vec::new(), last: 0, forgotten: 0, emptied: [0; Class::COUNT] }
    }

    #[inline]
    pub(crate) fn add(&mut self, before: Before) {
        self.last += 1;
        match self.starts.get_mut(place(self.last)) {
            Some(oldest) => *oldest = before,
            None => self.grow(before),
        }
        self.forgotten = self.forgotten.max(self.last.saturating_sub(REMEMBERED as u64));
    }

    /// The first starts of all: there is no place for them yet.
    #[cold]
    fn grow(&mut self, before: Before) {
        self.starts.resize(REMEMBERED, before);
    }

    /// Nothing of the class waits any more, and not because it started.
    pub(crate) const fn empty(&mut self, class: Class) {
        self.emptied[class.index()] = self.last;
    }

    pub(crate) const fn clear(&mut self) {
        self.forgotten = self.last;
    }

    /// The item's start is taken back. Those that came after it and stay: what it moved is to be taken
    /// off what is remembered of them. Returns how things were before it.
    pub(crate) fn take_back(
        &mut self,
        item: u64,
        moved: impl Fn(&mut Before, &ClassPicker),
    ) -> Option<ClassPicker> {
        let mut remembered = (self.forgotten + 1..=self.last).rev();
        let at = remembered.find(|start| self.starts[place(*start)].item == item)?;
        self.starts[place(at)].taken_back = true;
        let picker = self.starts[place(at)].picker.clone();
        (at + 1..=self.last).for_each(|later| moved(&mut self.starts[place(later)], &picker));
        Some(picker)
    }

    /// The last start, if it was taken back: how things were before it. Where nothing of a class waited
    /// any more since, the class is owed nothing.
    pub(crate) fn pop_taken_back(&mut self) -> Option<Before> {
        if self.last == self.forgotten || !self.starts[place(self.last)].taken_back {
            return None;
        }
        let mut last = self.starts[place(self.last)].clone();
        for class in Class::ALL {
            let emptied = &mut self.emptied[class.index()];
            if *emptied >= self.last {
                last.picker.forget(class);
                *emptied = self.last - 1;
            }
        }
        self.last -= 1;
        Some(last)
    }
}

const fn place(start: u64) -> usize {
    start as usize % REMEMBERED
}
