//! Replaying parked messages: each goes back to the queue it came from, whatever kind of source that has.
//! `docs/rules.md#park-2`.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Depth, Finds, ParkedStore as _, PublishError, SourceError};
use sluicegate_sources::sqlite::{Batch, ReplayError, Replaying, Returning};
use sluicegate_tasks::Context;
use tokio::time::{Instant, sleep, timeout};

use crate::daemon::Daemon;

/// How long a queue may take to take messages in.
const PUT_BACK: Duration = Duration::from_secs(30);
/// How often it is looked for what is to be replayed by itself, beside when it is due.
const LOOK: Duration = Duration::from_secs(5);
/// How long to wait after each look, so that many messages that end one by one are followed together.
const BREATH: Duration = Duration::from_millis(20);
/// How long to wait after something could not be replayed.
const PAUSE: Duration = Duration::from_secs(1);
/// How many replayed messages a queue is asked for in one look.
const ASKED: usize = 200;
/// How many messages of a key follow at once.
const FOLLOWING: usize = 500;

/// What became of a replay.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// How many messages are in their queues again.
    pub(crate) replayed: u64,
    /// Those that are not, and why.
    pub(crate) refused: Vec<NotReplayed>,
}

/// Why a message was not replayed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NotReplayed {
    /// It may not be.
    Refused(ReplayError),
    /// Its queue did not take it.
    Queue { id: String, queue: String, error: PublishError },
    /// Its queue is configured and not open.
    NotOpen { id: String, queue: String, why: String },
}

/// Why a queue did not take messages.
struct NotTaken {
    error: PublishError,
    /// Whether it may have taken them.
    is_unknown: bool,
}

impl Daemon {
    /// Gives parked messages back to their queues, in order; with `whole`, none if one of them may not go.
    ///
    /// # Errors
    /// If the state file could not be written.
    pub(crate) async fn replay(
        &self,
        numbers: &[i64],
        without: &HashSet<String>,
        whole: bool,
    ) -> Result<Replayed, SourceError> {
        let queues = self.replayable().difference(without).cloned().collect();
        let replaying = self.store().begin_replay(numbers, &queues, whole).await?;
        self.put_back(replaying, false).await
    }

    /// Gives a part of the messages that were parked up to a number back to their queues, those that may go.
    ///
    /// # Errors
    /// If the state file could not be written.
    pub(crate) async fn replay_part(
        &self,
        numbers: &[i64],
        without: &HashSet<String>,
        up_to: i64,
    ) -> Result<Replayed, SourceError> {
        let queues = self.replayable().difference(without).cloned().collect();
        let replaying = self.store().begin_part_of_replay(numbers, &queues, up_to).await?;
        self.put_back(replaying, false).await
    }

    /// The queues that messages can be replayed into.
    pub(crate) fn replayable(&self) -> HashSet<String> {
        self.router().queues().iter().map(|queue| queue.to_string()).collect()
    }

    /// Why a message was not replayed: a queue that is configured and not open is no queue that is gone.
    pub(crate) fn not_replayed(&self, error: ReplayError) -> NotReplayed {
        let ReplayError::NoQueue { id, queue } = error else { return NotReplayed::Refused(error) };
        match self.in_effect().not_open.get(&queue) {
            Some(not_open) => NotReplayed::NotOpen { id, queue, why: not_open.words().to_owned() },
            None => NotReplayed::Refused(ReplayError::NoQueue { id, queue }),
        }
    }

