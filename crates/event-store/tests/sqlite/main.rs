//! What is special about the embedded engine. What holds for every engine is in the conformance suite of `testkit`.
#![cfg(feature = "sqlite")]

#[cfg(test)]
mod crash;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod file;
#[cfg(test)]
mod group_commit;
#[cfg(test)]
mod many;
#[cfg(test)]
mod odd;
#[cfg(test)]
mod racing;
#[cfg(test)]
mod stage;
