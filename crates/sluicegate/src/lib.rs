//! The front: re-exports what a service embeds.
pub use sluicegate_schedule as schedule;
pub use sluicegate_tasks as tasks;
