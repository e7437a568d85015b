//! Parked messages: kept once, shown without secrets, replayed without overtaking, discarded.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_dispatch::{AuthToken, Message, Parked, ParkedCode, ParkedStore, Source};
use sluicegate_sources::sqlite::{DiscardError, Imported, ParkedFilter, ParkedRecord, ReplayError};
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

fn all() -> ParkedFilter {
    ParkedFilter::default()
}

fn queues() -> HashSet<String> {
    HashSet::from(["orders".to_owned()])
}

async fn numbers(stage: &Stage) -> Vec<i64> {
    stage.store.parked_numbers(&all(), 0, 10_000).await.unwrap()
}

async fn names(stage: &Stage) -> Vec<String> {
    let page = stage.store.parked(&all(), None, 1000).await.unwrap();
    page.items.into_iter().filter_map(|item| Some(item.message_id?.to_string())).collect()
}

/// Replays these, all or none, as a daemon does.
async fn replay(stage: &Stage, numbers: &[i64]) -> Result<(), ReplayError> {
    let mut replaying = stage.store.begin_replay(numbers, &queues(), true).await.unwrap();
    if let Some(refused) = replaying.refused.pop() {
        return Err(refused);
    }
    let batch = stage.store.returning(numbers).await.unwrap();
    assert_eq!((batch.messages.len(), batch.lost.len()), (numbers.len(), 0));
    let messages = batch.messages.into_iter().map(|returning| returning.message);
    stage.queue.put_back(messages.collect()).await.unwrap();
    stage.store.end_replay(numbers).await.unwrap();
    Ok(())
}

/// A message is done with: first the list hears of it, then its queue.
async fn over(stage: &Stage, delivery: &sluicegate_dispatch::Delivery) {
    let id = Arc::clone(&delivery.message.as_ref().unwrap().id);
    stage.store.replay_over("orders", vec![id]).await.unwrap();
    stage.done(delivery).await;
}

/// A key that is parked with its tail: three messages.
async fn held(stage: &Stage) -> Vec<i64> {
    let all = vec![
        parked("1", Some("a"), ParkedCode::Exhausted, true),
        parked("2", Some("a"), ParkedCode::KeyParked, true),
        parked("3", Some("a"), ParkedCode::KeyParked, true),
    ];
    // They were in the queue, and are parked before they leave it.
    stage.publish(&["x1", "x2", "x3"]).await;
    for delivery in stage.take(9).await {
        stage.done(&delivery).await;
    }
    stage.store.park(all).await.unwrap();
    numbers(stage).await
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
    let page = stage.store.parked(&all(), None, 10).await.unwrap();
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
    let page = stage.store.parked(&all(), None, 10).await.unwrap();
    assert!(!format!("{page:?}").contains("secret-token"), "{page:?}");
    let malformed = &page.items[1];
    assert_eq!(malformed.message, r#"{"id": 7, "authToken":"***", "x": 1}"#);
    assert_eq!((malformed.message_id.as_ref(), malformed.code.as_str()), (None, "malformed"));
}

#[tokio::test]
async fn pages_follow_each_other() {
    let stage = Stage::open().await;
    let some: Vec<Parked> = (0..25)
        .map(|n| Parked {
            pool: Some(if n % 5 == 0 { "FIVE" } else { "POOL" }.into()),
            ..rejected(&n.to_string())
        })
        .collect();
    stage.store.park(some).await.unwrap();
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = stage.store.parked(&all(), cursor.as_deref(), 10).await.unwrap();
        seen.extend(page.items.into_iter().map(|item| item.message_id.unwrap().to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..25).map(|n| format!("m{n}")).collect::<Vec<_>>());
    let five = stage.store.parked(&ParkedFilter::of_pool(Some("FIVE")), None, 10).await.unwrap();
    assert_eq!((five.items.len(), five.next), (5, None));
    assert!(stage.store.parked(&all(), Some("x"), 10).await.is_err());
}

#[tokio::test]
async fn two_messages_of_one_name_are_both_kept() {
    let stage = Stage::open().await;
    let mut other = rejected("1");
    other.message.as_mut().unwrap().payload = Some("{\"n\": 2}".into());
    stage.store.park(vec![rejected("1"), other.clone()]).await.unwrap();
    stage.store.park(vec![other, rejected("1")]).await.unwrap();
    let page = stage.store.parked(&all(), None, 10).await.unwrap();
    let payloads: Vec<_> =
        page.items.iter().map(|item| item.message["payload"]["n"].clone()).collect();
    assert_eq!(payloads, [1, 2], "each once");
}

#[tokio::test]
async fn a_replayed_message_is_whole_and_at_its_old_place() {
    let stage = Stage::open().await;
    stage.publish(&["m1", "waiting"]).await;
    let first = stage.take(1).await.remove(0);
    let message = rejected("1").message.unwrap();
    stage.store.park(vec![rejected("1")]).await.unwrap();
    // It is not out of its queue yet: what is put back meanwhile would go with it.
    let replaying = stage.store.begin_replay(&[1], &queues(), true).await.unwrap();
    assert_eq!(replaying.begun, [(1, "orders".to_owned())]);
    let back = vec![stage.store.returning(&[1]).await.unwrap().messages.remove(0).message];
    let busy = stage.queue.put_back(back.clone()).await.unwrap_err();
    assert!(busy.to_string().contains("still being settled"), "{busy}");
    stage.done(&first).await;
    stage.queue.put_back(back.clone()).await.unwrap();
    // Done again after a crash, it is there once.
    stage.queue.put_back(back).await.unwrap();
    stage.store.end_replay(&[1]).await.unwrap();
    drop(replaying);
    assert_eq!(stage.store.parked_count(), 0);
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["m1", "waiting"]);
    assert_eq!(received[0].message.as_ref(), Ok(&message));
    assert_eq!((received[0].attempts, &received[0].broker_id), (0, &first.broker_id));
    assert_eq!(stage.queue.depth().await.unwrap().out, 2);
    assert_eq!(replay(&stage, &[1]).await, Err(ReplayError::NotFound { id: "1".into() }));
}

