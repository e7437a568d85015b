//! JetStream as a source, against real servers: the suite of sources, and what is special about it.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod doors;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod guarded;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod order;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod settling;
