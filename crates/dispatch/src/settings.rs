//! What a pool is told.

use std::sync::Arc;

/// The pool of messages whose own pool does not exist.
pub const DEFAULT_POOL: &str = "DEFAULT-POOL";
/// The group of messages without one.
pub const DEFAULT_GROUP: &str = "__DEFAULT__";

/// The settings of a pool.
#[derive(Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Its name.
    pub code: Arc<str>,
    /// How many may run at once; at least 1.
    pub concurrency: u32,
    /// How many may start a minute; `None` for no limit.
    pub rate_limit_per_minute: Option<u32>,
    /// What keeps order.
    pub ordering: Ordering,
    /// What becomes of messages without a group.
    pub ungrouped: Ungrouped,
    /// After how many attempts a message is given up; 0 for never.
    pub max_attempts: u32,
    /// What becomes of a key whose head is given up, in strict order.
    pub on_exhausted: OnExhausted,
    /// What becomes of a key whose head will never work, in strict order.
    pub on_rejected: OnRejected,
    /// Whether messages that will never work are kept, or dropped.
    pub parking: bool,
    /// The key of Standard Webhooks signatures, decoded.
    pub signing_key: Option<Arc<[u8]>>,
}

/// What keeps order in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ordering {
    /// Messages of a group that came in one batch.
    #[default]
    Batch,
    /// All messages of a group.
    Strict,
    /// Nothing: a group is no key.
    None,
}

/// What becomes of messages without a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ungrouped {
    /// They are one group.
    #[default]
    Fifo,
    /// They run side by side.
    Parallel,
}

/// What becomes of a key whose head has used up its attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// It is parked, and what comes after it too.
    #[default]
    Park,
    /// It stays where it is until someone acts.
    Block,
    /// The head is parked, and the next goes on.
    Skip,
}

/// What becomes of a key whose head will never work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRejected {
    /// The head is parked, and the next goes on.
    #[default]
    Skip,
    /// It is parked, and what comes after it too.
    Park,
}

/// What becomes of messages whose pool does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownPool {
    /// They go to [`DEFAULT_POOL`].
    #[default]
    Default,
    /// They are parked.
    Park,
}

impl PoolSettings {
    const CAPACITY_FACTOR: u32 = 20;
    const MIN_CAPACITY: u32 = 50;
    const DEFAULT_CONCURRENCY: u32 = 20;

    /// A pool as the paper has it.
    pub fn new(code: impl Into<Arc<str>>, concurrency: u32) -> Self {
        Self {
            code: code.into(),
            concurrency,
            rate_limit_per_minute: None,
            ordering: Ordering::default(),
            ungrouped: Ungrouped::default(),
            max_attempts: 0,
            on_exhausted: OnExhausted::default(),
            on_rejected: OnRejected::default(),
            parking: true,
            signing_key: None,
        }
    }

    /// The pool of messages whose own pool does not exist.
    #[must_use]
    pub fn default_pool() -> Self {
        Self::new(DEFAULT_POOL, Self::DEFAULT_CONCURRENCY)
    }

    /// Whether keys can be parked with their tails.
    pub(crate) fn parks_keys(&self) -> bool {
        self.on_exhausted == OnExhausted::Park || self.on_rejected == OnRejected::Park
    }

    /// How many messages may wait in it: docs/rules.md#pool-1.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.concurrency.saturating_mul(Self::CAPACITY_FACTOR).max(Self::MIN_CAPACITY)
    }
}

/// The key is not shown.
impl std::fmt::Debug for PoolSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolSettings")
            .field("code", &self.code)
            .field("concurrency", &self.concurrency)
            .field("rate_limit_per_minute", &self.rate_limit_per_minute)
            .field("ordering", &self.ordering)
            .field("ungrouped", &self.ungrouped)
            .field("max_attempts", &self.max_attempts)
            .field("on_exhausted", &self.on_exhausted)
            .field("on_rejected", &self.on_rejected)
            .field("parking", &self.parking)
            .finish_non_exhaustive()
    }
}
