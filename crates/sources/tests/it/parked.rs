//! Parked messages: kept once, shown without secrets, replayed without overtaking, discarded.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    AuthToken, Message, Parked, ParkedCode, ParkedStore, Publication, Source,
};
use sluicegate_sources::sqlite::{DiscardError, ReplayError, Replayed};
use sluicegate_testkit::conformance::source::publication_in;

use crate::stage::{Stage, ids};

fn parked(broker_id: &str, group: Option<&str>, code: ParkedCode, holds_key: bool) -> Parked {
    let mut message = publication_in(&format!("m{broker_id}"), "POOL", group, false).message;
    message.auth_token = Some(AuthToken::new("secret-token"));
    message.payload = Some("{\"n\": 1}".into());
    Parked {
        queue: "orders".into(),
        broker_id: broker_id.into(),
        pool: Some("POOL".into()),
        code,
        reason: "HTTP 400".to_owned(),
        status: Some(400),
        attempts: 3,
        holds_key,
        last_error: None,
        message: Ok(message),
    }
}

fn malformed(broker_id: &str, raw: &str) -> Parked {
    Parked {
        pool: None,
        code: ParkedCode::Malformed,
        message: Err(raw.to_owned()),
        ..parked(broker_id, None, ParkedCode::Malformed, false)
    }
}

fn rejected(broker_id: &str) -> Parked {
    parked(broker_id, Some("a"), ParkedCode::Rejected, false)
}

/// A key that is parked with its tail: three messages.
async fn held(stage: &Stage) -> Vec<String> {
    let all = vec![
        parked("1", Some("a"), ParkedCode::Exhausted, true),
        parked("2", Some("a"), ParkedCode::KeyParked, true),
        parked("3", Some("a"), ParkedCode::KeyParked, true),
    ];
    stage.store.park(all).await.unwrap();
    let page = stage.store.parked(None, None, 10).await.unwrap();
    page.items.into_iter().map(|item| item.id).collect()
}

#[tokio::test]
async fn a_message_is_parked_once_and_kept() {
    let stage = Stage::open().await;
    stage.store.park(vec![rejected("1"), rejected("1"), rejected("2")]).await.unwrap();
    let again = Parked { reason: "another".to_owned(), ..rejected("1") };
    stage.store.park(vec![again]).await.unwrap();
    assert_eq!(stage.store.parked_count(), 2);
    let stage = stage.crash().await;
    assert_eq!(stage.store.parked_count(), 2);
    let page = stage.store.parked(None, None, 10).await.unwrap();
    assert_eq!(page.next, None);
    let item = &page.items[0];
    assert_eq!(item.message_id.as_deref(), Some("m1"));
    assert_eq!((item.queue.as_str(), item.pool.as_deref()), ("orders", Some("POOL")));
    assert_eq!((item.group.as_deref(), item.code.as_str()), (Some("a"), "rejected"));
    assert_eq!((item.reason.as_str(), item.status, item.attempts), ("HTTP 400", Some(400), 3));
    assert!(item.parked_at > 1_700_000_000_000);
    assert_eq!(item.message["payload"]["n"], 1);
    assert_eq!(stage.store.parked_item(&item.id).await.unwrap().as_ref(), Some(item));
    assert_eq!(stage.store.parked_item("99").await.unwrap(), None);
    assert_eq!(stage.store.parked_item("x").await.unwrap(), None);
}

