//! Where records live: stable indices, no copying as it grows, memory given back as it empties.
//!
//! A `Vec` would copy every record when it grows and keep its peak size for ever after. Pages do
//! neither: a page that holds nothing is freed, but for a few spares so that a population that goes
//! up and down around its size does not allocate each time.
//!
//! `docs/rules.md#schedule-5`.

use std::ops::{Index, IndexMut};

/// The index of nothing.
pub(crate) const NIL: u32 = u32::MAX;

const PAGE_BITS: u32 = 8;
const PAGE: usize = 1 << PAGE_BITS;
const SLOT_MASK: u32 = PAGE as u32 - 1;
const NO_SLOT: u16 = u16::MAX;

/// So many empty pages are kept, and an eighth of those in use.
const SPARE_PAGES: usize = 1;

#[derive(Debug)]
pub(crate) struct Arena<R> {
    pages: Vec<Page<R>>,
    /// Pages with room, in no order.
    open: Vec<u32>,
    /// Pages without memory, to be filled again before new ones are added.
    bare: Vec<u32>,
    /// Pages with memory and nothing in it, in no order.
    spares: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Page<R> {
    slots: Box<[Slot<R>]>,
    first_free: u16,
    live: u16,
    /// Where the page stands in `open`.
    open_at: u32,
    /// Where it stands in `spares`, while it is empty.
    spare_at: u32,
}

#[derive(Debug)]
enum Slot<R> {
    Free { next: u16 },
    Live(R),
}

impl<R> Arena<R> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new(), open: Vec::new(), bare: Vec::new(), spares: Vec::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether it was much larger than it is: the list of its pages remembers.
    pub(crate) const fn was_large(&self) -> bool {
        const MANY: usize = 16;
        self.pages.len() > MANY && self.len / PAGE < self.pages.len() / MANY
    }

    pub(crate) fn insert(&mut self, record: R) -> u32 {
        let page_at = match self.open.last() {
            Some(&page_at) => page_at,
            None => self.add_page(),
        };
        if self.pages[page_at as usize].live == 0 {
            self.leave_spares(page_at);
        }
        let page = &mut self.pages[page_at as usize];
        let slot_at = page.first_free;
        let slot = &mut page.slots[usize::from(slot_at)];
        if let Slot::Free { next } = *slot {
            page.first_free = next;
        }
        *slot = Slot::Live(record);
        page.live += 1;
        if page.first_free == NO_SLOT {
            self.close(page_at);
        }
        self.len += 1;
        page_at << PAGE_BITS | u32::from(slot_at)
    }

    /// Takes out a record that is there.
    ///
    /// # Panics
    /// When it is not: indices never leave this crate, so that is a fault of this crate.
    pub(crate) fn remove(&mut self, index: u32) -> R {
        let (page_at, slot_at) = (index >> PAGE_BITS, index & SLOT_MASK);
        let page = &mut self.pages[page_at as usize];
        let free = Slot::Free { next: page.first_free };
        let Slot::Live(record) = std::mem::replace(&mut page.slots[slot_at as usize], free) else {
            panic!("no record at {index}");
        };
        let was_full = page.first_free == NO_SLOT;
        page.first_free = slot_at as u16;
        page.live -= 1;
        self.len -= 1;
        if was_full {
            page.open_at = self.open.len() as u32;
            self.open.push(page_at);
        }
        if self.pages[page_at as usize].live == 0 {
            self.become_spare(page_at);
            if self.len == 0 && self.pages.len() > SPARE_PAGES {
                self.forget_all_but(page_at);
            }
            // As fewer are in use fewer are kept, of those that emptied before too.
            while self.spares.len() > SPARE_PAGES + self.len / PAGE / 8 {
                self.strip(self.spares[0]);
            }
        }
        record
    }

