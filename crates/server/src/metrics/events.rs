//! What of the event store is shown: zeros, while it is not open.

use sluicegate_event_store::StoreStats;

use super::page::{Page, Sheet, Written};

impl Page {
    pub(super) fn events(&self, sheet: &mut Sheet<'_>) -> Written {
        let read = |value: fn(&StoreStats) -> u64| self.snapshot.events.as_ref().map_or(0, value);
        let running = read(|stats| u64::from(stats.projections_running));
        sheet.gauge("projections_running", "Projections that run", running)?;
        let refused = read(|stats| stats.projections_refused);
        let help = "Projections that were refused since too many ran";
        sheet.counter("projections_rejected", help, refused)?;
        let appended = read(|stats| stats.events_appended);
        sheet.counter("events_appended", "Events that were appended", appended)?;
        let help = "Appends whose condition did not hold";
        sheet.counter("append_conflicts", help, read(|stats| stats.append_conflicts))
    }
}
