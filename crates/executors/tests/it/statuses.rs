//! Every row of the status table.

use std::time::{Duration, SystemTime};

use sluicegate_dispatch::{CallStatus, Outcome, Severity};
use sluicegate_executors::http::{HttpSettings, Success};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use crate::stage::{Names, Stage, closed_port, message, settings};

/// What an outcome comes to, without its words.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Came {
    Done,
    Retry(Option<u64>),
    Throttled(u64),
    Rejected(Option<u16>, Severity),
    Unreachable,
}

fn came(outcome: &Outcome) -> Came {
    match outcome {
        Outcome::Done => Came::Done,
        Outcome::RetryLater { after, .. } => Came::Retry(after.map(|after| after.as_secs())),
        Outcome::Throttled { after, .. } => Came::Throttled(after.as_secs()),
        Outcome::Rejected(rejection) => Came::Rejected(rejection.status, rejection.severity),
        Outcome::Unreachable { .. } => Came::Unreachable,
        other => panic!("{other:?}"),
    }
}

/// Checks what an answer comes to, and how many calls are made when it is always the same.
async fn check(endpoint: &Endpoint, stage: &Stage, answer: &Answer, expected: Came, calls: usize) {
    let before = endpoint.count();
    endpoint.otherwise(answer.clone());
    let outcome = stage.execute(&message(&endpoint.url("/hook?key=secret"))).await;
    assert_eq!(came(&outcome), expected, "{answer:?}: {outcome:?}");
    assert_eq!(endpoint.count() - before, calls, "{answer:?}");
    assert_eq!(stage.calls().len(), calls, "{answer:?}");
    assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
}

#[tokio::test]
async fn every_status_comes_to_what_the_table_says() {
    let rejected = |status, severity| Came::Rejected(Some(status), severity);
    let endpoint = Endpoint::start().await;
    for success in [Success::Any2xx, Success::Only200] {
        let stage = Stage::new(HttpSettings { success, ..settings() });
        for status in 200..=599 {
            let (expected, calls) = match (status, success) {
                (200, _) | (201..=299, Success::Any2xx) => (Came::Done, 1),
                (201..=399, _) => (Came::Retry(None), 1),
                (429, _) => (Came::Throttled(30), 1),
                (400..=499, _) => (rejected(status, Severity::Error), 1),
                (501, _) => (rejected(501, Severity::Critical), 1),
                _ => (Came::Retry(None), 3),
            };
            check(&endpoint, &stage, &Answer::status(status), expected, calls).await;
        }
    }
    assert!(endpoint.connections() <= 4, "{}: they are used again", endpoint.connections());
}

