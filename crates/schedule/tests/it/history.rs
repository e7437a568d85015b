//! Random histories: what may happen to a schedule, as data.

use proptest::prelude::*;
use sluicegate_schedule::{Class, Entry, Limits, Moment, Rate, Schedule, TenantLimits};
use std::fmt;
use std::time::Duration;

/// The schedule under test: values are numbers, so that each item can be told from all others.
pub(crate) type Tested = Schedule<u64, u8, u8>;

/// What a schedule starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) concurrency: u32,
    pub(crate) capacity: u32,
    pub(crate) class_period: u32,
    pub(crate) rate: Option<Flow>,
    pub(crate) each_tenant: Bounds,
}

/// A tenant's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) weight: u32,
    pub(crate) max_running: u32,
    pub(crate) max_queued: u32,
    pub(crate) admission: Option<Flow>,
}

/// A rate: a bucket, or a sliding one, which knows no burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) count: u32,
    pub(crate) period_ms: u64,
    pub(crate) burst: u32,
    pub(crate) sliding: bool,
}

/// Why nothing may start.
pub(crate) const REASONS: [&str; 3] = ["memory", "disk", "operator"];

/// How long a put-back item is kept from running.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delay {
    None,
    Ms(u64),
    Far,
}

/// An item that asks to enter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newcomer {
    pub(crate) tenant: u8,
    pub(crate) key: Option<u8>,
    /// The key is one of the tenant's own.
    pub(crate) own_key: bool,
    pub(crate) class: Class,
    pub(crate) cost: Option<u32>,
}

/// One step. A `nth` counts round and round through the items it can mean.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Admit(Newcomer),
    /// So many at once, of as many tenants and keys in a row, all or nothing.
    AdmitAll {
        first: Newcomer,
        count: u8,
        tenants: u8,
        keys: u8,
    },
    Next,
    Peek,
    Complete {
        nth: usize,
        cost: Option<u32>,
    },
    Revoke {
        nth: usize,
    },
    Retry {
        nth: usize,
        delay: Delay,
        cost: Option<u32>,
    },
    Postpone {
        nth: usize,
        delay: Delay,
    },
    Linger {
        nth: usize,
        cost: Option<u32>,
    },
    Depart {
        nth: usize,
    },
    Cancel {
        nth: usize,
    },
    Release {
        nth: usize,
    },
    /// Time passes, and the schedule is told so or not.
    Advance {
        ms: u64,
        told: bool,
    },
    /// For one of the [`REASONS`].
    Pause(usize),
    Resume(usize),
    SetConcurrency(u32),
    SetCapacity(u32),
    SetRate(Option<Flow>),
    SetTenant(u8, Bounds),
    UnsetTenant(u8),
    SetEachTenant(Bounds),
    StopAdmission,
    TakeWaiting,
}

impl Setup {
    pub(crate) fn schedule(self) -> Tested {
        let mut limits = Limits::new(self.concurrency, self.capacity)
            .class_period(self.class_period)
            .each_tenant(self.each_tenant.limits());
        if let Some(rate) = self.rate {
            limits = limits.rate(rate.rate());
        }
        Schedule::new(limits.build().expect("sound limits"), Moment::ZERO)
    }
}

impl Bounds {
    pub(crate) const OPEN: Self =
        Self { weight: 1, max_running: u32::MAX, max_queued: u32::MAX, admission: None };

    pub(crate) fn limits(self) -> TenantLimits {
        let limits = TenantLimits::new()
            .weight(self.weight)
            .max_running(self.max_running)
            .max_queued(self.max_queued);
        self.admission.map_or(limits, |flow| limits.admission_rate(flow.rate()))
    }
}

impl Flow {
    pub(crate) fn rate(self) -> Rate {
        let period = Duration::from_millis(self.period_ms);
        let rate = if self.sliding {
            Rate::sliding(self.count, period)
        } else {
            Rate::new(self.count, period, self.burst)
        };
        rate.expect("sound")
    }
}

impl Newcomer {
    pub(crate) const fn of(tenant: u8, class: Class) -> Self {
        Self { tenant, key: None, own_key: false, class, cost: None }
    }

    pub(crate) fn entry(self) -> Entry<u8, u8> {
        let mut entry = Entry::of(self.tenant).class(self.class);
        if let Some(key) = self.key {
            entry = if self.own_key { entry.tenant_key(key) } else { entry.key(key) };
        }
        if let Some(cost) = self.cost {
            entry = entry.cost(cost);
        }
        entry
    }

    /// A batch that begins with it, over so many tenants and keys; each third passes its tenant's
    /// limit.
    pub(crate) fn batch(self, count: u8, tenants: u8, keys: u8) -> Vec<Self> {
        let nth = |n: u8| Self {
            tenant: self.tenant + n % tenants,
            key: self.key.map(|key| key / 2 + n % keys),
            class: if n % 3 == 2 { Class::Admin } else { self.class },
            ..self
        };
        (0..count).map(nth).collect()
    }
}

impl Delay {
    pub(crate) fn after(self, now: Moment) -> Moment {
        match self {
            Self::None => now,
            Self::Ms(ms) => now + Duration::from_millis(ms),
            Self::Far => Moment::FAR,
        }
    }
}

pub(crate) fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

