//! What can become of a request beside a reply: one table of codes, words and fields.
//!
//! `docs/rules.md#agents-10`.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Tenant;

/// Why a request was refused, or failed. The fields are the paper's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum RequestError {
    /// The tenant has as many waiting as it may.
    TenantQueueFull {
        /// Whose queue it is.
        tenant_id: Tenant,
        /// How many wait.
        current_depth: u32,
        /// How many may.
        max_depth: u32,
    },
    /// As many wait in all as may.
    GlobalQueueFull {
        /// How many wait.
        current_depth: u32,
        /// How many may.
        max_depth: u32,
    },
    /// The tenant comes too often.
    RateLimited {
        /// When to come again.
        retry_after_ms: u64,
    },
    /// It waited for too long.
    QueueTimeout {
        /// Which.
        request_id: String,
        /// How long it waited.
        waited_ms: u64,
        /// How long it might.
        timeout_ms: u64,
    },
    /// It ran for too long.
    ExecutionTimeout {
        /// Which.
        request_id: String,
        /// Where.
        worker_id: String,
        /// How long it ran.
        elapsed_ms: u64,
        /// How long it might.
        timeout_ms: u64,
        /// What else is to be known of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// Its process ended without a result, or could not be started.
    WorkerCrash {
        /// Which.
        worker_id: String,
        /// How it ended, if by itself.
        exit_code: Option<i32>,
        /// How it ended, if by a signal.
        signal: Option<String>,
        /// What it said before, without secrets.
        stderr: String,
    },
    /// The agent itself said that it failed.
    AgentError {
        /// What it said.
        message: String,
        /// All that it said.
        #[serde(default)]
        reply: Value,
    },
    /// The agent ended without a result that can be read.
    BadOutput {
        /// What was wrong.
        message: String,
    },
    /// The agent wrote more than it may in one turn.
    OutputLimit {
        /// How many bytes it may.
        limit: u64,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// The service ended while it waited or ran. It does not run again by itself.
    Interrupted,
    /// The service ends.
    ShuttingDown,
    /// The session belongs to somebody else.
    SessionForbidden {
        /// Which.
        session_id: String,
    },
    /// The request says something that cannot be.
    Invalid {
        /// Where.
        field: String,
        /// What would be right.
        message: String,
    },
    /// The message is too long.
    TooLarge {
        /// How many bytes it has.
        size: u64,
        /// How many it may have.
        limit: u64,
    },
    /// What happens to requests cannot be written down, so none is let in.
    StateFailed {
        /// What happened.
        message: String,
    },
    /// A fault of ours.
    Internal {
        /// What happened.
        message: String,
    },
}

impl RequestError {
    pub(crate) fn invalid(field: &str, message: &str) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }

    /// The table: its code, and the words for the user. They are the paper's where it has some.
    const fn row(&self) -> (&'static str, &'static str) {
        match self {
            Self::TenantQueueFull { .. } => (
                "tenant_queue_full",
                "You have too many pending requests. Please wait for a response before sending more messages.",
            ),
            Self::GlobalQueueFull { .. } => {
                ("global_queue_full", "The system is currently busy. Please try again in a moment.")
            }
            Self::RateLimited { .. } => ("rate_limited", "Rate limited, retry in {N}s"),
            Self::QueueTimeout { .. } => {
                ("queue_timeout", "Your request waited too long in the queue. Please try again.")
            }
            Self::ExecutionTimeout { .. } => (
                "execution_timeout",
                "The response took too long to generate. Please try a simpler request.",
            ),
            Self::WorkerCrash { .. } => {
                ("worker_crash", "An internal error occurred. Please try again.")
            }
            Self::ShuttingDown => {
                ("shutting_down", "The service is restarting. Please try again in a moment.")
            }
            Self::AgentError { .. } => ("agent_error", OTHER),
            Self::BadOutput { .. } => ("bad_output", OTHER),
            Self::OutputLimit { .. } => ("output_limit", OTHER),
            Self::Cancelled => ("cancelled", "The request was cancelled."),
            Self::Interrupted => ("interrupted", OTHER),
            Self::SessionForbidden { .. } => {
                ("session_forbidden", "This session belongs to somebody else.")
            }
            Self::Invalid { .. } => ("invalid_field", ""),
            Self::TooLarge { .. } => ("too_large", "The message is too long."),
            Self::StateFailed { .. } => ("storage_failed", OTHER),
            Self::Internal { .. } => ("internal", OTHER),
        }
    }

    /// Its code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.row().0
    }

    /// The words for the user who asked.
    #[must_use]
    pub fn user_message(&self) -> String {
        match self {
            Self::RateLimited { retry_after_ms } => {
                let seconds = retry_after_ms.div_ceil(1000).max(1);
                self.row().1.replace("{N}", &seconds.to_string())
            }
            Self::Invalid { .. } => self.to_string(),
            _ => self.row().1.to_owned(),
        }
    }

    /// Its fields by the paper's names.
    #[must_use]
    pub fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(mut fields)) => {
                fields.remove("code");
                fields
            }
            _ => Map::new(),
        }
    }

    /// Whether the clock ended it.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::QueueTimeout { .. } | Self::ExecutionTimeout { .. })
    }
}

const OTHER: &str = "An unexpected error occurred. Please try again later.";

