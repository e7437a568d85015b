//! What came of the demo.

use std::time::Duration;

use serde_json::{Value, json};

use super::ledger::Counts;
use crate::screen::{Cell, Shade, Table, time};

/// The result of a run.
pub(super) struct Report {
    pub(super) messages: u32,
    pub(super) groups: u32,
    pub(super) took: Duration,
    pub(super) parked: u64,
    /// Whether the daemon's end was one.
    pub(super) clean: bool,
    pub(super) counts: Counts,
}

impl Report {
    /// What went wrong, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        let Counts { delivered, violations, .. } = self.counts;
        let lost = self.messages.saturating_sub(delivered);
        if lost > 0 {
            return Some(format!("{lost} messages did not arrive"));
        }
        if violations > 0 {
            return Some(format!("{violations} messages came out of order"));
        }
        (!self.clean).then(|| "the daemon did not end cleanly".to_owned())
    }

    fn rate(&self) -> f64 {
        f64::from(self.counts.delivered) / self.took.as_secs_f64().max(0.001)
    }

    fn percentiles(&self) -> [Duration; 3] {
        [0.5, 0.95, 0.99].map(|part| self.counts.percentile(part))
    }

    pub(super) fn table(&self) -> Table {
        let counts = &self.counts;
        let number = |number: u32| time::count(u64::from(number));
        let zero = |count: u32, bad| {
            Cell::new(number(count)).shaded(if count == 0 { Shade::Good } else { bad })
        };
        let [p50, p95, p99] = self.percentiles().map(time::span);
        let arrived = counts.delivered == self.messages;
        let shade = if arrived { Shade::Good } else { Shade::Bad };
        let mut table = Table::facts();
        let mut row = |name: &str, cell| table.row([Cell::new(name), cell]);
        let delivered = format!("{} of {}", number(counts.delivered), number(self.messages));
        row("delivered", Cell::new(delivered).shaded(shade));
        let retried = format!(
            "{}: {} answered 503, {} put off, {} throttled",
            number(counts.refused()),
            counts.broken,
            counts.put_off,
            counts.throttled
        );
        row("retried", Cell::new(retried));
        row("duplicates", zero(counts.duplicates, Shade::Warn));
        row("order violations", zero(counts.violations, Shade::Bad));
        let rate = time::count(self.rate() as u64);
        row("rate", Cell::new(format!("{rate} a second, for {}", time::span(self.took))));
        row("publish to delivery", Cell::new(format!("p50 {p50}, p95 {p95}, p99 {p99}")));
        table
    }

    pub(super) fn json(&self) -> Value {
        let counts = &self.counts;
        let [p50, p95, p99] = self.percentiles().map(|latency| latency.as_secs_f64() * 1_000.0);
        json!({
            "messages": self.messages,
            "groups": self.groups,
            "delivered": counts.delivered,
            "retried": counts.refused(),
            "duplicates": counts.duplicates,
            "orderViolations": counts.violations,
            "parked": self.parked,
            "seconds": self.took.as_secs_f64(),
            "ratePerSecond": self.rate(),
            "latencyMs": { "p50": p50, "p95": p95, "p99": p99 },
            "ok": self.fault().is_none(),
        })
    }
}
