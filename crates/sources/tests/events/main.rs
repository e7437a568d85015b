//! The event store as a queue.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod cursor;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod stage;
