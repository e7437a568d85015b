//! What a seed draws: queues, pools, messages, and everything that happens to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    DEFAULT_POOL, OnExhausted, Ordering, PoolSettings, QueueSettings, Ungrouped,
};

use crate::rng::Rng;

/// What a scenario dwells on. The numbers are the most there are of something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) orderings: &'static [Ordering],
    /// Of a hundred attempts so many go wrong, at most.
    pub(super) trouble: u64,
    pub(super) source_faults: u64,
    pub(super) parked_faults: u64,
    /// Changes of settings, pools and queues.
    pub(super) changes: u64,
    /// Acknowledged or freed by hand.
    pub(super) by_hand: u64,
    pub(super) crashes: u64,
    pub(super) shutdowns: u64,
    /// Tenants compete and nothing else happens: their shares are measured.
    pub(super) fair: bool,
}

impl Theme {
    pub(super) const MIXED: Self = Self {
        orderings: &[Ordering::Batch, Ordering::Strict, Ordering::None],
        trouble: 40,
        source_faults: 6,
        parked_faults: 2,
        changes: 8,
        by_hand: 4,
        crashes: 1,
        shutdowns: 1,
        fair: false,
    };
    pub(super) const ORDERED: Self =
        Self { source_faults: 4, changes: 2, crashes: 1, shutdowns: 0, trouble: 50, ..Self::MIXED };
    pub(super) const CRASHES: Self =
        Self { source_faults: 8, changes: 0, crashes: 4, shutdowns: 2, ..Self::MIXED };
    pub(super) const FAIR: Self = Self {
        orderings: &[Ordering::None],
        trouble: 0,
        source_faults: 0,
        parked_faults: 0,
        changes: 0,
        by_hand: 0,
        crashes: 0,
        shutdowns: 0,
        fair: true,
    };
}

/// A queue.
#[derive(Clone, Debug)]
pub(super) struct QueuePlan {
    pub(super) name: Arc<str>,
    pub(super) window: Duration,
    pub(super) settings: QueueSettings,
    pub(super) settle_batch: usize,
    /// Whether its source hands out a later message of a strict key only when the earlier is gone.
    pub(super) keeps_order: bool,
}

/// A message to be.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) queue: usize,
    pub(super) pool: Arc<str>,
    pub(super) group: Option<Arc<str>>,
    pub(super) tenant: Option<Arc<str>>,
    pub(super) high: bool,
    pub(super) host: u64,
    pub(super) delay: Duration,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    /// Another message of an id that was published before.
    Copy,
    Malformed,
}

/// What goes wrong with a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceFault {
    /// For a while it cannot receive.
    Receive,
    /// For a while it cannot settle.
    Settle,
    /// For a while it cannot extend.
    Extend,
    /// For a while what it is told to settle is settled, and the answer is an error.
    LoseAnswer,
    /// For a while what it is told to settle is forgotten, and the answer is a lie.
    LoseSettle,
    /// For a while every call takes long.
    Slow,
    /// It hands out again what is out.
    Redeliver,
    /// It forgets the receipts of what is out.
    Expire,
    /// It does not answer any more, until it is replaced.
    Hang,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Publish(Vec<Draft>),
    Source {
        queue: usize,
        fault: SourceFault,
        lasts: Duration,
    },
    ParkedFails {
        lasts: Duration,
    },
    /// A pool is made or changed.
    SetPool(PoolSettings),
    RemovePool(Arc<str>),
    RemoveQueue {
        queue: usize,
        back_after: Duration,
    },
    Ack,
    FreeKey,
    Crash {
        gives_back: bool,
    },
    Shutdown {
        drain: Duration,
        crash_after: Option<Duration>,
    },
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) queues: Vec<QueuePlan>,
    pub(super) pools: Vec<PoolSettings>,
    pub(super) trouble: u64,
    pub(super) fair: bool,
    /// By time, and by order of drawing where that is the same.
    pub(super) events: BTreeMap<(Duration, u64), Event>,
}

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(rng: &mut Rng, least: u64, most: u64) -> Duration {
    ms(rng.between(least * 1_000, most * 1_000))
}

