//! What may start, by scanning all items: order within a line, and between lines.

use sluicegate_schedule::{Class, Moment};

use super::{Item, Line, Model, State};

impl Model {
    /// The next of a line, whether or not it may start: put back first, then by class, then by age.
    pub(super) fn head(&self, line: Line) -> Option<Item> {
        let waiting = self.items.iter().filter(|item| item.line == line && item.waits());
        waiting.min_by_key(|i| (i.back().is_none(), i.class, i.id.number())).copied()
    }

    /// The next of a line if it may start: nothing of the line runs or lingers and none of it is held.
    fn ready_head(&self, line: Line) -> Option<Item> {
        let mut of_line = self.items.iter().filter(|item| item.line == line);
        let blocked = of_line.any(|item| !item.waits() || item.held().is_some());
        if blocked { None } else { self.head(line) }
    }

    /// Among a tenant's heads of a class, the one admitted first.
    pub(super) fn oldest_head(&self, tenant: u8, class: Class) -> Option<Item> {
        let of_lane = self.items.iter().filter(|item| item.tenant == tenant && item.class == class);
        of_lane
            .filter(|item| self.ready_head(item.line).is_some_and(|head| head.id == item.id))
            .min_by_key(|item| item.id.number())
            .copied()
    }

    pub(super) fn start(&mut self, chosen: Item) {
        let charge = self.rounds.start(chosen.tenant, chosen.class, chosen.cost);
        let bucket = self.bucket.as_ref().map(|bucket| bucket.number);
        if let Some(item) = self.items.iter_mut().find(|item| item.id == chosen.id) {
            item.state = State::Runs { charge, bucket };
        }
        self.settle(None);
    }

    /// An item that was out is gone: first its tenant has room again, then its line goes on.
    pub(super) fn leave(&mut self, item: Item) {
        self.items.retain(|other| other.id != item.id);
        self.settle(Some(item.line));
        self.settle(None);
    }

    /// Brings the tenants' standing in line with the items; `out` is a line to be left aside.
    pub(super) fn settle(&mut self, out: Option<Line>) {
        let heads: Vec<Item> = self
            .items
            .iter()
            .filter(|item| item.waits() && Some(item.line) != out)
            .filter(|item| self.ready_head(item.line).is_some_and(|head| head.id == item.id))
            .copied()
            .collect();
        let Self { items, rounds, .. } = self;
        let at_limit: Vec<u8> = rounds
            .known()
            .map(|(tenant, _)| tenant)
            .filter(|tenant| {
                let runs = items.iter().filter(|i| i.tenant == *tenant && i.runs()).count();
                runs as u32 >= rounds.bounds(*tenant).max_running
            })
            .collect();
        rounds.settle(
            |tenant, class| {
                !at_limit.contains(&tenant)
                    && heads.iter().any(|head| head.tenant == tenant && head.class == class)
            },
            |class| items.iter().any(|item| item.waits() && item.class == class),
            |tenant| items.iter().any(|item| item.tenant == tenant && !item.lingers()),
        );
    }

    pub(super) fn next_release(&self) -> Option<Moment> {
        self.items.iter().filter_map(Item::held).min()
    }
}

impl Item {
    /// Ends the hold; the item stays at the front of its line.
    pub(super) fn let_go(&mut self) {
        if let State::Waits { back: Some(back), .. } = &mut self.state {
            back.held = None;
        }
    }
}
