//! `[router]` and `[alerts]`: where more settings come from, and who hears of warnings.

use std::time::Duration;

use sluicegate_dispatch::Severity;

use super::duration;
use super::link::{HttpUrl, WebhookUrl};
use super::reader::{Section, Value};
use super::uri;

/// `[router]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouterSettings {
    /// Whether queues are consumed at all.
    pub enabled: bool,
    /// Where pools and queues are synced from, in order: later ones override earlier ones.
    pub config_url: Vec<HttpUrl>,
    /// How often to sync.
    pub sync_interval: Duration,
    /// How often one sync is tried.
    pub sync_attempts: u32,
    /// The pause between two tries.
    pub sync_retry_delay: Duration,
    /// The most pools; the pool for messages without one does not count.
    pub max_pools: u32,
    /// The number of pools from which there is a warning.
    pub pool_warning_threshold: u32,
    /// What becomes of messages whose pool does not exist.
    pub unknown_pool: UnknownPool,
}

/// What becomes of messages whose pool does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownPool {
    /// The default pool takes them.
    #[default]
    Default,
    /// They are parked.
    Park,
    /// They are not accepted; those that come from a broker are parked.
    Refuse,
}

impl UnknownPool {
    pub(super) const WORDS: [(&str, Self); 3] =
        [("default", Self::Default), ("park", Self::Park), ("refuse", Self::Refuse)];
}

/// `[alerts]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlertSettings {
    /// Who is told.
    pub webhook: Option<WebhookUrl>,
    /// From which severity on.
    pub min_severity: Severity,
    /// How often at most the same warning is told.
    pub every: Duration,
}

const SEVERITIES: [(&str, Severity); 4] = [
    ("INFO", Severity::Info),
    ("WARNING", Severity::Warning),
    ("ERROR", Severity::Error),
    ("CRITICAL", Severity::Critical),
];

impl Default for RouterSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            config_url: Vec::new(),
            sync_interval: Duration::from_mins(5),
            sync_attempts: 12,
            sync_retry_delay: Duration::from_secs(5),
            max_pools: 10_000,
            pool_warning_threshold: 5_000,
            unknown_pool: UnknownPool::default(),
        }
    }
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self { webhook: None, min_severity: Severity::Warning, every: Duration::from_mins(5) }
    }
}

impl RouterSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        const MOST_POOLS: u32 = 1_000_000;
        let default = Self::default();
        let interval = duration::from(Duration::from_millis(100));
        let pause = duration::from(Duration::from_millis(1));
        let read = Self {
            enabled: section.read("enabled", default.enabled, Value::boolean),
            config_url: section.read("config_url", default.config_url, addresses),
            sync_interval: section
                .read("sync_interval", default.sync_interval, |value| value.duration(interval)),
            sync_attempts: section
                .read("sync_attempts", default.sync_attempts, |value| value.integer(1..=1_000)),
            sync_retry_delay: section
                .read("sync_retry_delay", default.sync_retry_delay, |value| value.duration(pause)),
            max_pools: section
                .read("max_pools", default.max_pools, |value| value.integer(1..=MOST_POOLS)),
            pool_warning_threshold: section.read(
                "pool_warning_threshold",
                default.pool_warning_threshold,
                |value| value.integer(1..=MOST_POOLS),
            ),
            unknown_pool: section.read("unknown_pool", default.unknown_pool, |value| {
                value.word(&UnknownPool::WORDS)
            }),
        };
        let both = section.has("max_pools") && section.has("pool_warning_threshold");
        let sound = section.sound("max_pools") && section.sound("pool_warning_threshold");
        if both && sound && read.pool_warning_threshold > read.max_pools {
            let message = "must not be more than router.max_pools: it would never be reached";
            section.fault("pool_warning_threshold", message, None);
        }
        read
    }
}

impl AlertSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let every = duration::from(Duration::from_millis(100));
        Self {
            webhook: section.read("webhook", default.webhook, |value| {
                let text = value.mask().text()?;
                if text.is_empty() {
                    return Some(None);
                }
                match WebhookUrl::parse(&text) {
                    Ok(url) => Some(Some(url)),
                    Err(why) => value.wrong(why.to_string()),
                }
            }),
            min_severity: section
                .read("min_severity", default.min_severity, |value| value.word(&SEVERITIES)),
            every: section.read("every", default.every, |value| value.duration(every)),
        }
    }
}

/// One address or a list of them. Empty ones are left out, so that one may come from a variable.
fn addresses(value: &Value<'_>) -> Option<Vec<HttpUrl>> {
    let found = if value.is_list() { value.list(address)? } else { vec![address(value)?] };
    Some(found.into_iter().flatten().collect())
}

fn address(value: &Value<'_>) -> Option<Option<HttpUrl>> {
    let text = mask_credentials(value).text()?;
    if text.is_empty() {
        return Some(None);
    }
    match HttpUrl::parse(&text) {
        Ok(url) => Some(Some(url)),
        Err(why) => value.wrong(why.to_string()),
    }
}

/// Masks an address if what is written may hold a credential.
pub(super) fn mask_credentials<'v, 'a>(value: &'v Value<'a>) -> &'v Value<'a> {
    let written = value.written();
    if uri::redacted(written) == written { value } else { value.mask() }
}