#[tokio::test]
async fn what_cannot_be_replayed_says_why_and_moves_nothing() {
    let stage = Stage::open().await;
    let elsewhere = Parked { queue: "elsewhere".into(), ..rejected("3") };
    stage.store.park(vec![rejected("1"), malformed("2", "{"), elsewhere]).await.unwrap();
    let cases = [
        (vec![1, 2], ReplayError::Malformed { id: "2".into() }),
        (vec![1, 3], ReplayError::NoQueue { id: "3".into(), queue: "elsewhere".into() }),
        (vec![1, 9], ReplayError::NotFound { id: "9".into() }),
    ];
    for (numbers, expected) in cases {
        let checked = stage.store.check_replay(&numbers, &queues()).await.unwrap();
        assert_eq!(checked.as_ref(), Some(&expected));
        assert_eq!(replay(&stage, &numbers).await, Err(expected));
    }
    let plan = stage.store.plan_replay(&all(), 0, 10, &queues()).await.unwrap();
    assert_eq!((plan.ids, plan.refused.len(), plan.last), (vec!["1".to_owned()], 2, Some(3)));
    assert_eq!(stage.store.parked_count(), 3);
    assert_eq!(stage.take(9).await, []);
    assert!(stage.queue.health().is_ok());
    let some = stage.store.begin_replay(&[1, 2, 3], &queues(), false).await.unwrap();
    assert_eq!((some.begun.len(), some.refused.len()), (1, 2));
    stage.store.cancel_replay(&[1]).await.unwrap();
    drop(some);
    assert_eq!(stage.store.parked_count(), 3, "its queue did not take it");
    replay(&stage, &[1]).await.unwrap();
    assert_eq!(stage.take_ids(9).await, ["m1"]);
}

/// docs/rules.md#park-2
#[tokio::test]
async fn a_held_key_is_replayed_in_order() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    assert!(stage.store.holds_key("orders", "POOL", "a"));
    for other in [("other", "POOL", "a"), ("orders", "P", "a"), ("orders", "POOL", "b")] {
        assert!(!stage.store.holds_key(other.0, other.1, other.2), "{other:?}");
    }
    let [first, second, third] = numbers[..] else { panic!("{numbers:?}") };
    let behind = |id: i64, earlier: i64| {
        Err(ReplayError::Behind { id: id.to_string(), earlier: earlier.to_string() })
    };
    assert_eq!(replay(&stage, &[second]).await, behind(second, first));
    assert_eq!(replay(&stage, &[third, first]).await, behind(third, second));
    assert_eq!(stage.store.parked_count(), 3);
    replay(&stage, &[second, first]).await.unwrap();
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["m1", "m2"]);
    // What is still parked holds the key, but not against those that came before it.
    assert!(stage.store.holds_key("orders", "POOL", "a"));
    assert!(stage.store.may_pass("orders", "m1"), "and whoever looks changes nothing");
    assert_eq!(["m2", "m1"].map(|id| stage.store.lets_pass("orders", id)), [false, true]);
    assert!(stage.store.lets_pass("orders", "m2"));
    assert!(!stage.store.lets_pass("orders", "m3"));
    assert!(!stage.store.lets_pass("other", "m1"));
    over(&stage, &received[0]).await;
    assert!(!stage.store.is_replayed("orders", "m1"));
    // Held and let pass over a crash too.
    let stage = stage.crash().await;
    assert!(stage.store.holds_key("orders", "POOL", "a"));
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["m2"]);
    assert!(stage.store.lets_pass("orders", "m2"));
    stage.store.discard(&[third.to_string()]).await.unwrap();
    assert!(!stage.store.holds_key("orders", "POOL", "a"), "what is left has been seen");
    over(&stage, &received[0]).await;
    assert!(!stage.store.holds_key("orders", "POOL", "a"));
}

