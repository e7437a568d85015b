//! `[events]` and `[cluster]`: what is shared with other machines.

use std::fmt;
use std::time::Duration;

use sluicegate_event_store::postgres::{OpenError, PostgresSettings};

use super::available;
use super::duration;
use super::reader::{Section, Value};
use super::router::mask_credentials;
use super::uri;

/// `[events]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventSettings {
    /// Where events are kept.
    pub url: EventUrl,
    /// How many projections run at once.
    pub max_concurrent_projections: u32,
    /// How many tasks one projection has.
    pub max_projection_tasks: u32,
}

/// Where events are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventUrl {
    /// In the state file.
    State,
    /// In PostgreSQL.
    Postgres(StoreUrl),
}

/// `[cluster]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterSettings {
    /// What other instances do.
    pub mode: ClusterMode,
    /// What they share. Always there unless the mode is [`ClusterMode::Single`].
    pub url: Option<StoreUrl>,
    /// How long a lease holds.
    pub lease: Duration,
}

/// What other instances do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterMode {
    /// There are none.
    Single,
    /// They wait for this one to fail.
    Standby,
    /// They work too.
    Active,
}

/// The address of a shared store; `Display` and `Debug` show it without credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// The whole address, credentials included.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn parse(text: String, schemes: &[&str]) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let host = rest.split(['/', '?']).next()?.rsplit('@').next()?;
        (schemes.contains(&scheme) && !host.is_empty()).then_some(Self(text))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&uri::redacted(&self.0))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for EventUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State => f.write_str("sqlite:"),
            Self::Postgres(url) => url.fmt(f),
        }
    }
}

impl ClusterMode {
    pub(super) const WORDS: [(&str, Self); 3] =
        [("single", Self::Single), ("standby", Self::Standby), ("active", Self::Active)];
}

impl Default for EventSettings {
    fn default() -> Self {
        Self { url: EventUrl::State, max_concurrent_projections: 100, max_projection_tasks: 50 }
    }
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self { mode: ClusterMode::Single, url: None, lease: Duration::from_secs(30) }
    }
}

impl EventSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        const MOST: u32 = 10_000;
        let default = Self::default();
        let count = |value: &Value<'_>| value.integer(1..=MOST);
        Self {
            url: section.read("url", default.url, event_url),
            max_concurrent_projections: section.read(
                "max_concurrent_projections",
                default.max_concurrent_projections,
                count,
            ),
            max_projection_tasks: section.read(
                "max_projection_tasks",
                default.max_projection_tasks,
                count,
            ),
        }
    }
}

impl ClusterSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let lease = duration::from(Duration::from_secs(1));
        let read = Self {
            mode: section.read("mode", default.mode, |value| value.word(&ClusterMode::WORDS)),
            url: section.read("url", default.url, shared_url),
            lease: section.read("lease", default.lease, |value| value.duration(lease)),
        };
        if read.mode != ClusterMode::Single {
            if !available::CLUSTER {
                section.fault("mode", &format!("a cluster {}", available::NOT_YET), None);
            }
            if read.url.is_none() && section.sound("url") {
                let message = "is missing: a cluster shares a postgres:// or nats:// address";
                section.fault("url", message, None);
            }
        }
        read
    }
}

fn event_url(value: &Value<'_>) -> Option<EventUrl> {
    let text = mask_credentials(value).text()?;
    if text == "sqlite:" {
        return Some(EventUrl::State);
    }
    match StoreUrl::parse(text, &["postgres", "postgresql"]) {
        None => value.wrong("must be \"sqlite:\" or a postgres:// address"),
        Some(url) => match PostgresSettings::parse(url.expose()) {
            Ok(_) => Some(EventUrl::Postgres(url)),
            Err(OpenError::Address(why)) => value.wrong(why),
            Err(other) => value.wrong(other.to_string()),
        },
    }
}

fn shared_url(value: &Value<'_>) -> Option<Option<StoreUrl>> {
    let text = mask_credentials(value).text()?;
    if text.is_empty() {
        return Some(None);
    }
    match StoreUrl::parse(text, &["postgres", "postgresql", "nats"]) {
        None => value.wrong("must be a postgres:// or nats:// address"),
        url => Some(url),
    }
}
