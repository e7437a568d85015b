//! Pools that had no room, and hear that they have.

use std::sync::Arc;

use sluicegate_dispatch::Demand;

use super::ReadAhead;

impl ReadAhead {
    /// Hears which pools have room again.
    pub(super) fn hear(&mut self, demand: &Demand) {
        let Some(openings) = demand.openings() else { return self.open_all() };
        if !self.openings.as_ref().is_some_and(|known| Arc::ptr_eq(known, openings)) {
            self.openings = Some(Arc::clone(openings));
            self.open_all();
        }
        let opened = openings.opened();
        if opened.all {
            self.open_all();
        }
        for code in opened.pools {
            if let Some(id) = self.shut.remove(&code) {
                self.open(id);
            }
        }
    }

    fn open_all(&mut self) {
        for (_, id) in std::mem::take(&mut self.shut) {
            self.open(id);
        }
    }

    fn open(&mut self, id: i64) {
        self.change(id, |pool| pool.is_shut = false);
    }
}
