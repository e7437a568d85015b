//! The log: how it is set up, and what it says of each fact.
//!
//! What happens to single messages is said at `debug`: a million of them is a busy hour, not news. That attempts fail
//! is said at `warn`, once in a while for each pool and host.
//! Names and texts are recorded as values, which the log escapes: none of them can forge a line.
//! A warning is said once, when it is new; its repetitions are counted, not said.

use std::fmt;

use sluicegate_dispatch::{Fact, Outcome, Severity};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::rarely::Rarely;
use crate::warnings::{Warning, plain, speakable};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: a JSON object per line.
    Json,
}

/// Why the log could not be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// `RUST_LOG` cannot be read.
    Filter(String),
    /// There is a log already.
    Twice,
}

/// What is logged unless `RUST_LOG` says otherwise. What the clients of brokers say of their connections,
/// the sources say too, once and with the queue's name.
const DEFAULT: &str = "info,lapin=off,async_nats=warn";

/// Sets the log up: to standard error, filtered by `RUST_LOG`, which is `info` for all but the clients of
/// brokers where it is not set. It is a list of levels by target, such as `info,sluicegate=debug`.
///
/// # Errors
/// `RUST_LOG` cannot be read, or there is a log already.
pub fn init(format: Format) -> Result<(), LogError> {
    let wanted = std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty());
    let wanted = wanted.as_deref().unwrap_or(DEFAULT);
    let wanted: Targets =
        wanted.parse().map_err(|why: ParseError| LogError::Filter(why.to_string()))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            lines.with_ansi(colours).boxed()
        }
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    let log = tracing_subscriber::registry().with(lines.with_filter(wanted));
    tracing::subscriber::set_global_default(log).map_err(|_| LogError::Twice)
}

/// Says a fact.
pub(crate) fn say(fact: &Fact<'_>) {
    say_of_message(fact);
    say_of_place(fact);
}

fn say_of_message(fact: &Fact<'_>) {
    const T: &str = "sluicegate";
    match *fact {
        Fact::Malformed { queue, why } => {
            warn!(target: T, queue = &**queue, why = &*plain(why), "a body is no message");
        }
        Fact::Redelivered { queue, id } => {
            debug!(target: T, queue = &**queue, id = &**id, "delivered again while it is here");
        }
        Fact::Requeued { queue, id } => {
            debug!(target: T, queue = &**queue, id = &**id, "a copy came while it is here");
        }
        Fact::UnknownPool { code, id } => {
            debug!(target: T, code = &**code, id = &**id, "no such pool");
        }
        Fact::UnknownField { queue, field, id } => {
            let field = &*plain(field);
            debug!(target: T, queue = &**queue, field, id = &**id, "no such field");
        }
        Fact::Admitted { pool, message } => {
            debug!(target: T, pool = &**pool, id = &*message.id, "admitted");
        }
        Fact::Started { pool, message, attempt, waited } => {
            debug!(target: T, pool = &**pool, id = &*message.id, attempt, ?waited, "started");
        }
        Fact::Called { pool, message, status, took } => {
            let id = &*message.id;
            debug!(target: T, pool = &**pool, id, status = status.label(), ?took, "called");
        }
        Fact::Finished { pool, message, outcome, took, .. } => {
            let why = match outcome {
                Outcome::RetryLater { why, .. } | Outcome::Unreachable { cause: why } => Some(why),
                _ => None,
            };
            let why = why.map(|why| speakable(why, message));
            let (id, outcome, why) = (&*message.id, outcome.label(), why.as_deref());
            debug!(target: T, pool = &**pool, id, outcome, why, ?took, "finished");
        }
        Fact::Rejected { pool, message, why, .. } => {
            let why = speakable(why, message);
            debug!(target: T, pool = &**pool, id = &*message.id, why = &*why, "rejected");
        }
        Fact::Retrying { pool, id, after: Some(after), reason } => {
            let reason = reason.label();
            debug!(target: T, pool = &**pool, id = &**id, ?after, reason, "tried again later");
        }
        Fact::Retrying { pool, id, after: None, .. } => {
            warn!(target: T, pool = &**pool, id = &**id, "its group waits until someone acts");
        }
        Fact::Parked { queue, id, code, .. } => {
            let id = id.map(|id| &**id);
            info!(target: T, queue = &**queue, id, code = code.label(), "parked");
        }
        Fact::Settled { queue, id, again, stale } => {
            let (id, again) = (id.map(|id| &**id), again.map(|reason| reason.label()));
            debug!(target: T, queue = &**queue, id, again, stale, "settled");
        }
        _ => {}
    }
}

/// Says that an attempt failed, so that whoever reads the log at its usual level knows; but not of every one, for an
/// endpoint that is down fails many.
pub(crate) fn say_failure(fact: &Fact<'_>, rarely: &Rarely) {
    let Fact::Finished { queue, pool, message, attempt, outcome, .. } = *fact else { return };
    let (why, status) = match outcome {
        Outcome::RetryLater { why, status, .. } => (why, *status),
        Outcome::Unreachable { cause } => (cause, None),
        _ => return,
    };
    let host = message.target.authority();
    let Some(unsaid) = rarely.turn(pool, host, Instant::now()) else { return };
    let (queue, pool, id, error) = (&**queue, &**pool, &*message.id, speakable(why, message));
    let error = &*error;
    let unsaid = (unsaid > 0).then_some(unsaid);
    warn!(target: "sluicegate", pool, queue, id, attempt, host, status, error, unsaid, "an attempt failed");
}

fn say_of_place(fact: &Fact<'_>) {
    const T: &str = "sluicegate";
    match *fact {
        Fact::Received { queue, count } => {
            debug!(target: T, queue = &**queue, count, "received");
        }
        Fact::SourceFailed { queue, doing, cause } => {
            warn!(target: T, queue = &**queue, doing, cause = &*plain(cause), "the source failed");
        }
        Fact::Expired { queue, count } => {
            warn!(target: T, queue = &**queue, count, "deliveries expired while they were here");
        }
        Fact::PoolFull { pool, count } => {
            debug!(target: T, pool = &**pool, count, "the pool is full");
        }
        Fact::Panicked { pool, id, what } => {
            error!(target: T, pool = &**pool, id = &**id, what = &*plain(what), "an executor panicked");
        }
        Fact::Paused { pool, host, after } => {
            info!(target: T, pool = &**pool, host, ?after, "the host asked for a pause");
        }
        Fact::Breaker { name, open: true } => {
            warn!(target: T, name = &**name, "breaker opened");
        }
        Fact::Breaker { name, open: false } => {
            info!(target: T, name = &**name, "breaker closed");
        }
        _ => {}
    }
}

/// Says a warning.
pub(crate) fn say_warning(warning: &Warning) {
    const T: &str = "sluicegate";
    let (code, subject) = (warning.code.label(), &*warning.subject);
    let message = &*warning.message;
    match warning.severity {
        Severity::Info => info!(target: T, code, subject, "{message}"),
        Severity::Warning => warn!(target: T, code, subject, "{message}"),
        Severity::Error => error!(target: T, code, subject, "{message}"),
        Severity::Critical => error!(target: T, code, subject, critical = true, "{message}"),
    }
}

/// Says that what was warned of is over.
pub(crate) fn say_over(warning: &Warning) {
    let (code, subject) = (warning.code.label(), &*warning.subject);
    let message = &*warning.message;
    info!(target: "sluicegate", code, subject, "over: {message}");
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter(why) => write!(f, "RUST_LOG cannot be read: {why}"),
            Self::Twice => f.write_str("the log is set up already"),
        }
    }
}

impl std::error::Error for LogError {}
