//! What is told of a fact: its name and its fields, without any secret.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sluicegate_dispatch::{Fact, Message, Outcome};

use crate::warnings::{cut, plain, speakable};

/// The event of a fact, if it has one of its own.
#[must_use]
pub fn event_for(fact: &Fact<'_>) -> Option<(&'static str, Map<String, Value>)> {
    let (name, fields) = of_message(fact).or_else(|| of_place(fact))?;
    match fields {
        Value::Object(fields) => Some((name, fields)),
        _ => None,
    }
}

/// What happens to a message.
fn of_message(fact: &Fact<'_>) -> Option<(&'static str, Value)> {
    let event = match *fact {
        Fact::Malformed { queue, .. } => ("message.malformed", json!({ "queue": &**queue })),
        Fact::Redelivered { queue, id } => {
            ("message.redelivered", json!({ "queue": &**queue, "id": &**id }))
        }
        Fact::Requeued { queue, id } => {
            ("message.requeued", json!({ "queue": &**queue, "id": &**id }))
        }
        Fact::Admitted { pool, message } => ("message.admitted", named(pool, message, json!({}))),
        Fact::Started { pool, message, attempt, waited } => {
            let more = json!({ "attempt": attempt, "waitedMs": millis(waited) });
            ("message.started", named(pool, message, more))
        }
        Fact::Called { pool, message, status, took } => {
            let more = json!({ "status": status.label(), "durationMs": millis(took) });
            ("message.called", named(pool, message, more))
        }
        Fact::Finished { outcome: Outcome::Rejected(_), .. } => return None,
        Fact::Finished { pool, message, outcome, took, .. } => {
            let done = *outcome == Outcome::Done;
            let name = if done { "message.completed" } else { "message.failed" };
            let more = json!({ "outcome": outcome.label(), "durationMs": millis(took) });
            (name, named(pool, message, more))
        }
        Fact::Rejected { pool, message, severity, why } => {
            let more = json!({ "severity": severity.label(), "reason": speakable(why, message) });
            ("message.rejected", named(pool, message, more))
        }
        Fact::Retrying { pool, id, after, reason } => {
            let after = after.map(millis);
            let fields = json!({
                "pool": &**pool, "id": &**id, "reason": reason.label(), "delayMs": after,
            });
            ("message.retried", fields)
        }
        Fact::Parked { queue, pool, id, code, .. } => {
            let (pool, id) = (pool.map(|pool| &**pool), id.map(|id| &**id));
            let fields = json!({ "queue": &**queue, "pool": pool, "id": id, "code": code.label() });
            ("message.parked", fields)
        }
        Fact::Settled { queue, id, again, stale } => {
            let name = if again.is_some() { "message.retried" } else { "message.settled" };
            let mut fields = json!({ "queue": &**queue, "id": id.map(|id| &**id), "stale": stale });
            if let Some(reason) = again {
                fields["reason"] = reason.label().into();
            }
            (name, fields)
        }
        _ => return None,
    };
    Some(event)
}

/// What happens to a queue, a pool, a host.
fn of_place(fact: &Fact<'_>) -> Option<(&'static str, Value)> {
    let event = match *fact {
        Fact::Received { queue, count } => {
            ("queue.received", json!({ "queue": &**queue, "count": count }))
        }
        Fact::SourceFailed { queue, doing, cause } => {
            ("queue.failed", json!({ "queue": &**queue, "doing": doing, "cause": plain(cause) }))
        }
        Fact::Expired { queue, count } => {
            ("queue.expired", json!({ "queue": &**queue, "count": count }))
        }
        Fact::PoolFull { pool, count } => ("pool.full", json!({ "pool": &**pool, "count": count })),
        Fact::Panicked { pool, id, .. } => {
            ("pool.panicked", json!({ "pool": &**pool, "id": &**id }))
        }
        Fact::Paused { pool, host, after } => {
            let fields = json!({ "pool": &**pool, "host": host, "durationMs": millis(after) });
            ("host.paused", fields)
        }
        Fact::Breaker { name, open } => {
            let event = if open { "breaker.opened" } else { "breaker.closed" };
            (event, json!({ "name": &**name }))
        }
        _ => return None,
    };
    Some(event)
}

fn named(pool: &str, message: &Message, mut fields: Value) -> Value {
    fields["pool"] = pool.into();
    fields["id"] = (*message.id).into();
    fields["group"] = message.group.as_deref().map(cut).into();
    fields
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
