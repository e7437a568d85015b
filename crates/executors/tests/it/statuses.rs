//! Every row of the status table.

use std::time::Duration;

use sluicegate_dispatch::{CallStatus, Outcome, Severity};
use sluicegate_executors::http::{HttpSettings, Success};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use crate::stage::{Stage, message, settings};

/// What an outcome comes to, without its words.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    Done,
    Retry(Option<u64>),
    Throttled(u64),
    Rejected(u16, Severity),
}

fn came(outcome: &Outcome) -> Came {
    let seconds = |after: &Duration| after.as_secs();
    match outcome {
        Outcome::Done => Came::Done,
        Outcome::RetryLater { after, .. } => Came::Retry(after.as_ref().map(seconds)),
        Outcome::Throttled { after } => Came::Throttled(after.as_secs()),
        Outcome::Rejected(rejection) => {
            Came::Rejected(rejection.status.expect("a status"), rejection.severity)
        }
        other => panic!("{other:?}"),
    }
}

/// Checks what an answer comes to, and how many calls are made when it is always the same.
async fn check(answer: Answer, success: Success, expected: Came, calls: usize) {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(answer.clone());
    let stage = Stage::new(HttpSettings { success, ..settings() });
    let outcome = stage.execute(&message(&endpoint.url("/hook?key=secret"))).await;
    assert_eq!(came(&outcome), expected, "{answer:?}: {outcome:?}");
    assert_eq!(endpoint.asked().len(), calls, "{answer:?}");
    assert_eq!(stage.calls().len(), calls, "{answer:?}");
    assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
}

#[tokio::test]
async fn a_reply_of_200_says_whether_it_is_done() {
    let cases = [
        ("", Came::Done),
        (r#"{"ack":true}"#, Came::Done),
        (r#"{"ack":true,"delaySeconds":9}"#, Came::Done),
        (r#"{"ack":false,"delaySeconds":9}"#, Came::Retry(Some(9))),
        (r#"{"ack":false}"#, Came::Retry(None)),
    ];
    for (body, expected) in cases {
        for success in [Success::Any2xx, Success::Only200] {
            check(Answer::status(200).body(body), success, expected, 1).await;
        }
    }
}

#[tokio::test]
async fn statuses_come_to_what_the_table_says() {
    let error = |status| Came::Rejected(status, Severity::Error);
    let cases = [
        (302, Came::Retry(None), 1),
        (400, error(400), 1),
        (404, error(404), 1),
        (429, Came::Throttled(30), 1),
        (500, Came::Retry(None), 3),
        (501, Came::Rejected(501, Severity::Critical), 1),
        (503, Came::Retry(None), 3),
    ];
    for (status, expected, calls) in cases {
        check(Answer::status(status), Success::Any2xx, expected, calls).await;
    }
}

#[tokio::test]
async fn a_repeat_that_works_is_a_success() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(500), Answer::cut()]);
    let stage = Stage::new(settings());
    assert_eq!(stage.execute(&message(&endpoint.url("/"))).await, Outcome::Done);
    assert_eq!(stage.calls(), [CallStatus::Http(500), CallStatus::Reset, CallStatus::Http(200)]);
}
