//! From what became of a request to what its caller is told: the table of codes.
//!
//! `docs/rules.md#agents-10`.

use sluicegate_agents::{JournalError, RequestError};
use sluicegate_dispatch::SourceError;

use super::problem::{Code, Problem};
use crate::agents::NoAgents;

/// How soon to come again where nobody knows better.
const SOON: u64 = 1;

/// The code of an error.
const fn code(error: &RequestError) -> Code {
    match error {
        RequestError::TenantQueueFull { .. } => Code::TenantQueueFull,
        RequestError::GlobalQueueFull { .. } => Code::GlobalQueueFull,
        RequestError::RateLimited { .. } => Code::RateLimited,
        RequestError::QueueTimeout { .. } => Code::QueueTimeout,
        RequestError::ExecutionTimeout { .. } => Code::ExecutionTimeout,
        RequestError::WorkerCrash { .. } => Code::WorkerCrash,
        RequestError::AgentError { .. } => Code::AgentError,
        RequestError::BadOutput { .. } => Code::BadOutput,
        RequestError::OutputLimit { .. } => Code::OutputLimit,
        RequestError::Cancelled => Code::Cancelled,
        RequestError::Interrupted => Code::Interrupted,
        RequestError::ShuttingDown => Code::ShuttingDown,
        RequestError::SessionForbidden { .. } => Code::SessionForbidden,
        RequestError::Invalid { .. } => Code::InvalidField,
        RequestError::TooLarge { .. } => Code::TooLarge,
        RequestError::StateFailed { .. } => Code::StorageFailed,
        _ => Code::Internal,
    }
}

impl From<&RequestError> for Problem {
    fn from(error: &RequestError) -> Self {
        if let RequestError::StateFailed { message } = error {
            return SourceError::new(message).into();
        }
        let retry_after = match error {
            RequestError::RateLimited { retry_after_ms } => {
                Some(retry_after_ms.div_ceil(1000).max(1))
            }
            RequestError::TenantQueueFull { .. }
            | RequestError::GlobalQueueFull { .. }
            | RequestError::ShuttingDown => Some(SOON),
            _ => None,
        };
        let problem = Self::new(code(error), error.user_message());
        Self { more: error.fields(), retry_after, ..problem }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        Self::from(&error)
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        SourceError::new(error.cause).into()
    }
}

impl From<NoAgents> for Problem {
    fn from(why: NoAgents) -> Self {
        match why {
            NoAgents::Disabled => Self::new(
                Code::AgentsDisabled,
                "this daemon runs no agents: set agents.enabled = true and start it again",
            ),
            NoAgents::Starting => Self::new(Code::Starting, "the agents are not started yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash() -> RequestError {
        let (exit_code, signal) = (None, Some("SIGSEGV".into()));
        RequestError::WorkerCrash { worker_id: "w".into(), exit_code, signal, stderr: "oh".into() }
    }

    fn timeouts() -> [RequestError; 2] {
        let (request_id, timeout_ms) = ("r".to_owned(), 9);
        let (worker_id, elapsed_ms, waited_ms) = ("w".to_owned(), 10, 11);
        let queue =
            RequestError::QueueTimeout { request_id: request_id.clone(), waited_ms, timeout_ms };
        let message = Some("no line of the dialect came".to_owned());
        let execution = RequestError::ExecutionTimeout {
            request_id,
            worker_id,
            elapsed_ms,
            timeout_ms,
            message,
        };
        [queue, execution]
    }

    fn table() -> Vec<(RequestError, u16, &'static str, Option<u64>)> {
        let tenant_id = sluicegate_agents::Tenant::parse("web:1").unwrap();
        let (current_depth, max_depth) = (3, 3);
        let full = RequestError::TenantQueueFull { tenant_id, current_depth, max_depth };
        let all_full = RequestError::GlobalQueueFull { current_depth, max_depth };
        let (message, reply) = (String::new, serde_json::Value::Null);
        let invalid = RequestError::Invalid { field: "message".into(), message: "x".into() };
        let [queue, execution] = timeouts();
        vec![
            (full, 429, "tenant_queue_full", Some(1)),
            (all_full, 503, "global_queue_full", Some(1)),
            (RequestError::RateLimited { retry_after_ms: 1001 }, 429, "rate_limited", Some(2)),
            (queue, 504, "queue_timeout", None),
            (execution, 504, "execution_timeout", None),
            (crash(), 502, "worker_crash", None),
            (RequestError::AgentError { message: message(), reply }, 502, "agent_error", None),
            (RequestError::BadOutput { message: message() }, 502, "bad_output", None),
            (RequestError::OutputLimit { limit: 1 }, 502, "output_limit", None),
            (RequestError::Cancelled, 409, "cancelled", None),
            (RequestError::Interrupted, 503, "interrupted", None),
            (RequestError::ShuttingDown, 503, "shutting_down", Some(1)),
            (
                RequestError::SessionForbidden { session_id: "s".into() },
                403,
                "session_forbidden",
                None,
            ),
            (invalid, 422, "invalid_field", None),
            (RequestError::TooLarge { size: 2, limit: 1 }, 413, "too_large", None),
            (RequestError::Internal { message: message() }, 500, "internal", None),
        ]
    }

    /// `docs/rules.md#agents-10`
    #[test]
    fn every_error_has_its_status_and_the_words_of_the_paper() {
        for (error, status, code, retry_after) in table() {
            let problem = Problem::from(&error);
            let json = problem.to_json();
            let told = (json["status"].as_u64(), json["code"].as_str());
            assert_eq!(told, (Some(status.into()), Some(code)));
            assert_eq!(problem.retry_after, retry_after, "{code}");
            assert_eq!(json["detail"], error.user_message(), "{code}");
            for (name, value) in error.fields() {
                assert_eq!(json[&name], value, "{code}: {name}");
            }
        }
        for (cause, code) in [("the disk is full", "storage_full"), ("x", "storage_failed")] {
            let error = RequestError::StateFailed { message: cause.into() };
            assert_eq!(Problem::from(error).to_json()["code"], code);
        }
    }
}
