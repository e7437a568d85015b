//! Feels whether work gets on: looks at the router now and then, and remembers what did not change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{PoolView, Router};
use tokio::time::Instant;

use super::{Inputs, QueueState, Rests, leak};

/// A pool at one moment, as far as getting on goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSeen {
    /// Its code.
    pub code: Arc<str>,
    /// How many messages run.
    pub running: u32,
    /// How many may run at once.
    pub limit: u32,
    /// How many may start a minute, if that is limited.
    pub rate_per_minute: Option<u32>,
    /// How many have started so far.
    pub started: u64,
    /// How many have ended so far.
    pub ended: u64,
    /// How many are first in a group that neither runs nor waits for a moment or a person, or behind
    /// such a one.
    pub due_in_groups: u64,
    /// How many wait without a group.
    pub without_group: u64,
    /// Whether it was told to wait for a moment, or one of its hosts was. Those in groups are known
    /// to wait; of the others it is assumed.
    pub rests: bool,
}

/// A queue at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSeen {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it has answered since it was last (re)started.
    pub answered: bool,
    /// What keeps it from working.
    pub trouble: Option<String>,
    /// How many deliveries were settled so far.
    pub settled: u64,
}

/// A router at one moment, as far as getting on goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its pools.
    pub pools: Vec<PoolSeen>,
    /// Its queues.
    pub queues: Vec<QueueSeen>,
    /// How many messages are in flight.
    pub in_flight: usize,
    /// How many of them are in pools.
    pub in_pools: usize,
    /// How many the pools can hold.
    pub room: u64,
}

/// Work that does not get on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stall {
    /// Messages could run beside idle permits, and none has started.
    NotStarting {
        /// Their pool.
        pool: Arc<str>,
        /// For how long.
        since: Duration,
    },
    /// Messages run for longer than they may, and none has ended.
    NotEnding {
        /// Their pool.
        pool: Arc<str>,
        /// For how long.
        since: Duration,
    },
    /// Messages are over, and their sources have taken no settlement.
    NotSettling {
        /// For how long.
        since: Duration,
    },
    /// Requests to agents wait or run, and none has started or ended.
    Agents {
        /// For how long.
        since: Duration,
    },
}

/// Remembers since when nothing has changed.
#[derive(Debug, Default)]
pub struct Pulse {
    felt: Mutex<Felt>,
}

#[derive(Debug, Default)]
struct Felt {
    last_beat: Option<Instant>,
    pools: BTreeMap<Arc<str>, PoolFelt>,
    settling: Option<Settling>,
    connected: BTreeSet<Arc<str>>,
    inputs: Inputs,
}

#[derive(Clone, Copy, Debug)]
struct PoolFelt {
    started: u64,
    ended: u64,
    /// Since when messages could start, and none did.
    due_since: Option<Instant>,
    /// Since when messages run, and none ended.
    running_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Settling {
    settled: u64,
    /// Since when messages are over, and none was settled.
    since: Option<Instant>,
}

/// Work that should get on at once and has not for so long has stalled.
const STILL_FOR: Duration = Duration::from_secs(60);

/// How long an attempt may take: three calls, and what is waited between them.
#[must_use]
pub fn longest_attempt(http_timeout: Duration) -> Duration {
    http_timeout.saturating_mul(3).saturating_add(Duration::from_secs(3))
}

impl Pulse {
    /// Nothing felt yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at a router. To be called every few seconds.
    pub fn feel(&self, now: Instant, seen: Seen, longest_attempt: Duration) {
        let mut felt = self.felt.lock();
        felt.last_beat = Some(now);
        let mut stalls = felt.stalled_pools(now, &seen, longest_attempt);
        stalls.extend(felt.stalled_settlements(now, &seen, longest_attempt));
        felt.inputs.stalls = stalls;
        felt.inputs.leak = leak(seen.in_flight, seen.room);
        felt.inputs.queues = felt.queues(seen.queues);
    }

    /// Says that a source has answered, however it was asked.
    pub fn connected(&self, queue: &Arc<str>) {
        let mut felt = self.felt.lock();
        felt.connected.insert(Arc::clone(queue));
        let known = felt.inputs.queues.iter_mut().find(|known| known.name == *queue);
        if let Some(known) = known {
            known.connected = true;
        }
    }

    /// What was felt, for [`assess`](super::assess). Whether the daemon has started and whether it
    /// is ending is the caller's to say.
    #[must_use]
    pub fn inputs(&self, now: Instant) -> Inputs {
        let felt = self.felt.lock();
        let last_beat = felt.last_beat.map(|last| now.saturating_duration_since(last));
        Inputs { last_beat, ..felt.inputs.clone() }
    }
}

impl Felt {
    fn stalled_pools(
        &mut self,
        now: Instant,
        seen: &Seen,
        longest_attempt: Duration,
    ) -> Vec<Stall> {
        let mut stalls = Vec::new();
        let mut pools = BTreeMap::new();
        for pool in &seen.pools {
            let before = self.pools.get(&pool.code).copied();
            let felt = PoolFelt::next(before, now, pool);
            let patience = STILL_FOR + pool.between_starts();
            if let Some(since) = longer_than(patience, felt.due_since, now) {
                stalls.push(Stall::NotStarting { pool: Arc::clone(&pool.code), since });
            }
            let patience = STILL_FOR + longest_attempt;
            if let Some(since) = longer_than(patience, felt.running_since, now) {
                stalls.push(Stall::NotEnding { pool: Arc::clone(&pool.code), since });
            }
            pools.insert(Arc::clone(&pool.code), felt);
        }
        self.pools = pools;
        stalls
    }

