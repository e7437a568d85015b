//! Structured concurrency: every task has an owner, a bound, a context and an end.
//!
//! | you want | use |
//! |---|---|
//! | to bound concurrency | [`Permits`]: guards that come back by drop, a limit that changes live |
//! | to run tasks | [`TaskGroup`]: bounded, under a context, panics as values, one drain deadline |
//! | to queue work, fair and in order: workers pull it, or callers wait for their turns | [`Sluice`]: tenants, keys, classes, rates; bounded |
//! | the decision alone | [`Schedule`](sluicegate_schedule::Schedule): pure, for your own loop or simulation |
//!
//! What waits or runs does so under a [`Context`]: cancellation and one deadline, handed down. `Instant` is tokio's.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use sluicegate_tasks::{Context, TaskGroup};
//! use std::time::Duration;
//! use tokio::time::Instant;
//!
//! let group = TaskGroup::new("mails", 8)?;
//! let request = Context::new().with_timeout(Duration::from_secs(30));
//! let sent = group.run(&request, |cx| async move { cx.check().map(|()| "sent") }).await?;
//! assert_eq!(sent, Ok("sent"));
//! assert!(group.drain(Instant::now() + Duration::from_secs(5)).await.is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A service with no queue at all can take it as its worker-pool standard; `cargo sluicegate-lint`
//! keeps a codebase to it.

mod context;
mod current;
mod drain;
mod flag;
mod group;
mod hearing;
mod histogram;
mod lineage;
mod panic;
mod permits;
mod refused;
mod roster;
mod sluice;
mod stats;
mod sync;
mod task;
mod waitlist;

pub use context::{CancelOnDrop, Context, Interrupt};
pub use drain::DrainReport;
pub use group::{TaskGroup, TaskGroupBuilder};
pub use hearing::Hearing;
pub use histogram::HistogramSnapshot;
pub use panic::{Panic, PanicLocation};
pub use permits::{
    AcquireManyError, AtLimit, ManyPermits, OwnedManyPermits, OwnedPermit, Permit, Permits,
};
pub use refused::{Refusal, Refused};
pub use roster::Running;
pub use sluice::{
    Admitted, Entry, KeyHold, LastMinute, Overload, Pause, Sluice, SluiceBuilder, Turn,
    WaitingItem, WhyNot,
};
pub use sluicegate_schedule::{Class, Fault, Invalid, ItemId, Rate, TenantLimits, TenantView, Why};
pub use stats::{Gauges, Stats};
pub use task::{Task, TaskError};
