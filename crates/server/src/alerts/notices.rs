//! Which notices are owed to the webhook, and when the next may leave: pure, told the time.
//!
//! 1. What is warned of is told when it begins and when it is over, once each and in this order.
//! 2. While it goes on and happens again, it is told again, at most every so often.
//! 3. A notice that was not taken is tried again, and so is the webhook as a whole, after pauses that
//!    grow. One that is never taken holds up no other. When the webhook takes one again, all others may leave.
//! 4. A CRITICAL warning that begins does not wait for such a pause: the pauses begin anew with it, a second after the
//!    last try at the earliest.
//! 5. At most [`Notices::MOST`] are owed. Of more, the mildest and newest are given up and counted; the
//!    next notice that leaves says how many.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use sluicegate_dispatch::Severity;
use tokio::time::Instant;

use crate::warnings::Warning;

/// All that was told or is owed.
#[derive(Debug)]
pub(super) struct Notices {
    every: Duration,
    by_id: BTreeMap<u64, Matter>,
    /// How many were given up since one was taken.
    dropped: u64,
    /// How often in a row the webhook took none.
    failures: u32,
    /// Whether it took none several times in a row, since it last took one.
    is_out: bool,
    /// When it last took none.
    refused_at: Option<Instant>,
    not_before: Option<Instant>,
    /// Whether this is the end: what would be told later is told now or never.
    is_last: bool,
}

/// A warning, and what of it was told.
#[derive(Debug)]
struct Matter {
    warning: Warning,
    is_over: bool,
    /// Whether the warning is not kept any more.
    is_gone: bool,
    told: Option<Told>,
    /// Whether its notice was given up: nobody hears of it before it is over and begins anew.
    is_given_up: bool,
    tries: u32,
    not_before: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    /// When it was last said that it goes on.
    at: Instant,
    count: u64,
    is_over: bool,
}

/// What a notice says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Begun,
    Again,
    Over,
}

/// A notice that may leave.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Notice {
    pub(super) body: Value,
    id: u64,
    kind: Kind,
    count: u64,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Send this, and say what became of it.
    Send(Box<Notice>),
    /// Wait until then, or for a change.
    Wait(Option<Instant>),
}

/// How soon something that was over and begins anew is told again, at the earliest.
const ANEW: Duration = Duration::from_secs(60);
/// How often it is looked whether something happened again that was last told long enough ago.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A webhook that refuses so often in a row is taken to be out of order, rather than not to like a notice.
const OUT_AFTER: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

impl Notices {
    /// How many notices may be owed.
    pub(super) const MOST: usize = 1_000;

    pub(super) fn new(every: Duration) -> Self {
        Self {
            every,
            by_id: BTreeMap::new(),
            dropped: 0,
            failures: 0,
            is_out: false,
            refused_at: None,
            not_before: None,
            is_last: false,
        }
    }

    /// Looks at all warnings there are. Returns how many notices had to be given up.
    pub(super) fn look(&mut self, warnings: Vec<Warning>) -> u64 {
        let there: HashSet<u64> = warnings.iter().map(|warning| warning.id).collect();
        for (id, matter) in &mut self.by_id {
            matter.is_gone = !there.contains(id);
            matter.is_over |= matter.is_gone;
        }
        let mut is_urgent = false;
        for warning in warnings {
            let is_bad = warning.severity == Severity::Critical && warning.is_open();
            match self.by_id.get_mut(&warning.id) {
                Some(matter) => {
                    if matter.is_over && is_bad {
                        is_urgent = true;
                        (matter.tries, matter.not_before) = (0, None);
                    }
                    matter.is_over = !warning.is_open();
                    matter.is_given_up &= !matter.is_over;
                    matter.warning = warning;
                }
                // Who has taken note before it was told need not be told.
                None if warning.acknowledged => {}
                None => {
                    is_urgent |= is_bad;
                    self.by_id.insert(warning.id, Matter::new(warning));
                }
            }
        }
        if is_urgent {
            self.begin_pauses_anew();
        }
        // Of what is gone only its end is owed, and that to those who heard of its beginning.
        self.by_id
            .retain(|_, matter| !matter.is_gone || matter.told.is_some_and(|told| !told.is_over));
        self.bound()
    }

    fn begin_pauses_anew(&mut self) {
        self.failures = 0;
        let soon = self.refused_at.map(|at| at + FIRST_PAUSE);
        self.not_before = self.not_before.min(soon);
    }

    fn bound(&mut self) -> u64 {
        let owed = self.by_id.values().filter(|matter| matter.owed().is_some());
        let mut owed: Vec<_> =
            owed.map(|matter| (Reverse(matter.warning.severity), matter.warning.id)).collect();
        if owed.len() <= Self::MOST {
            return 0;
        }
        owed.sort_unstable();
        let given_up = owed.split_off(Self::MOST);
        for (_, id) in &given_up {
            if let Some(matter) = self.by_id.get_mut(id) {
                matter.give_up();
            }
        }
        self.dropped += given_up.len() as u64;
        given_up.len() as u64
    }

    /// From now on nothing is put off: what is owed is tried at once, and then every second.
    pub(super) fn hurry(&mut self) {
        self.is_last = true;
        self.failures = 0;
        self.not_before = None;
        for matter in self.by_id.values_mut() {
            matter.tries = 0;
            matter.not_before = None;
        }
    }

    /// Whether anything is owed that may leave before the end.
    pub(super) fn owes(&self) -> bool {
        self.by_id.values().any(|matter| self.leaves_at(matter).is_some())
    }