fn bounds() -> impl Strategy<Value = Bounds> {
    let max = || prop_oneof![2 => Just(u32::MAX), 1 => 1u32..4];
    let admission = prop_oneof![2 => Just(None), 1 => rate().prop_map(Some)];
    (1u32..5, max(), max(), admission).prop_map(|(weight, max_running, max_queued, admission)| {
        Bounds { weight, max_running, max_queued, admission }
    })
}

pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    (1u32..8, 1u64..40, 1u32..5).prop_map(|(count, period_ms, burst)| Flow {
        count,
        period_ms,
        burst,
        sliding: false,
    })
}

/// A bucket or a sliding rate.
pub(crate) fn rate() -> impl Strategy<Value = Flow> {
    (flow(), any::<bool>()).prop_map(|(flow, sliding)| Flow { sliding, ..flow })
}

fn cost() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![3 => Just(None), 2 => (0u32..6).prop_map(Some), 1 => (0u32..5000).prop_map(Some)]
}

fn delay() -> impl Strategy<Value = Delay> {
    prop_oneof![1 => Just(Delay::None), 3 => (0u64..30).prop_map(Delay::Ms), 1 => Just(Delay::Far)]
}

pub(crate) fn setup() -> impl Strategy<Value = Setup> {
    let rate = prop_oneof![2 => Just(None), 1 => rate().prop_map(Some)];
    let capacity = prop_oneof![1 => 1u32..8, 2 => 8u32..200];
    let each = prop_oneof![1 => Just(Bounds::OPEN), 1 => bounds()];
    (1u32..8, capacity, 4u32..20, rate, each).prop_map(
        |(concurrency, capacity, class_period, rate, each_tenant)| Setup {
            concurrency,
            capacity,
            class_period,
            rate,
            each_tenant,
        },
    )
}

/// Steps over so many tenants and keys.
fn op(tenants: u8, keys: u8) -> impl Strategy<Value = Op> {
    let nth = 0usize..1000;
    let key = prop_oneof![1 => Just(None), 2 => (0..keys).prop_map(Some)];
    let own_key = prop::bool::weighted(0.2);
    let newcomer = (0..tenants, key, own_key, class(), cost())
        .prop_map(|(tenant, key, own_key, class, cost)| Newcomer {
            tenant,
            key,
            own_key,
            class,
            cost,
        })
        .boxed();
    prop_oneof![
        30 => newcomer.clone().prop_map(Op::Admit),
        4 => (newcomer, 0u8..7, 1u8..4, 1u8..4)
            .prop_map(|(first, count, tenants, keys)| Op::AdmitAll { first, count, tenants, keys }),
        30 => Just(Op::Next),
        2 => Just(Op::Peek),
        18 => (nth.clone(), cost()).prop_map(|(nth, cost)| Op::Complete { nth, cost }),
        5 => (nth.clone(), delay(), cost())
            .prop_map(|(nth, delay, cost)| Op::Retry { nth, delay, cost }),
        3 => (nth.clone(), delay()).prop_map(|(nth, delay)| Op::Postpone { nth, delay }),
        4 => (nth.clone(), cost()).prop_map(|(nth, cost)| Op::Linger { nth, cost }),
        4 => nth.clone().prop_map(|nth| Op::Depart { nth }),
        3 => nth.clone().prop_map(|nth| Op::Revoke { nth }),
        3 => nth.clone().prop_map(|nth| Op::Cancel { nth }),
        3 => nth.prop_map(|nth| Op::Release { nth }),
        8 => (0u64..20, any::<bool>()).prop_map(|(ms, told)| Op::Advance { ms, told }),
        8 => limit(tenants),
    ]
}

fn limit(tenants: u8) -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1u32..8).prop_map(Op::SetConcurrency),
        3 => (1u32..60).prop_map(Op::SetCapacity),
        3 => Just(Op::SetRate(None)),
        3 => rate().prop_map(|flow| Op::SetRate(Some(flow))),
        1 => (0..REASONS.len()).prop_map(Op::Pause),
        5 => (0..REASONS.len()).prop_map(Op::Resume),
        2 => (0..tenants).prop_map(Op::UnsetTenant),
        5 => (0..tenants, bounds()).prop_map(|(tenant, bounds)| Op::SetTenant(tenant, bounds)),
        3 => bounds().prop_map(Op::SetEachTenant),
        1 => Just(Op::StopAdmission),
        1 => Just(Op::TakeWaiting),
    ]
}

/// A setup and what happens then; prints one step a line.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) setup: Setup,
    pub(crate) ops: Vec<Op>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", format_args!("{:?}", self.setup))?;
        self.ops
            .iter()
            .enumerate()
            .try_for_each(|(at, op)| write!(f, "\n{at:>5}  {}", format_args!("{op:?}")))
    }
}

/// Up to `steps` steps, with few or many tenants and keys.
pub(crate) fn history(steps: usize) -> impl Strategy<Value = History> {
    let spread = prop_oneof![
        2 => Just((2u8, 2u8)),
        2 => Just((4, 6)),
        1 => Just((1, 40)),
        1 => Just((40, 3)),
        1 => Just((40, 200)),
    ];
    let ops = spread
        .prop_flat_map(move |(tenants, keys)| prop::collection::vec(op(tenants, keys), 0..=steps));
    (setup(), ops).prop_map(|(setup, ops)| History { setup, ops })
}
