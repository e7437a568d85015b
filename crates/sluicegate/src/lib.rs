//! Sluicegate: what may run next, bounded, fair, in order, within rates.
//!
//! This is the front for embedding. It re-exports the kernel: [`tasks`] runs work (permits, task
//! groups, turnstiles), [`schedule`] decides, purely, what may run next.
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

pub use sluicegate_schedule as schedule;
pub use sluicegate_tasks as tasks;