impl Plan {
    pub(super) fn draw(theme: &Theme, rng: &mut Rng) -> Self {
        let queues = (0..rng.between(1, if theme.fair { 1 } else { 3 })).map(|n| queue(n, rng));
        let queues: Vec<QueuePlan> = queues.collect();
        let count = rng.between(1, if theme.fair { 1 } else { 4 });
        let pools: Vec<PoolSettings> = (0..count).map(|n| pool(theme, n, rng)).collect();
        let trouble = rng.between(0, theme.trouble);
        let mut plan = Self { queues, pools, trouble, fair: theme.fair, events: BTreeMap::new() };
        let span = secs(rng, 20, 150);
        plan.draw_messages(span, rng);
        plan.draw_faults(theme, span, rng);
        plan.draw_changes(theme, span, rng);
        plan.draw_ends(theme, span, rng);
        plan
    }

    fn add(&mut self, at: Duration, event: Event) {
        let number = self.events.len() as u64;
        self.events.insert((at, number), event);
    }

    fn draw_messages(&mut self, span: Duration, rng: &mut Rng) {
        let span = span.as_millis() as u64;
        let (groups, tenants) = (rng.between(1, 6), rng.between(2, 4));
        let shared = rng.percent(20);
        for queue in 0..self.queues.len() {
            for _ in 0..rng.between(2, 25) {
                let burst = match rng.between(1, 20) {
                    1 if !shared => rng.between(40, 90),
                    2..=5 => rng.between(5, 20),
                    _ => rng.between(1, 4),
                };
                let at = ms(rng.between(0, span));
                let pool = rng.between(0, self.pools.len() as u64 - 1);
                let drafts = (0..burst)
                    .map(|_| self.draft(queue, pool as usize, groups, tenants, rng))
                    .collect();
                self.add(at, Event::Publish(drafts));
            }
        }
    }

    fn draft(&self, queue: usize, usual: usize, groups: u64, tenants: u64, rng: &mut Rng) -> Draft {
        let number = |name: &str, number: u64| -> Arc<str> { format!("{name}{number}").into() };
        let pool = match rng.between(1, 100) {
            1..=3 => "NOWHERE".into(),
            4 => DEFAULT_POOL.into(),
            5..=30 => Arc::clone(&rng.one_of(&self.pools).code),
            _ => Arc::clone(&self.pools[usual].code),
        };
        Draft {
            queue,
            pool: if self.fair { Arc::clone(&self.pools[0].code) } else { pool },
            group: rng.percent(80).then(|| number("g", rng.between(1, groups))),
            tenant: rng.percent(80).then(|| number("t", rng.between(1, tenants))),
            high: !self.fair && rng.percent(8),
            host: rng.between(1, 3),
            delay: if rng.percent(8) { secs(rng, 1, 20) } else { Duration::ZERO },
            kind: match rng.between(1, 100) {
                _ if self.fair => Kind::Message,
                1..=3 => Kind::Malformed,
                4..=7 => Kind::Copy,
                _ => Kind::Message,
            },
        }
    }

    fn draw_faults(&mut self, theme: &Theme, span: Duration, rng: &mut Rng) {
        let span = span.as_millis() as u64;
        for _ in 0..rng.between(0, theme.source_faults) {
            let queue = rng.between(0, self.queues.len() as u64 - 1) as usize;
            let fault = match rng.between(1, 100) {
                1..=15 => SourceFault::Redeliver,
                16..=30 => SourceFault::Expire,
                31..=45 => SourceFault::Settle,
                46..=55 => SourceFault::Extend,
                56..=65 => SourceFault::Receive,
                66..=78 => SourceFault::LoseAnswer,
                79..=86 => SourceFault::LoseSettle,
                87..=95 => SourceFault::Slow,
                _ => SourceFault::Hang,
            };
            let lasts = ms(rng.between(50, 30_000));
            self.add(ms(rng.between(0, span)), Event::Source { queue, fault, lasts });
        }
        for _ in 0..rng.between(0, theme.parked_faults) {
            let lasts = secs(rng, 1, 30);
            self.add(ms(rng.between(0, span)), Event::ParkedFails { lasts });
        }
        for _ in 0..rng.between(0, theme.by_hand) {
            let event = if rng.percent(70) { Event::Ack } else { Event::FreeKey };
            self.add(ms(rng.between(0, span)), event);
        }
    }