#[tokio::test]
async fn no_token_is_shown() {
    let stage = Stage::open().await;
    let raw = r#"{"id": 7, "authToken": "secret-token", "x": 1}"#;
    stage.store.park(vec![rejected("1"), malformed("2", raw)]).await.unwrap();
    let page = stage.store.parked(None, None, 10).await.unwrap();
    assert!(!format!("{page:?}").contains("secret-token"), "{page:?}");
    let malformed = &page.items[1];
    assert_eq!(malformed.message, r#"{"id": 7, "authToken":"***", "x": 1}"#);
    assert_eq!((malformed.message_id.as_ref(), malformed.code.as_str()), (None, "malformed"));
}

#[tokio::test]
async fn pages_follow_each_other() {
    let stage = Stage::open().await;
    let all: Vec<Parked> = (0..25)
        .map(|n| Parked {
            pool: Some(if n % 5 == 0 { "FIVE" } else { "POOL" }.into()),
            ..rejected(&n.to_string())
        })
        .collect();
    stage.store.park(all).await.unwrap();
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = stage.store.parked(None, cursor.as_deref(), 10).await.unwrap();
        seen.extend(page.items.into_iter().map(|item| item.message_id.unwrap().to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..25).map(|n| format!("m{n}")).collect::<Vec<_>>());
    let five = stage.store.parked(Some("FIVE"), None, 10).await.unwrap();
    assert_eq!((five.items.len(), five.next), (5, None));
    assert!(stage.store.parked(None, Some("x"), 10).await.is_err());
}

#[tokio::test]
async fn a_replayed_message_is_whole_and_new_at_the_end() {
    let stage = Stage::open().await;
    let message = rejected("1").message.unwrap();
    stage.store.park(vec![rejected("1")]).await.unwrap();
    let sent = |message: &Message| Publication {
        message: message.clone(),
        body: sluicegate_sources::wire::render(message, Duration::ZERO).into(),
        delay: Duration::ZERO,
    };
    // Its id was seen shortly before, which does not matter to a replay.
    stage.queue.publish(vec![sent(&message)]).await.unwrap();
    stage.publish(&["waiting"]).await;
    let replayed = stage.store.replay(&["1"]).await.unwrap();
    assert_eq!(replayed, Replayed { replayed: 1, left: 0 });
    assert_eq!(stage.store.parked_count(), 0);
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["m1", "waiting", "m1"]);
    assert_eq!(received[2].message.as_ref(), Ok(&message));
    assert_eq!(received[2].attempts, 0);
    assert_eq!(stage.queue.depth().await.unwrap().out, 3);
    assert_eq!(stage.store.replay(&["1"]).await, Err(ReplayError::NotFound { id: "1".into() }));
}

#[tokio::test]
async fn what_cannot_be_replayed_says_why_and_moves_nothing() {
    let stage = Stage::open().await;
    let elsewhere = Parked { queue: "elsewhere".into(), ..rejected("3") };
    stage.store.park(vec![rejected("1"), malformed("2", "{"), elsewhere]).await.unwrap();
    let cases = [
        (vec!["1", "2"], ReplayError::Malformed { id: "2".into() }),
        (vec!["1", "3"], ReplayError::OtherQueue { id: "3".into(), queue: "elsewhere".into() }),
        (vec!["1", "9"], ReplayError::NotFound { id: "9".into() }),
        (vec!["1", "x"], ReplayError::NotFound { id: "x".into() }),
    ];
    for (ids, expected) in cases {
        assert_eq!(stage.store.replay(&ids).await, Err(expected));
    }
    assert_eq!(stage.store.parked_count(), 3);
    assert_eq!(stage.take(9).await, []);
    assert!(stage.queue.health().is_ok());
    let all = stage.store.replay_all(None).await.unwrap();
    assert_eq!(all, Replayed { replayed: 1, left: 2 });
    assert_eq!(stage.take_ids(9).await, ["m1"]);
}

