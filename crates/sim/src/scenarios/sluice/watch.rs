//! What must not be: two of a key at once, one before its turn within its key, more at once than may be,
//! a start while starting is paused, an item that ends twice or never, anything left after the drain.
//!
//! It knows what the actors saw, and asks the sluice only whether an item still waits: one that was told
//! to go and has not heard of it yet is not before anybody.

use std::collections::BTreeMap;
use std::sync::Mutex;

use sluicegate_tasks::{Class, DrainReport, ItemId, Sluice, Stats, Why};
use tokio::time::Instant;

use super::Item;
use crate::oracles::Broken;
use crate::scenarios::Report;
use crate::trace::Trace;

pub(super) struct Watch {
    begun: Instant,
    state: Mutex<State>,
}

pub(super) struct Offer {
    pub(super) key: Option<String>,
    pub(super) class: Class,
}

struct Seen {
    key: Option<String>,
    class: Class,
    id: Option<ItemId>,
    stage: Stage,
    /// It has started before, so it goes before its key's others.
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Offered,
    Waits,
    Runs,
    /// Its permit is free, its key is not.
    Lingers,
    Over,
}

struct State {
    trace: Trace,
    items: BTreeMap<Item, Seen>,
    concurrency: u32,
    /// The most that may run: a lower limit is met as items end, and those that were told before it was
    /// set still hear of their turn in the same moment.
    most: u32,
    limited_at: Instant,
    paused: bool,
    draining: bool,
    broken: Option<Broken>,
    report: Report,
}

impl State {
    fn breaks(&mut self, oracle: &'static str, message: String) {
        self.broken.get_or_insert(Broken::new(oracle, message));
    }

    fn running(&self) -> u32 {
        self.items.values().filter(|seen| seen.stage == Stage::Runs).count() as u32
    }

    fn over(&mut self, item: Item, how: &str) {
        let seen = self.items.get_mut(&item).expect("offered before");
        let was = std::mem::replace(&mut seen.stage, Stage::Over);
        if was == Stage::Over {
            self.breaks("ends", format!("item {item} ends twice: {how}"));
        }
    }
}

impl Watch {
    pub(super) fn new(trace: Trace) -> Self {
        let state = State {
            trace,
            items: BTreeMap::new(),
            concurrency: 0,
            most: 0,
            limited_at: Instant::now(),
            paused: false,
            draining: false,
            broken: None,
            report: Report { seeds: 1, ..Report::default() },
        };
        Self { begun: Instant::now(), state: Mutex::new(state) }
    }

    fn with<R>(&self, what: &str, item: Item, change: impl FnOnce(&mut State) -> R) -> R {
        let nanos = self.begun.elapsed().as_nanos() as u64;
        let mut state = self.state.lock().expect("nobody panics in here");
        state.trace.note(nanos, format_args!("{what} {item}"));
        change(&mut state)
    }

    pub(super) fn note(&self, what: &str) {
        self.with(what, 0, |state| state.draining = true);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.state.lock().expect("nobody panics in here").draining
    }

    pub(super) fn offer(&self, Offer { key, class }: Offer) -> Item {
        let item = self.state.lock().expect("nobody panics in here").items.len() as Item + 1;
        self.with("offer", item, |state| {
            let seen = Seen { key, class, id: None, stage: Stage::Offered, again: false };
            state.items.insert(item, seen);
        });
        item
    }

    pub(super) fn id(&self, item: Item) -> Option<ItemId> {
        self.with("find", item, |state| state.items[&item].id)
    }

    pub(super) fn refused(&self, item: Item) {
        self.with("refused", item, |state| {
            state.report.refused += 1;
            state.over(item, "refused");
        });
    }

    pub(super) fn gave_up(&self, item: Item) {
        self.with("gave up", item, |state| state.over(item, "gave up"));
    }

    pub(super) fn admitted(&self, item: Item, id: Option<ItemId>) {
        self.with("admitted", item, |state| {
            state.report.admitted += 1;
            let seen = state.items.get_mut(&item).expect("offered before");
            seen.id = id;
            // A worker may have been quicker than whoever let it in.
            if seen.stage == Stage::Offered {
                seen.stage = Stage::Waits;
            }
        });
    }

    pub(super) fn limit(&self, concurrency: u32, _capacity: u32) {
        self.with("limit", concurrency.into(), |state| {
            state.most = state.most.max(concurrency);
            (state.concurrency, state.limited_at) = (concurrency, Instant::now());
        });
    }

