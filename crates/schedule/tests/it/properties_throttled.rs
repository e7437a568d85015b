//! What did not run leaves no trace: a tenant whose every start is taken back moves nobody.
//!
//! The same history is played with and without such a tenant, and everybody else has to have the same
//! starts in the same order. That is exact where its waiting, too, is nobody's concern; where it stands
//! in line with others two things differ rightly, and are left out here. A class in which only it waits
//! has work that may start, so it has a claim; and who comes new enters by the weight of all that
//! stand in line. So it is either the only one of the first class, or one of many that all came before.
//!
//! `docs/rules.md#schedule-8`.

use proptest::prelude::*;
use proptest::test_runner::Config;
use sluicegate_schedule::{Class, Entry, ItemId, Limits, Moment, Next, Schedule, TenantLimits};
use std::time::Duration;

use crate::history::class;

/// The tenant that never runs.
const THROTTLED: u32 = 9;
/// One that always has work: with nobody there, debts would be void.
const STEADY: u32 = 8;

#[derive(Clone, Copy, Debug)]
enum Op {
    Arrive {
        tenant: u32,
        class: Class,
        cost: u32,
        key: Option<u32>,
    },
    /// The nth that runs ends: for good, or to come again.
    End {
        nth: usize,
        measured: Option<u32>,
        again: Option<u64>,
    },
    Pass {
        ms: u64,
    },
    Weigh {
        tenant: u32,
        weight: u32,
    },
    /// The nth of those that wait, of the others, goes.
    Cancel {
        nth: usize,
    },
}

/// How the throttled tenant's starts are taken back.
#[derive(Clone, Copy, Debug)]
struct Throttle {
    keys: u32,
    class: Class,
    weight: u32,
    hold: Duration,
    /// So many of its starts are there before they are taken back, in reverse or not.
    overlap: usize,
    reversed: bool,
    revoked: bool,
}

#[derive(Clone, Debug)]
struct Case {
    concurrency: u32,
    class_period: u32,
    /// The others'.
    classes: &'static [Class],
    ops: Vec<Op>,
    /// Before which of them the throttled tenant comes.
    comes: usize,
    throttle: Throttle,
}

struct Run {
    schedule: Schedule<(u32, u64), u32, u32>,
    now: Moment,
    throttle: Option<Throttle>,
    /// Of the others, what runs.
    running: Vec<ItemId>,
    starts: Vec<u64>,
    arrived: u64,
    unrun: Vec<ItemId>,
    taken_back: u64,
}

impl Run {
    fn new(case: &Case, throttle: Option<Throttle>) -> Self {
        let weight = TenantLimits::new().weight(case.throttle.weight);
        let limits = Limits::new(case.concurrency, 100_000)
            .class_period(case.class_period)
            .tenant(THROTTLED, weight);
        let schedule = Schedule::new(limits.build().expect("sound"), Moment::ZERO);
        let mut run = Self {
            schedule,
            now: Moment::ZERO,
            throttle,
            running: Vec::new(),
            starts: Vec::new(),
            arrived: 0,
            unrun: Vec::new(),
            taken_back: 0,
        };
        for class in case.classes {
            run.admit(STEADY, *class, 1, None);
            run.admit(STEADY, *class, 1, None);
        }
        run
    }

    fn admit(&mut self, tenant: u32, class: Class, cost: u32, key: Option<u32>) {
        self.arrived += 1;
        let mut entry = Entry::of(tenant).class(class).cost(cost);
        if let Some(key) = key {
            entry = entry.tenant_key(key);
        }
        self.schedule.admit(self.now, entry, (tenant, self.arrived)).expect("room");
    }

    /// The throttled tenant comes, with a head in each of its keys.
    fn throttled_comes(&mut self) {
        let Some(Throttle { keys, class, .. }) = self.throttle else { return };
        for key in 0..keys {
            for _ in 0..3 {
                let entry = Entry::of(THROTTLED).class(class).cost(3).tenant_key(key);
                self.schedule.admit(self.now, entry, (THROTTLED, 0)).expect("room");
            }
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Arrive { tenant, class, cost, key } => self.admit(tenant, class, cost, key),
            Op::End { nth, measured, again } => self.end(nth, measured, again),
            Op::Pass { ms } => self.now += Duration::from_millis(ms),
            Op::Weigh { tenant, weight } => {
                let limits = TenantLimits::new().weight(weight);
                self.schedule.set_tenant(self.now, tenant, limits).expect("sound");
            }
            Op::Cancel { nth } => {
                let others = |id: &ItemId| self.tenant(*id) < STEADY;
                let waiting: Vec<ItemId> =
                    self.schedule.waiting().map(|at| at.id).filter(others).collect();
                if let Some(id) = waiting.get(nth % waiting.len().max(1)) {
                    self.schedule.cancel(*id);
                }
            }
        }
        self.dispatch();
    }

