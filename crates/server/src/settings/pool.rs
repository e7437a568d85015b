//! `[[pool]]`: how much of what runs at once, and in which order.

use std::collections::HashMap;
use std::num::NonZeroU32;

use sluicegate_dispatch::{OnExhausted, OnRejected, Ordering, Ungrouped};

use super::reader::{Section, Seen, Value};
use super::secret::SigningSecret;

/// `[[pool]]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolSettings {
    /// What messages call it; no two have the same.
    pub code: String,
    /// How many messages run at once.
    pub concurrency: NonZeroU32,
    /// How many may start in a minute; without it as many as can.
    pub rate_limit_per_minute: Option<NonZeroU32>,
    /// What stays in order.
    pub ordering: Ordering,
    /// What becomes of messages without a group.
    pub ungrouped: Ungrouped,
    /// How often a message is tried; without it until it succeeds.
    pub max_attempts: Option<NonZeroU32>,
    /// What becomes of a group whose head has used up its attempts. Not [`OnExhausted::Park`] only
    /// with [`Ordering::Strict`].
    pub on_exhausted: OnExhausted,
    /// What becomes of a group whose head its endpoint rejects. Not [`OnRejected::Skip`] only with
    /// [`Ordering::Strict`].
    pub on_rejected: OnRejected,
    /// Whether messages that can never succeed are kept.
    pub parking: bool,
    /// With which key calls are signed.
    pub signing_secret: Option<SigningSecret>,
}

/// The most messages that a pool may run at once.
pub(super) const MOST_CONCURRENCY: u32 = 100_000;

/// The concurrency of a pool that does not say.
const CONCURRENCY: NonZeroU32 = NonZeroU32::new(20).expect("20 is not 0");

pub(super) const ORDERINGS: [(&str, Ordering); 3] =
    [("batch", Ordering::Batch), ("strict", Ordering::Strict), ("none", Ordering::None)];

pub(super) const UNGROUPED: [(&str, Ungrouped); 2] =
    [("fifo", Ungrouped::Fifo), ("parallel", Ungrouped::Parallel)];

pub(super) const ON_EXHAUSTED: [(&str, OnExhausted); 3] =
    [("park", OnExhausted::Park), ("block", OnExhausted::Block), ("skip", OnExhausted::Skip)];

pub(super) const ON_REJECTED: [(&str, OnRejected); 2] =
    [("skip", OnRejected::Skip), ("park", OnRejected::Park)];

impl PoolSettings {
    /// A pool with the defaults for everything but its code.
    #[must_use]
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            concurrency: CONCURRENCY,
            rate_limit_per_minute: None,
            ordering: Ordering::default(),
            ungrouped: Ungrouped::default(),
            max_attempts: None,
            on_exhausted: OnExhausted::default(),
            on_rejected: OnRejected::default(),
            parking: true,
            signing_secret: None,
        }
    }

    /// All pools of the file.
    pub(super) fn read_all(top: &mut Section<'_>) -> Vec<Self> {
        let mut codes = HashMap::new();
        top.tables("pool", |section| Self::read(section, &mut codes))
    }

    fn read(section: &mut Section<'_>, codes: &mut Seen) -> Option<Self> {
        let code = section.required("code", Value::name);
        if let Some(code) = &code {
            section.unique("code", code, codes);
        }
        let default = Self::new("");
        let concurrency = section.read("concurrency", default.concurrency, |value| {
            value.integer(1..=MOST_CONCURRENCY).and_then(NonZeroU32::new)
        });
        let read = Self {
            code: code.unwrap_or_default(),
            concurrency,
            rate_limit_per_minute: section.read("rate_limit_per_minute", None, limit),
            ordering: section.read("ordering", default.ordering, |value| value.word(&ORDERINGS)),
            ungrouped: section.read("ungrouped", default.ungrouped, |value| value.word(&UNGROUPED)),
            max_attempts: section.read("max_attempts", None, limit),
            on_exhausted: section
                .read("on_exhausted", default.on_exhausted, |value| value.word(&ON_EXHAUSTED)),
            on_rejected: section
                .read("on_rejected", default.on_rejected, |value| value.word(&ON_REJECTED)),
            parking: section.read("parking", default.parking, Value::boolean),
            signing_secret: section.read("signing_secret", None, signing_secret),
        };
        let strict = read.ordering == Ordering::Strict || !section.sound("ordering");
        if read.on_exhausted != OnExhausted::Park && !strict {
            let help = "set ordering = \"strict\", or leave on_exhausted out";
            section.fault("on_exhausted", "holds for strict ordering only", Some(help.to_owned()));
        }
        if read.on_rejected != OnRejected::Skip && !strict {
            let help = "set ordering = \"strict\", or leave on_rejected out";
            section.fault("on_rejected", "holds for strict ordering only", Some(help.to_owned()));
        }
        if read.on_rejected == OnRejected::Park && !read.parking {
            let help = "set parking = true, or leave on_rejected out";
            section.fault("on_rejected", "needs parking", Some(help.to_owned()));
        }
        Some(read)
    }
}

/// A limit, where 0 stands for none.
fn limit(value: &Value<'_>) -> Option<Option<NonZeroU32>> {
    value.integer(0..=u32::MAX).map(NonZeroU32::new)
}

fn signing_secret(value: &Value<'_>) -> Option<Option<SigningSecret>> {
    let text = value.mask().text()?;
    if text.is_empty() {
        return Some(None);
    }
    match SigningSecret::parse(&text) {
        Ok(secret) => Some(Some(secret)),
        Err(why) => {
            value.wrong_so(why.to_string(), "as in `whsec_` and the base64 of 32 random bytes")
        }
    }
}
