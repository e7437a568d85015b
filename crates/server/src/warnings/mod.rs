//! What a person should look at: one entry per matter, counted, over when it is, forgotten long after.
//!
//! Invariants:
//! 1. There is at most one warning for a code, severity and subject.
//! 2. The three indexes change under one lock and hold the same warnings.
//! 3. Subjects are short, and messages are one short line, whoever chose them.
//! 4. There are never more than [`Warnings::MOST`]. A mild one makes room for a worse one, never the
//!    other way round.
//! 5. One that is over stays for those who look later; when it happens again, it is open again.

mod code;
mod table;
mod unknown_fields;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::Severity;
use tokio::sync::Notify;

use crate::time::{Clock, Timestamp};

pub use code::Code;
pub(crate) use table::{blocked_words, cut, parked_words, plain};
pub use table::{over_for, speakable, warning_for};
pub(crate) use unknown_fields::UnknownFields;

/// A matter that a person should look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Its number, which no other one has or will have.
    pub id: u64,
    /// What it is about.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, by name: a target, a pool or a queue.
    pub subject: Arc<str>,
    /// What happened the last time.
    pub message: Arc<str>,
    /// How often it happened.
    pub count: u64,
    /// When it happened first.
    pub first_seen: Timestamp,
    /// When it happened last.
    pub last_seen: Timestamp,
    /// Whether somebody has taken note.
    pub acknowledged: bool,
    /// Since when it is over.
    pub resolved: Option<Timestamp>,
}

/// Something to warn of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// What it is about.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, by name.
    pub subject: Arc<str>,
    /// What happened, without any secret.
    pub message: String,
}

/// What became of something to warn of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It was not known before.
    New(Warning),
    /// It is known, and was counted.
    Again,
    /// It is known and was over; now it is not any more.
    Reopened(Warning),
    /// There is no room, and all that is there is worse.
    NoRoom,
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The warnings, newest first.
    pub items: Vec<Warning>,
    /// Where the next part begins, if there is one.
    pub next: Option<u64>,
}

/// All warnings there are.
#[derive(Debug)]
pub struct Warnings {
    clock: Arc<dyn Clock>,
    kept: Mutex<Kept>,
    changed: Notify,
}

type Matter = (Code, Severity, Arc<str>);

const SEVERITIES: [Severity; 4] =
    [Severity::Info, Severity::Warning, Severity::Error, Severity::Critical];

#[derive(Debug)]
struct Kept {
    next_id: u64,
    by_id: BTreeMap<u64, Warning>,
    by_matter: HashMap<Matter, u64>,
    /// In the order in which they make room.
    by_weight: BTreeSet<(Severity, Timestamp, u64)>,
}

impl Warnings {
    /// How many are kept.
    pub const MOST: usize = 10_000;
    /// The length of a subject or message, in bytes.
    pub const LONGEST: usize = 1_024;
    /// How long one is kept after it last happened.
    pub const KEPT_FOR: Duration = Duration::from_secs(8 * 60 * 60);

