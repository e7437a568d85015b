//! Requests that are over, kept for a while for those who ask: so many, for so long, and no more than so many bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::{Outcome, Priority, RequestError, SessionId, Tenant};

const COUNT: usize = 1_000;
const AGE: Duration = Duration::from_secs(3600);
const BYTES: usize = 64 * 1024 * 1024;

/// A request that is over.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub(crate) session: SessionId,
    pub(crate) tenant: Tenant,
    pub(crate) priority: Priority,
    pub(crate) outcome: Arc<Outcome>,
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    all: HashMap<Arc<str>, Over>,
    /// Longest first, each with when it ended and how large it is.
    order: VecDeque<(Arc<str>, Instant, usize)>,
    bytes: usize,
}

impl Kept {
    pub(crate) fn keep(&mut self, now: Instant, id: Arc<str>, over: Over) {
        let size = 512 + size(&over.outcome);
        self.bytes += size;
        self.order.push_back((Arc::clone(&id), now, size));
        self.all.insert(id, over);
        self.forget(now);
    }

    pub(crate) fn get(&mut self, now: Instant, id: &str) -> Option<Over> {
        self.forget(now);
        self.all.get(id).cloned()
    }

    fn forget(&mut self, now: Instant) {
        while let Some((id, at, size)) = self.order.front() {
            let fits = self.order.len() <= COUNT && self.bytes <= BYTES;
            if fits && now.duration_since(*at) < AGE {
                return;
            }
            self.bytes -= size;
            self.all.remove(id);
            self.order.pop_front();
        }
    }
}

/// What an outcome takes, about.
fn size(outcome: &Outcome) -> usize {
    match outcome {
        Ok(reply) => reply.text.len() + takes(&reply.reply),
        Err(RequestError::AgentError { message, reply }) => message.len() + takes(reply),
        Err(RequestError::WorkerCrash { stderr, .. }) => stderr.len(),
        Err(error) => error.to_string().len(),
    }
}

/// What a value takes in memory: a small one takes far more than it is long.
fn takes(value: &Value) -> usize {
    // An entry of a map has its name, and room in a node that is not full.
    const ENTRY: usize = 2 * size_of::<(String, Value)>();
    let own = size_of::<Value>();
    own + match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(takes).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| ENTRY + name.len() + takes(value)).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reply;

    fn over(text: String) -> Over {
        let reply = serde_json::Value::Null;
        let reply = Reply { reply, text, queue_wait_ms: 0, execution_ms: 0, worker_id: "w".into() };
        Over {
            session: SessionId::fresh(),
            tenant: Tenant::parse("web:1").unwrap(),
            priority: Priority::Normal,
            outcome: Arc::new(Ok(reply)),
        }
    }

    #[test]
    fn what_is_over_is_kept_within_bounds() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        for n in 0..COUNT + 10 {
            kept.keep(now, n.to_string().into(), over(String::new()));
        }
        assert!(kept.get(now, "9").is_none() && kept.get(now, "10").is_some());
        kept.keep(now, "large".into(), over("x".repeat(BYTES - 1024)));
        assert!(kept.get(now, "1000").is_none() && kept.get(now, "large").is_some());
        assert!(kept.get(now + AGE, "large").is_none());
        assert_eq!(kept.bytes, 0);
    }

    #[test]
    fn all_of_an_outcome_counts_by_what_it_takes() {
        let large = "x".repeat(10_000);
        let many = Value::from(vec![1; 10_000]);
        let error = RequestError::AgentError { message: "no".into(), reply: large.clone().into() };
        assert!(size(&Err(error)) > 10_000);
        let error = RequestError::AgentError { message: "no".into(), reply: many.clone() };
        assert!(size(&Err(error)) >= 10_000 * size_of::<Value>());
        let Ok(reply) = (*over(String::new()).outcome).clone() else { panic!() };
        assert!(size(&Ok(Reply { reply: many, ..reply })) >= 10_000 * size_of::<Value>());
        let crash = RequestError::WorkerCrash {
            worker_id: "w".into(),
            exit_code: None,
            signal: None,
            stderr: large,
        };
        assert!(size(&Err(crash)) >= 10_000);
    }

    #[test]
    fn stages_have_names() {
        let ended = |error| crate::Stage::Ended(Arc::new(Err(error))).name();
        assert_eq!(ended(RequestError::Cancelled), "cancelled");
        assert_eq!(ended(RequestError::Interrupted), "interrupted");
        assert_eq!(ended(RequestError::ShuttingDown), "failed");
    }
}
