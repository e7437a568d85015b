//! What can be seen of a router, and why a message is not running yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering as Memory;
use std::time::Duration;

use sluicegate_tasks::{Stats, TenantView};
use tokio::time::Instant;

use crate::pool::Pool;
use crate::queue::Queue;
use crate::routed::{InFlightMessage, Now, PoolId};
use crate::why::{Look, WhyWaiting};
use crate::{LastError, Message, PoolSettings, Reason, Router};

/// Where something is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It works.
    Running,
    /// It takes nothing new, and ends what it has.
    Draining,
}

/// A pool as it is now.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Its settings.
    pub settings: Arc<PoolSettings>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Its gauges, counters and histograms. `oldest_wait` counts from when the oldest message was received that waits,
    /// here or read ahead, whatever attempts were made since; one that runs does not wait.
    pub stats: Stats,
    /// How many messages may wait.
    pub capacity: u32,
    /// How many messages were read ahead of it and wait until it has room; `stats` does not count them.
    pub read_ahead: usize,
    /// How many groups have messages here.
    pub groups: usize,
    /// How many attempts succeeded.
    pub succeeded: u64,
    /// How many attempts failed for good, or did not reach their endpoint.
    pub failed: u64,
    /// How many attempts are to be made again.
    pub retried: u64,
    /// How many messages were put off without a call, because the breaker of their target was open.
    pub put_off: u64,
    /// How many messages were put aside.
    pub parked: u64,
    /// The tenants that have messages here.
    pub tenants: Vec<TenantView<Arc<str>>>,
}

/// A queue as it is now.
#[derive(Clone, Debug)]
pub struct QueueView {
    /// Its name.
    pub name: Arc<str>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Whether it can be used, and if not, why.
    pub health: Result<(), String>,
    /// How many of its messages are here.
    pub in_flight: usize,
    /// How many deliveries it handed over.
    pub received: u64,
    /// How many were done with.
    pub acked: u64,
    /// How many went back.
    pub retried: u64,
    /// How long ago it last answered.
    pub last_poll: Option<Duration>,
}

/// A group as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name.
    pub group: Arc<str>,
    /// How many of its messages wait in the pool behind its head. A source that keeps order holds the others of a
    /// group back while its head is here: those are not counted.
    pub queued: usize,
    /// How many of them run.
    pub running: usize,
    /// The message that is next, or runs.
    pub head: Arc<str>,
    /// The rest of the time for which its head waits to be tried again.
    pub blocked_for: Option<Duration>,
    /// Whether it waits for a person.
    pub blocked: bool,
}

/// A host that a pool does not call for a while, since it asked for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseView {
    /// The pool.
    pub pool: Arc<str>,
    /// The host.
    pub host: Box<str>,
    /// How much longer.
    pub rest: Duration,
}

/// A message that is here.
#[derive(Clone, Debug)]
pub struct MessageView {
    /// The message.
    pub message: Message,
    /// The queue it came from.
    pub queue: Arc<str>,
    /// The pool it is in.
    pub pool: Option<Arc<str>>,
    /// What it is doing.
    pub state: MessageState,
    /// How many attempts were begun.
    pub attempts: u32,
    /// How long it has been here.
    pub age: Duration,
    /// How long it has been running.
    pub running_for: Option<Duration>,
    /// Why it is not running or, where it has run, why it is still here.
    pub why: Option<WhyWaiting>,
    /// How its last attempt failed, if one did.
    pub last_error: Option<Arc<LastError>>,
}

/// What a message is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// It waits for its turn.
    Waiting,
    /// It waits for a moment.
    Delayed,
    /// It runs.
    Running,
    /// It has run, and its source is being told.
    Done,
}

impl Router {
    /// All pools, those that are leaving last.
    #[must_use]
    pub fn pool_views(&self) -> Vec<PoolView> {
        let (groups, messages) = (self.groups_by_pool(), self.messages_by_pool());
        let view = |pool: &Arc<Pool>, phase| {
            pool.view(phase, groups.get(&pool.code), messages.get(&pool.id))
        };
        let pools = self.pools.all();
        let mut all: Vec<PoolView> =
            pools.values().map(|pool| view(pool, Phase::Running)).collect();
        let leaving = self.pools.leaving();
        all.extend(leaving.iter().map(|pool| view(pool, Phase::Draining)));
        all
    }

    fn groups_by_pool(&self) -> BTreeMap<Arc<str>, usize> {
        let mut groups = BTreeMap::new();
        for group in self.group_views(None) {
            *groups.entry(group.pool).or_insert(0) += 1;
        }
        groups
    }

