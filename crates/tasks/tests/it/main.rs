//! The kernel from outside: what its public names promise, on paused clocks and real threads.

#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod context;
#[cfg(test)]
mod conversions;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod group;
#[cfg(test)]
mod known_faults;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod permits;
#[cfg(test)]
mod probe;
#[cfg(test)]
mod sluice;
#[cfg(test)]
mod stats;
