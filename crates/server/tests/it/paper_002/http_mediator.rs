//! HTTP Mediator.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    Attempt, AuthToken, Executor, Message, Outcome, PoolSettings, Severity, Target,
};
use sluicegate_executors::BreakerScope;
use sluicegate_executors::http::{HttpExecutor, HttpSettings, Roots, Success};
use sluicegate_tasks::Context;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use sluicegate_testkit::scripted::{Facts, message};

/// The paper's settings, but for delays of no time and loopback allowed.
fn settings() -> HttpSettings {
    HttpSettings {
        allow_targets: vec!["127.0.0.0/8".parse().expect("a range")],
        retry_delays: vec![Duration::ZERO; 2],
        breaker_scope: BreakerScope::Off,
        roots: Roots::Only(Vec::new()),
        ..HttpSettings::default()
    }
}

fn executor(settings: HttpSettings) -> HttpExecutor {
    HttpExecutor::new(settings, Facts::new()).expect("sound settings")
}

fn to(url: &str) -> Message {
    let target = Target::parse(url).expect("a target");
    Message { target, auth_token: Some(AuthToken::new("s3cret")), ..message("m-1", "A") }
}

async fn execute(executor: &HttpExecutor, message: &Message) -> Outcome {
    let (pool, cx) = (Arc::new(PoolSettings::new("A", 1)), Context::new());
    executor.execute(Attempt { message, pool: &pool, number: 1, cx: &cx }).await
}

/// An outcome in words: `done`, `retry`, `retry 5`, `throttled 30`, `rejected ERROR`, `unreachable`.
fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::RetryLater { after: Some(after), .. } => format!("retry {}", after.as_secs()),
        Outcome::RetryLater { after: None, .. } => "retry".to_owned(),
        Outcome::Throttled { after, .. } => format!("throttled {}", after.as_secs()),
        Outcome::Rejected(rejection) => format!("rejected {}", rejection.severity),
        Outcome::Done => "done".to_owned(),
        other => other.label().to_owned(),
    }
}

