//! `[http]` and `[http.breaker]`: how targets are called.

use std::time::Duration;

use sluicegate_executors::BreakerScope;
use sluicegate_executors::http::{HttpVersion, Success};

use super::cidr::Cidr;
use super::duration;
use super::reader::{Section, Value, quoted};

/// `[http]`
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HttpSettings {
    /// How long one call may take, headers and body.
    pub timeout: Duration,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// The version that is tried first.
    pub version: HttpVersion,
    /// Whether `http://` targets are spoken to in HTTP/2 without asking. Only with [`HttpVersion::Http2`].
    pub prior_knowledge: bool,
    /// Which statuses are a success.
    pub success: Success,
    /// Private ranges that a target may resolve to; public addresses are always allowed.
    pub allow_targets: Vec<Cidr>,
    /// When calls are held back from a target that fails.
    pub breaker: BreakerSettings,
}

/// `[http.breaker]`
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BreakerSettings {
    /// What shares one breaker.
    pub scope: BreakerScope,
    /// The span of time whose calls are judged.
    pub window: Duration,
    /// How many of them there must be before it opens, and how many failures are put down to
    /// chance; at least one.
    pub volume: u32,
    /// The failed share of the others at which it opens; above 0, at most 1.
    pub failure_ratio: f64,
    /// How long it stays open.
    pub open_for: Duration,
    /// How many successes close it; at least one.
    pub close_after: u32,
}

pub(super) const VERSIONS: [(&str, HttpVersion); 2] =
    [("2", HttpVersion::Http2), ("1.1", HttpVersion::Http11)];

pub(super) const SUCCESSES: [(&str, Success); 2] =
    [("2xx", Success::Any2xx), ("200", Success::Only200)];

pub(super) const SCOPES: [(&str, BreakerScope); 4] = [
    ("host", BreakerScope::Host),
    ("target", BreakerScope::Target),
    ("global", BreakerScope::Global),
    ("off", BreakerScope::Off),
];

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_mins(15),
            connect_timeout: Duration::from_secs(30),
            version: HttpVersion::Http2,
            prior_knowledge: false,
            success: Success::Any2xx,
            allow_targets: vec![Cidr::LOOPBACK],
            breaker: BreakerSettings::default(),
        }
    }
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            scope: BreakerScope::Host,
            window: Duration::from_secs(10),
            volume: 10,
            failure_ratio: 0.5,
            open_for: Duration::from_secs(5),
            close_after: 3,
        }
    }
}

impl HttpSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let time = |value: &Value<'_>| value.duration(duration::from(Duration::from_millis(1)));
        let read = Self {
            timeout: section.read("timeout", default.timeout, time),
            connect_timeout: section.read("connect_timeout", default.connect_timeout, time),
            version: section.read("version", default.version, |value| value.word(&VERSIONS)),
            prior_knowledge: section.read(
                "prior_knowledge",
                default.prior_knowledge,
                Value::boolean,
            ),
            success: section.read("success", default.success, |value| value.word(&SUCCESSES)),
            allow_targets: section
                .read("allow_targets", default.allow_targets, |value| value.list(range)),
            breaker: section.table("breaker", BreakerSettings::read),
        };
        if read.prior_knowledge && read.version == HttpVersion::Http11 {
            section.fault("prior_knowledge", "is about HTTP/2: http.version must be \"2\"", None);
        }
        read
    }
}

impl BreakerSettings {
    fn read(section: &mut Section<'_>) -> Self {
        const MOST_CALLS: u32 = 10_000;
        let default = Self::default();
        let time = |value: &Value<'_>| value.duration(duration::from(Duration::from_millis(1)));
        Self {
            scope: section.read("scope", default.scope, |value| value.word(&SCOPES)),
            window: section.read("window", default.window, time),
            volume: section.read("volume", default.volume, |value| value.integer(1..=MOST_CALLS)),
            failure_ratio: section.read("failure_ratio", default.failure_ratio, ratio),
            open_for: section.read("open_for", default.open_for, time),
            close_after: section
                .read("close_after", default.close_after, |value| value.integer(1..=MOST_CALLS)),
        }
    }
}

/// A share above nothing.
fn ratio(value: &Value<'_>) -> Option<f64> {
    let number = value.number()?;
    if number > 0.0 && number <= 1.0 {
        Some(number)
    } else {
        value.wrong("must be above 0 and at most 1")
    }
}

fn range(value: &Value<'_>) -> Option<Cidr> {
    let text = value.text()?;
    Cidr::parse(&text).map_or_else(|why| value.wrong(format!("{} {why}", quoted(&text))), Some)
}