/// docs/rules.md#park-2
#[tokio::test]
async fn what_comes_while_a_key_is_replayed_follows_it() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    replay(&stage, &numbers).await.unwrap();
    let received = stage.take(9).await;
    assert!(stage.store.holds_key("orders", "POOL", "a"), "none of them has been seen");
    let late = |id| parked(id, Some("a"), ParkedCode::KeyParked, true);
    stage.store.park(vec![late("7"), late("8")]).await.unwrap();
    assert_eq!(
        stage.store.following(10).await.unwrap(),
        [0_i64; 0],
        "not before the others are over"
    );
    for delivery in &received[..2] {
        over(&stage, delivery).await;
    }
    assert_eq!(stage.store.following(10).await.unwrap(), [0_i64; 0]);
    over(&stage, &received[2]).await;
    let follow = stage.store.following(10).await.unwrap();
    assert_eq!(follow.len(), 2);
    let stage = stage.crash().await;
    assert_eq!(stage.store.following(10).await.unwrap(), follow, "over a crash too");
    replay(&stage, &follow).await.unwrap();
    for delivery in stage.take(9).await {
        over(&stage, &delivery).await;
    }
    assert!(!stage.store.holds_key("orders", "POOL", "a"), "the key is free");
    assert_eq!(stage.store.following(10).await.unwrap(), [0_i64; 0]);
}

#[tokio::test]
async fn a_replay_that_a_crash_cut_off_is_done_again() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    let begun = stage.store.begin_replay(&numbers[..2], &queues(), true).await.unwrap();
    let names = async |stage: &Stage| {
        let batch = stage.store.returning(&numbers[..2]).await.unwrap();
        batch.messages.iter().map(|back| back.message.name.clone()).collect::<Vec<_>>()
    };
    let before = names(&stage).await;
    assert_eq!(before.len(), 2);
    drop(begun);
    let busy = stage.store.discard(&[numbers[0].to_string()]).await;
    assert_eq!(busy, Err(DiscardError::Busy { id: numbers[0].to_string() }));
    let stage = stage.crash().await;
    assert_eq!(stage.store.parked_count(), 3);
    let again = stage.store.resume_replay().await.unwrap().expect("there is something left");
    assert_eq!(again.begun.len(), 2);
    assert_eq!(names(&stage).await, before, "by the same names");
    let batch = stage.store.returning(&numbers[..2]).await.unwrap();
    let back = batch.messages.into_iter().map(|back| back.message).collect();
    stage.queue.put_back(back).await.unwrap();
    // One of them is over before anybody has noted that its queue has it.
    let received = stage.take(1).await;
    over(&stage, &received[0]).await;
    stage.store.end_replay(&numbers[..2]).await.unwrap();
    drop(again);
    assert!(stage.store.resume_replay().await.unwrap().is_none());
    assert_eq!(stage.store.parked_count(), 1);
    assert_eq!(stage.take_ids(9).await, ["m2"]);
}

