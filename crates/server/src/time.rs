//! The time of day, for what people read. Whatever waits or measures uses tokio's clock instead.

use std::fmt;

pub use jiff::Timestamp;

/// Tells the time of day.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// What it is now.
    fn now(&self) -> Timestamp;
}

/// The clock on the wall: the system's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wall;

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
