//! Where a fact becomes a log line, a number, a warning and an event. It is the only such place.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use sluicegate_dispatch::{Fact, Observer, Outcome, Severity};
use sluicegate_sources::nearest;
use tokio::time::Instant;

use crate::agents::Streak;
use crate::failing::Failing;
use crate::feed::{Feed, event_for};
use crate::health::Rests;
use crate::log;
use crate::metrics::Metrics;
use crate::rarely::Rarely;
use crate::time::Clock;
use crate::warnings::{
    Code, Noted, Raised, UnknownFields, Warning, Warnings, over_for, plain, warning_for,
};

/// Hears of every fact.
#[derive(Debug)]
pub struct Record {
    /// What a person should look at.
    pub warnings: Warnings,
    /// What is counted.
    pub metrics: Metrics,
    /// Who listens.
    pub feed: Feed,
    /// Which pools rest.
    pub rests: Rests,
    /// Which messages fail.
    pub failing: Failing,
    /// How many requests to agents failed in a row.
    pub(crate) streak: Streak,
    rarely: Rarely,
    interrupted: AtomicU64,
    clock: Arc<dyn Clock>,
    unknown_fields: UnknownFields,
}

impl Record {
    /// Nothing heard yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            warnings: Warnings::new(Arc::clone(&clock)),
            metrics: Metrics::new(),
            feed: Feed::new(Arc::clone(&clock)),
            rests: Rests::default(),
            failing: Failing::default(),
            streak: Streak::default(),
            rarely: Rarely::default(),
            interrupted: AtomicU64::new(0),
            clock,
            unknown_fields: UnknownFields::default(),
        })
    }

    /// Warns of something that is no fact of the router: for chores.
    pub fn raise(
        &self,
        code: Code,
        severity: Severity,
        subject: impl Into<Arc<str>>,
        message: impl Into<String>,
    ) {
        self.warn(Raised::new(code, severity, subject, message));
    }

    fn warn(&self, raised: Raised) {
        if let Noted::New(warning) | Noted::Reopened(warning) = self.warnings.raise(raised) {
            log::say_warning(&warning);
            self.tell("warning.raised", &warning);
        }
    }

    /// Warns of a field of a request to agents that means nothing.
    pub(crate) fn unknown_field_of_request(&self, field: &str, known: &'static [&'static str]) {
        let field = self.unknown_fields.name(&"POST /requests".into(), field);
        let field = plain(field);
        let hint = nearest(&field, known.iter().copied());
        let hint = hint.map(|known| format!(": did you mean `{known}`?")).unwrap_or_default();
        let words = format!("requests to agents have a field `{field}` that means nothing{hint}");
        self.raise(Code::UnknownField, Severity::Info, format!("requests/{field}"), words);
    }

    /// Says that something that was warned of is over. `false` if nothing was.
    pub fn resolve(&self, code: Code, subject: &str) -> bool {
        let over = self.warnings.resolve(code, subject);
        for warning in &over {
            log::say_over(warning);
            self.tell("warning.resolved", warning);
        }
        !over.is_empty()
    }

    /// Whether something that happens often is to be said now: how often it was not, since it last was.
    pub(crate) fn rarely(&self, part: &str, what: &str, now: Instant) -> Option<u64> {
        self.rarely.turn(&part.into(), what, now)
    }

    /// How many attempts were cancelled.
    #[must_use]
    pub fn interrupted(&self) -> u64 {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn tell(&self, name: &'static str, warning: &Warning) {
        self.feed.tell(|| match warning.to_json() {
            Value::Object(fields) => Some((name, fields)),
            _ => None,
        });
    }
}

impl Observer for Record {
    fn observe(&self, fact: &Fact<'_>) {
        self.metrics.count(fact);
        self.rests.hear(fact);
        self.failing.hear(fact, || self.clock.now());
        if let Fact::Finished { outcome: Outcome::Interrupted, .. } = fact {
            self.interrupted.fetch_add(1, Ordering::Relaxed);
        }
        log::say(fact);
        log::say_failure(fact, &self.rarely);
        let raised = match *fact {
            Fact::UnknownField { queue, field, id } => {
                let field = self.unknown_fields.name(queue, field);
                warning_for(&Fact::UnknownField { queue, field, id })
            }
            _ => warning_for(fact),
        };
        if let Some(raised) = raised {
            self.warn(raised);
        }
        if let Some((code, subject)) = over_for(fact) {
            self.resolve(code, subject);
        }
        self.feed.tell(|| event_for(fact));
    }
}
