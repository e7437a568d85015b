//! A four-way heap whose members know where they stand, so that any of them can be moved or taken
//! out. Four children lie side by side in memory: half the depth of a binary heap, and half its
//! cache misses.

#[derive(Debug)]
pub(crate) struct Heap<P> {
    entries: Vec<(P, u32)>,
}

const ARITY: usize = 4;

/// Every change tells the moved members their new place through `at(member, place)`.
impl<P: Ord + Copy> Heap<P> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    const fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<(P, u32)> {
        self.entries.first().copied()
    }

    pub(crate) fn push(&mut self, priority: P, member: u32, at: impl FnMut(u32, u32)) {
        self.entries.push((priority, member));
        self.rise(self.entries.len() - 1, at);
    }

    pub(crate) fn remove(&mut self, place: u32, at: impl FnMut(u32, u32)) {
        let place = place as usize;
        self.entries.swap_remove(place);
        if self.entries.capacity() > 64 && self.entries.len() * 8 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        if place < self.entries.len() {
            self.settle(place, at);
        }
    }

    pub(crate) fn update(&mut self, place: u32, priority: P, at: impl FnMut(u32, u32)) {
        self.entries[place as usize].0 = priority;
        self.settle(place as usize, at);
    }

    fn settle(&mut self, place: usize, at: impl FnMut(u32, u32)) {
        if place > 0 && self.entries[place].0 < self.entries[(place - 1) / ARITY].0 {
            self.rise(place, at);
        } else {
            self.sink(place, at);
        }
    }

    fn rise(&mut self, mut place: usize, mut at: impl FnMut(u32, u32)) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.entries[place] = self.entries[parent];
            at(self.entries[place].1, place as u32);
            place = parent;
        }
        self.entries[place] = entry;
        at(entry.1, place as u32);
    }

    fn sink(&mut self, mut place: usize, mut at: impl FnMut(u32, u32)) {
        let entry = self.entries[place];
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.entries.len());
            let Some(least) = children.min_by_key(|&child| self.entries[child].0) else {
                break;
            };
            if entry.0 <= self.entries[least].0 {
                break;
            }
            self.entries[place] = self.entries[least];
            at(self.entries[place].1, place as u32);
            place = least;
        }
        self.entries[place] = entry;
        at(entry.1, place as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Random pushes, updates and removals agree with a sorted list, and every member always
        /// knows its place.
        #[test]
        fn agrees_with_a_sorted_list(ops in prop::collection::vec((0u8..3, 0u32..40, 0u32..100), 0..400)) {
            let mut heap = Heap::new();
            let mut places = [None; 40];
            let mut list: Vec<(u32, u32)> = Vec::new();
            for (op, member, priority) in ops {
                let place = places[member as usize];
                let mut told = Vec::new();
                match (op, place) {
                    (0, None) => {
                        heap.push((priority, member), member, |m, p| told.push((m, p)));
                        list.push((priority, member));
                    }
                    (1, Some(place)) => {
                        heap.update(place, (priority, member), |m, p| told.push((m, p)));
                        list.retain(|entry| entry.1 != member);
                        list.push((priority, member));
                    }
                    (2, Some(place)) => {
                        heap.remove(place, |m, p| told.push((m, p)));
                        list.retain(|entry| entry.1 != member);
                        places[member as usize] = None;
                    }
                    _ => {}
                }
                for (member, place) in told {
                    places[member as usize] = Some(place);
                }
                prop_assert_eq!(heap.first().map(|(p, _)| p), list.iter().min().copied());
                prop_assert_eq!(heap.len(), list.len());
                for (place, entry) in heap.entries.iter().enumerate() {
                    prop_assert_eq!(places[entry.1 as usize], Some(place as u32));
                }
            }
        }
    }
}