/// The paper's messages for operators, where it has some.
impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_null = |value: Option<String>| value.unwrap_or_else(|| "null".to_owned());
        match self {
            Self::TenantQueueFull { tenant_id, current_depth, max_depth } => {
                write!(
                    f,
                    "Tenant {tenant_id} queue full: {current_depth}/{max_depth} pending requests"
                )
            }
            Self::GlobalQueueFull { current_depth, max_depth } => {
                write!(f, "Global queue full: {current_depth}/{max_depth} pending requests")
            }
            Self::RateLimited { retry_after_ms } => {
                write!(f, "Rate limited for {retry_after_ms}ms")
            }
            Self::QueueTimeout { request_id, waited_ms, timeout_ms } => write!(
                f,
                "Request {request_id} timed out in queue after {waited_ms}ms (limit: {timeout_ms}ms)"
            ),
            Self::ExecutionTimeout { request_id, worker_id, elapsed_ms, timeout_ms, message } => {
                let more = message.as_ref().map(|message| format!(": {message}"));
                write!(
                    f,
                    "Request {request_id} execution timed out on worker {worker_id} after \
                     {elapsed_ms}ms (limit: {timeout_ms}ms){}",
                    more.unwrap_or_default()
                )
            }
            Self::WorkerCrash { worker_id, exit_code, signal, .. } => {
                let exit = or_null(exit_code.map(|code| code.to_string()));
                let signal = or_null(signal.as_ref().map(ToString::to_string));
                write!(f, "Worker {worker_id} crashed: exit={exit}, signal={signal}")
            }
            Self::AgentError { message, .. } => write!(f, "The agent failed: {message}"),
            Self::BadOutput { message } => write!(f, "The agent's output has no result: {message}"),
            Self::OutputLimit { limit } => {
                write!(f, "The agent wrote more than {limit} bytes in one turn")
            }
            Self::Cancelled => f.write_str("Cancelled"),
            Self::Interrupted => f.write_str("The service ended before the request did"),
            Self::ShuttingDown => f.write_str("Shutting down"),
            Self::SessionForbidden { session_id } => {
                write!(f, "Session {session_id} belongs to another tenant")
            }
            Self::Invalid { field, message } => write!(f, "{field}: {message}"),
            Self::TooLarge { size, limit } => {
                write!(f, "The message has {size} bytes, and may have {limit}")
            }
            Self::StateFailed { message } => write!(f, "The state cannot be written: {message}"),
            Self::Internal { message } => write!(f, "Internal: {message}"),
        }
    }
}

impl std::error::Error for RequestError {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Paper 001, section 11, word for word.
    ///
    /// `docs/rules.md#agents-10`
    #[test]
    fn words_and_fields_are_the_papers() {
        let tenant = Tenant::new("telegram", "42", Some("7")).unwrap();
        let cases = [
            (
                RequestError::TenantQueueFull { tenant_id: tenant, current_depth: 3, max_depth: 3 },
                "tenant_queue_full",
                "You have too many pending requests. Please wait for a response before sending more messages.",
                json!({"tenantId": {"platform": "telegram", "userId": "42", "chatId": "7"},
                       "currentDepth": 3, "maxDepth": 3}),
            ),
            (
                RequestError::GlobalQueueFull { current_depth: 50, max_depth: 50 },
                "global_queue_full",
                "The system is currently busy. Please try again in a moment.",
                json!({"currentDepth": 50, "maxDepth": 50}),
            ),
            (
                RequestError::RateLimited { retry_after_ms: 1200 },
                "rate_limited",
                "Rate limited, retry in 2s",
                json!({"retryAfterMs": 1200}),
            ),
            (
                RequestError::QueueTimeout { request_id: "r".into(), waited_ms: 9, timeout_ms: 8 },
                "queue_timeout",
                "Your request waited too long in the queue. Please try again.",
                json!({"requestId": "r", "waitedMs": 9, "timeoutMs": 8}),
            ),
            (
                RequestError::ExecutionTimeout {
                    request_id: "r".into(),
                    worker_id: "w".into(),
                    elapsed_ms: 9,
                    timeout_ms: 8,
                    message: None,
                },
                "execution_timeout",
                "The response took too long to generate. Please try a simpler request.",
                json!({"requestId": "r", "workerId": "w", "elapsedMs": 9, "timeoutMs": 8}),
            ),
            (
                RequestError::WorkerCrash {
                    worker_id: "w".into(),
                    exit_code: None,
                    signal: Some("SIGSEGV".into()),
                    stderr: "oh".into(),
                },
                "worker_crash",
                "An internal error occurred. Please try again.",
                json!({"workerId": "w", "exitCode": null, "signal": "SIGSEGV", "stderr": "oh"}),
            ),
            (
                RequestError::Internal { message: "x".into() },
                "internal",
                "An unexpected error occurred. Please try again later.",
                json!({"message": "x"}),
            ),
        ];
        for (error, code, words, fields) in cases {
            assert_eq!(error.code(), code);
            assert_eq!(error.user_message(), words);
            assert_eq!(Value::Object(error.fields()), fields);
            let kept: RequestError =
                serde_json::from_value(serde_json::to_value(&error).unwrap()).unwrap();
            assert_eq!(kept, error);
        }
    }
}
