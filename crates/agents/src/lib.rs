//! A tenant-fair, bounded pool of CLI-agent subprocesses.
//!
//! Requests of many users run on few processes: one [`Sluice`](sluicegate_tasks::Sluice) is the queue, the schedule,
//! the limits and the rate; a session is a key, so that no two requests of it run at once. [`Agents`] is the pool.
//!
//! | file | is |
//! |---|---|
//! | `settings/` | what a pool is told, checked once; the paper's `workerPool` object |
//! | `request.rs`, `error.rs` | who asks for what; what can become of it, as one table |
//! | `dialect/` | pure: what an agent's lines mean |
//! | `worker/` | pure: which workers there are, and which of them serves a turn |
//! | `pool/` | the shell: letting in, waiting, running, ending |
//! | `live.rs`, `kept.rs`, `sessions.rs` | requests while they are here and for a while after; sessions |
//! | `journal.rs` | the seam to what survives a restart |
//! | `event.rs`, `metrics.rs` | what is told and counted |

mod dialect;
mod error;
mod event;
mod journal;
mod kept;
mod live;
mod metrics;
mod pool;
mod request;
#[cfg(feature = "scripted")]
pub mod scripted;
mod sessions;
mod settings;
mod worker;

pub use dialect::{Dialect, MAX_OUTPUT};
pub use error::RequestError;
pub use event::{Event, Observer, Phase};
pub use journal::{
    AdmittedRecord, BoxFuture, FinishedRecord, Journal, JournalError, KnownSession, MemoryJournal,
    Recorded,
};
pub use live::{Follow, Followed, Outcome, Reply, Stage};
pub use metrics::Metrics;
pub use pool::{Agents, Found, Pending, TenantLine, TenantTally, Ticket, WhyNot};
pub use request::{Ask, MAX_MESSAGE, Owner, Priority, Request, SessionId, Tenant};
pub use settings::{
    CheckedSettings, Environment, Mode, PromptBy, Settings, TenantLimits, TenantOverride, Wrong,
};
pub use worker::{Recycled, WorkerState, WorkerView};