    /// Puts messages back into their queues, no more at once than the memory is for. Where one does not take them
    /// they stay parked; or, if somebody waits for them after a crash, it is tried again.
    async fn put_back(
        &self,
        mut replaying: Replaying,
        is_resumed: bool,
    ) -> Result<Replayed, SourceError> {
        let refused = std::mem::take(&mut replaying.refused);
        let refused = refused.into_iter().map(|error| self.not_replayed(error)).collect();
        let mut report = Replayed { replayed: 0, refused };
        for (queue, mut rest) in by_queue(&replaying.begun) {
            while !rest.is_empty() {
                let Batch { messages, lost } = self.store().returning(&rest).await?;
                let later = rest.split_off(messages.len() + lost.len());
                self.store().cancel_replay(&lost).await?;
                let malformed = |number: &i64| ReplayError::Malformed { id: number.to_string() };
                report.refused.extend(lost.iter().map(malformed).map(NotReplayed::Refused));
                let these: Vec<i64> = messages.iter().map(|message| message.number).collect();
                let Err(not_taken) = self.put_back_into(queue, messages).await else {
                    self.store().end_replay(&these).await?;
                    report.replayed += these.len() as u64;
                    rest = later;
                    continue;
                };
                report.refused.extend(these.iter().chain(&later).map(|number| {
                    NotReplayed::Queue {
                        id: number.to_string(),
                        queue: queue.to_owned(),
                        error: not_taken.error.clone(),
                    }
                }));
                // What comes behind them stays behind them.
                self.leave(queue, these, later, &not_taken, is_resumed).await?;
                break;
            }
        }
        Ok(report)
    }

    /// Leaves messages parked that their queue did not take, and those behind them. It may have taken them where it
    /// did not answer: these are tried again until it is known.
    async fn leave(
        &self,
        queue: &str,
        these: Vec<i64>,
        later: Vec<i64>,
        not_taken: &NotTaken,
        is_resumed: bool,
    ) -> Result<(), SourceError> {
        let may_work_later = is_resumed || not_taken.is_unknown;
        let is_tried_again = may_work_later
            && not_taken.error != PublishError::NotPublishable
            && self.router().source(queue).is_some();
        let mut left = if is_tried_again { Vec::new() } else { these };
        if !is_tried_again || !is_resumed {
            left.extend(later);
        }
        self.store().cancel_replay(&left).await
    }

    async fn put_back_into(&self, queue: &str, messages: Vec<Returning>) -> Result<(), NotTaken> {
        let failed = |why: &str| PublishError::Source(SourceError::new(why));
        let taken = match self.router().source(queue) {
            None => Some(Err(failed("it was just removed"))),
            Some(source) => {
                let messages = messages.into_iter().map(|message| message.message).collect();
                timeout(PUT_BACK, source.put_back(messages)).await.ok()
            }
        };
        let is_unknown = taken.is_none();
        let taken = taken.unwrap_or_else(|| {
            Err(failed("it did not answer in time, and is asked again until it does"))
        });
        taken.map_err(|error| NotTaken { error, is_unknown })
    }

    /// Goes on with what was left of replays, and with what follows keys that were replayed. `false` if something
    /// could not be replayed now.
    async fn go_on_replaying(&self) -> Result<bool, SourceError> {
        let is_resumed = match self.store().resume_replay().await? {
            Some(resumed) => self.put_back(resumed, true).await?.refused.is_empty(),
            None => true,
        };
        // What one queue does not take holds up no other.
        loop {
            let numbers = self.store().following(FOLLOWING).await?;
            if numbers.is_empty() {
                return Ok(is_resumed);
            }
            if !self.replay(&numbers, &HashSet::new(), false).await?.refused.is_empty() {
                return Ok(false);
            }
        }
    }
}

/// Replays what nobody has to ask for, until the daemon ends.
pub(crate) async fn follow(daemon: Daemon, cx: Context) {
    let work = async {
        let mut missing = Missing::default();
        let mut looked = Instant::now();
        loop {
            // What is due is told; the rest is for what failed before.
            let is_told = timeout(LOOK, daemon.store().replay_due()).await.is_ok();
            let went_on = daemon.go_on_replaying().await;
            if let Err(error) = &went_on {
                tracing::warn!("parked messages could not be replayed: {error}");
            }
            // What fails is told again and again.
            if !is_told || looked.elapsed() >= 2 * LOOK {
                missing.look(&daemon).await;
                looked = Instant::now();
            }
            sleep(if went_on.unwrap_or(false) { BREATH } else { PAUSE }).await;
        }
    };
    cx.until_interrupted(work).await.ok();
}

/// Replayed messages that are not in their queues: somebody else took them out.
#[derive(Default)]
struct Missing {
    /// Those that were not there the last time, by their queues.
    suspects: BTreeMap<String, HashSet<Arc<str>>>,
    /// Which of each queue was asked for last.
    asked: BTreeMap<String, Arc<str>>,
}