    /// None yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        // Numbers go on from the time of the start: what is kept in memory is gone after a restart,
        // and an old number must not mean another warning then.
        let first = u64::try_from(clock.now().as_millisecond()).unwrap_or_default() * 1_000;
        let kept = Kept {
            next_id: first,
            by_id: BTreeMap::new(),
            by_matter: HashMap::new(),
            by_weight: BTreeSet::new(),
        };
        Self { clock, kept: Mutex::new(kept), changed: Notify::new() }
    }

    /// Warns of something.
    pub fn raise(&self, raised: Raised) -> Noted {
        let now = self.clock.now();
        let Raised { code, severity, mut subject, message } = raised;
        if subject.len() > Self::LONGEST {
            subject = cut(&subject).into();
        }
        let message = plain(&message);
        let matter = (code, severity, subject);
        let noted = self.kept.lock().note(matter, &message, now);
        if matches!(noted, Noted::New(_) | Noted::Reopened(_)) {
            self.changed.notify_one();
        }
        noted
    }

    /// Says an open one in other words: nothing happened again.
    pub(crate) fn reword(&self, id: u64, message: &str) {
        let mut kept = self.kept.lock();
        let warning = kept.by_id.get_mut(&id).filter(|warning| warning.is_open());
        if let Some(warning) = warning {
            warning.message = plain(message).into();
        }
    }

    /// Says that a matter is over, however bad it was. Returns those that were not over before.
    pub fn resolve(&self, code: Code, subject: &str) -> Vec<Warning> {
        let now = self.clock.now();
        let mut over = Vec::new();
        {
            let mut kept = self.kept.lock();
            for severity in SEVERITIES {
                let matter = (code, severity, Arc::from(cut(subject)));
                let id = kept.by_matter.get(&matter).copied();
                let warning = id.and_then(|id| kept.by_id.get_mut(&id));
                if let Some(warning) = warning.filter(|warning| warning.is_open()) {
                    warning.resolved = Some(now);
                    over.push(warning.clone());
                }
            }
        }
        if !over.is_empty() {
            self.changed.notify_one();
        }
        over
    }

    /// Those of a code that are not over.
    #[must_use]
    pub fn open(&self, code: Code) -> Vec<Warning> {
        let kept = self.kept.lock();
        let open = |warning: &&Warning| warning.code == code && warning.is_open();
        kept.by_id.values().filter(open).cloned().collect()
    }

    /// All that are at least as bad, over or not.
    pub(crate) fn at_least(&self, severity: Severity) -> Vec<Warning> {
        let kept = self.kept.lock();
        kept.by_id.values().filter(|warning| warning.severity >= severity).cloned().collect()
    }

    /// Waits until one has come, is over, or has gone, since this was last waited for. One may wait.
    ///
    /// # Cancel safety
    /// Dropped, it has taken no change away.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<Warning> {
        self.kept.lock().by_id.get(&id).cloned()
    }

    /// At most `limit` of them, newest first, of one severity or of all, after a cursor.
    #[must_use]
    pub fn list(&self, severity: Option<Severity>, cursor: Option<u64>, limit: usize) -> Page {
        let kept = self.kept.lock();
        let before = cursor.unwrap_or(u64::MAX);
        let mut found = kept
            .by_id
            .range(..before)
            .rev()
            .map(|(_, warning)| warning)
            .filter(|warning| severity.is_none_or(|severity| warning.severity == severity));
        let items: Vec<Warning> = found.by_ref().take(limit).cloned().collect();
        let more = found.next().is_some();
        Page { next: items.last().map(|last| last.id).filter(|_| more), items }
    }

    /// How many there are of each severity that are not over.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Severity, u64> {
        let mut counts = BTreeMap::from(SEVERITIES.map(|each| (each, 0)));
        for warning in self.kept.lock().by_id.values().filter(|warning| warning.is_open()) {
            *counts.entry(warning.severity).or_default() += 1;
        }
        counts
    }

    /// How many there are that are not over, of each code and severity that is kept; 0 where all are over.
    #[must_use]
    pub fn open_by_code(&self) -> BTreeMap<(Severity, Code), u64> {
        let mut counts = BTreeMap::new();
        for warning in self.kept.lock().by_id.values() {
            let count = counts.entry((warning.severity, warning.code)).or_insert(0);
            *count += u64::from(warning.is_open());
        }
        counts
    }

    /// Says that somebody has taken note of one. `None` if there is none of that number.
    pub fn acknowledge(&self, id: u64) -> Option<Warning> {
        let mut kept = self.kept.lock();
        let warning = kept.by_id.get_mut(&id)?;
        warning.acknowledged = true;
        Some(warning.clone())
    }

    /// Removes one. `None` if there is none of that number.
    pub fn remove(&self, id: u64) -> Option<Warning> {
        let removed = self.kept.lock().remove(id);
        self.changed.notify_one();
        removed
    }

    /// Forgets those that last happened long ago, but none that goes on. Returns how many they were.
    pub fn expire(&self) -> usize {
        let Ok(oldest) = self.clock.now().checked_sub(Self::KEPT_FOR) else { return 0 };
        let expired = {
            let mut kept = self.kept.lock();
            let goes_on = |warning: &Warning| warning.code.lasts() && warning.is_open();
            let is_old = |warning: &&Warning| warning.last_seen <= oldest && !goes_on(warning);
            let old: Vec<u64> =
                kept.by_id.values().filter(is_old).map(|warning| warning.id).collect();
            old.iter().filter_map(|id| kept.remove(*id)).count()
        };
        if expired > 0 {
            self.changed.notify_one();
        }
        expired
    }
}

