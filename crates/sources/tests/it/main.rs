//! The sources, each through the same suite, and what is special about one.

mod smoke;
mod sqlite;
