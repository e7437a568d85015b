//! Since when something fails: pure, told the time.
//!
//! A queue is down when its source has failed for a while, and back with its first success. The state
//! file fails with one write, and works again when it has been written a few times in a row: on a full
//! disk some writes still find room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::Severity;
use tokio::time::Instant;

/// The queues that fail, and since when.
#[derive(Debug, Default)]
pub struct Outages {
    by_queue: BTreeMap<Arc<str>, Outage>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    /// How bad the last warning was.
    warned: Option<Severity>,
}

/// What to say of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has failed for so long.
    Down {
        /// How bad that is.
        severity: Severity,
        /// How long it has failed.
        since: Duration,
        /// Why.
        trouble: String,
    },
    /// It works again, and was down for so long.
    Back {
        /// How long it was down.
        after: Duration,
    },
    /// It was down and is not there any more.
    Gone,
}

/// From when on a queue that fails is down, and how bad that is.
const DOWN: [(Duration, Severity); 2] =
    [(Duration::from_secs(60), Severity::Error), (Duration::from_secs(5), Severity::Warning)];

impl Outages {
    /// Looks at all queues: what keeps each from working, if anything. What is to be said is said once.
    pub fn look(
        &mut self,
        now: Instant,
        queues: Vec<(Arc<str>, Option<String>)>,
    ) -> Vec<(Arc<str>, Change)> {
        let mut before = std::mem::take(&mut self.by_queue);
        let mut changes = Vec::new();
        for (name, trouble) in queues {
            let known = before.remove(&name);
            let Some(trouble) = trouble else {
                if let Some(outage) = known.filter(|outage| outage.warned.is_some()) {
                    changes.push((name, Change::Back { after: now - outage.since }));
                }
                continue;
            };
            let mut outage = known.unwrap_or(Outage { since: now, warned: None });
            let since = now - outage.since;
            let severity = DOWN.into_iter().find(|(from, _)| since >= *from).map(|(_, bad)| bad);
            if let Some(severity) = severity.filter(|_| severity > outage.warned) {
                outage.warned = Some(severity);
                changes.push((Arc::clone(&name), Change::Down { severity, since, trouble }));
            }
            self.by_queue.insert(name, outage);
        }
        let gone = before.into_iter().filter(|(_, outage)| outage.warned.is_some());
        changes.extend(gone.map(|(name, _)| (name, Change::Gone)));
        changes
    }
}

/// Whether the state file can be written.
#[derive(Debug, Default)]
pub struct StateFile {
    trouble: Option<String>,
    /// How often in a row it was written since.
    written: u32,
}

/// What to say of the state file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// It cannot be written, or not for the same reason as before.
    Failed(String),
    /// It can be written again.
    Works,
}

/// How often in a row a file that failed must be written before it works again.
const WRITTEN: u32 = 3;

impl StateFile {
    /// Looks at what the last write said.
    pub fn look(&mut self, failure: Option<String>) -> Option<StateChange> {
        match failure {
            Some(failure) => {
                self.written = 0;
                let is_new = self.trouble.as_ref() != Some(&failure);
                self.trouble = Some(failure.clone());
                is_new.then_some(StateChange::Failed(failure))
            }
            None => {
                self.trouble.as_ref()?;
                self.written += 1;
                if self.written < WRITTEN {
                    return None;
                }
                self.trouble = None;
                Some(StateChange::Works)
            }
        }
    }

    /// Why it cannot be written, as far as is known.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_down_after_a_while_and_back_at_once() {
        let mut outages = Outages::default();
        let begun = Instant::now();
        let mut look = |secs: u64, trouble: Option<&str>| {
            let now = begun + Duration::from_secs(secs);
            let queues = vec![
                (Arc::from("q"), trouble.map(str::to_owned)),
                (Arc::from("well"), None::<String>),
            ];
            let said = outages.look(now, queues).into_iter().map(|(name, change)| match change {
                Change::Down { severity, since, trouble } => {
                    format!("{name} {severity} {} {trouble}", since.as_secs())
                }
                Change::Back { after } => format!("{name} back {}", after.as_secs()),
                Change::Gone => format!("{name} gone"),
            });
            said.collect::<Vec<_>>()
        };
        let steps = [
            (0, Some("a"), vec![]),
            (4, Some("a"), vec![]),
            (5, Some("b"), vec!["q WARNING 5 b"]),
            (59, Some("b"), vec![]),
            (60, Some("c"), vec!["q ERROR 60 c"]),
            (500, Some("c"), vec![]),
            (501, None, vec!["q back 501"]),
            (502, None, vec![]),
            (510, Some("a"), vec![]),
            (513, None, vec![]),
            (520, Some("a"), vec![]),
            (600, Some("a"), vec!["q ERROR 80 a"]),
        ];
        for (secs, trouble, said) in steps {
            assert_eq!(look(secs, trouble), said, "at {secs}");
        }
        let gone = outages.look(begun + Duration::from_secs(601), Vec::new());
        assert_eq!(gone, [(Arc::from("q"), Change::Gone)]);
    }

    #[test]
    fn a_file_works_again_when_it_was_written_a_few_times_in_a_row() {
        let mut file = StateFile::default();
        let full = || Some("full".to_owned());
        let failed = |why: &str| Some(StateChange::Failed(why.to_owned()));
        let steps = [
            (None, None),
            (full(), failed("full")),
            (full(), None),
            (None, None),
            (full(), None),
            (Some("broken".to_owned()), failed("broken")),
            (None, None),
            (None, None),
            (None, Some(StateChange::Works)),
            (None, None),
        ];
        for (at, (failure, change)) in steps.into_iter().enumerate() {
            assert_eq!(file.look(failure), change, "step {at}");
        }
        assert_eq!(file.trouble(), None);
    }
}
