//! Sluices: values wait inside, a crew pulls what may start, and none is ever lost.

mod back;
mod close;
mod enter;
mod memory;
mod model;
mod pull;
mod threads;

use sluicegate_tasks::{Entry, Passage, Sluice};

fn sluice<V: Send + 'static>(concurrency: u32, capacity: u32) -> Sluice<V> {
    Sluice::<V>::builder("sluice", concurrency, capacity).build().unwrap()
}

fn cart() -> Entry {
    Entry::of("alice").key("cart")
}

/// The next, which must be there at once.
fn pull<V>(sluice: &Sluice<V>) -> Passage<V> {
    sluice.try_next().expect("something may start")
}

/// Values of one entry each.
fn batch<V>(entry: fn() -> Entry, values: impl IntoIterator<Item = V>) -> Vec<(Entry, V)> {
    values.into_iter().map(|value| (entry(), value)).collect()
}

/// What may start now, each over at once.
fn run_all<V>(sluice: &Sluice<V>) -> Vec<V> {
    std::iter::from_fn(|| sluice.try_next().map(Passage::finish)).collect()
}

/// Queued, running.
fn gauges<V>(sluice: &Sluice<V>) -> (u32, u32) {
    let gauges = sluice.stats().gauges;
    (gauges.queued, gauges.running)
}