#[tokio::test]
async fn a_replayed_head_that_is_parked_again_is_the_head_again() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    replay(&stage, &numbers).await.unwrap();
    let received = stage.take(9).await;
    let again = |at: usize, code| Parked {
        message: received[at].message.clone().map_err(|malformed| malformed.raw),
        ..parked(&received[at].broker_id, Some("a"), code, true)
    };
    assert!(stage.store.lets_pass("orders", "m1"));
    stage.store.park(vec![again(0, ParkedCode::Exhausted)]).await.unwrap();
    assert!(!stage.store.lets_pass("orders", "m2"), "it would overtake m1");
    stage.store.park(vec![again(2, ParkedCode::KeyParked)]).await.unwrap();
    stage.store.park(vec![again(1, ParkedCode::KeyParked)]).await.unwrap();
    for delivery in &received {
        stage.done(delivery).await;
    }
    assert_eq!(names(&stage).await, ["m1", "m2", "m3"]);
    assert_eq!(
        stage.store.following(9).await.unwrap(),
        [0_i64; 0],
        "a person must look at it again"
    );
    let error = replay(&stage, &[numbers[1]]).await.unwrap_err();
    assert!(error.to_string().contains("would overtake"), "{error}");
}

/// From a source that keeps no order the second may come first.
#[tokio::test]
async fn one_that_comes_back_too_early_waits_for_its_turn() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    replay(&stage, &numbers).await.unwrap();
    let received = stage.take(9).await;
    assert!(!stage.store.lets_pass("orders", "m2"));
    let early = Parked {
        message: received[1].message.clone().map_err(|malformed| malformed.raw),
        ..parked(&received[1].broker_id, Some("a"), ParkedCode::KeyParked, true)
    };
    stage.store.park(vec![early]).await.unwrap();
    assert!(stage.store.lets_pass("orders", "m1"));
    assert!(!stage.store.lets_pass("orders", "m3"), "m2 is before it");
    over(&stage, &received[0]).await;
    stage.done(&received[1]).await;
    let late = Parked {
        message: received[2].message.clone().map_err(|malformed| malformed.raw),
        ..parked(&received[2].broker_id, Some("a"), ParkedCode::KeyParked, true)
    };
    stage.store.park(vec![late]).await.unwrap();
    stage.done(&received[2]).await;
    assert_eq!(stage.store.following(9).await.unwrap(), numbers[1..]);
}

#[tokio::test]
async fn filters_say_what_messages_have_in_common() {
    let stage = Stage::open().await;
    let at_host = |id: &str, url: &str, group| {
        let mut one = parked(id, Some(group), ParkedCode::Rejected, false);
        one.message.as_mut().unwrap().target = sluicegate_dispatch::Target::parse(url).unwrap();
        one
    };
    let one = at_host("1", "https://API.example.com:443/in", "a");
    let two = at_host("2", "http://api.example.com:8080/in", "b");
    let three = Parked { code: ParkedCode::Exhausted, ..at_host("3", "http://[::1]:9/", "a") };
    let four =
        Parked { queue: "other".into(), pool: Some("P2".into()), ..at_host("4", "http://x/", "a") };
    stage.store.park(vec![one, two, three, four, malformed("5", "{")]).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let cases: [(ParkedFilter, &[i64]); 17] = [
        (all(), &[1, 2, 3, 4, 5]),
        (ParkedFilter { host: text("api.Example.com"), ..all() }, &[1, 2]),
        (ParkedFilter { host: text("api.example.com:8080"), ..all() }, &[2]),
        (ParkedFilter { host: text("api.example.com:443"), ..all() }, &[1]),
        (ParkedFilter { host: text("x:80"), ..all() }, &[4]),
        (ParkedFilter { host: text("x:443"), ..all() }, &[]),
        (ParkedFilter { host: text("[::1]"), ..all() }, &[3]),
        (ParkedFilter { host: text("::1"), ..all() }, &[3]),
        (ParkedFilter { last: Some(2), ..all() }, &[1, 2]),
        (ParkedFilter { host: text("example.com"), ..all() }, &[]),
        (ParkedFilter { group: text("a"), ..all() }, &[1, 3, 4]),
        (ParkedFilter { code: text("malformed"), ..all() }, &[5]),
        (ParkedFilter { queue: text("other"), ..all() }, &[4]),
        (ParkedFilter { group: text("a"), pool: text("POOL"), ..all() }, &[1, 3]),
        (ParkedFilter { after: Some(0), ..all() }, &[1, 2, 3, 4, 5]),
        (ParkedFilter { before: Some(1_000), ..all() }, &[]),
        (ParkedFilter { after: Some(i64::MAX), ..all() }, &[]),
    ];
    for (filter, expected) in cases {
        let numbers = stage.store.parked_numbers(&filter, 0, 10).await.unwrap();
        assert_eq!(numbers, expected, "{filter:?}");
    }
}

