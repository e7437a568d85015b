//! The daemon: what it is told, and what it does about it.

mod agents;
mod alerts;
pub mod api;
mod apply;
pub mod audit;
pub mod brokers;
pub mod chores;
mod convert;
mod daemon;
mod event_log;
mod event_queues;
pub mod failing;
pub mod feed;
pub mod fetch;
pub mod health;
mod incidents;
pub mod log;
pub mod metrics;
mod names;
pub mod plan;
mod rarely;
pub mod record;
mod replays;
mod scrape;
pub mod settings;
pub mod sync;
pub mod time;
pub mod warnings;

pub use agents::{ONE_AT_A_TIME, agent_doubts, program_fault};
pub use alerts::alert_failed_start;
pub use apply::{ApplyReport, NotReloaded};
pub use daemon::{Daemon, NotPublished, StartError, UnknownPoolOf};
pub use event_log::{EventsNotOpen, probe_events};
pub use event_queues::{event_order_doubts, event_target_faults};
