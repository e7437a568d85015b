//! Whose turn it is: classes, and tenants by rounds, over one plain list of tenants.

use sluicegate_schedule::Class;

use crate::history::Bounds;

/// One unit of cost at weight 1.
const ROUND: u64 = 1 << 20;

pub(super) struct Rounds {
    class_period: u32,
    each: Bounds,
    own: Vec<(u8, Bounds)>,
    tenants: Vec<Tenant>,
    /// Per class: the highest round that was served.
    round: [u64; Class::COUNT],
    /// Per class: the round of those who come new.
    entry: [u64; Class::COUNT],
    /// Per class: how often it was passed over while it could have started something.
    passed_over: [u32; Class::COUNT],
    /// Per class: it was passed over, and then could not start anything for a while.
    interrupted: [bool; Class::COUNT],
    average: u32,
    turns: u64,
}

struct Tenant {
    name: u8,
    served: u64,
    average: u32,
    lanes: [Lane; Class::COUNT],
}

/// A cost, and the weight it was charged at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    cost: u32,
    weight: u32,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    ready: bool,
    round: u64,
    turn: u64,
    /// It stood in line since its tenant last came.
    stood: bool,
}

impl Rounds {
    pub(super) fn new(class_period: u32, each: Bounds) -> Self {
        Self {
            class_period,
            each,
            own: Vec::new(),
            tenants: Vec::new(),
            round: [0; Class::COUNT],
            entry: [0; Class::COUNT],
            passed_over: [0; Class::COUNT],
            interrupted: [false; Class::COUNT],
            average: 0,
            turns: 0,
        }
    }

    pub(super) fn bounds(&self, tenant: u8) -> Bounds {
        self.own.iter().find(|(name, _)| *name == tenant).map_or(self.each, |(_, own)| *own)
    }

    pub(super) fn set_bounds(&mut self, tenant: u8, bounds: Bounds) {
        self.own.retain(|(name, _)| *name != tenant);
        self.own.push((tenant, bounds));
    }

    pub(super) const fn set_each(&mut self, bounds: Bounds) {
        self.each = bounds;
    }

    /// A tenant that was not there begins with what items cost lately, over all tenants.
    pub(super) fn know(&mut self, name: u8) {
        if self.tenants.iter().all(|tenant| tenant.name != name) {
            let lanes = [Lane::default(); Class::COUNT];
            self.tenants.push(Tenant { name, served: 0, average: self.average, lanes });
        }
    }

    pub(super) fn known(&self) -> impl Iterator<Item = (u8, u64)> {
        self.tenants.iter().map(|tenant| (tenant.name, tenant.served))
    }

    /// Keeps the tenants that `keep(tenant, owes)` wants.
    pub(super) fn forget(&mut self, keep: impl Fn(u8, bool) -> bool) {
        let Self { tenants, entry, .. } = self;
        tenants.retain(|tenant| {
            let owes = tenant.lanes.iter().zip(entry.iter()).any(|(lane, now)| lane.round > *now);
            keep(tenant.name, owes)
        });
    }

    pub(super) const fn begin_anew(&mut self) {
        self.round = [0; Class::COUNT];
        self.entry = [0; Class::COUNT];
    }

    /// Who stands in line, after a change: `may_run` tells who has something to start. Those that
    /// come in come in together: those who were here with the class's round at least, those who come
    /// new or come back with its entry.
    pub(super) fn settle(
        &mut self,
        may_run: impl Fn(u8, Class) -> bool,
        waits: impl Fn(Class) -> bool,
        is_here: impl Fn(u8) -> bool,
    ) {
        self.turns += 1;
        for class in Class::ALL {
            let at = class as usize;
            for tenant in &mut self.tenants {
                let lane = &mut tenant.lanes[at];
                let ready = may_run(tenant.name, class);
                if ready && !lane.ready {
                    let least = if lane.stood { self.round[at] } else { self.entry[at] };
                    lane.round = lane.round.max(least);
                    lane.turn = self.turns;
                }
                lane.stood = (lane.stood || ready) && is_here(tenant.name);
                lane.ready = ready;
            }
            if !waits(class) {
                self.passed_over[at] = 0;
                self.interrupted[at] = false;
            }
        }
    }