/// A plan says of each message what a replay would do.
#[tokio::test]
async fn a_plan_knows_what_would_stay_before() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    let exhausted = ParkedFilter { code: Some("exhausted".into()), ..all() };
    let tail = ParkedFilter { code: Some("key_parked".into()), ..all() };
    let plan = async |filter: &ParkedFilter| {
        let plan = stage.store.plan_replay(filter, 0, 10, &queues()).await.unwrap();
        (plan.ids.len(), plan.refused.len())
    };
    assert_eq!(plan(&exhausted).await, (1, 0));
    assert_eq!(plan(&tail).await, (0, 2));
    assert_eq!(plan(&all()).await, (3, 0));
    let behind = stage.store.plan_replay(&all(), numbers[0], 10, &queues()).await.unwrap();
    assert_eq!(behind.ids.len(), 2, "those before the cursor are meant too");
}

#[tokio::test]
async fn a_place_is_counted_within_its_key() {
    let stage = Stage::open().await;
    stage.store.park(vec![rejected("9"), malformed("8", "{")]).await.unwrap();
    held(&stage).await;
    let page = stage.store.parked(&all(), None, 10).await.unwrap();
    let places: Vec<_> = page.items.iter().map(|item| item.place).collect();
    assert_eq!(places, [None, None, Some(1), Some(2), Some(3)]);
    let found = stage.store.parked_message("m2").await.unwrap().expect("it is parked");
    assert_eq!((found.place, found.code.as_str()), (Some(2), "key_parked"));
    assert_eq!(stage.store.parked_message("m77").await.unwrap(), None);
}

#[tokio::test]
async fn what_is_exported_is_imported_once_and_in_its_place() {
    let stage = Stage::open().await;
    let numbers = held(&stage).await;
    stage.store.park(vec![malformed("5", "{")]).await.unwrap();
    let records: Vec<ParkedRecord> = stage.store.parked_records(&all(), 0, 10).await.unwrap();
    let imported = stage.store.import_parked(records.clone(), 0).await.unwrap();
    assert_eq!((imported.added, imported.present), (0, 4));
    stage.store.discard(&[numbers[1].to_string()]).await.unwrap();
    let imported = stage.store.import_parked(records.clone(), 0).await.unwrap();
    assert_eq!((imported.added, imported.present), (1, 3));
    let again = stage.store.parked_records(&all(), 0, 10).await.unwrap();
    // Of what comes in nobody knows whether its name is one of this queue's.
    let unnamed = |record: &ParkedRecord| ParkedRecord { broker_id: "".into(), ..record.clone() };
    let (again, before) = (again.iter().map(unnamed), records.iter().map(unnamed));
    assert_eq!(again.collect::<Vec<_>>(), before.collect::<Vec<_>>());
    // Elsewhere their numbers may be taken.
    let other = Stage::open().await;
    other.store.park(vec![rejected("90"), rejected("91")]).await.unwrap();
    let imported = other.store.import_parked(records.clone(), 0).await.unwrap();
    assert_eq!(imported, Imported { added: 4, present: 0, last: 6 });
    assert_eq!(names(&other).await, ["m90", "m91", "m1", "m2", "m3"]);
    assert!(other.store.holds_key("orders", "POOL", "a"));
    let other = other.crash().await;
    assert!(other.store.holds_key("orders", "POOL", "a"));
    assert_eq!(other.store.parked_count(), 6);
}

#[tokio::test]
async fn many_of_a_key_are_replayed_in_order() {
    let stage = Stage::open().await;
    let all = (0..2500).map(|n| {
        let pool: Arc<str> = if n % 2 == 0 { "EVEN" } else { "ODD" }.into();
        let of = parked(&format!("b{n}"), Some("a"), ParkedCode::KeyParked, true);
        let message = of.message.map(|message| Message { pool: Arc::clone(&pool), ..message });
        Parked { pool: Some(pool), message, ..of }
    });
    stage.store.park(all.collect()).await.unwrap();
    let even = ParkedFilter::of_pool(Some("EVEN"));
    let numbers = stage.store.parked_numbers(&even, 0, 10_000).await.unwrap();
    for chunk in numbers.chunks(500) {
        replay(&stage, chunk).await.unwrap();
    }
    assert_eq!(stage.store.parked_count(), 1250);
    assert!(stage.store.holds_key("orders", "ODD", "a"));
    let expected: Vec<String> = (0..2500).step_by(2).map(|n| format!("mb{n}")).collect();
    assert_eq!(stage.take_ids(3000).await, expected);
}