#[tokio::test]
async fn a_held_key_is_replayed_in_order() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    assert!(stage.store.holds_key("orders", "POOL", "a"));
    for other in [("other", "POOL", "a"), ("orders", "P", "a"), ("orders", "POOL", "b")] {
        assert!(!stage.store.holds_key(other.0, other.1, other.2), "{other:?}");
    }
    let behind = |id: &str, earlier: &str| {
        Err(ReplayError::Behind { id: id.to_owned(), earlier: earlier.to_owned() })
    };
    let [first, second, third] = &numbers[..] else { panic!("{numbers:?}") };
    assert_eq!(stage.store.replay(&[second]).await, behind(second, first));
    assert_eq!(stage.store.replay(&[third, first]).await, behind(third, second));
    assert_eq!(stage.store.parked_count(), 3);
    stage.store.replay(&[second, first]).await.unwrap();
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["m1", "m2"]);
    // What is still parked holds the key, but not against those that came before it.
    assert!(stage.store.holds_key("orders", "POOL", "a"));
    for delivery in &received {
        assert!(stage.store.lets_pass("orders", &delivery.broker_id));
    }
    assert!(!stage.store.lets_pass("orders", "999"));
    assert!(!stage.store.lets_pass("other", &received[0].broker_id));
    stage.done(&received[0]).await;
    assert!(!stage.store.lets_pass("orders", &received[0].broker_id));
    // Held and let pass over a crash too.
    let stage = stage.crash().await;
    assert!(stage.store.holds_key("orders", "POOL", "a"));
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["m2"]);
    assert!(stage.store.lets_pass("orders", &received[0].broker_id));
    stage.store.discard(&[third]).await.unwrap();
    assert!(!stage.store.holds_key("orders", "POOL", "a"));
}

#[tokio::test]
async fn a_replayed_head_that_is_parked_again_is_the_head_again() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    stage.store.replay(&[&numbers[0]]).await.unwrap();
    let received = stage.take(9).await;
    let back = Parked {
        message: received[0].message.clone().map_err(|malformed| malformed.raw),
        ..parked(&received[0].broker_id, Some("a"), ParkedCode::Exhausted, true)
    };
    stage.store.park(vec![back]).await.unwrap();
    stage.done(&received[0]).await;
    let page = stage.store.parked(None, None, 10).await.unwrap();
    let names: Vec<Arc<str>> =
        page.items.iter().filter_map(|item| item.message_id.clone()).collect();
    assert_eq!(names, ["m1".into(), "m2".into(), "m3".into()]);
    let error = stage.store.replay(&[&numbers[1]]).await.unwrap_err();
    assert!(error.to_string().contains("would overtake"), "{error}");
}

#[tokio::test]
async fn all_of_a_pool_are_replayed_in_order() {
    let stage = Stage::open().await;
    let all = (0..2500).map(|n| Parked {
        pool: Some(if n % 2 == 0 { "EVEN" } else { "ODD" }.into()),
        ..parked(&n.to_string(), Some("a"), ParkedCode::KeyParked, true)
    });
    stage.store.park(all.collect()).await.unwrap();
    let replayed = stage.store.replay_all(Some("EVEN")).await.unwrap();
    assert_eq!(replayed, Replayed { replayed: 1250, left: 0 });
    assert_eq!(stage.store.parked_count(), 1250);
    assert!(!stage.store.holds_key("orders", "EVEN", "a"));
    assert!(stage.store.holds_key("orders", "ODD", "a"));
    let expected: Vec<String> = (0..2500).step_by(2).map(|n| format!("m{n}")).collect();
    assert_eq!(stage.take_ids(3000).await, expected);
    assert_eq!(stage.store.replay_all(Some("EVEN")).await.unwrap(), Replayed::default());
}

#[tokio::test]
async fn discarding_is_all_or_nothing() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    let error = stage.store.discard(&[&numbers[0], "77"]).await.unwrap_err();
    assert_eq!(error, DiscardError::NotFound { id: "77".into() });
    assert_eq!(stage.store.parked_count(), 3);
    assert_eq!(stage.store.discard(&numbers).await, Ok(3));
    assert_eq!(stage.store.parked_count(), 0);
    assert!(!stage.store.holds_key("orders", "POOL", "a"));
    assert_eq!(stage.take(9).await, []);
}
