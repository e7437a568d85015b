//! Sluices: values wait inside or with their callers, what may start goes to exactly one of those who
//! are there to run it, and none is ever lost.

mod back;
mod bad_input;
mod callers;
mod close;
mod counts;
mod door;
mod dropped;
mod enter;
mod heard;
mod known_faults;
mod live;
mod memory;
mod mixed;
mod model;
mod overload;
mod pull;
mod race;
mod rates;
mod stress;
mod threads;
mod timeout;
mod views;
mod workers;

use sluicegate_tasks::{Admitted, Context, Entry, Refused, Sluice, Turn};

use crate::probe::ByHand;

/// How many may wait, where that is not what a test is about.
const ROOM: u32 = 5_000;

fn sluice<V: Send + 'static>(concurrency: u32, capacity: u32) -> Sluice<V> {
    Sluice::<V>::builder("sluice", concurrency, capacity).build().unwrap()
}

fn cart() -> Entry {
    Entry::of("alice").key("cart")
}

/// The next, which must be there at once.
fn pull<V>(sluice: &Sluice<V>) -> Turn<V> {
    sluice.try_next().expect("something may start")
}

/// A caller's item, which is let in or refused at once.
fn enter<V>(
    sluice: &Sluice<V>,
    cx: &Context,
    entry: Entry,
    value: V,
) -> Result<Admitted<V>, Refused<V>> {
    ByHand::new(sluice.enter(cx, entry, value)).poll().expect("nobody waits at the door")
}

/// Enters, and takes the turn that must be there at once.
fn turn_now<V>(sluice: &Sluice<V>, entry: Entry, value: V) -> Turn<V> {
    let admitted = enter(sluice, &Context::new(), entry, value).unwrap();
    ByHand::new(admitted.turn()).poll().expect("its turn").unwrap()
}

/// Enters, and stands in line.
fn in_line<V>(
    sluice: &Sluice<V>,
    entry: Entry,
    value: V,
) -> ByHand<impl Future<Output = Result<Turn<V>, Refused<V>>> + use<V>> {
    let admitted = enter(sluice, &Context::new(), entry, value).unwrap();
    let mut waits = ByHand::new(admitted.turn());
    assert!(waits.poll().is_none());
    waits
}

/// Values of one entry each.
fn batch<V>(entry: fn() -> Entry, values: impl IntoIterator<Item = V>) -> Vec<(Entry, V)> {
    values.into_iter().map(|value| (entry(), value)).collect()
}

/// What may start now, each over at once.
fn run_all<V>(sluice: &Sluice<V>) -> Vec<V> {
    std::iter::from_fn(|| sluice.try_next().map(Turn::finish)).collect()
}

/// Queued, running.
fn gauges<V>(sluice: &Sluice<V>) -> (u32, u32) {
    let gauges = sluice.stats().gauges;
    (gauges.queued, gauges.running)
}
