//! The table: how a call ended, and what follows from it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use sluicegate_dispatch::{
    CallStatus, DEFAULT_DELAY, LastError, MAX_DELAY, MIN_DELAY, Message, Outcome, Rejection,
    Severity, Verdict,
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
        /// The beginning of it, unless all is done.
        body: Option<Arc<str>>,
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

    /// What happened, in words that may be shown.
    fn words(&self, message: &Message) -> String {
        let url = without_query(message.target.url());
        match self {
            Self::TimedOut(limit) => format!("{url}: no reply within {limit:?}"),
            Self::NotConnected(why) | Self::BrokeOff(why) | Self::Forbidden(why) => {
                format!("{url}: {why}")
            }
            Self::Replied { status, reply, .. } => {
                format!("{url} answered {}{}", status.as_u16(), said(reply, message))
            }
        }
    }

    /// How it failed, for those who ask.
    pub(crate) fn last_error(&self, message: &Message) -> LastError {
        let (status, body) = match self {
            Self::Replied { status, body, .. } => (Some(status.as_u16()), body.clone()),
            _ => (None, None),
        };
        LastError::now(&message.target, status, self.words(message), body)
    }

    /// What it means for the message, if it was the attempt's last call.
    pub(crate) fn outcome(self, message: &Message, success: Success) -> Outcome {
        let words = |ended: &Self| ended.words(message);
        let rejected = |status, severity, why, body| {
            Outcome::Rejected(Rejection { status, why, severity, body })
        };
        match &self {
            Self::TimedOut(_) => {
                Outcome::RetryLater { after: None, why: words(&self), status: None, body: None }
            }
            Self::NotConnected(_) | Self::BrokeOff(_) => {
                Outcome::Unreachable { cause: words(&self) }
            }
            Self::Forbidden(_) => rejected(None, Severity::Error, words(&self), None),
            Self::Replied { status, reply, .. }
                if success.is(*status) && reply.ack != Some(false) =>
            {
                Outcome::Done
            }
            Self::Replied { status, pause, reply, body } => {
                let (is_success, number) = (success.is(*status), status.as_u16());
                let (status, why, body) = (Some(number), words(&self), body.clone());
                match number {
                    _ if is_success => {
                        let why = format!("{why} with ack=false");
                        Outcome::RetryLater { after: asked(reply), why, status, body }
                    }
                    429 => Outcome::Throttled { after: pause.unwrap_or(DEFAULT_DELAY), body },
                    400..=499 => rejected(status, Severity::Error, why, body),
                    501 => rejected(status, Severity::Critical, why, body),
                    _ => Outcome::RetryLater { after: None, why, status, body },
                }
            }
        }
    }
}

/// When a reply wants to see its message again.
fn asked(reply: &Reply) -> Option<Duration> {
    match reply.delay_seconds? {
        0 => None,
        seconds => Some(u64::try_from(seconds).map_or(MIN_DELAY, Duration::from_secs)),
    }
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use http::{HeaderMap, HeaderValue};
    use proptest::prelude::*;

    use super::pause;

    fn asked(retry_after: &[u8], date: Option<&str>, now: SystemTime) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", HeaderValue::from_bytes(retry_after).ok()?);
        if let Some(date) = date {
            headers.insert("date", HeaderValue::from_str(date).ok()?);
        }
        pause(&headers, now)
    }

    #[test]
    fn dates_are_told_by_the_endpoints_clock_and_else_by_ours() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let date = |seconds| httpdate::fmt_http_date(at(seconds));
        // Retry-After, Date, our clock: seconds.
        let cases = [
            (date(1_000), Some(date(940)), 0, 60),
            (date(1_000), None, 990, 10),
            (date(1_000), Some("yesterday".to_owned()), 990, 10),
            (date(1_000), Some(date(2_000)), 0, 1),
            (date(1_000), None, 5_000, 1),
            (date(100_000), None, 0, 43_200),
        ];
        for (retry_after, date, now, seconds) in cases {
            let pause = asked(retry_after.as_bytes(), date.as_deref(), at(now));
            assert_eq!(pause, Some(Duration::from_secs(seconds)), "{retry_after} {date:?} {now}");
        }
        // The two older spellings of a date.
        for text in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            let pause = asked(text.as_bytes(), None, at(784_111_777 - 7));
            assert_eq!(pause, Some(Duration::from_secs(7)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_is_within_bounds(text in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(pause) = asked(&text, None, SystemTime::UNIX_EPOCH) {
                prop_assert!((1..=43_200).contains(&pause.as_secs()));
            }
        }
    }
}