impl Kept {
    fn note(&mut self, matter: Matter, message: &str, now: Timestamp) -> Noted {
        if let Some(id) = self.by_matter.get(&matter).copied() {
            return self.count(id, now, message);
        }
        if !self.make_room(matter.1) {
            return Noted::NoRoom;
        }
        Noted::New(self.add(matter, message, now))
    }

    fn count(&mut self, id: u64, now: Timestamp, message: &str) -> Noted {
        let Some(warning) = self.by_id.get_mut(&id) else { return Noted::NoRoom };
        self.by_weight.remove(&(warning.severity, warning.last_seen, id));
        warning.count += 1;
        warning.last_seen = now;
        if *warning.message != *message {
            warning.message = message.into();
        }
        self.by_weight.insert((warning.severity, now, id));
        if warning.resolved.take().is_none() {
            return Noted::Again;
        }
        // Who took note of it then does not know of it now.
        warning.acknowledged = false;
        Noted::Reopened(warning.clone())
    }

    fn add(&mut self, matter: Matter, message: &str, now: Timestamp) -> Warning {
        let id = self.next_id;
        self.next_id += 1;
        let (code, severity, subject) = matter.clone();
        let warning = Warning {
            id,
            code,
            severity,
            subject,
            message: message.into(),
            count: 1,
            first_seen: now,
            last_seen: now,
            acknowledged: false,
            resolved: None,
        };
        self.by_matter.insert(matter, id);
        self.by_weight.insert((severity, now, id));
        self.by_id.insert(id, warning.clone());
        warning
    }

    /// Makes room for one more of that severity. `false` if all that are there are worse.
    fn make_room(&mut self, severity: Severity) -> bool {
        if self.by_id.len() < Warnings::MOST {
            return true;
        }
        match self.by_weight.first().copied() {
            Some((mildest, _, id)) if mildest <= severity => self.remove(id).is_some(),
            _ => false,
        }
    }

    fn remove(&mut self, id: u64) -> Option<Warning> {
        let warning = self.by_id.remove(&id)?;
        self.by_weight.remove(&(warning.severity, warning.last_seen, id));
        self.by_matter.remove(&(warning.code, warning.severity, Arc::clone(&warning.subject)));
        Some(warning)
    }
}

impl Raised {
    /// Something to warn of.
    pub fn new(
        code: Code,
        severity: Severity,
        subject: impl Into<Arc<str>>,
        message: impl Into<String>,
    ) -> Self {
        Self { code, severity, subject: subject.into(), message: message.into() }
    }
}

impl Warning {
    /// Whether it is not over.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.resolved.is_none()
    }

    /// It as people and programs see it.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "id": self.id.to_string(),
            "code": self.code.label(),
            "severity": self.severity.label(),
            "subject": &*self.subject,
            "message": &*self.message,
            "count": self.count,
            "firstSeen": self.first_seen.to_string(),
            "lastSeen": self.last_seen.to_string(),
            "acknowledged": self.acknowledged,
            "resolved": !self.is_open(),
            "resolvedAt": self.resolved.map(|since| since.to_string()),
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}: {}", self.code, self.severity, self.subject, self.message)
    }
}
