//! The table: how a call ended, and what follows from it.

use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use sluicegate_dispatch::{
    CallStatus, DEFAULT_DELAY, MAX_DELAY, MIN_DELAY, Message, Outcome, Rejection, Severity, Verdict,
};

use super::reply::Reply;
use super::settings::Success;
use crate::breakers::without_query;

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With a reply.
    Replied {
        status: StatusCode,
        /// What `Retry-After` asked for.
        pause: Option<Duration>,
        reply: Reply,
    },
    /// Not within this time.
    TimedOut(Duration),
    /// Without a connection.
    NotConnected(String),
    /// With a connection that broke off.
    BrokeOff(String),
    /// Before it began: the target's address is not allowed.
    Forbidden(String),
}

impl Ended {
    /// Its status in metrics.
    pub(crate) fn status(&self) -> CallStatus {
        match self {
            Self::Replied { status, .. } => CallStatus::Http(status.as_u16()),
            Self::TimedOut(_) => CallStatus::Timeout,
            Self::NotConnected(_) => CallStatus::Connect,
            Self::BrokeOff(_) => CallStatus::Reset,
            Self::Forbidden(_) => CallStatus::RefusedTarget,
        }
    }

    /// What it says about the endpoint's health; `None` if nothing.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Replied { status, .. } if status.is_server_error() => Some(Verdict::Failure),
            Self::Replied { .. } => Some(Verdict::Success),
            Self::TimedOut(_) | Self::NotConnected(_) | Self::BrokeOff(_) => Some(Verdict::Failure),
            Self::Forbidden(_) => None,
        }
    }

    /// Whether the next call of the same attempt may end otherwise.
    pub(crate) fn is_repeatable(&self) -> bool {
        match self {
            Self::Replied { status, .. } => {
                status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED
            }
            Self::TimedOut(_) | Self::NotConnected(_) | Self::BrokeOff(_) => true,
            Self::Forbidden(_) => false,
        }
    }

    /// What it means for the message, if it was the attempt's last call.
    pub(crate) fn outcome(self, message: &Message, success: Success) -> Outcome {
        let url = || without_query(message.target.url());
        let rejected = |status: Option<StatusCode>, severity, why| {
            let status = status.map(|status| status.as_u16());
            Outcome::Rejected(Rejection { status, why, severity })
        };
        match self {
            Self::TimedOut(limit) => Outcome::RetryLater {
                after: None,
                why: format!("{}: no reply within {limit:?}", url()),
                status: None,
            },
            Self::NotConnected(cause) | Self::BrokeOff(cause) => {
                Outcome::Unreachable { cause: format!("{}: {cause}", url()) }
            }
            Self::Forbidden(why) => rejected(None, Severity::Error, format!("{}: {why}", url())),
            Self::Replied { status, pause, reply } => {
                let said = || said(&reply, message);
                let why = || format!("{} answered {}{}", url(), status.as_u16(), said());
                match status.as_u16() {
                    200 => acknowledged(status, &reply, why),
                    201..=299 if success == Success::Any2xx => acknowledged(status, &reply, why),
                    429 => Outcome::Throttled { after: pause.unwrap_or(DEFAULT_DELAY) },
                    400..=499 => rejected(Some(status), Severity::Error, why()),
                    501 => rejected(Some(status), Severity::Critical, why()),
                    status => Outcome::RetryLater { after: None, why: why(), status: Some(status) },
                }
            }
        }
    }
}

/// A success, unless the reply says that it is none.
fn acknowledged(status: StatusCode, reply: &Reply, why: impl FnOnce() -> String) -> Outcome {
    if reply.ack != Some(false) {
        return Outcome::Done;
    }
    let after = match reply.delay_seconds {
        None | Some(0) => None,
        Some(seconds) => Some(u64::try_from(seconds).map_or(MIN_DELAY, Duration::from_secs)),
    };
    let why = format!("{} with ack=false", why());
    Outcome::RetryLater { after, why, status: Some(status.as_u16()) }
}

/// The reply's own words, a few of them, without the token that the endpoint may have echoed.
fn said(reply: &Reply, message: &Message) -> String {
    const MAX: usize = 200;
    let Some(words) = reply.message.as_deref().filter(|words| !words.is_empty()) else {
        return String::new();
    };
    let token = message.auth_token.as_ref().map(|token| token.expose());
    let words = match token.filter(|token| !token.is_empty()) {
        Some(token) => words.replace(token, "***"),
        None => words.to_owned(),
    };
    let plain = words.chars().map(|c| if c.is_control() { ' ' } else { c });
    format!(": {}", plain.take(MAX).collect::<String>())
}

/// The pause that a reply asks for: in seconds, or until a time that is told by the endpoint's own
/// clock where it gives it.
pub(crate) fn pause(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let asked = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_or(MAX_DELAY, Duration::from_secs)
    } else {
        let until = httpdate::parse_http_date(text).ok()?;
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let from = date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
        until.duration_since(from).unwrap_or(Duration::ZERO)
    };
    Some(asked.clamp(MIN_DELAY, MAX_DELAY))
}