    /// What is to be sent, or how long to wait. The least tried goes first, of these the worst, of
    /// these the oldest.
    pub(super) fn next(&self, now: Instant) -> Next {
        let times =
            self.by_id.values().filter_map(|matter| Some((self.leaves_at(matter)?, matter)));
        let mut next: Option<&Matter> = None;
        let again = self.by_id.values().filter_map(|matter| self.looks_again(matter, now));
        let mut soonest: Option<Instant> = again.min();
        for (at, matter) in times {
            match at {
                Some(at) if at > now => soonest = Some(soonest.map_or(at, |known| known.min(at))),
                _ => {
                    let known = next.filter(|known| known.rank() < matter.rank());
                    next = Some(known.unwrap_or(matter));
                }
            }
        }
        match (next, self.not_before.filter(|not_before| *not_before > now)) {
            (Some(_), Some(not_before)) => Next::Wait(Some(not_before)),
            (Some(matter), None) => match matter.owed() {
                Some(kind) => Next::Send(Box::new(self.notice(matter, kind))),
                None => Next::Wait(soonest),
            },
            (None, _) => Next::Wait(soonest),
        }
    }

    /// When a matter's notice may leave, `Some(None)` if at any time; `None` if none is owed.
    fn leaves_at(&self, matter: &Matter) -> Option<Option<Instant>> {
        let told = matter.told.map(|told| told.at);
        let at = match matter.owed()? {
            Kind::Again if self.is_last => return None,
            Kind::Again => told.map(|at| at + self.every),
            Kind::Begun if !self.is_last => told.map(|at| at + ANEW.min(self.every)),
            Kind::Begun | Kind::Over => None,
        };
        Some(at.max(matter.not_before))
    }

    /// When to look whether a matter that goes on has happened again: nobody says so, for it may be often.
    fn looks_again(&self, matter: &Matter, now: Instant) -> Option<Instant> {
        let goes_on = matter.owed().is_none() && !matter.is_over && !matter.is_given_up;
        let told =
            matter.told.filter(|_| goes_on && !self.is_last && !matter.warning.acknowledged)?;
        Some((told.at + self.every).max(now + LOOK_AGAIN))
    }

    fn notice(&self, matter: &Matter, kind: Kind) -> Notice {
        let warning = &matter.warning;
        let mut body = warning.to_json();
        body["resolved"] = (kind == Kind::Over).into();
        if kind != Kind::Over {
            body["resolvedAt"] = Value::Null;
        }
        if self.dropped > 0 {
            body["dropped"] = self.dropped.into();
        }
        Notice { body, id: warning.id, kind, count: warning.count }
    }

    /// It was taken.
    pub(super) fn taken(&mut self, notice: &Notice, now: Instant) {
        (self.failures, self.not_before, self.dropped) = (0, None, 0);
        if std::mem::take(&mut self.is_out) {
            for matter in self.by_id.values_mut() {
                matter.not_before = None;
            }
        }
        let Some(matter) = self.by_id.get_mut(&notice.id) else { return };
        (matter.tries, matter.not_before) = (0, None);
        let is_over = notice.kind == Kind::Over;
        let at = matter.told.map(|told| told.at).filter(|_| is_over).unwrap_or(now);
        matter.told = Some(Told { at, count: notice.count, is_over });
    }

    /// It was not. `chance`, from 0 to 1, spreads the pause. Returns how long nothing is sent.
    pub(super) fn refused(&mut self, notice: &Notice, now: Instant, chance: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.is_out |= self.failures >= OUT_AFTER;
        self.refused_at = Some(now);
        let rest = pause(self.failures, chance);
        self.not_before = Some(now + rest);
        if let Some(matter) = self.by_id.get_mut(&notice.id) {
            matter.tries = matter.tries.saturating_add(1);
            matter.not_before = Some(now + pause(matter.tries, chance));
        }
        rest
    }
}

impl Matter {
    fn new(warning: Warning) -> Self {
        let is_over = !warning.is_open();
        Self {
            warning,
            is_over,
            is_gone: false,
            told: None,
            is_given_up: false,
            tries: 0,
            not_before: None,
        }
    }

    /// What is to be told of it next.
    fn owed(&self) -> Option<Kind> {
        let is_noted = self.warning.acknowledged;
        match self.told {
            _ if self.is_given_up => None,
            None => (!is_noted).then_some(Kind::Begun),
            Some(told) if told.is_over => (!self.is_over && !is_noted).then_some(Kind::Begun),
            Some(_) if self.is_over => Some(Kind::Over),
            Some(told) => (self.warning.count > told.count && !is_noted).then_some(Kind::Again),
        }
    }

    const fn rank(&self) -> (u32, Reverse<Severity>, u64) {
        (self.tries, Reverse(self.warning.severity), self.warning.id)
    }

    /// Nothing of it is owed as it is now.
    fn give_up(&mut self) {
        // Whoever has not heard of its beginning need not hear of its end.
        let is_over = self.is_over || self.told.is_none();
        self.is_given_up = is_over && !self.is_over;
        let at = self.told.map_or_else(Instant::now, |told| told.at);
        self.told = Some(Told { at, count: self.warning.count, is_over });
    }
}

/// How long to wait after so many failures in a row: 1 s, 2 s, … 5 min, give or take a quarter.
fn pause(failures: u32, chance: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
    pause.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0).min(LONGEST_PAUSE)
}