    /// What is in flight and in no pool is over, or still on its way into one: that ends when a
    /// message of that pool does.
    fn stalled_settlements(
        &mut self,
        now: Instant,
        seen: &Seen,
        longest_attempt: Duration,
    ) -> Option<Stall> {
        let settled = seen.queues.iter().map(|queue| queue.settled).sum();
        let none_settled = self.settling.filter(|before| before.settled == settled);
        let since = none_settled.and_then(|before| before.since).unwrap_or(now);
        let since = (seen.in_flight > seen.in_pools).then_some(since);
        self.settling = Some(Settling { settled, since });
        let runs = seen.pools.iter().any(|pool| pool.running > 0);
        let patience = if runs { longest_attempt + STILL_FOR } else { STILL_FOR };
        longer_than(patience, since, now).map(|since| Stall::NotSettling { since })
    }

    fn queues(&mut self, queues: Vec<QueueSeen>) -> Vec<QueueState> {
        self.connected.retain(|known| queues.iter().any(|queue| queue.name == *known));
        let state = |queue: QueueSeen| {
            if queue.answered {
                self.connected.insert(Arc::clone(&queue.name));
            }
            let QueueSeen { name, trouble, .. } = queue;
            QueueState { connected: self.connected.contains(&name), name, trouble }
        };
        queues.into_iter().map(state).collect()
    }
}

fn longer_than(patience: Duration, since: Option<Instant>, now: Instant) -> Option<Duration> {
    since.map(|since| now - since).filter(|so_long| *so_long > patience)
}

impl PoolFelt {
    fn next(before: Option<Self>, now: Instant, pool: &PoolSeen) -> Self {
        let PoolSeen { started, ended, .. } = *pool;
        let none_started = before.filter(|before| before.started == started);
        let none_ended = none_started.filter(|before| before.ended == ended);
        let due_since = none_started.and_then(|before| before.due_since).unwrap_or(now);
        let running_since = none_ended.and_then(|before| before.running_since).unwrap_or(now);
        Self {
            started,
            ended,
            due_since: pool.is_due().then_some(due_since),
            running_since: (pool.running > 0).then_some(running_since),
        }
    }
}

impl PoolSeen {
    /// Whether a message could start.
    fn is_due(&self) -> bool {
        let waits = self.due_in_groups > 0 || (self.without_group > 0 && !self.rests);
        waits && self.running < self.limit
    }

    /// How long its rate makes a message wait for the one before.
    fn between_starts(&self) -> Duration {
        let rate = self.rate_per_minute.filter(|rate| *rate > 0);
        rate.map_or(Duration::ZERO, |rate| Duration::from_secs(60) / rate)
    }

    fn of(view: &PoolView, groups: Groups, rests: bool) -> Self {
        let gauges = view.stats.gauges;
        Self {
            code: Arc::clone(&view.settings.code),
            running: gauges.running,
            limit: gauges.limit,
            rate_per_minute: view.settings.rate_limit_per_minute,
            started: view.stats.started,
            ended: view.succeeded + view.failed + view.retried + view.put_off,
            due_in_groups: groups.due,
            without_group: u64::from(gauges.queued).saturating_sub(groups.queued),
            rests,
        }
    }

    /// Adds one of the same code: a pool that was removed and added again is there twice for a while.
    fn add(&mut self, other: &Self) {
        self.running += other.running;
        self.limit = self.limit.saturating_add(other.limit);
        self.started += other.started;
        self.ended += other.ended;
    }
}

/// How many messages of a pool wait in groups.
#[derive(Clone, Copy, Default)]
struct Groups {
    queued: u64,
    /// Those of groups that nothing holds up.
    due: u64,
}

impl Seen {
    /// A router as it is now.
    #[must_use]
    pub fn of(router: &Router, rests: &Rests) -> Self {
        let now = Instant::now();
        let mut groups: BTreeMap<Arc<str>, Groups> = BTreeMap::new();
        for group in router.group_views(None) {
            let held_up = group.running > 0 || group.blocked || group.blocked_for.is_some();
            let of_pool = groups.entry(group.pool).or_default();
            of_pool.queued += group.queued as u64;
            of_pool.due += if held_up { 0 } else { group.queued as u64 };
        }
        let mut in_pools = 0;
        let mut pools: BTreeMap<Arc<str>, PoolSeen> = BTreeMap::new();
        for view in router.pool_views() {
            in_pools += view.stats.gauges.queued as usize + view.stats.gauges.running as usize;
            let code = &view.settings.code;
            let seen = PoolSeen::of(
                &view,
                groups.get(code).copied().unwrap_or_default(),
                rests.rests(code, now),
            );
            pools.entry(Arc::clone(code)).and_modify(|pool| pool.add(&seen)).or_insert(seen);
        }
        let queues = router.queue_views().into_iter().map(|queue| QueueSeen {
            name: queue.name,
            answered: queue.last_poll.is_some(),
            trouble: queue.health.err(),
            settled: queue.acked + queue.retried,
        });
        Self {
            pools: pools.into_values().collect(),
            queues: queues.collect(),
            in_flight: router.in_flight(),
            in_pools,
            room: router.room(),
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarting { pool, since } => {
                let secs = since.as_secs();
                write!(f, "pool {pool} has messages to run and has started none for {secs} s")
            }
            Self::NotEnding { pool, since } => {
                let secs = since.as_secs();
                write!(f, "pool {pool} runs messages and none has ended for {secs} s")
            }
            Self::NotSettling { since } => {
                let secs = since.as_secs();
                write!(f, "messages are over and none has been settled for {secs} s")
            }
            Self::Agents { since } => {
                let secs = since.as_secs();
                write!(f, "agents have requests and none has started or ended for {secs} s")
            }
        }
    }
}
