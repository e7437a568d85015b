//! The engines of the event store, each as what the suite and the checker ask for. A new one is a module and an arm of
//! [`rig`].

mod memory;
mod postgres;
mod process;
mod sqlite;

use crate::conformance::events::Rig;

pub use process::append_for_another;

/// The names of all of them.
pub const NAMES: [&str; 3] = ["memory", "sqlite", "postgres"];

/// Makes stores of an engine. `again` is what this program is started with to append for itself in another process: it must
/// then call [`append_for_another`].
///
/// # Errors
/// There is no such engine, or what it needs is not on this machine.
pub fn rig(name: &str, again: Option<&'static [&'static str]>) -> Result<Box<dyn Rig>, String> {
    match name {
        "memory" => Ok(Box::new(memory::Memory)),
        "sqlite" => Ok(Box::new(sqlite::Sqlite)),
        "postgres" => Ok(Box::new(postgres::Postgres::start(again)?)),
        _ => Err(format!("there is no engine {name}")),
    }
}
