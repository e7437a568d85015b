//! The real router between simulated ends: queues, endpoints and a parked list whose faults, delays
//! and answers are drawn from the seed, on one thread and in simulated time.
//!
//! | file | is |
//! |---|---|
//! | `plan` | what a seed draws: queues, pools, messages and everything that happens to them |
//! | `world` | what the ends share: the clock, the trace, the oracles, the lives of the router |
//! | `wire` | a source behind a network that fails, lies, hangs and delays |
//! | `endpoint` | the executor: an answer for each attempt |
//! | `aside` | the parked list |
//! | `drive` | whoever runs the router: publishes, changes, crashes, restarts, and ends it |
//!
//! A crash ends a life: from then on nothing that this router does reaches any end, as if its process
//! were gone. What it had sent before may still arrive.

mod aside;
mod drive;
mod endpoint;
mod plan;
mod wire;
mod world;

use std::sync::Arc;

use sluicegate_dispatch::Ordering;

use crate::oracles::Broken;
use crate::rng::Rng;
use crate::scenarios::Report;
use crate::trace::Trace;
use plan::{Plan, Theme};
use world::World;

/// Everything at once: all orders, changes of pools and queues, and all faults now and then.
///
/// # Errors
/// What an oracle found.
pub fn run(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    simulate(&Theme::MIXED, seed, trace)
}

/// Order within a batch.
///
/// # Errors
/// What an oracle found.
pub fn run_batch(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    let theme = Theme { orderings: &[Ordering::Batch], ..Theme::ORDERED };
    simulate(&theme, seed, trace)
}

/// Strict order, across deliveries, crashes and parking.
///
/// # Errors
/// What an oracle found.
pub fn run_strict(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    let theme = Theme { orderings: &[Ordering::Strict], ..Theme::ORDERED };
    simulate(&theme, seed, trace)
}

/// No order: messages of a group side by side.
///
/// # Errors
/// What an oracle found.
pub fn run_none(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    let theme = Theme { orderings: &[Ordering::None], ..Theme::ORDERED };
    simulate(&theme, seed, trace)
}

/// One life after the other: crashes, shutdowns, and sources that forget what they were told.
///
/// # Errors
/// What an oracle found.
pub fn run_crash(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    simulate(&Theme::CRASHES, seed, trace)
}

/// Tenants that compete for a pool, and nothing else.
///
/// # Errors
/// What an oracle found.
pub fn run_fair(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    simulate(&Theme::FAIR, seed, trace)
}

fn simulate(theme: &Theme, seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    let plan = Plan::draw(theme, &mut Rng::new(seed));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can always be built");
    let kept = std::mem::take(trace);
    let world = {
        // The clock of the runtime is the clock of the world.
        let _inside = runtime.enter();
        Arc::new(World::new(seed, &plan, kept))
    };
    let driven = runtime.block_on(drive::drive(Arc::clone(&world), plan));
    world.end();
    // Drops every task of every life.
    drop(runtime);
    let (kept, report) = world.close();
    *trace = kept;
    driven.map(|()| report)
}
