//! Connections: used again, bounded in what they bring, and of the version that was asked for.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use http::Version;
use sluicegate_dispatch::{CallStatus, Outcome};
use sluicegate_executors::http::{HttpSettings, HttpVersion};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use crate::stage::{Names, Stage, closed_port, message, settings};

/// Delivers `calls` messages, `at_once` of them at once.
pub(crate) async fn deliver(stage: &Stage, url: &str, calls: usize, at_once: usize) {
    let message = message(url);
    let run = async || {
        for _ in 0..calls / at_once {
            assert_eq!(stage.execute(&message).await, Outcome::Done);
        }
    };
    join_all((0..at_once).map(|_| run())).await;
}

fn h2c() -> HttpSettings {
    HttpSettings { prior_knowledge: true, ..settings() }
}

#[tokio::test]
async fn connections_are_used_again() {
    for version in [HttpVersion::Http11, HttpVersion::Http2] {
        for at_once in [1, 20] {
            let endpoint = Endpoint::start().await;
            let stage = Stage::new(HttpSettings { version, ..settings() });
            deliver(&stage, &endpoint.url("/"), 200, at_once).await;
            let opened = endpoint.connections();
            assert!(opened <= at_once, "{version:?}: {opened} for {at_once} at once");
            assert!(endpoint.asked().iter().all(|asked| asked.version == Version::HTTP_11));
        }
    }
}

/// Each waking costs a turn of the scheduler: a call is polled when it begins and when its reply is here.
#[tokio::test]
async fn a_call_wakes_neither_itself_nor_who_called_before() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    let (url, mut polls) = (endpoint.url("/"), 0);
    deliver(&stage, &url, 1, 1).await;
    let mut delivering = Box::pin(deliver(&stage, &url, 200, 1));
    std::future::poll_fn(|poller| {
        polls += 1;
        delivering.as_mut().poll(poller)
    })
    .await;
    // The end of one is the beginning of the next. A reply may come in two pieces.
    assert!(polls < 250, "{polls} polls of 200 calls");
}

#[tokio::test]
async fn as_many_connections_are_kept_as_were_needed_at_once() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().after(Duration::from_millis(50)));
    let stage = Stage::new(settings());
    for _ in 0..3 {
        deliver(&stage, &endpoint.url("/"), 50, 50).await;
    }
    assert_eq!(endpoint.connections(), 50);
}

#[tokio::test]
async fn connections_are_used_again_after_every_whole_reply() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    for status in [200, 204, 304, 404, 429, 500, 501] {
        endpoint.otherwise(Answer::status(status));
        stage.execute(&message(&endpoint.url("/"))).await;
        endpoint.otherwise(Answer::status(status).body("x".repeat(100_000)));
        if status != 204 && status != 304 {
            stage.execute(&message(&endpoint.url("/"))).await;
        }
    }
    assert_eq!(endpoint.connections(), 1);
}

#[tokio::test]
async fn with_prior_knowledge_plain_targets_are_spoken_to_in_http_2() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(h2c());
    deliver(&stage, &endpoint.url("/hook"), 200, 20).await;
    assert_eq!(endpoint.connections(), 4, "one for each shard");
    assert!(endpoint.asked().iter().all(|asked| asked.version == Version::HTTP_2));
    let asked = &endpoint.asked()[0];
    assert_eq!((asked.path.as_str(), &asked.body[..]), ("/hook", &br#"{"messageId":"m-1"}"#[..]));
    // Only HTTP/1.1 was asked for: knowing better does not matter.
    let stage = Stage::new(HttpSettings { version: HttpVersion::Http11, ..h2c() });
    deliver(&stage, &endpoint.url("/"), 1, 1).await;
    assert_eq!(endpoint.asked().pop().map(|asked| asked.version), Some(Version::HTTP_11));
}

#[tokio::test]
async fn many_calls_at_once_share_few_connections_of_http_2() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().after(Duration::from_millis(100)));
    let stage = Stage::new(h2c());
    deliver(&stage, &endpoint.url("/"), 300, 300).await;
    assert_eq!(endpoint.connections(), 4);
    assert!(endpoint.peak() > 200, "{}", endpoint.peak());
}

