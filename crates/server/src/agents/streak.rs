//! Requests that fail one after the other: something is wrong with the program, or with what it talks to.

use std::sync::atomic::{AtomicU32, Ordering};

use sluicegate_agents::{Event, RequestError};

/// So many in a row are told of.
const TOLD_FROM: u32 = 5;

/// How many failed since the last answer.
#[derive(Debug, Default)]
pub(crate) struct Streak {
    failed: AtomicU32,
}

/// What to say.
#[derive(Debug, PartialEq)]
pub(super) enum Said<'a> {
    /// So many have failed by now, the last one in this way.
    Failing(u32, &'a RequestError),
    /// One was answered again.
    Over,
}

impl Streak {
    /// Hears what became of a request.
    pub(super) fn hear<'a>(&self, event: &Event<'a>) -> Option<Said<'a>> {
        let error = match event {
            Event::RequestCompleted { .. } => {
                let before = self.failed.swap(0, Ordering::Relaxed);
                return (before >= TOLD_FROM).then_some(Said::Over);
            }
            Event::RequestFailed { error, .. } | Event::RequestTimeout { error, .. } => *error,
            _ => return None,
        };
        let is_the_agents = matches!(
            error,
            RequestError::WorkerCrash { .. }
                | RequestError::BadOutput { .. }
                | RequestError::AgentError { .. }
                | RequestError::ExecutionTimeout { .. }
        );
        if !is_the_agents {
            return None;
        }
        let failed = self.failed.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        (failed >= TOLD_FROM).then_some(Said::Failing(failed, error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluicegate_agents::Tenant;

    use super::*;

    #[test]
    fn an_answer_ends_a_row_of_failures() {
        let (streak, tenant) = (Streak::default(), Tenant::parse("web:1").unwrap());
        let bad = RequestError::BadOutput { message: String::new() };
        let failed =
            |error| Event::RequestFailed { request: "r", tenant: &tenant, worker: None, error };
        let (total, execution) = (Duration::ZERO, Duration::ZERO);
        let answered = Event::RequestCompleted { request: "r", total, execution };
        for _ in 1..TOLD_FROM {
            assert_eq!(streak.hear(&failed(&bad)), None);
            assert_eq!(
                streak.hear(&failed(&RequestError::Cancelled)),
                None,
                "it is nobody's fault"
            );
        }
        assert_eq!(streak.hear(&failed(&bad)), Some(Said::Failing(TOLD_FROM, &bad)));
        assert_eq!(streak.hear(&answered), Some(Said::Over));
        assert_eq!(streak.hear(&answered), None);
        assert_eq!(streak.hear(&failed(&bad)), None);
    }
}
