//! Names that requests give: what is misspelt is not passed over.

use sluicegate_sources::nearest;

use super::Api;
use super::problem::{Code, Problem};
use crate::names::Names;
use crate::warnings::plain;

/// Passes if there is such a pool, or something of one that is gone by now.
pub(crate) fn pool(api: &Api, code: Option<&str>, nothing_found: bool) -> Result<(), Problem> {
    match code.filter(|_| nothing_found) {
        Some(code) if Names::of_pools(api.daemon.router()).instead_of(code).is_some() => {
            Err(unknown_pool(api, code))
        }
        _ => Ok(()),
    }
}

/// Passes if there is such a queue, or something of one that is gone by now.
pub(crate) fn queue(api: &Api, name: Option<&str>, nothing_found: bool) -> Result<(), Problem> {
    let queues = api.daemon.queue_names();
    match name.filter(|name| nothing_found && !queues.iter().any(|queue| **queue == **name)) {
        Some(name) => {
            let known: Vec<&str> = queues.iter().map(|queue| &**queue).collect();
            let instead = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("there are: {}", known.join(", ")),
            };
            let detail = format!("there is no queue `{}`; {instead}", plain(name));
            Err(Problem::new(Code::UnknownQueue, detail).with("field", "queue"))
        }
        None => Ok(()),
    }
}

/// There is no pool of that code.
pub(crate) fn unknown_pool(api: &Api, code: &str) -> Problem {
    let instead = Names::of_pools(api.daemon.router()).instead_of(code).unwrap_or_default();
    let detail = format!("there is no pool `{}`; {instead}", plain(code));
    Problem::new(Code::UnknownPool, detail).with("field", "pool")
}
