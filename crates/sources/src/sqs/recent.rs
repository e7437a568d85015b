//! A memory of bounded size, which forgets what it was told first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What is known of messages by their ids. Invariant: every id has exactly one place in the line,
/// the one with its own number; other places of it are left over and are skipped.
#[derive(Debug)]
pub(super) struct Recent<V> {
    known: HashMap<Arc<str>, (u64, V)>,
    line: VecDeque<(u64, Arc<str>)>,
    next: u64,
    capacity: usize,
}

impl<V> Recent<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { known: HashMap::new(), line: VecDeque::new(), next: 0, capacity }
    }

    /// Remembers it as the newest.
    pub(super) fn insert(&mut self, id: Arc<str>, value: V) {
        self.next += 1;
        self.line.push_back((self.next, Arc::clone(&id)));
        self.known.insert(id, (self.next, value));
        while self.known.len() > self.capacity {
            let Some((number, id)) = self.line.pop_front() else { break };
            if self.known.get(&id).is_some_and(|(own, _)| *own == number) {
                self.known.remove(&id);
            }
        }
        if self.line.len() > self.capacity * 2 {
            let known = &self.known;
            self.line.retain(|(number, id)| known.get(id).is_some_and(|(own, _)| own == number));
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<&V> {
        self.known.get(id).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut V> {
        self.known.get_mut(id).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<V> {
        self.known.remove(id).map(|(_, value)| value)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.known.values().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_the_oldest_and_stays_small() {
        let mut recent = Recent::new(3);
        for n in 0..100 {
            recent.insert("same".into(), n);
            assert_eq!(recent.remove("same"), Some(n));
        }
        assert!(recent.line.len() <= 7, "{}", recent.line.len());
        for (n, id) in ["a", "b", "c", "a", "d"].into_iter().enumerate() {
            recent.insert(id.into(), n);
        }
        // What was told again is newer than what was not.
        assert_eq!(
            ["a", "b", "c", "d"].map(|id| recent.get(id).copied()),
            [Some(3), None, Some(2), Some(4)]
        );
        assert_eq!(recent.values().count(), 3);
    }
}
