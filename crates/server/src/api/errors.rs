//! From what the parts say went wrong to what a caller is told: the one table.

use serde_json::{Value, json};
use sluicegate_dispatch::{AckError, PublishError, SourceError};
use sluicegate_sources::sqlite::{DiscardError, ReplayError};
use sluicegate_sources::wire::{BadMessage, FIELDS, MAX_BODY, NotAList};

use super::problem::{Code, Problem};
use crate::apply::NotReloaded;
use crate::daemon::{NotPublished, UnknownPoolOf};
use crate::replays::NotReplayed;
use crate::warnings::plain;

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
            NotPublished::NotOpen { .. } => {
                Self::new(Code::StorageFailed, detail).with("field", "queue")
            }
            NotPublished::UnknownPools(all) => {
                let fault = |one: &UnknownPoolOf| {
                    let UnknownPoolOf { index, id, pool, instead } = one;
                    let (id, pool) = (plain(id), plain(pool));
                    let words = format!("poolCode of {id}: there is no pool `{pool}`; {instead}");
                    self::fault(*index, &words)
                };
                Self::of_messages(Code::UnknownPools, all.iter().map(fault).collect())
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
            NotAList::TooMany(most) => {
                Self::new(Code::TooLarge, error.to_string()).with("limit", most)
            }
            NotAList::Bad(bad) => {
                let fault = |bad: &BadMessage| fault(bad.index, &bad.malformed.why);
                let long: Vec<_> = bad.iter().filter(|bad| bad.is_too_long).map(fault).collect();
                if !long.is_empty() {
                    return Self::of_messages(Code::TooLarge, long).with("limit", MAX_BODY);
                }
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

/// One wrong message: its place, its field where there is one, and what is wrong.
pub(crate) fn fault(index: usize, why: &str) -> Value {
    let first = why.split_whitespace().next().unwrap_or_default();
    // What is wrong with a field begins with its name.
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
            ReplayError::Malformed { ref id } => {
                Self::new(Code::Malformed, error.to_string()).with("id", id.as_str())
            }
            ReplayError::Behind { ref id, ref earlier } => {
                Self::new(Code::BehindEarlier, error.to_string())
                    .with("id", id.as_str())
                    .with("earlier", earlier.as_str())
            }
            ReplayError::NoQueue { ref id, ref queue } => {
                Self::new(Code::NoQueue, error.to_string())
                    .with("id", id.as_str())
                    .with("queue", queue.as_str())
            }
            ReplayError::Busy { ref id } => {
                Self::new(Code::Busy, error.to_string()).with("id", id.as_str())
            }
            ReplayError::Source(error) => error.into(),
            _ => Self::new(Code::Internal, "it could not be replayed"),
        }
    }
}

impl From<NotReplayed> for Problem {
    fn from(error: NotReplayed) -> Self {
        let detail = error.to_string();
        match error {
            NotReplayed::Refused(error) => error.into(),
            NotReplayed::Queue { id, queue, error } => {
                let problem = match error {
                    PublishError::NotPublishable => Self::new(Code::NotPublishable, detail),
                    _ => Self::new(Code::StorageFailed, detail),
                };
                problem.with("id", id).with("queue", queue)
            }
            NotReplayed::NotOpen { id, queue, .. } => {
                Self::new(Code::StorageFailed, detail).with("id", id).with("queue", queue)
            }
        }
    }
}