#[tokio::test]
async fn a_reply_says_whether_it_is_done() {
    let no = |rest: &str| format!(r#"{{"ack":false{rest}}}"#);
    let retry = |seconds| Came::Retry(Some(seconds));
    let cases = [
        (String::new(), Came::Done),
        (r#"{"ack":true}"#.to_owned(), Came::Done),
        (r#"{"ack":true,"delaySeconds":9}"#.to_owned(), Came::Done),
        ("{}".to_owned(), Came::Done),
        (r#"{"message":"fine"}"#.to_owned(), Came::Done),
        (r#"{"delaySeconds":9}"#.to_owned(), Came::Done),
        // Not JSON, not all of it JSON, or no object.
        ("ok".to_owned(), Came::Done),
        (r#"{"ack":false"#.to_owned(), Came::Done),
        (r#"{"ack":false} and more"#.to_owned(), Came::Done),
        (r#"[{"ack":false}]"#.to_owned(), Came::Done),
        ("\"ack\"".to_owned(), Came::Done),
        ("false".to_owned(), Came::Done),
        ("\u{feff}{\"ack\":false}".to_owned(), Came::Done),
        // Another type than a truth is no word.
        (r#"{"ack":"false"}"#.to_owned(), Came::Done),
        (r#"{"ack":0}"#.to_owned(), Came::Done),
        (r#"{"ack":null}"#.to_owned(), Came::Done),
        (r#"{"ack":[false]}"#.to_owned(), Came::Done),
        (r#"{"ACK":false}"#.to_owned(), Came::Done),
        (no(""), Came::Retry(None)),
        (format!(" \n{}\r\n", no("")), Came::Retry(None)),
        (no(r#","delaySeconds":9"#), retry(9)),
        (r#"{"delaySeconds":9,"x":{"y":[1,2]},"ack":false}"#.to_owned(), retry(9)),
        (no(r#","delaySeconds":0"#), Came::Retry(None)),
        (no(r#","delaySeconds":-5"#), retry(1)),
        (no(r#","delaySeconds":43201"#), retry(43_201)),
        (no(r#","delaySeconds":18446744073709551615"#), retry(i64::MAX as u64)),
        (no(r#","delaySeconds":"9""#), Came::Retry(None)),
        (no(r#","delaySeconds":9.5"#), Came::Retry(None)),
        (no(r#","delaySeconds":null"#), Came::Retry(None)),
        (no(r#","delaySeconds":{"a":[1]}"#), Came::Retry(None)),
        (no(&format!(r#","deep":{}1{}"#, "[".repeat(500), "]".repeat(500))), Came::Retry(None)),
    ];
    let endpoint = Endpoint::start().await;
    for success in [Success::Any2xx, Success::Only200] {
        let stage = Stage::new(HttpSettings { success, ..settings() });
        for (body, expected) in &cases {
            let answer = Answer::status(200).body(body.clone());
            check(&endpoint, &stage, &answer, *expected, 1).await;
        }
    }
    let stage = Stage::new(settings());
    let answer = Answer::status(202).body(no(r#","delaySeconds":9"#));
    check(&endpoint, &stage, &answer, retry(9), 1).await;
    let stage = Stage::new(HttpSettings { success: Success::Only200, ..settings() });
    check(&endpoint, &stage, &answer, Came::Retry(None), 1).await;
}

#[tokio::test]
async fn a_429_says_how_long_to_pause() {
    let date = |seconds: u64| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds);
        httpdate::fmt_http_date(at)
    };
    let wait = |text: &str| Answer::status(429).header("retry-after", text);
    let cases = [
        (wait("7"), 7),
        (wait(" 7 "), 7),
        (wait("0"), 1),
        (wait("43200"), 43_200),
        (wait("43201"), 43_200),
        (wait("99999999999999999999999"), 43_200),
        (wait("-7"), 30),
        (wait("7.5"), 30),
        (wait("soon"), 30),
        (wait(""), 30),
        // By the endpoint's own clock, which is years away from ours.
        (wait(&date(90)).header("date", &date(0)), 90),
        (wait(&date(0)).header("date", &date(90)), 1),
    ];
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    for (answer, expected) in cases {
        check(&endpoint, &stage, &answer, Came::Throttled(expected), 1).await;
    }
}

#[tokio::test]
async fn what_goes_wrong_on_the_way_is_tried_three_times() {
    let endpoint = Endpoint::start().await;
    let names = Names::resolver([("hanging.test", &[])]);
    let short = Duration::from_millis(60);
    let refused = format!("http://{}/", closed_port());
    let secure = endpoint.url("/").replace("http:", "https:");
    let here = endpoint.url("/hook");
    let long = Duration::from_secs(10);
    let cases = [
        // Answer, target, timeout, connect timeout: outcome, status.
        (Answer::ok(), &*refused, long, long, Came::Unreachable, CallStatus::Connect),
        (
            Answer::ok(),
            "http://unheard-of.test/",
            long,
            long,
            Came::Unreachable,
            CallStatus::Connect,
        ),
        (Answer::ok(), "http://hanging.test/", long, short, Came::Unreachable, CallStatus::Connect),
        (Answer::ok(), &*secure, long, long, Came::Unreachable, CallStatus::Connect),
        (Answer::cut(), &*here, long, long, Came::Unreachable, CallStatus::Reset),
        (Answer::ok().breaks_off(), &*here, long, long, Came::Unreachable, CallStatus::Reset),
        (
            Answer::status(404).body("no").breaks_off(),
            &*here,
            long,
            long,
            Came::Unreachable,
            CallStatus::Reset,
        ),
        (Answer::hang(), &*here, short, long, Came::Retry(None), CallStatus::Timeout),
        (Answer::ok().stalls(), &*here, short, long, Came::Retry(None), CallStatus::Timeout),
        (Answer::ok(), "http://hanging.test/", short, long, Came::Retry(None), CallStatus::Timeout),
    ];
    for (answer, target, timeout, connect_timeout, expected, status) in cases {
        endpoint.otherwise(answer.clone());
        let resolver = names.clone();
        let stage = Stage::new(HttpSettings { timeout, connect_timeout, resolver, ..settings() });
        let outcome = stage.execute(&message(target)).await;
        assert_eq!(came(&outcome), expected, "{answer:?} {target}: {outcome:?}");
        assert_eq!(stage.calls(), [status; 3], "{answer:?} {target}: {outcome:?}");
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

#[tokio::test]
async fn what_is_final_ends_the_repeats() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    for last in [404, 429, 302, 501] {
        endpoint.then([Answer::status(500), Answer::status(last)]);
        let outcome = stage.execute(&message(&endpoint.url("/"))).await;
        assert_eq!(stage.calls(), [CallStatus::Http(500), CallStatus::Http(last)], "{outcome:?}");
    }
}

#[tokio::test]
async fn repeats_come_after_their_delays() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let retry_delays = vec![Duration::from_millis(40), Duration::from_millis(120)];
    let stage = Stage::new(HttpSettings { retry_delays: retry_delays.clone(), ..settings() });
    stage.execute(&message(&endpoint.url("/"))).await;
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 3);
    for (pair, delay) in asked.windows(2).zip(retry_delays) {
        assert!(pair[1].at - pair[0].at >= delay, "{:?}", pair[1].at - pair[0].at);
    }
}

#[test]
fn the_defaults_are_the_papers() {
    let settings = HttpSettings::default();
    assert_eq!(settings.timeout, Duration::from_secs(900));
    assert_eq!(settings.connect_timeout, Duration::from_secs(30));
    assert_eq!(settings.retry_delays, [Duration::from_secs(1), Duration::from_secs(2)]);
    assert_eq!(settings.max_reply, 1 << 20);
    assert_eq!((settings.breaker.volume, settings.breaker.close_after), (10, 3));
    assert!((settings.breaker.failure_ratio - 0.5).abs() < f64::EPSILON);
    assert_eq!(settings.breaker.open_for, Duration::from_secs(5));
    assert!(settings.allow_targets.is_empty());
}

#[tokio::test]
async fn an_endpoints_words_are_passed_on_without_the_token() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    let mut message = message(&endpoint.url("/hook"));
    message.auth_token = Some(sluicegate_dispatch::AuthToken::new("hunter2"));
    endpoint.otherwise(Answer::status(403).body(r#"{"message":"hunter2 may\nnot"}"#));
    let Outcome::Rejected(rejection) = stage.execute(&message).await else { panic!() };
    assert_eq!(rejection.why, format!("{} answered 403: *** may not", endpoint.url("/hook")));
    let long = format!(r#"{{"ack":false,"message":"{}"}}"#, "x".repeat(5_000));
    endpoint.otherwise(Answer::status(200).body(long));
    let Outcome::RetryLater { why, .. } = stage.execute(&message).await else { panic!() };
    assert!(why.len() < 400, "{}", why.len());
}

/// An endless reply is read as far as any other; one that stalls ends with its call.
#[tokio::test]
async fn the_beginning_of_a_reply_is_kept_and_nobody_waits_for_more() {
    let endpoint = Endpoint::start().await;
    let timeout = Duration::from_millis(200);
    let cases = [
        (
            Answer::status(500).body("out of paper"),
            Duration::from_secs(20),
            Some("out of paper".to_owned()),
        ),
        (
            Answer::status(500).body("ab".repeat(4_096)).endless(),
            Duration::from_secs(20),
            Some("ab".repeat(512)),
        ),
        (Answer::status(500).body("ab").stalls(), timeout, None),
        (Answer::status(500), Duration::from_secs(20), None),
    ];
    for (answer, timeout, expected) in cases {
        endpoint.otherwise(answer.clone());
        let stage = Stage::new(HttpSettings { timeout, ..settings() });
        let begun = std::time::Instant::now();
        let outcome = stage.execute(&message(&endpoint.url("/hook"))).await;
        let Outcome::RetryLater { body, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!(body.as_deref(), expected.as_deref(), "{answer:?}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{answer:?}: {:?}", begun.elapsed());
    }
}
