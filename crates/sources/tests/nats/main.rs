//! JetStream as a source, against real servers: the suite of sources, and what is special about it.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod rig;