impl From<DiscardError> for Problem {
    fn from(error: DiscardError) -> Self {
        match error {
            DiscardError::NotFound { id } => unknown_parked(&id),
            DiscardError::Busy { ref id } => {
                Self::new(Code::Busy, error.to_string()).with("id", id.as_str())
            }
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
                let noun = if list.len() == 1 { "problem" } else { "problems" };
                let detail = format!("{}: {} {noun}; nothing changed", problems.file(), list.len());
                Self::new(Code::InvalidConfig, detail)
                    .with("file", problems.file())
                    .with("problems", list)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_dispatch::{Malformed, Publication};
    use sluicegate_sources::sqlite::{Store, StoreSettings};
    use sluicegate_sources::wire;

    use super::*;
    use crate::settings::Settings;

    fn source(cause: &str) -> SourceError {
        SourceError::new(cause)
    }

    fn id() -> String {
        "7".to_owned()
    }

    /// What each error becomes: the whole table.
    #[test]
    fn every_error_has_its_problem() {
        let refused = |error| NotPublished::Refused(error);
        let malformed = Malformed { why: "id is missing".to_owned(), raw: String::new() };
        let bad =
            |is_too_long| vec![BadMessage { index: 3, malformed: malformed.clone(), is_too_long }];
        let unknown = NotPublished::UnknownQueue { name: "q".to_owned(), known: Vec::new() };
        let not_open = NotPublished::NotOpen { name: "q".to_owned(), why: id() };
        let no_pool = UnknownPoolOf { index: 0, id: "m".into(), pool: "P".into(), instead: id() };
        let wrong = Settings::parse("f.toml", "[[pool]]\n", &|_| None).unwrap_err();
        let behind = ReplayError::Behind { id: id(), earlier: "6".to_owned() };
        let other = ReplayError::NoQueue { id: id(), queue: "q".to_owned() };
        let not_taken = |error| NotReplayed::Queue { id: id(), queue: "q".to_owned(), error };
        let not_yet = NotReplayed::NotOpen { id: id(), queue: "q".to_owned(), why: id() };
        let table: [(Problem, u16, &str); 29] = [
            (source(DISK_FULL).into(), 507, "storage_full"),
            (source("the disk failed").into(), 503, "storage_failed"),
            (NotPublished::ShuttingDown.into(), 503, "shutting_down"),
            (unknown.into(), 404, "unknown_queue"),
            (not_open.into(), 503, "storage_failed"),
            (NotPublished::UnknownPools(vec![no_pool]).into(), 422, "unknown_pool"),
            (refused(PublishError::NotPublishable).into(), 422, "not_publishable"),
            (refused(PublishError::Source(source("x"))).into(), 503, "storage_failed"),
            (refused(PublishError::Source(source(DISK_FULL))).into(), 507, "storage_full"),
            (NotAList::NotJson(malformed.clone()).into(), 400, "malformed_json"),
            (NotAList::TooMany(10).into(), 413, "too_large"),
            (NotAList::Bad(bad(true)).into(), 413, "too_large"),
            (NotAList::Bad(bad(false)).into(), 422, "invalid_messages"),
            (AckError::NotHere.into(), 404, "not_in_flight"),
            (AckError::Busy.into(), 409, "busy"),
            (ReplayError::NotFound { id: id() }.into(), 404, "unknown_parked"),
            (ReplayError::Malformed { id: id() }.into(), 422, "malformed"),
            (behind.into(), 409, "behind_earlier"),
            (other.into(), 409, "no_queue"),
            (ReplayError::Busy { id: id() }.into(), 409, "busy"),
            (not_taken(PublishError::NotPublishable).into(), 422, "not_publishable"),
            (not_taken(PublishError::Source(source("x"))).into(), 503, "storage_failed"),
            (not_yet.into(), 503, "storage_failed"),
            (DiscardError::Busy { id: id() }.into(), 409, "busy"),
            (ReplayError::Source(source(DISK_FULL)).into(), 507, "storage_full"),
            (DiscardError::NotFound { id: id() }.into(), 404, "unknown_parked"),
            (DiscardError::Source(source("x")).into(), 503, "storage_failed"),
            (NotReloaded::NoFile.into(), 409, "no_config_file"),
            (NotReloaded::Problems(wrong).into(), 422, "invalid_config"),
        ];
        for (problem, status, code) in table {
            let json = problem.to_json();
            assert_eq!(
                (json["status"].as_u64(), &json["code"]),
                (Some(status.into()), &json!(code))
            );
            assert!(!problem.detail.is_empty(), "{code}");
        }
    }

    #[test]
    fn codes_are_told_apart() {
        let mut labels: Vec<_> =
            Code::ALL.iter().map(|code| (code.label(), code.status().as_u16())).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.status().is_client_error() || code.status().is_server_error());
        }
    }

    #[test]
    fn a_wrong_message_is_named_by_place_and_field() {
        let cases = [
            ("id is missing; it must be a string", json!("id")),
            ("delaySeconds must be a whole number of seconds, not a string", json!("delaySeconds")),
            ("the message must be a JSON object, not a number", Value::Null),
        ];
        for (why, field) in cases {
            assert_eq!(fault(2, why), json!({ "index": 2, "field": field, "message": why }));
        }
    }

    /// What a full disk is called is the source's word: this fails when it changes.
    #[tokio::test]
    async fn a_full_disk_is_known_by_its_word() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = StoreSettings::default();
        settings.max_pages = Some(64);
        let store = Store::open_with(folder.path().join("s.db"), settings).await.unwrap();
        let window = std::time::Duration::from_secs(30);
        let queue = store.queue("q", window).await.unwrap();
        let publication = |at: usize| -> Publication {
            let target = "http://127.0.0.1/";
            let payload = "x".repeat(64 * 1024);
            let body =
                json!({ "id": at.to_string(), "mediationTarget": target, "payload": payload });
            wire::publication(&body.to_string()).unwrap()
        };
        for at in 0..100 {
            let published = sluicegate_dispatch::Source::publish(&queue, vec![publication(at)]);
            if let Err(error) = published.await {
                let problem = Problem::from(NotPublished::Refused(error));
                assert_eq!(problem.code, Code::StorageFull, "{problem:?}");
                return;
            }
        }
        panic!("the file grew beyond its limit");
    }
}
