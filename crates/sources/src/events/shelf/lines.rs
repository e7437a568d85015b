//! The events of each key that is kept in order, in a line.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sluicegate_dispatch::{DEFAULT_GROUP, Order};

/// The lines of a queue, whose messages are all of one pool.
#[derive(Debug)]
pub(super) struct Lines {
    pool: Arc<str>,
    order: Arc<Order>,
    /// What those without a group are in line as.
    ungrouped: Arc<str>,
    lines: HashMap<Arc<str>, Line>,
}

#[derive(Debug, Default)]
struct Line {
    places: BTreeSet<u64>,
    /// How many of them are out.
    out: usize,
}

impl Lines {
    pub(super) fn new(pool: Arc<str>) -> Self {
        let ungrouped = DEFAULT_GROUP.into();
        Self { pool, order: Arc::default(), ungrouped, lines: HashMap::new() }
    }

    /// Forgets all lines: from now on this is what is kept in order.
    pub(super) fn begin_anew(&mut self, order: &Arc<Order>) {
        self.order = Arc::clone(order);
        self.lines.clear();
    }

    fn key<'a>(&'a self, group: Option<&'a Arc<str>>) -> Option<&'a Arc<str>> {
        let key = group.unwrap_or(&self.ungrouped);
        self.order.keeps(&self.pool, key).then_some(key)
    }

    /// Puts an event in line, at its place; whether it stands behind others. Whom it stands before can wait again.
    pub(super) fn add(
        &mut self,
        position: u64,
        group: Option<&Arc<str>>,
        ready: &mut BTreeSet<u64>,
    ) -> bool {
        let Some(key) = self.key(group).cloned() else { return false };
        let line = self.lines.entry(key).or_default();
        if let Some(&head) = line.places.first()
            && position < head
        {
            ready.remove(&head);
        }
        line.places.insert(position);
        line.places.first() != Some(&position)
    }

    /// It is settled, and was not out.
    pub(super) fn remove(&mut self, position: u64, group: Option<&Arc<str>>) {
        let Some(key) = self.key(group).cloned() else { return };
        let Some(line) = self.lines.get_mut(&key) else { return };
        line.places.remove(&position);
        if line.places.is_empty() {
            self.lines.remove(&key);
        }
    }

    /// The first of a line, if there is a line.
    pub(super) fn head(&self, group: Option<&Arc<str>>) -> Option<u64> {
        self.lines.get(self.key(group)?)?.places.first().copied()
    }

    /// The first of a line none of which is out.
    pub(super) fn free_head(&self, group: Option<&Arc<str>>) -> Option<u64> {
        let line = self.lines.get(self.key(group)?)?;
        line.places.first().copied().filter(|_| line.out == 0)
    }

    pub(super) fn goes_out(&mut self, group: Option<&Arc<str>>) {
        if let Some(line) = self.line_mut(group) {
            line.out += 1;
        }
    }

    pub(super) fn comes_in(&mut self, group: Option<&Arc<str>>) {
        if let Some(line) = self.line_mut(group) {
            line.out -= 1;
        }
    }

    fn line_mut(&mut self, group: Option<&Arc<str>>) -> Option<&mut Line> {
        let key = self.key(group).cloned()?;
        self.lines.get_mut(&key)
    }
}
