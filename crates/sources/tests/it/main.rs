//! The sources, each through the same suite, and what is special about one.

#[cfg(test)]
mod backlog;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod dedupe;
#[cfg(test)]
mod file;
#[cfg(test)]
mod import;
#[cfg(test)]
mod model;
#[cfg(test)]
mod others;
#[cfg(test)]
mod parked;
#[cfg(test)]
mod put_back;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod sqlite;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod wire;