    /// The class of the next dispatch: the first, unless one is so close to having been passed over
    /// for a whole period that it, and all that are as close, must be served now. Those that could
    /// start something all along come before those that could not.
    pub(super) fn class(&self) -> Option<Class> {
        let ready = self.ready_classes();
        let mut classes: Vec<Class> = Class::ALL.to_vec();
        classes.retain(|class| ready[*class as usize]);
        let first = *classes.first()?;
        classes.sort_by_key(|class| (self.slack(*class), *class));
        let steady: Vec<Class> =
            classes.iter().copied().filter(|class| !self.interrupted[*class as usize]).collect();
        let urgent =
            |classes: &[Class]| (0..classes.len()).any(|at| self.slack(classes[at]) <= at as u32);
        let chosen = [&steady, &classes].into_iter().find(|classes| urgent(classes));
        Some(chosen.filter(|_| classes.len() > 1).map_or(first, |classes| classes[0]))
    }

    /// The tenants that are equally first in a class.
    pub(super) fn first_of(&self, class: Class) -> Vec<u8> {
        let lanes = || {
            let of = |tenant: &Tenant| (tenant.name, tenant.lanes[class as usize]);
            self.tenants.iter().map(of).filter(|(_, lane)| lane.ready)
        };
        let first = lanes().map(|(_, lane)| (lane.round, lane.turn)).min();
        lanes()
            .filter(|(_, lane)| Some((lane.round, lane.turn)) == first)
            .map(|(name, _)| name)
            .collect()
    }

    /// The tenant's item starts: returns what it is charged.
    pub(super) fn start(&mut self, tenant: u8, class: Class, cost: Option<u32>) -> Charge {
        let ready = self.ready_classes();
        for other in Class::ALL {
            let passed_over = &mut self.passed_over[other as usize];
            if other == class {
                *passed_over = 0;
                self.interrupted[other as usize] = false;
            } else if ready[other as usize] {
                *passed_over += 1;
            } else if *passed_over > 0 {
                self.interrupted[other as usize] = true;
            }
        }
        self.turns += 1;
        let (turn, weight) = (self.turns, self.bounds(tenant).weight);
        let in_line: u64 = self
            .tenants
            .iter()
            .filter(|tenant| tenant.lanes[class as usize].ready)
            .map(|tenant| u64::from(self.bounds(tenant.name).weight))
            .sum();
        let tenant = self.tenant(tenant);
        let charge = cost.unwrap_or(tenant.average).max(1);
        let lane = &mut tenant.lanes[class as usize];
        let picked_at = lane.round;
        lane.round += rounds(charge, weight);
        lane.turn = turn;
        let at = class as usize;
        self.round[at] = self.round[at].max(picked_at);
        let share = u64::from(charge) * ROUND / (in_line + 1);
        self.entry[at] = self.round[at].max(self.entry[at] + share);
        Charge { cost: charge, weight }
    }

    pub(super) fn served(&mut self, tenant: u8) {
        self.tenant(tenant).served += 1;
    }

    /// What was measured replaces what was charged, and moves the averages.
    pub(super) fn measure(&mut self, lane: (u8, Class), charge: Charge, cost: Option<u32>) {
        if let Some(cost) = cost.map(|cost| cost.max(1)) {
            self.correct(lane, charge, cost);
            let tenant = self.tenant(lane.0);
            tenant.average = averaged(tenant.average, cost);
            self.average = averaged(self.average, cost);
        }
    }

    pub(super) fn take_back(&mut self, lane: (u8, Class), charge: Charge) {
        self.correct(lane, charge, 0);
    }

    fn correct(&mut self, (tenant, class): (u8, Class), charge: Charge, cost: u32) {
        let round = &mut self.tenant(tenant).lanes[class as usize].round;
        if cost > charge.cost {
            *round += rounds(cost - charge.cost, charge.weight);
        } else {
            *round = round.saturating_sub(rounds(charge.cost - cost, charge.weight));
        }
    }

    fn tenant(&mut self, name: u8) -> &mut Tenant {
        self.tenants.iter_mut().find(|tenant| tenant.name == name).expect("a known tenant")
    }

    fn ready_classes(&self) -> [bool; Class::COUNT] {
        Class::ALL.map(|class| self.tenants.iter().any(|tenant| tenant.lanes[class as usize].ready))
    }

    fn slack(&self, class: Class) -> u32 {
        (self.class_period - 1).saturating_sub(self.passed_over[class as usize])
    }
}

const fn rounds(cost: u32, weight: u32) -> u64 {
    cost as u64 * ROUND / weight as u64
}

/// An eighth of the way towards the new cost, rounded to the nearest; the first one counts whole.
fn averaged(average: u32, cost: u32) -> u32 {
    match average {
        0 => cost,
        average => ((u64::from(average) * 7 + u64::from(cost) + 4) / 8) as u32,
    }
}
