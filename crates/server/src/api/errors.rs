//! From what the parts say went wrong to what a caller is told: the one table.

use serde_json::{Value, json};
use sluicegate_dispatch::{AckError, PublishError, SourceError};
use sluicegate_sources::sqlite::{DiscardError, ReplayError};
use sluicegate_sources::wire::{BadMessage, NotAList};

use super::problem::{Code, Problem};
use crate::apply::NotReloaded;
use crate::daemon::NotPublished;

/// What a source calls a full disk.
const DISK_FULL: &str = "the disk is full";

impl From<SourceError> for Problem {
    fn from(error: SourceError) -> Self {
        let code = if error.cause == DISK_FULL { Code::StorageFull } else { Code::StorageFailed };
        Self::new(code, error.cause)
    }
}

impl From<NotPublished> for Problem {
    fn from(error: NotPublished) -> Self {
        let detail = error.to_string();
        match error {
            NotPublished::ShuttingDown => Self::new(Code::ShuttingDown, detail),
            NotPublished::UnknownQueue { .. } => {
                Self::new(Code::UnknownQueue, detail).with("field", "queue")
            }
            NotPublished::Refused(PublishError::NotPublishable) => {
                Self::new(Code::NotPublishable, detail).with("field", "queue")
            }
            NotPublished::Refused(PublishError::Source(error)) => error.into(),
            NotPublished::Refused(_) => Self::new(Code::StorageFailed, detail),
        }
    }
}

impl From<NotAList> for Problem {
    fn from(error: NotAList) -> Self {
        match error {
            NotAList::NotJson(malformed) => Self::new(Code::MalformedJson, malformed.why),
            NotAList::Bad(bad) => {
                let fault = |bad: &BadMessage| fault(bad.index, &bad.malformed.why);
                Self::of_messages(Code::InvalidMessages, bad.iter().map(fault).collect())
            }
            error => Self::new(Code::BadRequest, error.to_string()),
        }
    }
}

impl Problem {
    /// What is wrong with some of the messages, all of them named.
    pub(crate) fn of_messages(code: Code, faults: Vec<Value>) -> Self {
        let detail = match &faults[..] {
            [one] => format!("message {}: {}", one["index"], words(one)),
            many => format!("{} messages are wrong; none was accepted", many.len()),
        };
        Self::new(code, detail).with("errors", faults)
    }
}

fn words(fault: &Value) -> &str {
    fault["message"].as_str().unwrap_or_default()
}

/// The fields of a message, as what is wrong with one begins with its name.
const FIELDS: [&str; 11] = [
    "id",
    "poolCode",
    "authToken",
    "mediationType",
    "mediationTarget",
    "messageGroupId",
    "highPriority",
    "payload",
    "tenant",
    "delaySeconds",
    "traceparent",
];

/// One wrong message: its place, its field where there is one, and what is wrong.
pub(crate) fn fault(index: usize, why: &str) -> Value {
    let first = why.split_whitespace().next().unwrap_or_default();
    let field = FIELDS.into_iter().find(|field| *field == first);
    json!({ "index": index, "field": field, "message": why })
}

impl From<AckError> for Problem {
    fn from(error: AckError) -> Self {
        let code = match error {
            AckError::NotHere => Code::NotInFlight,
            _ => Code::Busy,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::NotFound { id } => unknown_parked(&id),
            ReplayError::Malformed { id } => {
                let detail = format!("{id} is no message, so it would only come back");
                Self::new(Code::Malformed, detail).with("id", id)
            }
            ReplayError::Behind { id, earlier } => {
                let detail = format!("{id} would overtake {earlier}, which is parked before it");
                Self::new(Code::BehindEarlier, detail).with("id", id).with("earlier", earlier)
            }
            ReplayError::OtherQueue { id, queue } => {
                let detail = format!("{id} came from {queue}, which is no queue of the state file");
                Self::new(Code::OtherQueue, detail).with("id", id).with("queue", queue)
            }
            ReplayError::Source(error) => error.into(),
            _ => Self::new(Code::Internal, "it could not be replayed"),
        }
    }
}

impl From<DiscardError> for Problem {
    fn from(error: DiscardError) -> Self {
        match error {
            DiscardError::NotFound { id } => unknown_parked(&id),
            DiscardError::Source(error) => error.into(),
            _ => Self::new(Code::Internal, "it could not be discarded"),
        }
    }
}

fn unknown_parked(id: &str) -> Problem {
    Problem::new(Code::UnknownParked, format!("there is no parked message {id}")).with("id", id)
}

impl From<NotReloaded> for Problem {
    fn from(error: NotReloaded) -> Self {
        match error {
            NotReloaded::NoFile => Self::new(Code::NoConfigFile, error.to_string()),
            NotReloaded::Problems(problems) => {
                let list = problems.list().iter().map(|problem| {
                    json!({
                        "line": problem.line,
                        "column": problem.column,
                        "key": problem.key,
                        "message": problem.message,
                        "help": problem.help,
                    })
                });
                let list: Vec<Value> = list.collect();
                let detail =
                    format!("{}: {} problems; nothing changed", problems.file(), list.len());
                Self::new(Code::InvalidConfig, detail)
                    .with("file", problems.file())
                    .with("problems", list)
            }
        }
    }
}
