//! A schedule under a steady load, in three phases that can be measured apart.

use sluicegate_schedule::{Entry, ItemId, Limits, Moment, Next, Schedule};

/// What there is a great number of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Many {
    Keys,
    Tenants,
}

pub(crate) type Subject = Schedule<u64, u64, u64>;

/// Items in one phase: started together, completed together, replaced together.
pub(crate) const BATCH: usize = 256;

/// A schedule in which `count` keys, or tenants, have two items each, waiting.
pub(crate) struct Load {
    pub(crate) subject: Subject,
    pub(crate) started: Vec<ItemId>,
    many: Many,
    count: u64,
    next_key: u64,
}

impl Load {
    pub(crate) fn new(many: Many, count: u64) -> Self {
        let limits = Limits::new(BATCH as u32, u32::MAX).build().expect("the limits are sound");
        let subject = Schedule::new(limits, Moment::ZERO);
        let mut load =
            Self { subject, started: Vec::with_capacity(BATCH), many, count, next_key: 0 };
        for _ in 0..2 * count {
            load.admit_one();
        }
        load
    }

    /// Brings the schedule to its steady state: every structure has its size.
    pub(crate) fn warm_up(&mut self) {
        for _ in 0..4 {
            self.cycle();
        }
    }

    pub(crate) fn cycle(&mut self) {
        phase_decide(self);
        phase_complete(self);
        phase_admit(self);
    }

    fn admit_one(&mut self) {
        let n = self.next_key;
        // A stride that visits all, so that neighbours in time are not neighbours in memory.
        self.next_key = (n + 7919) % self.count;
        let entry = match self.many {
            Many::Keys => Entry::of(0u64).key(n),
            Many::Tenants => Entry::of(n).key(n),
        };
        self.subject.admit(Moment::ZERO, entry, n).expect("there is room");
    }
}

/// Decides what starts, a batch of times.
#[inline(never)]
pub(crate) fn phase_decide(load: &mut Load) {
    for _ in 0..BATCH {
        let Next::Start(id) = load.subject.next(Moment::ZERO) else { panic!("nothing to start") };
        load.started.push(id);
    }
}

/// Completes what was started.
#[inline(never)]
pub(crate) fn phase_complete(load: &mut Load) {
    for id in load.started.drain(..) {
        load.subject.complete(id, Some(1)).expect("it runs");
    }
}

/// Lets in as many as were completed.
#[inline(never)]
pub(crate) fn phase_admit(load: &mut Load) {
    for _ in 0..BATCH {
        load.admit_one();
    }
}
