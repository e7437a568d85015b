//! What came of the demo of agents.

use std::time::Duration;

use serde_json::{Value, json};

use super::ledger::Faults;
use crate::screen::{Align, Cell, Shade, Table, time};

/// What one user got.
#[derive(Clone, Debug, Default)]
pub(super) struct UserReport {
    pub(super) name: String,
    pub(super) failed: usize,
    /// How long each request waited that was answered, in milliseconds.
    pub(super) waits: Vec<u64>,
}

/// The result of a run.
pub(super) struct Report {
    pub(super) users: Vec<UserReport>,
    pub(super) took: Duration,
    pub(super) faults: Faults,
    /// Processes that are there still.
    pub(super) left: usize,
    /// Whether the daemon's end was one.
    pub(super) clean: bool,
}

/// How even it must be: 1 is as even as can be, a tenth is all for one of ten.
const EVEN: f64 = 0.9;

impl UserReport {
    fn percentile(&self, part: usize) -> u64 {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let rank = (waits.len() * part).div_ceil(100).max(1);
        waits.get(rank - 1).copied().unwrap_or(0)
    }
}

impl Report {
    pub(super) fn served(&self) -> usize {
        self.users.iter().map(|user| user.waits.len()).sum()
    }

    /// Jain's index of what the users got.
    fn evenness(&self) -> f64 {
        let served = || self.users.iter().map(|user| user.waits.len() as f64);
        let squares: f64 = served().map(|count| count * count).sum();
        let sum: f64 = served().sum();
        sum * sum / (squares * self.users.len() as f64).max(1.0)
    }

    /// What went wrong, if anything.
    pub(super) fn fault(&self) -> Option<String> {
        let failed: usize = self.users.iter().map(|user| user.failed).sum();
        let Faults { overlaps, misplaced } = self.faults;
        let faults = [
            (failed > 0, format!("{failed} requests failed")),
            (self.users.iter().any(|user| user.waits.is_empty()), "a user got nothing".to_owned()),
            (overlaps > 0, format!("{overlaps} turns overlapped with another of their session")),
            (misplaced > 0, format!("{misplaced} turns came out of order")),
            (self.left > 0, format!("{} processes are left", self.left)),
            (self.evenness() < EVEN, format!("it was not fair: {:.2}", self.evenness())),
            (!self.clean, "the daemon did not end cleanly".to_owned()),
        ];
        faults.into_iter().find_map(|(is_so, words)| is_so.then_some(words))
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([
            ("user", Align::Left),
            ("served", Align::Right),
            ("failed", Align::Right),
            ("wait p50", Align::Right),
            ("wait p95", Align::Right),
        ]);
        for user in &self.users {
            let wait = |part| Cell::new(time::span(Duration::from_millis(user.percentile(part))));
            let shade = if user.failed == 0 { Shade::Good } else { Shade::Bad };
            table.row([
                Cell::new(&*user.name),
                Cell::new(user.waits.len().to_string()),
                Cell::new(user.failed.to_string()).shaded(shade),
                wait(50),
                wait(95),
            ]);
        }
        table
    }

    /// What a script looks for, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let rate = self.served() as f64 / self.took.as_secs_f64().max(0.001);
        vec![
            format!("served {} in {}, {rate:.1} a second", self.served(), time::span(self.took)),
            format!("fairness {:.3} (1 is even, 0.1 is all for one of ten)", self.evenness()),
            format!("session overlaps {}", self.faults.overlaps),
            format!("order violations {}", self.faults.misplaced),
            format!("processes left {}", self.left),
        ]
    }

    pub(super) fn json(&self) -> Value {
        let user = |user: &UserReport| {
            json!({"user": user.name, "served": user.waits.len(), "failed": user.failed,
                "waitP50Ms": user.percentile(50), "waitP95Ms": user.percentile(95)})
        };
        json!({
            "users": self.users.iter().map(user).collect::<Vec<_>>(),
            "served": self.served(),
            "tookMs": self.took.as_millis() as u64,
            "fairness": self.evenness(),
            "sessionOverlaps": self.faults.overlaps,
            "orderViolations": self.faults.misplaced,
            "processesLeft": self.left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_told() {
        let user = |count| UserReport { waits: vec![1; count], ..UserReport::default() };
        let good = || Report {
            users: vec![user(10), user(9)],
            took: Duration::from_secs(1),
            faults: Faults::default(),
            left: 0,
            clean: true,
        };
        assert_eq!(good().fault(), None);
        type Change = fn(&mut Report);
        let changes: [(Change, &str); 6] = [
            (|report| report.users[0].failed = 1, "1 requests failed"),
            (|report| report.users[1].waits.clear(), "a user got nothing"),
            (|report| report.faults.overlaps = 2, "2 turns overlapped"),
            (|report| report.faults.misplaced = 2, "2 turns came out of order"),
            (|report| report.left = 3, "3 processes are left"),
            (|report| report.users[0].waits = vec![1; 100], "it was not fair"),
        ];
        for (change, words) in changes {
            let mut report = good();
            change(&mut report);
            let fault = report.fault().unwrap_or_default();
            assert!(fault.starts_with(words), "{fault}");
        }
    }
}
