//! Structured concurrency: every task has an owner, a bound, a context and an end.
//!
//! | you want | use |
//! |---|---|
//! | to bound concurrency | [`Permits`]: guards that come back by drop, a limit that changes live |
//! | to run tasks | [`TaskGroup`]: bounded, under a context, panics as values, one drain deadline |
//! | to be fair and in order | [`Turnstile`]: tenants, keys, classes and rates over one bound |
//! | to queue values for a crew, as fair and in order | [`Sluice`]: a million may wait, no task each |
//! | to say what happens under load | [`Overload`]: wait, hand back, queue or fail fast, by name |
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
mod line;
mod lineage;
mod overload;
mod panic;
mod permits;
mod roster;
mod sluice;
mod stats;
mod sync;
mod task;
mod turnstile;
mod waitlist;

pub use context::{CancelOnDrop, Context, Interrupt};
pub use drain::DrainReport;
pub use group::{TaskGroup, TaskGroupBuilder};
pub use hearing::Hearing;
pub use histogram::HistogramSnapshot;
pub use line::Entry;
pub use line::entrance::WhyNot;
pub use overload::{Overload, Refusal, Refused};
pub use panic::{Panic, PanicLocation};
pub use permits::{
    AcquireManyError, AtLimit, ManyPermits, OwnedManyPermits, OwnedPermit, Permit, Permits,
};
pub use roster::Running;
pub use sluice::{Hold, Passage, Sluice, SluiceBuilder};
pub use sluicegate_schedule::{Class, Fault, Invalid, ItemId, Rate, TenantLimits, TenantView, Why};
pub use stats::{Gauges, Stats};
pub use task::{Task, TaskError};
pub use turnstile::{Admitted, Turn, Turnstile, TurnstileBuilder};
