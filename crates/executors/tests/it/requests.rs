//! What an endpoint is sent.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Version};
use sluicegate_dispatch::{AuthToken, Outcome, PoolSettings};
use sluicegate_executors::http::HttpSettings;
use sluicegate_tasks::Context;
use sluicegate_testkit::endpoint::{Answer, Asked, Endpoint};

use crate::stage::{Stage, message, settings};

/// The names of all headers, in order of the alphabet.
fn names(asked: &Asked) -> Vec<&str> {
    let mut names: Vec<&str> = asked.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_call_is_what_the_paper_says() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    let mut message = message(&endpoint.url("/hook/a?b=c&d#fragment"));
    message.auth_token = Some(AuthToken::new("t0ken"));
    assert_eq!(stage.execute(&message).await, Outcome::Done);
    let asked = &endpoint.asked()[0];
    assert_eq!((&asked.method, asked.version), (&Method::POST, Version::HTTP_11));
    assert_eq!(asked.path, "/hook/a?b=c&d");
    assert_eq!(asked.body, r#"{"messageId":"m-1"}"#);
    let expected = [
        ("accept", "application/json"),
        ("authorization", "Bearer t0ken"),
        ("content-length", "19"),
        ("content-type", "application/json"),
        ("host", &endpoint.address().to_string()),
        ("user-agent", concat!("sluicegate/", env!("CARGO_PKG_VERSION"))),
    ];
    for (name, value) in expected {
        assert_eq!(asked.header(name), Some(value), "{name}");
    }
    let all = ["accept", "authorization", "content-length", "content-type", "host", "traceparent"];
    assert_eq!(names(asked), [&all[..], &["user-agent"]].concat());
}

#[tokio::test]
async fn without_a_token_there_is_no_authorization() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    assert_eq!(stage.execute(&message(&endpoint.url(""))).await, Outcome::Done);
    assert_eq!(endpoint.asked()[0].header("authorization"), None);
    assert_eq!(endpoint.asked()[0].path, "/");
}

