//! What may start, by scanning all items: order within a line, and who of a tenant has been ready for
//! longest. Whose turn it is among tenants and classes is not the model's to say.

use std::collections::BTreeMap;

use sluicegate_schedule::{Class, Moment, Next};

use super::{Item, Line, Model, State};

/// The heads of one tenant in one class.
pub(super) type Lane = (u8, Class);

/// How often first attempts were served more than heads that come again, since both wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    pub(super) lane: Lane,
    ahead: i32,
    /// As it was before the last start, and which that was.
    before: (u64, i32),
}

impl Model {
    /// The next of a line, whether or not it may start: put back first, then by class, then by age.
    pub(super) fn head(&self, line: Line) -> Option<Item> {
        let waiting = self.items.iter().filter(|item| item.line == line && item.waits());
        waiting.min_by_key(|item| item.rank()).copied()
    }

    /// Notes who is ready from now on, and who is not any more: the head of a line of which nothing
    /// runs, lingers or is held.
    pub(super) fn settle(&mut self) {
        self.readies += 1;
        let mut heads: BTreeMap<Line, Option<Item>> = BTreeMap::new();
        for item in &self.items {
            let head = heads.entry(item.line).or_insert(Some(*item));
            let blocks = !item.waits() || item.held().is_some();
            *head =
                head.filter(|_| !blocks).map(|h| if item.rank() < h.rank() { *item } else { h });
        }
        for item in &mut self.items {
            let is_head = heads[&item.line].is_some_and(|head| head.id == item.id);
            item.ready = is_head.then_some(item.ready.unwrap_or(self.readies));
        }
    }

    /// Holds that are over end, the earliest first, and of one moment those that began first.
    pub(crate) fn advance(&mut self, now: Moment) {
        let due = |item: &Item| Some((item.held().filter(|due| *due <= now)?, item.wait()?));
        while let Some((_, wait)) = self.items.iter().filter_map(due).min() {
            self.items.iter_mut().filter(|i| i.wait() == Some(wait)).for_each(Item::let_go);
            self.settle();
        }
    }

    /// What must not be about what the schedule said; `None` when all is well.
    pub(crate) fn objection(&mut self, now: Moment, said: Next) -> Option<String> {
        self.advance(now);
        let startable: Vec<Item> =
            self.items.iter().filter(|i| self.may_start(i)).copied().collect();
        let closed = self.count(Item::runs) >= self.concurrency || !self.pauses.is_empty();
        let token_at = self.limit.as_ref().map_or(now, |limit| limit.ready_for(1, now));
        let expected = if closed {
            Next::Idle
        } else if startable.is_empty() {
            let release = self.next_release().filter(|at| *at < Moment::FAR);
            release.map_or(Next::Idle, Next::At)
        } else if token_at > now {
            Next::At(token_at)
        } else {
            let Next::Start(id) = said else { return Some(format!("{said:?}, not a start")) };
            let chosen = startable.iter().find(|item| item.id == id);
            return chosen.map_or(Some(format!("{id:?} may not start")), |chosen| {
                self.jumps_the_line(chosen, &startable)
            });
        };
        (said != expected).then(|| format!("{said:?}, not {expected:?}"))
    }

    /// Ready, and its tenant runs fewer than it may.
    fn may_start(&self, item: &Item) -> bool {
        let runs = self.count(|other| other.runs() && other.tenant == item.tenant);
        item.ready.is_some() && runs < self.bounds(item.tenant).max_running
    }

    fn jumps_the_line(&self, chosen: &Item, startable: &[Item]) -> Option<String> {
        let of_lane = || startable.iter().filter(|item| item.lane() == chosen.lane());
        let longer = of_lane().find(|item| item.again == chosen.again && item.ready < chosen.ready);
        if let Some(longer) = longer {
            return Some(format!("{chosen:?}, but {longer:?} has been ready for longer"));
        }
        let other_waits = of_lane().any(|item| item.again != chosen.again);
        let ahead = self.ahead(chosen.lane()) + step(chosen);
        (other_waits && ahead.abs() > 1).then(|| format!("{chosen:?} starts out of turn: {ahead}"))
    }

    fn ahead(&self, lane: Lane) -> i32 {
        self.turns.iter().find(|turns| turns.lane == lane).map_or(0, |turns| turns.ahead)
    }

    /// The item starts, which [`Model::objection`] allows.
    pub(crate) fn start(&mut self, now: Moment, id: sluicegate_schedule::ItemId) {
        let Some(chosen) = self.find(id) else { return };
        let other_waits = self
            .items
            .iter()
            .any(|i| i.lane() == chosen.lane() && i.again != chosen.again && self.may_start(i));
        let before = self.ahead(chosen.lane());
        let ahead = if other_waits { before + step(&chosen) } else { 0 };
        self.turns.retain(|turns| turns.lane != chosen.lane());
        let before = (id.number(), before);
        self.turns.push(Turns { lane: chosen.lane(), ahead, before });
        if let Some(limit) = &mut self.limit {
            limit.take(now).expect("a token is there");
        }
        let limit = self.limit.as_ref().map(|limit| limit.number);
        self.set_state(id, State::Runs { since: now, limit });
        self.settle();
    }

    /// A start was taken back: at once, and it was none; later, and they begin to count anew.
    pub(super) fn forget_turn(&mut self, item: &Item) {
        if let Some(turns) = self.turns.iter_mut().find(|turns| turns.lane == item.lane()) {
            let (last, before) = turns.before;
            turns.ahead = if last == item.id.number() { before } else { 0 };
        }
    }

    pub(super) fn next_release(&self) -> Option<Moment> {
        self.items.iter().filter_map(Item::held).min()
    }
}

const fn step(item: &Item) -> i32 {
    if item.again { -1 } else { 1 }
}

impl Item {
    fn rank(&self) -> (bool, Class, u64) {
        (self.back().is_none(), self.class, self.id.number())
    }

    const fn lane(&self) -> Lane {
        (self.tenant, self.class)
    }

    /// Ends the hold; the item stays at the front of its line.
    pub(super) fn let_go(&mut self) {
        if let State::Waits { back: Some(back), .. } = &mut self.state {
            back.held = None;
        }
    }
}