impl Missing {
    /// Takes messages for gone that their queue does not have, twice in a row, or that have not come while it was empty:
    /// else their keys would be held for ever.
    async fn look(&mut self, daemon: &Daemon) {
        let mut suspects = BTreeMap::new();
        for (queue, ids) in daemon.store().replays_under_way() {
            let ids = self.missing(daemon, &queue, ids).await;
            if ids.is_empty() {
                continue;
            }
            let before = self.suspects.remove(&queue).unwrap_or_default();
            let (gone, new): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| before.contains(id));
            if !gone.is_empty() {
                let count = gone.len();
                tracing::warn!("{count} replayed messages are not in queue {queue} any more");
                // If it fails it is found out once more.
                daemon.store().replay_over(&queue, gone).await.ok();
            }
            suspects.insert(queue, HashSet::from_iter(new));
        }
        self.suspects = suspects;
    }
}

impl Missing {
    /// Which of these a queue does not have: some at a time, where it can be asked for each.
    async fn missing(
        &mut self,
        daemon: &Daemon,
        queue: &str,
        ids: BTreeSet<Arc<str>>,
    ) -> Vec<Arc<str>> {
        let Some(source) = daemon.router().source(queue) else { return Vec::new() };
        if source.profile().finds != Finds::All {
            let is_empty = is_empty(daemon, queue).await;
            return if is_empty { ids.into_iter().collect() } else { Vec::new() };
        }
        // Those that were missing before first: they are asked for once more.
        let before = self.suspects.get(queue).cloned().unwrap_or_default();
        let after = self.asked.get(queue).map_or(Unbounded, |last| Excluded(Arc::clone(last)));
        let mut next: Vec<_> = ids.range((after, Unbounded)).take(ASKED).cloned().collect();
        match next.last().filter(|_| next.len() == ASKED) {
            Some(last) => self.asked.insert(queue.to_owned(), Arc::clone(last)),
            None => self.asked.remove(queue),
        };
        next.retain(|id| !before.contains(id));
        let mut missing = Vec::new();
        for id in before.into_iter().filter(|id| ids.contains(id)).chain(next) {
            match timeout(LOOK, source.find(&id)).await {
                Ok(Ok(None)) => missing.push(id),
                Ok(Ok(Some(_))) => {}
                // It is asked again.
                Ok(Err(_)) | Err(_) => return Vec::new(),
            }
        }
        missing
    }
}

/// Whether a queue has nothing, neither here nor in its source.
async fn is_empty(daemon: &Daemon, queue: &str) -> bool {
    let views = daemon.router().queue_views();
    let mut own = views.iter().filter(|view| &*view.name == queue);
    if own.any(|view| view.in_flight > 0) {
        return false;
    }
    let Some(source) = daemon.router().source(queue) else { return false };
    let depth = timeout(LOOK, source.depth()).await;
    matches!(depth, Ok(Ok(Depth { waiting: 0, delayed: 0, out: 0 })))
}

/// Forgets replays that have long been over.
pub(crate) async fn forget(daemon: Daemon) {
    // It is tried again.
    daemon.store().forget_over().await.ok();
}

/// The numbers of each queue, in their order.
fn by_queue(begun: &[(i64, String)]) -> Vec<(&str, Vec<i64>)> {
    let mut queues: Vec<(&str, Vec<i64>)> = Vec::new();
    for (number, queue) in begun {
        match queues.iter_mut().find(|(known, _)| known == queue) {
            Some((_, numbers)) => numbers.push(*number),
            None => queues.push((queue, vec![*number])),
        }
    }
    queues
}

impl fmt::Display for NotReplayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "{error}"),
            Self::Queue { id, queue, error: PublishError::NotPublishable } => {
                write!(f, "{id} came from the queue {queue}, which only hands out")
            }
            Self::Queue { id, queue, error } => {
                write!(f, "{id} could not go back to the queue {queue}: {error}")
            }
            Self::NotOpen { id, queue, why } => write!(
                f,
                "{id} could not go back to the queue {queue}, which is not open yet: {why}; it is tried \
                 again by itself, and at once by POST /api/v1/config/reload: then replay again"
            ),
        }
    }
}
