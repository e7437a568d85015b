//! SQS, against an emulation of it, and against faults that no emulation shows.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fifo;
#[cfg(test)]
mod life;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod settling;
#[cfg(test)]
mod stage;