    fn draw_changes(&mut self, theme: &Theme, span: Duration, rng: &mut Rng) {
        let span = span.as_millis() as u64;
        for _ in 0..rng.between(0, theme.changes) {
            let at = ms(rng.between(0, span));
            let number = rng.between(0, self.pools.len() as u64 - 1);
            let old = self.pools[number as usize].clone();
            let keeps_order = rng.percent(70);
            let mut new = pool(theme, number, rng);
            if keeps_order {
                (new.ordering, new.ungrouped) = (old.ordering, old.ungrouped);
            }
            match rng.between(1, 10) {
                1 | 2 => {
                    self.add(at, Event::RemovePool(Arc::clone(&old.code)));
                    self.add(at + ms(rng.between(0, 30_000)), Event::SetPool(new));
                }
                3 => {
                    let queue = rng.between(0, self.queues.len() as u64 - 1) as usize;
                    let back_after = ms(rng.between(0, 20_000));
                    self.add(at, Event::RemoveQueue { queue, back_after });
                }
                _ => self.add(at, Event::SetPool(new)),
            }
        }
    }

    fn draw_ends(&mut self, theme: &Theme, span: Duration, rng: &mut Rng) {
        let span = span.as_millis() as u64;
        for _ in 0..rng.between(0, theme.crashes) {
            let gives_back = rng.percent(50);
            self.add(ms(rng.between(0, span)), Event::Crash { gives_back });
        }
        for _ in 0..rng.between(0, theme.shutdowns) {
            let drain = ms(rng.between(0, 20_000));
            let crash_after = rng.percent(20).then(|| ms(rng.between(0, 10_000)));
            self.add(ms(rng.between(0, span)), Event::Shutdown { drain, crash_after });
        }
    }
}

fn queue(number: u64, rng: &mut Rng) -> QueuePlan {
    // Now and then a receiver takes more at once than a pool can hold.
    let most = if rng.percent(8) { 90 } else { 20 };
    QueuePlan {
        name: format!("q{}", number + 1).into(),
        window: secs(rng, 5, 40),
        settings: QueueSettings {
            connections: rng.between_u32(1, 3),
            max_messages: rng.between(1, most) as usize,
            window: *rng.one_of(&[0, 5, 50, 2000]),
        },
        settle_batch: *rng.one_of(&[4, 10, 1024]),
        keeps_order: rng.percent(50),
    }
}

/// The settings of the pool of that number.
fn pool(theme: &Theme, number: u64, rng: &mut Rng) -> PoolSettings {
    let code = ["A", "B", "C", "D"][number as usize];
    let concurrency = match rng.between(1, 4) {
        1 => 1,
        2 => rng.between_u32(2, 3),
        _ => rng.between_u32(2, 8),
    };
    let settings = PoolSettings::new(code, concurrency);
    if theme.fair {
        let ungrouped = Ungrouped::Parallel;
        return PoolSettings { ordering: Ordering::None, ungrouped, ..settings };
    }
    PoolSettings {
        rate_limit_per_minute: rng.percent(20).then(|| rng.between_u32(0, 900)),
        ordering: *rng.one_of(theme.orderings),
        ungrouped: *rng.one_of(&[Ungrouped::Fifo, Ungrouped::Parallel]),
        max_attempts: if rng.percent(60) { rng.between_u32(1, 4) } else { 0 },
        on_exhausted: *rng.one_of(&[OnExhausted::Park, OnExhausted::Skip, OnExhausted::Block]),
        parking: rng.percent(80),
        ..settings
    }
}
