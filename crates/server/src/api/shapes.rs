//! What the views look like outside. Times are RFC 3339, credentials and tokens are not there.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use sluicegate_agents::WhyNot;
use sluicegate_dispatch::{
    BreakerState, Depth, GroupView, Message, MessageState, MessageView, Ordering, PauseView, Phase,
    PoolView, QueueView, WhyWaiting,
};
use sluicegate_executors::BreakerReport;
use sluicegate_sources::sqlite::ParkedItem;
use tokio::time::Instant;

use super::last_error::LastErrorShape;
use crate::time::Timestamp;

/// What was seen at one moment: ages and rests become times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(pub(crate) Timestamp);

impl Seen {
    pub(crate) fn now() -> Self {
        Self(Timestamp::now())
    }

    pub(crate) fn ago(self, age: Duration) -> String {
        stamp(self.0.checked_sub(age).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// A moment that is known.
    pub(crate) fn moment(self, time: Timestamp) -> String {
        stamp(time)
    }

    fn later(self, rest: Duration) -> String {
        stamp(self.0.checked_add(rest).unwrap_or(Timestamp::MAX))
    }
}

pub(super) fn stamp(time: Timestamp) -> String {
    format!("{time:.3}")
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What was found under an id.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// A message of a queue.
    Message,
    /// A request to agents.
    Request,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageShape {
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) queue: String,
    pub(crate) pool: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) priority: &'static str,
    pub(crate) state: &'static str,
    pub(crate) attempt: u32,
    pub(crate) since: String,
    pub(crate) visible_at: Option<String>,
    pub(crate) why: Option<WhyShape>,
    /// How its last attempt failed.
    pub(crate) last_error: Option<LastErrorShape>,
    /// Of a parked message: what it is replayed by, and why it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parked: Option<ParkedBrief>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InFlightShape {
    #[serde(flatten)]
    pub(crate) message: MessageShape,
    pub(crate) running_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct WhyShape {
    reason: &'static str,
    detail: String,
    until: Option<String>,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkedBrief {
    id: String,
    code: String,
    reason: String,
    status: Option<u16>,
    attempts: u32,
    parked_at: String,
    place: Option<u32>,
    /// Whether it goes back by itself, after those of its group before it.
    follows: bool,
    /// What to do about it.
    hint: String,
    last_error: Option<LastErrorShape>,
}

impl WhyShape {
    /// Why a request to an agent waits.
    pub(crate) fn of_request(why: &WhyNot, hint: Option<String>, seen: Seen) -> Self {
        let rest = why.until.map(|until| until.saturating_duration_since(Instant::now()));
        let until = rest.map(|rest| seen.later(rest));
        Self { reason: why.reason, detail: why.detail.clone(), until, hint }
    }
}

/// A host that a pool does not call for now.
#[derive(Debug, Serialize)]
pub(crate) struct PauseShape {
    host: String,
    pool: String,
    until: String,
    reason: &'static str,
}

impl PauseShape {
    pub(crate) fn new(pause: &PauseView, seen: Seen) -> Self {
        Self {
            host: pause.host.to_string(),
            pool: pause.pool.to_string(),
            until: seen.later(pause.rest),
            reason: "the host asked for a pause (429)",
        }
    }
}

/// A message and what is known of it, from wherever it is.
pub(crate) struct Whereabouts<'a> {
    pub(crate) message: &'a Message,
    pub(crate) queue: &'a str,
    pub(crate) pool: Option<&'a str>,
    pub(crate) state: &'static str,
    pub(crate) attempts: u32,
    pub(crate) age: Duration,
    pub(crate) why: Option<&'a WhyWaiting>,
}

impl MessageShape {
    pub(crate) fn new(of: &Whereabouts<'_>, seen: Seen) -> Self {
        let text = |name: &std::sync::Arc<str>| name.to_string();
        let rest = of.why.and_then(|why| why.rest).filter(|_| of.state == "delayed");
        Self {
            id: text(&of.message.id),
            kind: Kind::Message,
            queue: of.queue.to_owned(),
            pool: of.pool.map(str::to_owned),
            group: of.message.group.as_ref().map(text),
            tenant: of.message.tenant.as_ref().map(text),
            priority: if of.message.high_priority { "HIGH" } else { "NORMAL" },
            state: of.state,
            attempt: of.attempts,
            since: seen.ago(of.age),
            visible_at: rest.map(|rest| seen.later(rest)),
            why: of.why.map(|why| WhyShape::new(why, seen)),
            last_error: None,
            parked: None,
        }
    }

    pub(crate) fn of_view(view: &MessageView, seen: Seen) -> Self {
        let of = Whereabouts {
            message: &view.message,
            queue: &view.queue,
            pool: view.pool.as_deref(),
            state: state(view.state),
            attempts: view.attempts,
            age: view.age,
            why: view.why.as_ref(),
        };
        let last_error = view.last_error.as_deref().map(LastErrorShape::from);
        Self { last_error, ..Self::new(&of, seen) }
    }

    /// A message that was put aside.
    pub(crate) fn of_parked(item: &ParkedItem, follows: bool, hint: String) -> Self {
        let field = |name: &str| item.message[name].as_str().map(str::to_owned);
        let high = item.message["highPriority"].as_bool().unwrap_or(false);
        Self {
            id: item.message_id.as_deref().unwrap_or_default().to_owned(),
            kind: Kind::Message,
            queue: item.queue.clone(),
            pool: item.pool.clone(),
            group: item.group.as_deref().map(str::to_owned),
            tenant: field("tenant"),
            priority: if high { "HIGH" } else { "NORMAL" },
            state: "parked",
            attempt: item.attempts,
            since: parked_at(item),
            visible_at: None,
            why: None,
            last_error: item.last_error.as_ref().map(Into::into),
            parked: Some(ParkedBrief {
                id: item.id.clone(),
                code: item.code.clone(),
                reason: item.reason.clone(),
                status: item.status,
                attempts: item.attempts,
                parked_at: parked_at(item),
                place: item.place,
                follows,
                hint,
                last_error: item.last_error.as_ref().map(Into::into),
            }),
        }
    }
}

const fn state(state: MessageState) -> &'static str {
    match state {
        MessageState::Waiting => "waiting",
        MessageState::Delayed => "delayed",
        MessageState::Running => "running",
        MessageState::Done => "done",
    }
}

impl WhyShape {
    fn new(why: &WhyWaiting, seen: Seen) -> Self {
        let until = why.rest.map(|rest| seen.later(rest));
        let detail = match &until {
            Some(until) if why.reason == "group_retrying" => format!("{} at {until}", why.detail),
            Some(until) => format!("{} until {until}", why.detail),
            None => why.detail.clone(),
        };
        Self { reason: why.reason, detail, until, hint: why.hint.clone() }
    }
}

impl InFlightShape {
    pub(crate) fn new(view: &MessageView, seen: Seen) -> Self {
        let message = MessageShape::of_view(view, seen);
        Self { message, running_ms: view.running_for.map(millis) }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkedShape {
    id: String,
    message_id: Option<String>,
    queue: String,
    pool: Option<String>,
    group: Option<String>,
    code: String,
    reason: String,
    status: Option<u16>,
    attempts: u32,
    parked_at: String,
    /// Which one it is of those that hold its key, from 1.
    place: Option<u32>,
    last_error: Option<LastErrorShape>,
    message: Value,
}

impl From<ParkedItem> for ParkedShape {
    fn from(item: ParkedItem) -> Self {
        Self {
            parked_at: parked_at(&item),
            id: item.id,
            message_id: item.message_id.map(|id| id.to_string()),
            queue: item.queue,
            pool: item.pool,
            group: item.group.map(|group| group.to_string()),
            code: item.code,
            reason: item.reason,
            status: item.status,
            attempts: item.attempts,
            place: item.place,
            last_error: item.last_error.as_ref().map(Into::into),
            message: item.message,
        }
    }
}

fn parked_at(item: &ParkedItem) -> String {
    stamp(Timestamp::from_millisecond(item.parked_at).unwrap_or(Timestamp::UNIX_EPOCH))
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolShape {
    code: String,
    phase: &'static str,
    concurrency: u32,
    running: u32,
    queued: u32,
    read_ahead: usize,
    capacity: u32,
    groups: usize,
    rate_limit_per_minute: Option<u32>,
    ordering: &'static str,
    oldest_wait_ms: u64,
    succeeded: u64,
    failed: u64,
    retried: u64,
    parked: u64,
}

impl From<&PoolView> for PoolShape {
    fn from(view: &PoolView) -> Self {
        let gauges = &view.stats.gauges;
        Self {
            code: view.settings.code.to_string(),
            phase: phase(view.phase),
            concurrency: view.settings.concurrency,
            running: gauges.running,
            queued: gauges.queued,
            read_ahead: view.read_ahead,
            capacity: view.capacity,
            groups: view.groups,
            rate_limit_per_minute: view.settings.rate_limit_per_minute,
            ordering: match view.settings.ordering {
                Ordering::Batch => "batch",
                Ordering::Strict => "strict",
                Ordering::None => "none",
            },
            oldest_wait_ms: millis(gauges.oldest_wait),
            succeeded: view.succeeded,
            failed: view.failed,
            retried: view.retried,
            parked: view.parked,
        }
    }
}

pub(crate) const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Running => "running",
        Phase::Draining => "draining",
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueShape {
    name: String,
    uri: Option<String>,
    phase: &'static str,
    healthy: bool,
    trouble: Option<String>,
    /// How many wait in the source, those with a delay included; unknown where it cannot say.
    depth: Option<u64>,
    inflight: usize,
    received: u64,
    acked: u64,
    retried: u64,
    last_poll_at: Option<String>,
}

impl QueueShape {
    pub(crate) fn new(
        view: QueueView,
        uri: Option<String>,
        depth: Option<Depth>,
        seen: Seen,
    ) -> Self {
        Self {
            name: view.name.to_string(),
            uri,
            phase: phase(view.phase),
            healthy: view.health.is_ok(),
            trouble: view.health.err(),
            depth: depth.map(|depth| depth.waiting.saturating_add(depth.delayed)),
            inflight: view.in_flight,
            received: view.received,
            acked: view.acked,
            retried: view.retried,
            last_poll_at: view.last_poll.map(|ago| seen.ago(ago)),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupShape {
    pool: String,
    group: String,
    queued: usize,
    running: usize,
    head: String,
    blocked_until: Option<String>,
    /// Whether it waits for a person.
    blocked: bool,
}

impl GroupShape {
    pub(crate) fn new(view: &GroupView, seen: Seen) -> Self {
        Self {
            pool: view.pool.to_string(),
            group: view.group.to_string(),
            queued: view.queued,
            running: view.running,
            head: view.head.to_string(),
            blocked_until: view.blocked_for.map(|rest| seen.later(rest)),
            blocked: view.blocked,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BreakerShape {
    name: String,
    state: &'static str,
    until: Option<String>,
    calls: u32,
    failures: u32,
    last_error: Option<LastErrorShape>,
}

impl BreakerShape {
    pub(crate) fn new(report: &BreakerReport, seen: Seen) -> Self {
        Self {
            name: report.name.to_string(),
            state: match report.state {
                BreakerState::Closed => "closed",
                BreakerState::Open => "open",
                BreakerState::HalfOpen => "half-open",
            },
            until: report.rest.map(|rest| seen.later(rest)),
            calls: report.calls,
            failures: report.failures,
            last_error: report.last_error.as_deref().map(Into::into),
        }
    }
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TenantShape {
    pub(crate) id: String,
    pub(crate) weight: u32,
    pub(crate) queued: u64,
    pub(crate) running: u64,
    pub(crate) served: u64,
    /// Of its requests to agents: how many ended with an error.
    pub(crate) failed: u64,
    pub(crate) rejected: u64,
    pub(crate) oldest_wait_ms: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluicegate_dispatch::{Reason, Target};
    use sluicegate_testkit::scripted;

    use super::*;

    fn message() -> Message {
        let target = Target::parse("http://a.example/").unwrap();
        Message { target, ..scripted::message("m", "P") }
    }

    /// Ages become times that were, rests times that will be.
    #[test]
    fn times_are_told_from_one_moment() {
        let seen = Seen("2026-11-15T12:00:00.5Z".parse().unwrap());
        let minute = Duration::from_secs(60);
        let retries = WhyWaiting::new("group_retrying", "group head h retries", Some(minute));
        let blocked = WhyWaiting::new("group_blocked", "group head h is blocked", None);
        let delayed = WhyWaiting::delayed(Reason::Failed, minute);
        let far = WhyWaiting::delayed(Reason::Scheduled, Duration::MAX);
        let (since, until) = ("2026-11-15T11:59:58.500Z", "2026-11-15T12:01:00.500Z");
        let retries_at = format!("group head h retries at {until}");
        let failed_until = format!("an attempt failed; it waits until {until}");
        let never = "9999-12-30T22:00:00.999Z";
        let far_until = format!("its first delivery waits until {never}");
        let table = [
            ("running", None, json!(null), json!(null)),
            ("waiting", Some(&retries), json!(null), json!([retries_at, until])),
            ("waiting", Some(&blocked), json!(null), json!(["group head h is blocked", null])),
            ("delayed", Some(&delayed), json!(until), json!([failed_until, until])),
            ("delayed", Some(&far), json!(never), json!([far_until, never])),
        ];
        let message = message();
        for (state, why, visible_at, words) in table {
            let of = Whereabouts {
                message: &message,
                queue: "q",
                pool: Some("P"),
                state,
                attempts: 2,
                age: Duration::from_secs(2),
                why,
            };
            let shape = json!(MessageShape::new(&of, seen));
            assert_eq!((&shape["since"], &shape["visibleAt"]), (&json!(since), &visible_at));
            let told = match &shape["why"] {
                Value::Null => Value::Null,
                why => json!([why["detail"], why["until"]]),
            };
            assert_eq!(told, words, "{state}");
        }
        assert_eq!(seen.ago(Duration::MAX), "1970-01-01T00:00:00.000Z", "the longest that is told");
    }
}
