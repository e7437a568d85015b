//! Names that requests give: what is misspelt is said so, with the name that was probably meant.

use sluicegate_dispatch::DEFAULT_POOL;
use sluicegate_sources::nearest;

use super::Api;
use super::problem::{Code, Problem};
use crate::warnings::plain;

/// How many names are listed where none is near.
const MOST_LISTED: usize = 10;

/// Passes if there is such a pool, or something of one that is gone by now.
pub(crate) fn pool(api: &Api, code: Option<&str>, nothing_found: bool) -> Result<(), Problem> {
    match code {
        Some(code) if nothing_found && !exists(api, code) => Err(unknown_pool(api, code)),
        _ => Ok(()),
    }
}

/// Passes if there is such a queue, or something of one that is gone by now.
pub(crate) fn queue(api: &Api, name: Option<&str>, nothing_found: bool) -> Result<(), Problem> {
    let queues = api.daemon.router().queues();
    match name {
        Some(name) if nothing_found && !queues.iter().any(|queue| **queue == *name) => {
            let known: Vec<&str> = queues.iter().map(|queue| &**queue).collect();
            let detail = format!("there is no queue `{}`; {}", plain(name), instead(name, &known));
            Err(Problem::new(Code::UnknownQueue, detail).with("field", "queue"))
        }
        _ => Ok(()),
    }
}

/// The default pool is there, though it is made by its first message.
fn exists(api: &Api, code: &str) -> bool {
    code == DEFAULT_POOL || api.daemon.router().pool(code).is_some()
}

/// There is no pool of that code.
pub(crate) fn unknown_pool(api: &Api, code: &str) -> Problem {
    let pools = api.daemon.router().pools();
    let mut known: Vec<&str> = pools.iter().map(|code| &**code).collect();
    if !known.contains(&DEFAULT_POOL) {
        known.push(DEFAULT_POOL);
    }
    known.sort_unstable();
    let detail = format!("there is no pool `{}`; {}", plain(code), instead(code, &known));
    Problem::new(Code::UnknownPool, detail).with("field", "pool")
}

/// What could be meant by an unknown name.
fn instead(name: &str, known: &[&str]) -> String {
    if let Some(near) = nearest(name, known.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    let (listed, rest) = known.split_at(known.len().min(MOST_LISTED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    format!("there are: {}{more}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_meant_or_some_are_listed() {
        let many: Vec<String> = (10..30).map(|at| format!("POOL-{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let cases = [
            (instead("odrers", &["MAIL", "ORDERS"]), "did you mean `ORDERS`?"),
            (instead("x", &["MAIL", "ORDERS"]), "there are: MAIL, ORDERS"),
        ];
        for (said, wanted) in cases {
            assert_eq!(said, wanted);
        }
        assert!(instead("x", &many).ends_with("POOL-19 and 10 more"));
    }
}
