//! Parked messages that come from another daemon: each is there once, and is no other message.

use std::collections::HashSet;

use sluicegate_dispatch::{Parked, ParkedCode, ParkedStore, Source};
use sluicegate_sources::sqlite::{ParkedFilter, ParkedRecord};
use sluicegate_testkit::conformance::source::publication;

use crate::stage::{Stage, ids};

fn record(number: i64, broker_id: &str, id: &str) -> ParkedRecord {
    ParkedRecord {
        number,
        queue: "orders".into(),
        broker_id: broker_id.into(),
        pool: Some("POOL".into()),
        code: "rejected".into(),
        reason: "HTTP 400".into(),
        status: Some(400),
        attempts: 1,
        parked_at: 1_700_000_000_000,
        holds_key: false,
        last_error: None,
        body: format!(
            "{{\"id\":\"{id}\",\"poolCode\":\"POOL\",\"mediationTarget\":\"http://h/\"}}"
        ),
    }
}

fn text(number: i64, broker_id: &str, text: &str) -> ParkedRecord {
    ParkedRecord {
        code: "malformed".into(),
        pool: None,
        body: text.into(),
        ..record(number, broker_id, "")
    }
}

fn parked(broker_id: &str, id: &str) -> Parked {
    Parked {
        queue: "orders".into(),
        broker_id: broker_id.into(),
        pool: Some("POOL".into()),
        code: ParkedCode::Rejected,
        reason: "HTTP 400".into(),
        status: Some(400),
        attempts: 1,
        holds_key: false,
        last_error: None,
        message: Ok(publication(id).message),
    }
}

async fn names(stage: &Stage) -> Vec<String> {
    let page = stage.store.parked(&ParkedFilter::default(), None, 1000).await.unwrap();
    let name = |id: Option<std::sync::Arc<str>>| id.map_or("-".to_owned(), |id| id.to_string());
    page.items.into_iter().map(|item| name(item.message_id)).collect()
}

/// `(added, present)`
async fn import(stage: &Stage, records: Vec<ParkedRecord>) -> (u64, u64) {
    let imported = stage.store.import_parked(records, 0).await.unwrap();
    (imported.added, imported.present)
}

async fn replay(stage: &Stage, number: i64) -> Result<(), String> {
    let queues = HashSet::from(["orders".to_owned()]);
    let _begun = stage.store.begin_replay(&[number], &queues, true).await.unwrap();
    let batch = stage.store.returning(&[number]).await.unwrap();
    let messages = batch.messages.into_iter().map(|returning| returning.message);
    stage.queue.put_back(messages.collect()).await.map_err(|error| error.to_string())?;
    stage.store.end_replay(&[number]).await.unwrap();
    Ok(())
}

/// The embedded queues of all daemons count from 1.
#[tokio::test]
async fn messages_of_another_daemon_are_others() {
    let stage = Stage::open().await;
    stage.store.park(vec![parked("1", "here-1"), parked("2", "here-2")]).await.unwrap();
    let there = vec![record(1, "1", "there-1"), record(2, "2", "there-2"), text(3, "3", "{a")];
    let elsewhere = vec![record(1, "1", "else-1"), text(3, "3", "{b")];
    assert_eq!(import(&stage, there.clone()).await, (3, 0));
    assert_eq!(import(&stage, elsewhere.clone()).await, (2, 0));
    let all = ["here-1", "here-2", "there-1", "there-2", "-", "else-1", "-"];
    assert_eq!(names(&stage).await, all);
    // A second time they are there.
    assert_eq!(import(&stage, there).await, (0, 3));
    assert_eq!(import(&stage, elsewhere).await, (0, 2));
    // And so is what goes out of here and comes back, with its tokens or without.
    let out = stage.store.parked_records(&ParkedFilter::default(), 0, 10).await.unwrap();
    assert_eq!(import(&stage, out).await, (0, 7));
    assert_eq!(names(&stage).await, all);
}

#[tokio::test]
async fn the_same_id_with_other_content_is_another_message() {
    let stage = Stage::open().await;
    let mut other = record(1, "1", "m1");
    other.body = other.body.replace("http://h/", "http://other/");
    let mut later = record(1, "1", "m1");
    later.parked_at += 1;
    assert_eq!(import(&stage, vec![record(1, "1", "m1"), other, later]).await, (3, 0));
    assert_eq!(names(&stage).await, ["m1", "m1", "m1"]);
}

/// Whatever numbers the lines have, what comes later gets one.
#[tokio::test]
async fn no_imported_number_uses_up_those_of_the_file() {
    let stage = Stage::open().await;
    let last = [i64::MAX, i64::MAX - 1, 1 << 60];
    let records = last.iter().map(|number| record(*number, "1", &format!("m{number}"))).collect();
    assert_eq!(import(&stage, records).await, (3, 0));
    stage.store.park(vec![parked("2", "here")]).await.expect("there is a number left");
    let numbers = stage.store.parked_numbers(&ParkedFilter::default(), 0, 9).await.unwrap();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

/// A message that happens to have the place which the imported one had elsewhere is another message.
#[tokio::test]
async fn an_imported_message_is_replayed_beside_one_that_has_its_old_place() {
    let stage = Stage::open().await;
    stage.publish(&["live-1", "live-2"]).await;
    let out = stage.take(1).await;
    assert_eq!(ids(&out), ["live-1"]);
    assert_eq!(import(&stage, vec![record(1, "1", "m1"), record(2, "2", "m2")]).await, (2, 0));
    replay(&stage, 1).await.unwrap();
    replay(&stage, 2).await.unwrap();
    assert_eq!(stage.take_ids(9).await, ["live-2", "m1", "m2"]);
    stage.done(&out[0]).await;
}

/// So it is where a queue of that name was a broker's once, which counted in the same way.
#[tokio::test]
async fn a_parked_message_is_replayed_beside_another_that_has_its_place() {
    let stage = Stage::open().await;
    stage.publish(&["live-1"]).await;
    let out = stage.take(1).await;
    stage.store.park(vec![parked("1", "m1")]).await.unwrap();
    replay(&stage, 1).await.unwrap();
    assert_eq!(stage.take_ids(9).await, ["m1"]);
    stage.done(&out[0]).await;
}

/// It was parked, and its queue has not heard of that: it is there, however it was written.
#[tokio::test]
async fn what_is_still_in_its_queue_is_not_put_there_again() {
    let stage = Stage::open().await;
    let text = r#"{ "mediationTarget": "http://h/x", "id": "m1", "poolCode": "POOL" }"#;
    let sent = sluicegate_sources::wire::publication(text).unwrap();
    stage.queue.publish(vec![sent]).await.unwrap();
    let taken = stage.take(1).await;
    let row = Parked {
        broker_id: taken[0].broker_id.clone(),
        message: Ok(taken[0].message.clone().unwrap()),
        ..parked("1", "m1")
    };
    stage.store.park(vec![row]).await.unwrap();
    let stage = stage.crash().await;
    replay(&stage, 1).await.unwrap();
    assert_eq!(stage.take_ids(9).await, ["m1"]);
    assert_eq!(stage.queue.depth().await.unwrap().waiting, 0);
}