    pub(crate) fn get(&self, index: u32) -> Option<&R> {
        let page = self.pages.get((index >> PAGE_BITS) as usize)?;
        match page.slots.get((index & SLOT_MASK) as usize)? {
            Slot::Live(record) => Some(record),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &R)> {
        let slots = self.pages.iter().zip(0u32..).flat_map(|(page, page_at)| {
            page.slots.iter().zip(0u32..).map(move |(slot, at)| (page_at << PAGE_BITS | at, slot))
        });
        slots.filter_map(|(index, slot)| match slot {
            Slot::Live(record) => Some((index, record)),
            Slot::Free { .. } => None,
        })
    }

    fn add_page(&mut self) -> u32 {
        let slots: Box<[Slot<R>]> = (1..=PAGE as u16)
            .map(|next| Slot::Free { next: if next == PAGE as u16 { NO_SLOT } else { next } })
            .collect();
        let open_at = self.open.len() as u32;
        let page = Page { slots, first_free: 0, live: 0, open_at, spare_at: 0 };
        let page_at = match self.bare.pop() {
            Some(page_at) => {
                self.pages[page_at as usize] = page;
                page_at
            }
            None => {
                // Four billion records would not fit any memory we run in.
                assert!(self.pages.len() < (NIL >> PAGE_BITS) as usize, "the arena is full");
                self.pages.push(page);
                self.pages.len() as u32 - 1
            }
        };
        self.open.push(page_at);
        self.become_spare(page_at);
        page_at
    }

    /// Takes a page off the list of those with room.
    fn close(&mut self, page_at: u32) {
        let open_at = self.pages[page_at as usize].open_at as usize;
        self.open.swap_remove(open_at);
        if let Some(&moved) = self.open.get(open_at) {
            self.pages[moved as usize].open_at = open_at as u32;
        }
    }

    fn become_spare(&mut self, page_at: u32) {
        self.pages[page_at as usize].spare_at = self.spares.len() as u32;
        self.spares.push(page_at);
    }

    fn leave_spares(&mut self, page_at: u32) {
        let spare_at = self.pages[page_at as usize].spare_at as usize;
        self.spares.swap_remove(spare_at);
        if let Some(&moved) = self.spares.get(spare_at) {
            self.pages[moved as usize].spare_at = spare_at as u32;
        }
    }

    /// Frees the memory of an empty page.
    fn strip(&mut self, page_at: u32) {
        self.close(page_at);
        self.leave_spares(page_at);
        self.pages[page_at as usize].slots = Box::default();
        self.bare.push(page_at);
    }

    /// With nothing left alive, keeps a single page.
    fn forget_all_but(&mut self, page_at: u32) {
        let mut page = self.pages.swap_remove(page_at as usize);
        (page.open_at, page.spare_at) = (0, 0);
        self.pages = vec![page];
        self.open = vec![0];
        self.bare = Vec::new();
        self.spares = vec![0];
    }
}

impl<R> Index<u32> for Arena<R> {
    type Output = R;

    fn index(&self, index: u32) -> &R {
        match &self.pages[(index >> PAGE_BITS) as usize].slots[(index & SLOT_MASK) as usize] {
            Slot::Live(record) => record,
            Slot::Free { .. } => panic!("no record at {index}"),
        }
    }
}

impl<R> IndexMut<u32> for Arena<R> {
    fn index_mut(&mut self, index: u32) -> &mut R {
        match &mut self.pages[(index >> PAGE_BITS) as usize].slots[(index & SLOT_MASK) as usize] {
            Slot::Live(record) => record,
            Slot::Free { .. } => panic!("no record at {index}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_stay_valid_while_others_come_and_go() {
        let mut arena = Arena::new();
        let kept: Vec<_> = (0..1000).map(|n| (n, arena.insert(n))).collect();
        for &(_, index) in kept.iter().filter(|(n, _)| n % 3 == 0) {
            arena.remove(index);
        }
        for n in 1000..1200 {
            arena.insert(n);
        }
        for &(n, index) in kept.iter().filter(|(n, _)| n % 3 != 0) {
            assert_eq!(arena[index], n);
        }
        assert_eq!(arena.len(), 1000 - 334 + 200);
        assert_eq!(arena.iter().count(), arena.len());
    }

    #[test]
    fn pages_are_freed_as_they_empty() {
        let mut arena = Arena::new();
        let all: Vec<_> = (0..100 * PAGE).map(|n| arena.insert(n)).collect();
        for index in all {
            arena.remove(index);
        }
        assert_eq!(arena.pages.len(), 1);
        assert_eq!(arena.get(0), None);
        let again = arena.insert(7);
        assert_eq!(arena[again], 7);
    }
}