#[tokio::test]
async fn the_response_table() {
    let json = |status, body: &str| Answer::status(status).body(body.to_owned());
    #[rustfmt::skip]
    let rows: Vec<(Answer, &str, usize)> = vec![
        // § 200 with ack=true is a success.
        (json(200, r#"{"ack":true}"#), "done", 1),
        // § 200 with ack=false and a delay is ERROR_PROCESS with it.
        (json(200, r#"{"ack":false,"delaySeconds":45}"#), "retry 45", 1),
        // § 200 with ack=false is ERROR_PROCESS.
        (json(200, r#"{"ack":false}"#), "retry", 1),
        // § 200 with a body that is no JSON is a success.
        (json(200, "<html>"), "done", 1),
        // § 200 without a body is a success. #7
        (Answer::status(200), "done", 1),
        // § Other 2xx are a success too. #7
        (Answer::status(201), "done", 1),
        (Answer::status(202), "done", 1),
        (Answer::status(204), "done", 1),
        // § 202 with ack=false is none. #7
        (json(202, r#"{"ack":false,"delaySeconds":2}"#), "retry 2", 1),
        // § 400 is ERROR_CONFIG.
        (Answer::status(400), "rejected ERROR", 1),
        // § 401 to 499 are ERROR_CONFIG.
        (Answer::status(401), "rejected ERROR", 1),
        (Answer::status(403), "rejected ERROR", 1),
        (Answer::status(422), "rejected ERROR", 1),
        (Answer::status(499), "rejected ERROR", 1),
        // § 404 is ERROR_CONFIG.
        (Answer::status(404), "rejected ERROR", 1),
        // § 429 with Retry-After is ERROR_PROCESS with it, and is not repeated at once. #6
        (Answer::status(429).header("retry-after", "7"), "throttled 7", 1),
        // § 429 without is 30 seconds.
        (Answer::status(429), "throttled 30", 1),
        // § 429 with a date is understood too. #6
        (Answer::status(429).header("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), "throttled 1", 1),
        // § 501 is ERROR_CONFIG, and critical.
        (Answer::status(501), "rejected CRITICAL", 1),
        // § Other 5xx are ERROR_PROCESS, after three calls.
        (Answer::status(500), "retry", 3),
        (Answer::status(502), "retry", 3),
        (Answer::status(503), "retry", 3),
        (Answer::status(599), "retry", 3),
        // § An unexpected status is ERROR_PROCESS, after one call.
        (Answer::status(302).header("location", "/elsewhere"), "retry", 1),
        (Answer::status(304), "retry", 1),
        // § A connection that breaks off is ERROR_CONNECTION, after three calls.
        (Answer::cut(), "unreachable", 3),
        (json(200, r#"{"ack""#).breaks_off(), "unreachable", 3),
    ];
    let endpoint = Endpoint::start().await;
    let executor = executor(settings());
    for (answer, wanted, calls) in rows {
        endpoint.otherwise(answer.clone());
        let before = endpoint.count();
        let outcome = execute(&executor, &to(&endpoint.url("/hook"))).await;
        assert_eq!(words(&outcome), wanted, "{answer:?}");
        assert_eq!(endpoint.count() - before, calls, "{answer:?}");
    }
}

// § Only 200 is a success where the settings say so.
#[tokio::test]
async fn only_200() {
    let endpoint = Endpoint::start().await;
    let executor = executor(HttpSettings { success: Success::Only200, ..settings() });
    for (status, wanted) in [(200, "done"), (201, "retry"), (204, "retry")] {
        endpoint.otherwise(Answer::status(status));
        assert_eq!(words(&execute(&executor, &to(&endpoint.url("/"))).await), wanted, "{status}");
    }
}

// § A refused connection is ERROR_CONNECTION.
// § A name that does not resolve is ERROR_CONNECTION.
#[tokio::test]
async fn connections_that_cannot_be_made() {
    let executor = executor(settings());
    let closed = {
        let endpoint = Endpoint::start().await;
        endpoint.url("/")
    };
    for url in [closed.as_str(), "http://no-such-host.invalid/"] {
        assert_eq!(words(&execute(&executor, &to(url)).await), "unreachable", "{url}");
    }
}

// § A request that takes too long is ERROR_PROCESS, after three calls.
#[tokio::test]
async fn timeouts() {
    let endpoint = Endpoint::start().await;
    let executor = executor(HttpSettings { timeout: Duration::from_millis(50), ..settings() });
    for answer in [Answer::hang(), Answer::ok().stalls()] {
        endpoint.otherwise(answer);
        let before = endpoint.count();
        assert_eq!(words(&execute(&executor, &to(&endpoint.url("/"))).await), "retry");
        assert_eq!(endpoint.count() - before, 3);
    }
}

// § Up to three calls: a later one that works is a success.
// § One second before the second call and two before the third.
#[tokio::test]
async fn the_retry_loop() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(500), Answer::cut(), Answer::ok()]);
    let executor = executor(settings());
    assert_eq!(execute(&executor, &to(&endpoint.url("/"))).await, Outcome::Done);
    assert_eq!(endpoint.count(), 3);
    let delays = HttpSettings::default().retry_delays;
    assert_eq!(delays, [Duration::from_secs(1), Duration::from_secs(2)]);
}

// § POST to the target.
// § Authorization is Bearer and the token.
// § Content-Type and Accept are JSON.
// § The body is the message's id, and its payload where it has one.
// § The token is sent, and not shown. #21
#[tokio::test]
async fn the_request() {
    let endpoint = Endpoint::start().await;
    let executor = executor(settings());
    let mut message = to(&endpoint.url("/hook?x=1"));
    execute(&executor, &message).await;
    message.payload = Some(r#"{"n": 1}"#.into());
    message.auth_token = None;
    execute(&executor, &message).await;
    let [first, second] = &endpoint.asked()[..] else { panic!("two requests") };
    assert_eq!((first.method.as_str(), first.path.as_str()), ("POST", "/hook?x=1"));
    assert_eq!(first.header("authorization"), Some("Bearer s3cret"));
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("accept"), Some("application/json"));
    assert_eq!(&first.body[..], br#"{"messageId":"m-1"}"#);
    assert_eq!(second.header("authorization"), None);
    assert_eq!(&second.body[..], br#"{"messageId":"m-1","payload":{"n": 1}}"#);
    assert!(!format!("{:?}", to("http://127.0.0.1/")).contains("s3cret"));
}

fn breaker(scope: BreakerScope) -> HttpSettings {
    HttpSettings { breaker_scope: scope, retry_delays: Vec::new(), ..settings() }
}

async fn calls(executor: &HttpExecutor, url: &str, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(words(&execute(executor, &to(url)).await));
    }
    all
}

// § The breaker opens when ten calls were made and half of them failed; here ten failures are put
// down to chance, and of the other calls of ten seconds half must fail. #5
// § Open, it fails at once and no call is made.
// § It counts 5xx, timeouts and connections, as they are. #5
#[tokio::test]
async fn the_breaker_opens() {
    let endpoint = Endpoint::start().await;
    let executor = executor(breaker(BreakerScope::Host));
    endpoint.then((0..5).map(|_| Answer::ok()));
    endpoint.otherwise(Answer::status(503));
    let url = endpoint.url("/");
    // Of the 20, ten failures are set aside: 5 of the other 10 failed.
    let seen = calls(&executor, &url, 20).await;
    assert_eq!(seen, [vec!["done"; 5], vec!["retry"; 15]].concat());
    assert_eq!(calls(&executor, &url, 2).await, ["breaker_open"; 2]);
    assert_eq!(endpoint.count(), 20);
}

// § 4xx, 429 and ack=false do not count against it. #5
#[tokio::test]
async fn what_the_breaker_does_not_count() {
    let endpoint = Endpoint::start().await;
    let executor = executor(breaker(BreakerScope::Host));
    let no = Answer::status(200).body(r#"{"ack":false}"#);
    for (answer, wanted) in [
        (Answer::status(404), "rejected ERROR"),
        (Answer::status(429), "throttled 30"),
        (no, "retry"),
    ] {
        endpoint.otherwise(answer);
        assert_eq!(calls(&executor, &endpoint.url("/"), 20).await, vec![wanted; 20]);
    }
}

// § One breaker for each host, target or for all, as the settings say. #5
#[tokio::test]
async fn the_breakers_scope() {
    let (bad, good) = (Endpoint::start().await, Endpoint::start().await);
    bad.otherwise(Answer::status(503));
    for (scope, elsewhere, same_host) in [
        (BreakerScope::Host, "done", "breaker_open"),
        (BreakerScope::Target, "done", "retry"),
        (BreakerScope::Global, "breaker_open", "breaker_open"),
    ] {
        let executor = executor(breaker(scope));
        calls(&executor, &bad.url("/a"), 10).await;
        assert_eq!(calls(&executor, &bad.url("/a"), 1).await, ["breaker_open"], "{scope:?}");
        assert_eq!(calls(&executor, &good.url("/"), 1).await, [elsewhere], "{scope:?}");
        assert_eq!(calls(&executor, &bad.url("/b"), 1).await, [same_host], "{scope:?}");
    }
}

// § After its time three calls are let through, and three successes close it.
#[tokio::test]
async fn the_breaker_closes() {
    let endpoint = Endpoint::start().await;
    let mut settings = breaker(BreakerScope::Host);
    settings.breaker.open_for = Duration::from_millis(30);
    let executor = executor(settings);
    endpoint.otherwise(Answer::status(503));
    let url = endpoint.url("/");
    calls(&executor, &url, 11).await;
    endpoint.otherwise(Answer::ok());
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(calls(&executor, &url, 3).await, ["done"; 3]);
    let state = executor.breakers().list()[0].state;
    assert_eq!(state, sluicegate_dispatch::BreakerState::Closed);
    let severity = Severity::Error;
    assert_eq!(severity.label(), "ERROR");
}