/// One look-up, however many are parked.
#[tokio::test]
async fn an_unknown_message_is_not_searched_for() {
    let stage = Stage::open().await;
    for part in 0..20 {
        let some = (0..1000).map(|n| rejected(&format!("{part}-{n}")));
        stage.store.park(some.collect()).await.unwrap();
    }
    let begun = Instant::now();
    for n in 0..100 {
        assert_eq!(stage.store.parked_message(&format!("none-{n}")).await.unwrap(), None);
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let found = stage.store.parked_message("m19-999").await.unwrap();
    assert_eq!(found.map(|item| item.id).as_deref(), Some("20000"));
}

#[tokio::test]
async fn discarding_is_all_or_nothing() {
    let stage = Stage::open().await;
    let numbers: Vec<String> = held(&stage).await.iter().map(i64::to_string).collect();
    let error = stage.store.discard(&[&numbers[0], "77"]).await.unwrap_err();
    assert_eq!(error, DiscardError::NotFound { id: "77".into() });
    assert_eq!(stage.store.parked_count(), 3);
    assert_eq!(stage.store.discard(&numbers).await, Ok(3));
    assert_eq!(stage.store.parked_count(), 0);
    assert!(!stage.store.holds_key("orders", "POOL", "a"));
    assert_eq!(stage.take(9).await, []);
}

/// What fails again is parked behind all that was parked before, however soon: also before it is noted that it went.
#[tokio::test]
async fn what_holds_no_key_and_fails_again_goes_to_the_end() {
    let stage = Stage::open().await;
    stage.store.park(vec![rejected("1"), rejected("2")]).await.unwrap();
    let replaying = stage.store.begin_replay(&[1], &queues(), true).await.unwrap();
    stage.store.park(vec![rejected("1")]).await.unwrap();
    stage.store.end_replay(&[1]).await.unwrap();
    drop(replaying);
    assert_eq!(
        (numbers(&stage).await, names(&stage).await),
        (vec![2, 3], vec!["m2".to_owned(), "m1".to_owned()])
    );
    assert_eq!(stage.store.parked_count(), 2);
}

/// A key is held by the code that its messages were published with, whichever pool served them.
#[tokio::test]
async fn a_key_is_held_whichever_pool_served_it() {
    let stage = Stage::open().await;
    let first = parked("1", Some("a"), ParkedCode::Exhausted, true);
    let first = Parked { pool: Some("DEFAULT-POOL".into()), ..first };
    stage.store.park(vec![first]).await.unwrap();
    let stage = stage.crash().await;
    assert!(stage.store.holds_key("orders", "POOL", "a"));
    assert!(!stage.store.holds_key("orders", "DEFAULT-POOL", "a"));
    stage.store.park(vec![parked("2", Some("a"), ParkedCode::KeyParked, true)]).await.unwrap();
    let refused = replay(&stage, &[2]).await.unwrap_err();
    assert_eq!(refused, ReplayError::Behind { id: "2".to_owned(), earlier: "1".to_owned() });
    stage.store.discard(&["1", "2"]).await.unwrap();
    assert!(!stage.store.holds_key("orders", "POOL", "a"));
}

/// docs/rules.md#park-2: what comes while a part of its key waits to be replayed follows it, and then the key is free; also
/// when that is cut off and the rest goes later.
#[tokio::test]
async fn what_comes_while_a_key_is_replayed_in_parts_follows_it() {
    for is_cut_off in [false, true] {
        let mut stage = Stage::open().await;
        held(&stage).await;
        for number in 1..=3 {
            let replaying =
                stage.store.begin_part_of_replay(&[number], &queues(), 3).await.unwrap();
            assert_eq!(replaying.begun.len(), 1, "{:?}", replaying.refused);
            let batch = stage.store.returning(&[number]).await.unwrap();
            let messages = batch.messages.into_iter().map(|returning| returning.message);
            stage.queue.put_back(messages.collect()).await.unwrap();
            stage.store.end_replay(&[number]).await.unwrap();
            drop(replaying);
            for delivery in stage.take(1).await {
                assert!(stage.store.lets_pass("orders", &delivery.message.as_ref().unwrap().id));
                over(&stage, &delivery).await;
            }
            if number < 3 {
                let new =
                    parked(&format!("{}", number + 10), Some("a"), ParkedCode::KeyParked, true);
                stage.store.park(vec![new]).await.unwrap();
            }
            if is_cut_off {
                stage = stage.crash().await;
            }
        }
        assert_eq!(stage.store.following(10).await.unwrap(), [4, 5], "cut off: {is_cut_off}");
    }
}