    /// The messages that wait for each pool. What a sluice knows of their age begins anew with each attempt.
    fn messages_by_pool(&self) -> BTreeMap<PoolId, Messages> {
        let mut pools: BTreeMap<PoolId, Messages> = BTreeMap::new();
        for tracked in self.queues.all().iter().flat_map(|queue| queue.owed.in_flight.each()) {
            if tracked.is_settling() {
                continue;
            }
            let (received, standing) = (tracked.received, tracked.entry.standing());
            let waits = !matches!(standing.now, Now::Running { .. });
            match standing.place {
                Some(place) if waits => pools.entry(place.pool).or_default().wait(received),
                Some(_) => {}
                // It is in a window, or on its way.
                None => {
                    let Some(pool) = self.pools.takes(&tracked.entry.message.pool) else {
                        continue;
                    };
                    pools.entry(pool.id).or_default().add_ahead(received);
                }
            }
        }
        pools
    }

    /// How many messages of each queue are done, parked or going back, and not settled yet.
    #[must_use]
    pub fn unsettled(&self) -> BTreeMap<Arc<str>, usize> {
        let mut unsettled = BTreeMap::new();
        for queue in self.queues.all() {
            let settling = queue.owed.in_flight.each().into_iter().filter(|one| one.is_settling());
            *unsettled.entry(Arc::clone(queue.name())).or_insert(0) += settling.count();
        }
        unsettled
    }

    /// All queues, those that are leaving last.
    #[must_use]
    pub fn queue_views(&self) -> Vec<QueueView> {
        let phase = |queue: &Arc<Queue>| match self.queues.is_leaving(queue) {
            true => Phase::Draining,
            false => Phase::Running,
        };
        self.queues.all().iter().map(|queue| queue.view(phase(queue))).collect()
    }

    /// The groups that have messages here, in order of pool and name.
    #[must_use]
    pub fn group_views(&self, pool: Option<&str>) -> Vec<GroupView> {
        let now = Instant::now();
        let mut groups: BTreeMap<(Arc<str>, Arc<str>), GroupView> = BTreeMap::new();
        for (_, tracked) in self.queues.in_flight() {
            let standing = tracked.entry.standing();
            let Some(place) = standing.place else { continue };
            if pool.is_some_and(|pool| pool != &*place.code) {
                continue;
            }
            let Some(settings) = self.pools.at(&place).map(|pool| pool.settings()) else {
                continue;
            };
            let Some(key) = settings.key(&tracked.entry.message) else { continue };
            let code = place.code;
            let head = Arc::clone(&tracked.entry.message.id);
            let group = groups.entry((code, key)).or_insert_with_key(|(pool, group)| GroupView {
                pool: Arc::clone(pool),
                group: Arc::clone(group),
                queued: 0,
                running: 0,
                head: Arc::clone(&head),
                blocked_for: None,
                blocked: false,
            });
            match standing.now {
                _ if tracked.is_settling() => {
                    group.running += 1;
                    group.head = head;
                }
                Now::Waiting => group.queued += 1,
                Now::Running { .. } => {
                    group.running += 1;
                    group.head = head;
                }
                Now::Retrying { until, .. } => {
                    group.queued += 1;
                    group.head = head;
                    group.blocked_for = Some(until.saturating_duration_since(now));
                }
                Now::Blocked => {
                    group.queued += 1;
                    group.head = head;
                    group.blocked = true;
                }
            }
        }
        groups.into_values().collect()
    }

    /// The hosts that are not called for now, in order of pool and host.
    #[must_use]
    pub fn pauses(&self) -> Vec<PauseView> {
        let now = Instant::now();
        let mut all = Vec::new();
        for pool in self.pools.all().values() {
            for (host, until) in pool.pauses(now) {
                let (pool, rest) = (Arc::clone(&pool.code), until - now);
                all.push(PauseView { pool, host, rest });
            }
        }
        all.sort_by(|a, b| (&a.pool, &a.host).cmp(&(&b.pool, &b.host)));
        all
    }

    /// Lets a host be called again, by one pool or by all, and those that wait for it start. Answers whether it was
    /// paused.
    pub fn lift_pause(&self, host: &str, pool: Option<&str>) -> bool {
        let pools = self.pools.all();
        let chosen = pools.values().filter(|one| pool.is_none_or(|pool| *one.code == *pool));
        let lifted: Vec<_> =
            chosen.filter(|pool| pool.lift_pause(host)).map(|one| one.id).collect();
        for (_, tracked) in self.queues.in_flight() {
            let standing = tracked.entry.standing();
            let waits = matches!(standing.now, Now::Retrying { reason: Reason::Throttled, .. });
            let is_to_host = tracked.entry.message.target.authority() == host;
            if let Some(place) = standing.place.filter(|_| waits && is_to_host)
                && lifted.contains(&place.pool)
                && let Some(pool) = self.pools.at(&place)
            {
                pool.sluice.release(place.item);
            }
        }
        !lifted.is_empty()
    }

