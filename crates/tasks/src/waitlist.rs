//! Those who wait, in order. Anyone can leave from the middle in constant time.
//!
//! A node that was popped stays until its owner frees it: that is where the owner finds its verdict.

const NIL: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct WaitList<W> {
    nodes: Vec<Node<W>>,
    free: u32,
    first: u32,
    last: u32,
    waiting: u32,
    /// Nodes in use, waiting or popped.
    live: u32,
}

#[derive(Debug)]
struct Node<W> {
    before: u32,
    behind: u32,
    linked: bool,
    waiter: Option<W>,
}

impl<W> WaitList<W> {
    pub(crate) const fn new() -> Self {
        Self { nodes: Vec::new(), free: NIL, first: NIL, last: NIL, waiting: 0, live: 0 }
    }

    /// How many wait.
    pub(crate) const fn len(&self) -> u32 {
        self.waiting
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(crate) fn push_back(&mut self, waiter: W) -> u32 {
        let node = Node { before: self.last, behind: NIL, linked: true, waiter: Some(waiter) };
        let at = match self.free {
            NIL => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
            at => {
                self.free = self.nodes[at as usize].behind;
                self.nodes[at as usize] = node;
                at
            }
        };
        match self.last {
            NIL => self.first = at,
            last => self.nodes[last as usize].behind = at,
        }
        self.last = at;
        self.waiting += 1;
        self.live += 1;
        at
    }

    pub(crate) fn front(&self) -> Option<&W> {
        self.nodes.get(self.first as usize)?.waiter.as_ref()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut W> {
        self.nodes.get_mut(self.first as usize)?.waiter.as_mut()
    }

    /// The first's node.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    /// The node behind one that is in line.
    pub(crate) fn behind(&self, at: u32) -> Option<u32> {
        let behind = self.nodes.get(at as usize)?.behind;
        (behind != NIL).then_some(behind)
    }

    /// Takes one out of line, wherever it is. Its node stays until [`WaitList::free`].
    pub(crate) fn take_out(&mut self, at: u32) {
        if self.nodes[at as usize].linked {
            self.unlink(at);
        }
    }

    /// Takes the first out of line. Its node stays until [`WaitList::free`].
    pub(crate) fn pop_front(&mut self) -> Option<&mut W> {
        let at = self.first;
        if at == NIL {
            return None;
        }
        self.unlink(at);
        self.nodes[at as usize].waiter.as_mut()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut W> {
        self.nodes.get_mut(at as usize)?.waiter.as_mut()
    }

    /// Gives a node up, in line or not.
    pub(crate) fn free(&mut self, at: u32) -> Option<W> {
        if self.nodes[at as usize].linked {
            self.unlink(at);
        }
        let node = &mut self.nodes[at as usize];
        let waiter = node.waiter.take();
        node.behind = self.free;
        self.free = at;
        self.live -= 1;
        if self.live == 0 {
            // Nobody is left: give the memory of a crowd back.
            self.free = NIL;
            self.nodes.clear();
            self.nodes.shrink_to(16);
        }
        waiter
    }

    fn unlink(&mut self, at: u32) {
        let node = &mut self.nodes[at as usize];
        node.linked = false;
        let (before, behind) = (node.before, node.behind);
        match before {
            NIL => self.first = behind,
            before => self.nodes[before as usize].behind = behind,
        }
        match behind {
            NIL => self.last = before,
            behind => self.nodes[behind as usize].before = before,
        }
        self.waiting -= 1;
    }
}

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn agrees_with_a_queue(ops in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..200)) {
            let mut list = WaitList::new();
            let mut queue: VecDeque<(u32, u32)> = VecDeque::new();
            let mut popped: Vec<u32> = Vec::new();
            for (n, (op, index)) in (0u32..).zip(ops) {
                match op {
                    0 | 1 => queue.push_back((list.push_back(n), n)),
                    2 if queue.is_empty() => prop_assert_eq!(list.pop_front(), None),
                    2 => {
                        let (at, value) = queue.pop_front().unwrap();
                        prop_assert_eq!(list.pop_front().copied(), Some(value));
                        popped.push(at);
                    }
                    _ if !popped.is_empty() && n % 2 == 0 => {
                        list.free(popped.swap_remove(index.index(popped.len())));
                    }
                    _ if !queue.is_empty() => {
                        let (at, value) = queue.remove(index.index(queue.len())).unwrap();
                        prop_assert_eq!(list.free(at), Some(value));
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len() as usize, queue.len());
                prop_assert_eq!(list.front().copied(), queue.front().map(|(_, value)| *value));
            }
        }
    }
}
