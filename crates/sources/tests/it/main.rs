//! The sources, each through the same suite, and what is special about one.

#[cfg(test)]
mod smoke;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod sqlite;