    fn end(&mut self, nth: usize, measured: Option<u32>, again: Option<u64>) {
        if self.running.is_empty() {
            return;
        }
        let id = self.running.remove(nth % self.running.len());
        match again {
            Some(ms) => {
                let until = self.now + Duration::from_millis(ms);
                assert!(self.schedule.retry(self.now, id, until, measured));
            }
            None => drop(self.schedule.complete(id, measured)),
        }
    }

    fn dispatch(&mut self) {
        loop {
            // Its starts are taken back before another's: later they would not be the last.
            let next = self.schedule.peek(self.now);
            let its_own = matches!(next, Next::Start(id) if self.tenant(id) == THROTTLED);
            let overlap = self.throttle.map_or(1, |throttle| throttle.overlap);
            if !self.unrun.is_empty() && (!its_own || self.unrun.len() >= overlap) {
                self.take_back();
                continue;
            }
            let Next::Start(id) = self.schedule.next(self.now) else { break };
            if its_own {
                self.unrun.push(id);
            } else {
                self.started(id);
            }
        }
    }

    fn started(&mut self, id: ItemId) {
        let (tenant, number) = *self.schedule.get(id).expect("it runs");
        self.starts.push(number);
        self.running.push(id);
        if tenant == STEADY {
            let class = self.schedule.running().find(|at| at.id == id).expect("it runs").class;
            self.admit(STEADY, class, 1, None);
        }
    }

    fn tenant(&self, id: ItemId) -> u32 {
        self.schedule.get(id).expect("it runs").0
    }

    fn take_back(&mut self) {
        let Some(throttle) = self.throttle else { return };
        if throttle.reversed {
            self.unrun.reverse();
        }
        for id in std::mem::take(&mut self.unrun) {
            self.taken_back += 1;
            if throttle.revoked {
                self.schedule.revoke(id).expect("it runs");
            } else {
                assert!(self.schedule.postpone(self.now, id, self.now + throttle.hold));
            }
        }
    }
}

/// What the others started, in order, and how many starts were taken back.
fn play(case: &Case, throttled: bool) -> (Vec<u64>, u64) {
    let mut run = Run::new(case, throttled.then_some(case.throttle));
    for (at, op) in case.ops.iter().enumerate() {
        // Revoked, its items are gone: others like them come.
        if at == case.comes || (case.throttle.revoked && at > case.comes && at % 8 == 0) {
            run.throttled_comes();
        }
        run.step(*op);
    }
    (run.starts, run.taken_back)
}

fn op(tenants: u32, classes: &'static [Class]) -> impl Strategy<Value = Op> {
    let class = || prop::sample::select(classes);
    let key = prop_oneof![1 => Just(None), 1 => (0u32..4).prop_map(Some)];
    prop_oneof![
        8 => (0..tenants, class(), 1u32..9, key)
            .prop_map(|(tenant, class, cost, key)| Op::Arrive { tenant, class, cost, key }),
        12 => (0usize..99, prop::option::of(0u32..30), prop::option::weighted(0.2, 0u64..30))
            .prop_map(|(nth, measured, again)| Op::End { nth, measured, again }),
        4 => (0u64..20).prop_map(|ms| Op::Pass { ms }),
        1 => (0..tenants, 1u32..6).prop_map(|(tenant, weight)| Op::Weigh { tenant, weight }),
        1 => (0usize..99).prop_map(|nth| Op::Cancel { nth }),
    ]
}

fn throttle(class: Class) -> impl Strategy<Value = Throttle> {
    (1u32..12, 1u32..6, 1u64..40, 1usize..5, any::<bool>(), any::<bool>()).prop_map(
        move |(keys, weight, hold, overlap, reversed, revoked)| Throttle {
            keys,
            class,
            weight,
            hold: Duration::from_millis(hold),
            overlap,
            reversed,
            revoked,
        },
    )
}

const ONE: &[Class] = &[Class::Normal];

