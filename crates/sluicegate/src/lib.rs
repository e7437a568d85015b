//! Sluicegate: what may run next, bounded, fair, in order, within rates.
//!
//! This is the front for embedding. [`tasks`] runs work (permits, task groups, sluices) and
//! [`schedule`] decides, purely, what may run next. On them stand the router ([`dispatch`]) with its
//! [`sources`] and [`executors`], and the [`server`] that the `sluicegate` command runs. [`events`] is the event store, in a file or
//! in PostgreSQL.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use sluicegate::tasks::{Context, TaskGroup};
//!
//! let group = TaskGroup::new("thumbnails", 4)?;
//! let width = group.run(Context::new(), |cx| async move { cx.check().map(|()| 128) }).await?;
//! assert_eq!(width, Ok(128));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

pub use sluicegate_dispatch as dispatch;
pub use sluicegate_event_store as events;
pub use sluicegate_executors as executors;
pub use sluicegate_schedule as schedule;
pub use sluicegate_server as server;
pub use sluicegate_sources as sources;
pub use sluicegate_tasks as tasks;
