//! What is known of each message: where it is, what it did, and what must become of it.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    DEFAULT_GROUP, OnExhausted, Ordering, Outcome, PoolSettings, Reason, Ungrouped,
};
use sluicegate_schedule::Moment;

use super::Letter;

/// A message that was published.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) letter: Letter,
    pub(super) in_source: bool,
    /// It has succeeded once, is parked, was dropped by its pool's will, or by a person's.
    pub(super) is_finished: bool,
    pub(super) is_parked: bool,
    /// The source was told not to hand it out before.
    pub(super) not_before: Moment,
    /// How many attempts the source knows of, at least.
    pub(super) noted: u32,
    /// The router has it.
    pub(super) here: Option<Here>,
}

/// A message in the router's hands.
#[derive(Clone, Debug)]
pub(super) struct Here {
    /// The last delivery of it.
    pub(super) generation: u64,
    pub(super) delivered: Moment,
    /// The opening of its queue that it came by.
    pub(super) opening: u64,
    /// The batch it was taken in with.
    pub(super) batch: u64,
    /// The pool it was received for.
    pub(super) home: Arc<str>,
    /// How many attempts count by now.
    pub(super) attempts: u32,
    pub(super) place: Option<Place>,
    pub(super) standing: Standing,
    /// Its key is busy until the router hears that it is settled.
    pub(super) holds_key: bool,
    /// The source has heard why it comes again, and may hand it out.
    pub(super) told: Option<Reason>,
    /// The same of the delivery before: this one came before the router knew of that.
    pub(super) before: Option<Reason>,
    /// Another opening of its queue may still have had it when it came: then it comes again later.
    pub(super) may_be_known: bool,
    /// Somebody said that it is done, and it is settled when it is its turn.
    pub(super) in_turn: bool,
    /// It was tried and is to be tried again: nothing of its line goes before it.
    pub(super) was_tried: bool,
}

/// A place in a pool.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) pool: usize,
    pub(super) key: Option<Arc<str>>,
    /// In which order they came, over all pools.
    pub(super) number: u64,
    pub(super) at: Moment,
    pub(super) settings: Arc<PoolSettings>,
}

/// What a message in the router's hands is doing.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    Waiting,
    Running,
    /// It stays at the front of its key until then; `None` until someone acts.
    Retrying {
        until: Option<Moment>,
        after: Duration,
        reason: Reason,
    },
    /// Its source must hear so.
    Over(Verdict),
}

/// What the source must hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Gone(Cause),
    Again { after: Duration, reason: Reason },
}

/// Why a message is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Done,
    /// It is parked first.
    Parked,
    /// It is parked first, behind another of its key.
    Tail,
    /// It failed for good, and its pool keeps nothing.
    Dropped,
    /// Somebody said so.
    Acked,
}

impl Here {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.standing, Standing::Waiting)
    }

    pub(super) fn is_acked(&self) -> bool {
        matches!(self.standing, Standing::Over(Verdict::Gone(Cause::Acked)))
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.standing, Standing::Running)
    }

    /// The pool and the key it is in, if it has one.
    pub(super) fn line(&self) -> Option<(usize, &Arc<str>)> {
        let place = self.place.as_ref()?;
        Some((place.pool, place.key.as_ref()?))
    }
}

/// What a message stays in order with.
pub(super) fn key(settings: &PoolSettings, letter: &Letter) -> Option<Arc<str>> {
    match (settings.ordering, &letter.group) {
        (Ordering::None, _) => None,
        (_, Some(group)) => Some(Arc::clone(group)),
        (_, None) if settings.ungrouped == Ungrouped::Parallel => None,
        (_, None) => Some(DEFAULT_GROUP.into()),
    }
}

/// What an outcome leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    Rejected,
    /// It is tried again: after how long, why, and whether that was an attempt.
    Retry {
        after: Duration,
        reason: Reason,
        counts: bool,
    },
}

const DEFAULT: Duration = Duration::from_secs(30);
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(43_200);

/// The table of the paper, written a second time.
pub(super) fn fate(outcome: &Outcome) -> Fate {
    let retry = |after, reason, counts| Fate::Retry { after, reason, counts };
    match outcome {
        Outcome::Done => Fate::Done,
        Outcome::Rejected(_) => Fate::Rejected,
        Outcome::RetryLater { after: None, .. } | Outcome::Unreachable { .. } => {
            retry(DEFAULT, Reason::Failed, true)
        }
        Outcome::RetryLater { after: Some(after), .. } => {
            retry((*after).max(SHORTEST).min(LONGEST), Reason::Failed, true)
        }
        Outcome::Throttled { after, .. } => {
            retry((*after).max(SHORTEST).min(LONGEST), Reason::Throttled, false)
        }
        Outcome::BreakerOpen { rest, .. } => {
            retry((*rest).max(SHORTEST), Reason::BreakerOpen, false)
        }
        _ => retry(Duration::ZERO, Reason::Draining, false),
    }
}

/// What becomes of a message whose attempts are used up: it stays and blocks its key, or it goes.
/// The second says whether its key is parked with it.
pub(super) fn exhausted(
    settings: &PoolSettings,
    key: Option<&Arc<str>>,
) -> Result<(Cause, bool), ()> {
    let is_strict = settings.ordering == Ordering::Strict && key.is_some();
    let cause = if settings.parking { Cause::Parked } else { Cause::Dropped };
    match settings.on_exhausted {
        OnExhausted::Block if is_strict => Err(()),
        OnExhausted::Park if is_strict && settings.parking => Ok((cause, true)),
        _ => Ok((cause, false)),
    }
}