proptest! {
    #![proptest_config(Config { cases: 192, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() })]

    /// Newcomers, tenants that sleep with debts, weights that change, retries: whatever the others do.
    #[test]
    fn a_throttled_tenant_of_another_class_moves_nobody(
        concurrency in 1u32..6,
        class_period in 4u32..20,
        ops in prop::collection::vec(op(7, ONE), 0..300),
        throttle in prop_oneof![throttle(Class::System), throttle(Class::Low)],
    ) {
        let case = Case { concurrency, class_period, classes: ONE, ops, comes: 0, throttle };
        prop_assert_eq!(play(&case, true).0, play(&case, false).0);
    }

    /// Four classes, and the throttled tenant in line with others of its class: they have all come
    /// before it, and each has work until the end.
    #[test]
    fn a_throttled_tenant_moves_nobody_in_its_own_class(
        concurrency in 1u32..6,
        class_period in 4u32..20,
        ops in prop::collection::vec(op(5, &Class::ALL), 0..120),
        throttle in class().prop_flat_map(throttle),
    ) {
        // Some have one key in each class: they leave the line for as long as it runs.
        let key = |tenant: u32, class: Class| tenant.is_multiple_of(2).then_some(10 + class as u32);
        let arrive =
            |tenant, class| Op::Arrive { tenant, class, cost: 2, key: key(tenant, class) };
        let each = |tenant| Class::ALL.into_iter().map(move |class| arrive(tenant, class));
        let backlog = (0..24).flat_map(|_| (0..5).flat_map(each));
        let mut all: Vec<Op> = backlog.collect();
        let comes = all.len();
        all.extend(ops.into_iter().filter(|op| !matches!(op, Op::Cancel { .. })));
        let case = Case { concurrency, class_period, classes: &Class::ALL, ops: all, comes, throttle };
        prop_assert_eq!(play(&case, true).0, play(&case, false).0);
    }
}

/// A start that others followed is taken back late: what it moved newcomers by is, too. A tenant that
/// comes again and again, and never runs, keeps nobody out.
#[test]
fn starts_that_are_taken_back_late_do_not_keep_out_newcomers() {
    let limits = Limits::new(3, 10_000).build().expect("sound");
    let mut schedule = Schedule::<u32, u32, u32>::new(limits, Moment::ZERO);
    let admit = |schedule: &mut Schedule<u32, u32, u32>, tenant: u32, cost| {
        schedule.admit(Moment::ZERO, Entry::of(tenant).cost(cost), tenant).expect("room");
    };
    let next = |schedule: &mut Schedule<u32, u32, u32>| {
        let Next::Start(id) = schedule.next(Moment::ZERO) else { panic!("nothing starts") };
        (id, *schedule.get(id).expect("it runs"))
    };
    for tenant in [1, 2] {
        (0..1_000).for_each(|_| admit(&mut schedule, tenant, 1));
    }
    for n in 0..100 {
        admit(&mut schedule, THROTTLED, 40);
        let (mut its_own, mut before) = (None, 0);
        while its_own.is_none() {
            let (id, tenant) = next(&mut schedule);
            if tenant == THROTTLED {
                its_own = Some(id);
            } else {
                schedule.complete(id, None);
                before += 1;
            }
        }
        assert!(before <= 4, "it comes new, and waits for {before}");
        let (other, tenant) = next(&mut schedule);
        assert_ne!(tenant, THROTTLED);
        // Now and then one that started later is taken back as well, after it and at once.
        let last = (n % 2 == 1).then(|| next(&mut schedule).0);
        assert!(its_own.and_then(|id| schedule.revoke(id)).is_some());
        last.map(|id| schedule.revoke(id));
        schedule.complete(other, None);
    }
    admit(&mut schedule, 3, 1);
    let before = std::iter::from_fn(|| {
        let (id, tenant) = next(&mut schedule);
        schedule.complete(id, None);
        (tenant != 3).then_some(tenant)
    });
    assert!(before.take(10).count() <= 3, "the newcomer waits for more than a round");
}

/// The two that are compared do differ: starts are taken back, of all kinds.
#[test]
fn starts_are_taken_back() {
    for (revoked, overlap) in [(false, 1), (false, 4), (true, 1), (true, 4)] {
        let hold = Duration::from_millis(1);
        let throttle = Throttle {
            keys: 6,
            class: Class::Low,
            weight: 2,
            hold,
            overlap,
            reversed: false,
            revoked,
        };
        let end = Op::End { nth: 0, measured: None, again: None };
        let ops = [end, Op::Pass { ms: 2 }].repeat(100);
        let case = Case { concurrency: 4, class_period: 16, classes: ONE, ops, comes: 0, throttle };
        let ((with, taken_back), (without, _)) = (play(&case, true), play(&case, false));
        assert_eq!(with, without);
        assert!(taken_back > 30, "{taken_back} taken back, revoked {revoked}, {overlap} at once");
    }
}