#[tokio::test]
async fn a_body_is_json_whatever_the_id_and_carries_the_payload_as_it_was() {
    let cases = [
        (
            "m-1",
            Some("{ \"b\" : 1.0 ,\"a\":[ ] }"),
            r#"{"messageId":"m-1","payload":{ "b" : 1.0 ,"a":[ ] }}"#,
        ),
        ("m-1", Some("null"), r#"{"messageId":"m-1","payload":null}"#),
        ("a\"b\\c\n\u{1}", None, r#"{"messageId":"a\"b\\c\n\u0001"}"#),
        ("ä€😀", None, r#"{"messageId":"ä€😀"}"#),
    ];
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    for (id, payload, expected) in cases {
        let mut message = message(&endpoint.url("/"));
        (message.id, message.payload) = (id.into(), payload.map(Into::into));
        assert_eq!(stage.execute(&message).await, Outcome::Done);
        let asked = endpoint.asked().pop().expect("a request");
        assert_eq!(asked.body, expected);
        assert_eq!(asked.message_id(), id);
    }
}

#[tokio::test]
async fn a_large_payload_is_sent_whole() {
    let endpoint = Endpoint::start().await;
    for prior_knowledge in [false, true] {
        let stage = Stage::new(HttpSettings { prior_knowledge, ..settings() });
        let mut message = message(&endpoint.url("/"));
        message.payload = Some(format!("\"{}\"", "x".repeat(1 << 20)).into());
        assert_eq!(stage.execute(&message).await, Outcome::Done);
        let asked = endpoint.asked().pop().expect("a request");
        assert_eq!(asked.body.len(), (1 << 20) + 2 + r#"{"messageId":"m-1","payload":}"#.len());
    }
}

#[tokio::test]
async fn a_trace_is_carried_on_or_begun_and_the_same_for_every_repeat() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (came_with, carried) in [(None, false), (Some(given), true), (Some("garbage"), false)] {
        endpoint.then([Answer::status(500), Answer::status(500)]);
        let mut message = message(&endpoint.url("/"));
        message.traceparent = came_with.map(Into::into);
        stage.execute(&message).await;
        let asked = endpoint.asked();
        let sent: Vec<_> =
            asked.iter().rev().take(3).map(|asked| asked.header("traceparent")).collect();
        assert!(sent[0].is_some() && sent.iter().all(|header| *header == sent[0]), "{sent:?}");
        assert_eq!(sent[0] == came_with, carried, "{sent:?}");
    }
}

/// HMAC by its definition, over another SHA-256 than the one that signs.
fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let mut block = [0u8; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().to_vec()
}

#[tokio::test]
async fn a_pool_with_a_key_signs_as_standard_webhooks_has_it() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    // The specification's own example, to know that the test can compute it.
    let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
    let text = b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}";
    assert_eq!(
        STANDARD.encode(hmac_sha256(&key, text)),
        "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    );
    let long = vec![7; 100];
    for (key, id, sent_id) in
        [(&key, "m-1", "m-1"), (&long, "m 1\u{e9}\n", "m%201%C3%A9%0A"), (&key, "a.b%", "a.b%")]
    {
        let mut pool = PoolSettings::new("ORDERS", 1);
        pool.signing_key = Some(Arc::from(key.as_slice()));
        let mut message = message(&endpoint.url("/"));
        (message.id, message.payload) = (id.into(), Some("[1]".into()));
        let outcome = stage.execute_under(&message, &Arc::new(pool), &Context::new()).await;
        assert_eq!(outcome, Outcome::Done);
        let asked = endpoint.asked().pop().expect("a request");
        let timestamp = asked.header("webhook-timestamp").expect("a timestamp");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        assert!(now.abs_diff(timestamp.parse().expect("seconds")) < 60, "{timestamp}");
        assert_eq!(asked.header("webhook-id"), Some(sent_id));
        let signed = [sent_id.as_bytes(), b".", timestamp.as_bytes(), b".", &asked.body].concat();
        let expected = format!("v1,{}", STANDARD.encode(hmac_sha256(key, &signed)));
        assert_eq!(asked.header("webhook-signature"), Some(&*expected));
    }
    stage.execute(&message(&endpoint.url("/"))).await;
    let unsigned = endpoint.asked().pop().expect("a request");
    assert!(names(&unsigned).iter().all(|name| !name.starts_with("webhook")));
}

#[tokio::test]
async fn a_token_is_sent_and_never_shown() {
    let endpoint = Endpoint::start().await;
    let stage = Stage::new(settings());
    let echo = r#"{"ack":false,"message":"you sent Bearer s3cr3t-t0ken"}"#;
    let answers = [
        Answer::status(200).body(echo),
        Answer::status(404).body(echo),
        Answer::status(500).body(echo),
        Answer::status(501).body(echo),
        Answer::cut(),
        Answer::ok().body(echo).breaks_off(),
    ];
    let mut message = message(&endpoint.url("/hook?token=s3cr3t-t0ken"));
    message.auth_token = Some(AuthToken::new("s3cr3t-t0ken"));
    for answer in answers {
        endpoint.otherwise(answer.clone());
        let outcome = stage.execute(&message).await;
        assert!(!format!("{outcome:?}").contains("s3cr3t"), "{answer:?}: {outcome:?}");
    }
    assert!(endpoint.asked().iter().all(|asked| asked.header("authorization").is_some()));
    assert!(!format!("{:?} {:?}", stage.executor, stage.executor.breakers()).contains("s3cr3t"));
    // A token that no header can carry is said to be one, and not said.
    message.auth_token = Some(AuthToken::new("s3cr3t\nx: y"));
    let outcome = stage.execute(&message).await;
    assert!(matches!(&outcome, Outcome::Rejected(r) if r.why.contains("authToken")), "{outcome:?}");
    assert!(!format!("{outcome:?}").contains("s3cr3t"), "{outcome:?}");
}