#[tokio::test]
async fn a_connection_that_takes_leave_is_replaced() {
    for settings in [settings(), h2c()] {
        let endpoint = Endpoint::start().await;
        let stage = Stage::new(HttpSettings { shards: 1, ..settings });
        for round in 1..=5 {
            endpoint.then([Answer::ok().last()]);
            deliver(&stage, &endpoint.url("/"), 1, 1).await;
            while endpoint.open_connections() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(endpoint.connections(), round);
        }
        assert_eq!(stage.calls(), [CallStatus::Http(200); 5]);
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_is_a_connection_error() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(h2c());
    for answer in [Answer::cut(), Answer::ok().breaks_off()] {
        endpoint.otherwise(answer);
        let outcome = stage.execute(&message(&endpoint.url("/"))).await;
        assert!(matches!(outcome, Outcome::Unreachable { .. }), "{outcome:?}");
        assert_eq!(stage.calls(), [CallStatus::Reset; 3]);
    }
}

#[tokio::test]
async fn all_who_wait_for_a_connection_hear_why_there_is_none() {
    let cases = [
        (format!("http://{}/", closed_port()), "unreachable", vec![CallStatus::Connect; 60]),
        ("http://10.0.0.1/".to_owned(), "rejected", vec![CallStatus::RefusedTarget; 20]),
        ("http://private.test/".to_owned(), "rejected", vec![CallStatus::RefusedTarget; 20]),
        ("http://unheard-of.test/".to_owned(), "unreachable", vec![CallStatus::Connect; 60]),
    ];
    let private = [SocketAddr::from(([10, 0, 0, 1], 80))];
    for settings in [settings(), h2c()] {
        for (target, label, calls) in &cases {
            let resolver = Names::resolver([("private.test", &private)]);
            let stage = Stage::new(HttpSettings { resolver, ..settings.clone() });
            let message = message(target);
            let outcomes = join_all((0..20).map(|_| stage.execute(&message))).await;
            assert!(outcomes.iter().all(|outcome| outcome.label() == *label), "{outcomes:?}");
            assert_eq!(stage.calls(), *calls, "{target}");
        }
    }
}

#[tokio::test]
async fn of_a_reply_that_is_too_long_the_status_decides() {
    for settings in [settings(), h2c()] {
        let endpoint = Endpoint::start().await;
        let stage = Stage::new(HttpSettings { max_reply: 4_096, ..settings });
        let no = format!(r#"{{"ack":false,"x":"{}"}}"#, "x".repeat(4_096 - 20));
        assert_eq!(no.len(), 4_096);
        endpoint.then([
            Answer::status(200).body(no.clone()),
            Answer::status(200).body(format!("{no} ")),
            Answer::status(200).body("x".repeat(1_000)).endless(),
            Answer::status(404).body(" ".repeat(1_000)).endless(),
            Answer::ok(),
        ]);
        let mut outcomes = Vec::new();
        for _ in 0..5 {
            outcomes.push(stage.execute(&message(&endpoint.url("/"))).await.label());
        }
        assert_eq!(outcomes, ["retry", "success", "success", "rejected", "success"]);
        let statuses = [200, 200, 200, 404, 200].map(CallStatus::Http);
        assert_eq!(stage.calls(), statuses);
    }
}

#[tokio::test]
async fn headers_that_are_too_long_are_not_taken() {
    for settings in [settings(), h2c()] {
        let endpoint = Endpoint::start().await;
        let stage = Stage::new(settings);
        endpoint.otherwise(Answer::ok().header("x", &"x".repeat(30_000)));
        assert_eq!(stage.execute(&message(&endpoint.url("/"))).await, Outcome::Done);
        endpoint.otherwise(Answer::ok().header("x", &"x".repeat(200_000)));
        let outcome = stage.execute(&message(&endpoint.url("/"))).await;
        assert!(matches!(outcome, Outcome::Unreachable { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn connections_end_with_their_executor() {
    for settings in [settings(), h2c()] {
        let endpoint = Endpoint::start().await;
        let stage = Stage::new(settings);
        deliver(&stage, &endpoint.url("/"), 20, 10).await;
        assert!(endpoint.open_connections() > 0);
        drop(stage);
        while endpoint.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
