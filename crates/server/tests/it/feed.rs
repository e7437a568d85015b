//! The feed: what is told of each fact, and to whom.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sluicegate_server::feed::{Feed, event_for};

use crate::scene::{Hands, SECRETS, every_fact, once};

#[test]
fn facts_are_told_by_the_names_of_the_table() {
    let named = |mut fields: Value| {
        for (key, value) in [("pool", "P"), ("id", "m1"), ("group", "g")] {
            fields[key] = value.into();
        }
        fields
    };
    let table = BTreeMap::from([
        ("received", ("queue.received", json!({ "queue": "q", "count": 3 }))),
        (
            "failing",
            ("queue.failed", json!({ "queue": "q", "doing": "receive", "cause": "refused" })),
        ),
        ("expired", ("queue.expired", json!({ "queue": "q", "count": 2 }))),
        ("malformed", ("message.malformed", json!({ "queue": "q" }))),
        ("redelivered", ("message.redelivered", json!({ "queue": "q", "id": "m1" }))),
        ("requeued", ("message.requeued", json!({ "queue": "q", "id": "m1" }))),
        ("full", ("pool.full", json!({ "pool": "P", "count": 10 }))),
        ("admitted", ("message.admitted", named(json!({})))),
        ("started", ("message.started", named(json!({ "attempt": 2, "waitedMs": 40 })))),
        ("called", ("message.called", named(json!({ "status": "200", "durationMs": 250 })))),
        ("done", ("message.completed", named(json!({ "outcome": "success", "durationMs": 250 })))),
        ("failed", ("message.failed", named(json!({ "outcome": "retry", "durationMs": 250 })))),
        ("panicked", ("pool.panicked", json!({ "pool": "P", "id": "m1" }))),
        (
            "rejected",
            (
                "message.rejected",
                named(json!({
                    "severity": "ERROR",
                    "reason": "https://api.example.com/hook?*** answered 400: *** is no token",
                })),
            ),
        ),
        (
            "not implemented",
            (
                "message.rejected",
                named(json!({ "severity": "CRITICAL", "reason": "answered 501" })),
            ),
        ),
        (
            "paused",
            (
                "host.paused",
                json!({ "pool": "P", "host": "api.example.com", "durationMs": 3_600_000 }),
            ),
        ),
        (
            "retrying",
            (
                "message.retried",
                json!({ "pool": "P", "id": "m1", "reason": "failed", "delayMs": 3_600_000 }),
            ),
        ),
        (
            "blocked",
            (
                "message.retried",
                json!({ "pool": "P", "id": "m1", "reason": "failed", "delayMs": null }),
            ),
        ),
        (
            "parked",
            (
                "message.parked",
                json!({ "queue": "q", "pool": "P", "id": "m1", "code": "rejected" }),
            ),
        ),
        ("gone", ("message.settled", json!({ "queue": "q", "id": "m1", "stale": false }))),
        (
            "again",
            (
                "message.retried",
                json!({ "queue": "q", "id": "m1", "stale": false, "reason": "cascade" }),
            ),
        ),
        ("opened", ("breaker.opened", json!({ "name": "api.example.com" }))),
        ("closed", ("breaker.closed", json!({ "name": "api.example.com" }))),
    ]);
    every_fact(|name, fact| {
        let told = event_for(fact).map(|(event, fields)| (event, Value::Object(fields)));
        assert_eq!(told.as_ref(), table.get(name), "{name}");
        for secret in SECRETS {
            assert!(!format!("{told:?}").contains(secret), "{name}: {told:?}");
        }
    });
}

fn one(text: &str) -> Option<(&'static str, Map<String, Value>)> {
    Some(("test.said", Map::from_iter([("text".to_owned(), text.into())])))
}

#[tokio::test(start_paused = true)]
async fn those_who_listen_hear_from_then_on() {
    let feed = Feed::new(Hands::new());
    feed.tell(|| panic!("nobody listens, so nothing is made"));
    let mut first = feed.listen();
    feed.tell(|| one("a"));
    let mut second = feed.listen();
    assert_eq!(feed.listeners(), 2);
    feed.tell(|| None);
    feed.tell(|| one("b"));
    let heard = first.next().await.unwrap();
    assert_eq!(heard.name, "test.said");
    let json: Value = serde_json::from_str(&heard.json).unwrap();
    let at = 1_794_744_000_000_u64;
    assert_eq!(json, json!({ "type": "test.said", "timestamp": at, "text": "a" }));
    let heard = [first.next().await.unwrap(), second.next().await.unwrap()];
    assert!(heard.iter().all(|event| event.json.contains(r#""text":"b""#)), "{heard:?}");
    assert_eq!(once(first.next()), None);
    drop((first, second));
    assert_eq!(feed.listeners(), 0);
    feed.tell(|| panic!("nobody listens any more"));
}

#[tokio::test(start_paused = true)]
async fn who_is_too_slow_is_told_how_much_was_missed() {
    let feed = Feed::new(Hands::new());
    let mut slow = feed.listen();
    for at in 0..Feed::MOST_BEHIND + 5 {
        feed.tell(|| one(&at.to_string()));
    }
    let lagged = slow.next().await.unwrap();
    assert_eq!(lagged.name, "lagged");
    let json: Value = serde_json::from_str(&lagged.json).unwrap();
    assert_eq!((&json["type"], &json["missed"]), (&json!("lagged"), &json!(5)));
    assert!(json["timestamp"].is_u64());
    assert!(slow.next().await.unwrap().json.contains(r#""text":"5""#));
    drop(feed);
    let mut rest = 0;
    while slow.next().await.is_some() {
        rest += 1;
    }
    assert_eq!(rest, Feed::MOST_BEHIND - 1);
}
