//! The feed: what is told of each fact, and to whom.

use serde_json::{Map, Value, json};
use sluicegate_server::feed::{Feed, event_for};

use crate::scene::{Hands, SECRETS, every_fact, once};

/// What is told of which fact; of the others nothing.
const TOLD: &[(&str, &str, &str)] = &[
    ("received", "queue.received", r#"{"queue":"q","count":3}"#),
    ("failing", "queue.failed", r#"{"queue":"q","doing":"receive","cause":"refused"}"#),
    ("expired", "queue.expired", r#"{"queue":"q","count":2}"#),
    ("malformed", "message.malformed", r#"{"queue":"q"}"#),
    ("redelivered", "message.redelivered", r#"{"queue":"q","id":"m1"}"#),
    ("requeued", "message.requeued", r#"{"queue":"q","id":"m1"}"#),
    ("full", "pool.full", r#"{"pool":"P","count":10}"#),
    ("admitted", "message.admitted", r#"{"pool":"P","id":"m1","group":"g"}"#),
    (
        "started",
        "message.started",
        r#"{"pool":"P","id":"m1","group":"g","attempt":2,"waitedMs":40}"#,
    ),
    (
        "called",
        "message.called",
        r#"{"pool":"P","id":"m1","group":"g","status":"200","durationMs":250}"#,
    ),
    (
        "done",
        "message.completed",
        r#"{"pool":"P","id":"m1","group":"g","outcome":"success","durationMs":250}"#,
    ),
    (
        "failed",
        "message.failed",
        r#"{"pool":"P","id":"m1","group":"g","outcome":"retry","durationMs":250}"#,
    ),
    ("panicked", "pool.panicked", r#"{"pool":"P","id":"m1"}"#),
    (
        "rejected",
        "message.rejected",
        r#"{"pool":"P","id":"m1","group":"g","severity":"ERROR",
          "reason":"https://api.example.com/hook?*** answered 400: *** is no token"}"#,
    ),
    (
        "not implemented",
        "message.rejected",
        r#"{"pool":"P","id":"m1","group":"g","severity":"CRITICAL","reason":"answered 501"}"#,
    ),
    ("paused", "host.paused", r#"{"pool":"P","host":"api.example.com","durationMs":3600000}"#),
    (
        "retrying",
        "message.retried",
        r#"{"pool":"P","id":"m1","reason":"failed","delayMs":3600000}"#,
    ),
    ("blocked", "message.retried", r#"{"pool":"P","id":"m1","reason":"failed","delayMs":null}"#),
    ("parked", "message.parked", r#"{"queue":"q","pool":"P","id":"m1","code":"rejected"}"#),
    ("used up", "message.parked", r#"{"queue":"q","pool":"P","id":"m1","code":"exhausted"}"#),
    ("key parked", "message.parked", r#"{"queue":"q","pool":"P","id":"m1","code":"key_parked"}"#),
    ("gone", "message.settled", r#"{"queue":"q","id":"m1","stale":false}"#),
    ("again", "message.retried", r#"{"queue":"q","id":"m1","stale":false,"reason":"cascade"}"#),
    ("opened", "breaker.opened", r#"{"name":"api.example.com"}"#),
    ("closed", "breaker.closed", r#"{"name":"api.example.com"}"#),
];

#[test]
fn facts_are_told_by_the_names_of_the_table() {
    every_fact(|name, fact| {
        let told = event_for(fact).map(|(event, fields)| (event, Value::Object(fields)));
        let row = TOLD.iter().find(|(of, ..)| *of == name);
        let expected = row.map(|(_, event, json)| (*event, serde_json::from_str(json).unwrap()));
        assert_eq!(told, expected, "{name}");
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