    /// The messages that are here, oldest first.
    #[must_use]
    pub fn message_views(&self, pool: Option<&str>) -> Vec<MessageView> {
        let look = Look::at(self);
        let mut all: Vec<MessageView> = self
            .queues
            .in_flight()
            .iter()
            .map(|(queue, tracked)| look.message(queue.name(), tracked))
            .filter(|view| pool.is_none_or(|pool| view.pool.as_deref() == Some(pool)))
            .collect();
        all.sort_by(|a, b| b.age.cmp(&a.age).then_with(|| a.message.id.cmp(&b.message.id)));
        all
    }

    /// How the last attempt at a message of a queue failed, as far as that is remembered.
    #[must_use]
    pub fn last_error(&self, queue: &str, id: &str) -> Option<Arc<LastError>> {
        self.pools.runner.last_error(&queue.into(), &id.into())
    }

    /// One message, if it is here.
    #[must_use]
    pub fn message(&self, id: &str) -> Option<MessageView> {
        let (queue, tracked) = self.queues.find(id)?;
        Some(Look::at(self).message(queue.name(), &tracked))
    }
}

/// The messages that wait for a pool.
#[derive(Clone, Copy, Debug, Default)]
struct Messages {
    /// When the oldest came.
    oldest: Option<Instant>,
    /// How many have no place yet.
    ahead: usize,
}

impl Messages {
    fn add_ahead(&mut self, received: Instant) {
        self.ahead += 1;
        self.wait(received);
    }

    fn wait(&mut self, received: Instant) {
        self.oldest = Some(self.oldest.map_or(received, |oldest| oldest.min(received)));
    }
}

impl Look<'_> {
    fn message(&self, queue: &Arc<str>, tracked: &InFlightMessage) -> MessageView {
        // What came or began since the look did so just now.
        let now = self.now;
        let standing = tracked.entry.standing();
        let attempts = tracked.attempts();
        let state = match standing.now {
            _ if tracked.is_settling() || tracked.entry.is_acked() => MessageState::Done,
            Now::Waiting | Now::Blocked => MessageState::Waiting,
            Now::Retrying { .. } => MessageState::Delayed,
            Now::Running { .. } => MessageState::Running,
        };
        let (running_for, attempts) = match standing.now {
            Now::Running { since } if state == MessageState::Running => {
                (Some(now.saturating_duration_since(since)), attempts + 1)
            }
            _ => (None, attempts),
        };
        let pool = standing.place.as_ref().map(|place| Arc::clone(&place.code));
        let waits = matches!(state, MessageState::Waiting | MessageState::Delayed);
        let last_error = standing.last_error.clone();
        let before = || self.router.pools.runner.last_error(queue, &tracked.entry.message.id);
        let why = match state {
            MessageState::Done => Some(self.not_settled(queue, tracked, &standing)),
            _ => waits.then(|| self.why(tracked, &standing)),
        };
        MessageView {
            message: tracked.entry.message.clone(),
            queue: Arc::clone(queue),
            last_error: last_error.or_else(before),
            pool,
            state,
            attempts,
            age: now.saturating_duration_since(tracked.received),
            running_for,
            why,
        }
    }
}

impl Pool {
    /// What its sluice has counted, and what did not get that far.
    fn stats(&self) -> Stats {
        let mut stats = self.sluice.stats();
        let refused = self.counts.refused.load(Memory::Relaxed);
        match stats.rejected.iter_mut().find(|(reason, _)| *reason == "queue_full") {
            Some((_, count)) => *count += refused,
            None if refused > 0 => stats.rejected.push(("queue_full", refused)),
            None => {}
        }
        stats
    }

    fn view(&self, phase: Phase, groups: Option<&usize>, messages: Option<&Messages>) -> PoolView {
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Memory::Relaxed);
        let messages = messages.copied().unwrap_or_default();
        let mut stats = self.stats();
        stats.gauges.oldest_wait = messages.oldest.map_or(Duration::ZERO, |came| came.elapsed());
        PoolView {
            settings: self.settings(),
            phase,
            stats,
            capacity: self.sluice.capacity(),
            read_ahead: messages.ahead,
            groups: groups.copied().unwrap_or_default(),
            succeeded: count(&self.counts.succeeded),
            failed: count(&self.counts.failed),
            retried: count(&self.counts.retried),
            put_off: count(&self.counts.put_off),
            parked: count(&self.counts.parked),
            tenants: self.sluice.tenants(),
        }
    }
}

impl Queue {
    fn view(&self, phase: Phase) -> QueueView {
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Memory::Relaxed);
        let health = match self.source().health() {
            Err(error) => Err(error.cause),
            Ok(()) if self.is_stalled() => Err("it has not answered for a minute".to_owned()),
            Ok(()) => Ok(()),
        };
        QueueView {
            name: Arc::clone(self.name()),
            phase,
            health,
            in_flight: self.owed.in_flight.len(),
            received: count(&self.recipient.counts.received),
            acked: count(&self.recipient.counts.acked),
            retried: count(&self.recipient.counts.retried),
            last_poll: self.last_poll().map(|last| last.elapsed()),
        }
    }
}
