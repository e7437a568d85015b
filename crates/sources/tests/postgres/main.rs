//! PostgreSQL, through the suite of sources and what is special about it.

#[cfg(test)]
mod check;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod cost;
#[cfg(test)]
mod demand;
#[cfg(test)]
mod doors;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod finding;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod migration;
#[cfg(test)]
mod order;
#[cfg(test)]
mod outbox;
#[cfg(test)]
mod resting;
#[cfg(test)]
mod stage;
