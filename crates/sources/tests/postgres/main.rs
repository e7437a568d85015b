//! PostgreSQL, through the suite of sources and what is special about it.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod stage;