    pub(super) fn pause(&self, paused: bool) {
        self.with("pause", paused.into(), |state| state.paused = paused);
    }

    /// A turn was given. A caller may hear of it a moment later, so what was decided before a change is
    /// judged by what was so then: only what changes nothing in between is looked at.
    pub(super) fn started(&self, sluice: &Sluice<Item>, item: Item, id: ItemId) {
        self.with("started", item, |state| {
            state.report.started += 1;
            let (key, class, again) = {
                let seen = state.items.get_mut(&item).expect("offered before");
                let was = std::mem::replace(&mut seen.stage, Stage::Runs);
                let key = (seen.key.clone(), seen.class, seen.again);
                if !matches!(was, Stage::Offered | Stage::Waits) {
                    state.breaks("ends", format!("item {item} starts while it is {was:?}"));
                }
                key
            };
            let (running, most) = (state.running(), state.most);
            if running > most {
                state.breaks("limits", format!("{running} run, {most} may"));
            }
            let Some(key) = key else { return };
            let of_key = state
                .items
                .iter()
                .filter(|(other, seen)| **other != item && seen.key.as_ref() == Some(&key));
            let mut wrong = None;
            for (other, seen) in of_key {
                let is_before = seen.class == class
                    && seen.stage == Stage::Waits
                    && !again
                    && !seen.again
                    && seen.id.is_some_and(|before| before.number() < id.number())
                    && seen
                        .id
                        .and_then(|id| sluice.why(id))
                        .is_some_and(|not| not.why != Why::Running);
                if matches!(seen.stage, Stage::Runs | Stage::Lingers) {
                    wrong = Some(format!("items {other} and {item} of key {key} at once"));
                } else if is_before {
                    wrong = Some(format!("item {item} of key {key} before {other}"));
                }
            }
            if let Some(wrong) = wrong {
                state.breaks("order", wrong);
            }
        });
    }

    /// It stops running: what comes of it is said next, before anybody else can see it.
    pub(super) fn ends(&self, item: Item) {
        self.with("ends", item, |state| {
            state.items.get_mut(&item).expect("offered before").stage = Stage::Waits;
            if state.running() <= state.concurrency && state.limited_at < Instant::now() {
                state.most = state.concurrency;
            }
        });
    }

    pub(super) fn waits_again(&self, item: Item) {
        self.with("again", item, |state| {
            state.report.faults += 1;
            state.items.get_mut(&item).expect("offered before").again = true;
        });
    }

    pub(super) fn lingers(&self, item: Item) {
        self.with("lingers", item, |state| {
            state.items.get_mut(&item).expect("offered before").stage = Stage::Lingers;
        });
    }

    pub(super) fn ended(&self, item: Item) {
        self.with("ended", item, |state| state.over(item, "ended"));
    }

    /// A value that nobody finished went to its owner.
    pub(super) fn came_back(&self, item: Item) {
        self.with("came back", item, |state| {
            state.report.faults += 1;
            state.over(item, "came back");
        });
    }

    pub(super) fn drained(&self, report: &DrainReport) {
        self.with("drained", report.finished, |state| {
            let left = report.abandoned.len() + report.cancelled.len();
            if left > 0 && report.took.as_millis() < 500 {
                state.breaks("drain", format!("{left} given up before the deadline"));
            }
        });
    }

    pub(super) fn end(&self, stats: &Stats, actors: &DrainReport) -> Result<Report, Broken> {
        self.with("over", 0, |state| {
            if !actors.abandoned.is_empty() || !actors.cancelled.is_empty() {
                state.breaks("stuck", format!("{actors}"));
            }
            let open = state.items.iter().filter(|(_, seen)| seen.stage != Stage::Over);
            let open: Vec<Item> = open.map(|(item, _)| *item).collect();
            if !open.is_empty() {
                state.breaks("ends", format!("items that never ended: {open:?}"));
            }
            let gauges = stats.gauges;
            if (gauges.queued, gauges.running) != (0, 0) {
                state.breaks("leftovers", format!("{gauges:?}"));
            }
            state.broken.take().map_or(Ok(state.report), Err)
        })
    }

    pub(super) fn take_trace(&self) -> Trace {
        std::mem::take(&mut self.state.lock().expect("nobody panics in here").trace)
    }
}
