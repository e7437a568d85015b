//! Ids that were seen: for five minutes and not longer, and forgotten afterwards.

use std::time::Duration;

use rusqlite::Connection;
use sluicegate_dispatch::{Discarded, Source};
use sluicegate_sources::sqlite::{Clock, StoreSettings};
use sluicegate_sources::wire;
use tokio::time::advance;

use crate::stage::{Stage, state};

const MEMORY: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn an_id_is_remembered_for_five_minutes() {
    let stage = Stage::open().await;
    assert_eq!(stage.publish(&["m1"]).await, 0);
    advance(MEMORY - Duration::from_millis(1)).await;
    assert_eq!(stage.publish(&["m1"]).await, 1);
    // A duplicate does not begin the five minutes anew.
    advance(Duration::from_millis(1)).await;
    assert_eq!(stage.publish(&["m1", "m1"]).await, 1);
    assert_eq!(stage.take_ids(9).await, ["m1", "m1"]);
}

#[tokio::test(start_paused = true)]
async fn an_id_is_remembered_over_a_crash_and_per_queue() {
    let clock = Clock::system();
    let settings = || {
        let mut settings = StoreSettings::default();
        settings.clock = Some(clock.clone());
        settings
    };
    let stage = Stage::open_with(tempfile::tempdir().unwrap(), settings()).await;
    stage.publish(&["m1"]).await;
    let received = stage.take(1).await;
    stage.done(&received[0]).await;
    let Stage { store, queue, folder } = stage;
    drop((store, queue));
    advance(MEMORY / 2).await;
    let stage = Stage::open_with(folder, settings()).await;
    assert_eq!(stage.publish(&["m1"]).await, 1);
    let other = stage.store.queue("other", MEMORY).await.unwrap();
    let sent = sluicegate_testkit::conformance::source::publication("m1");
    assert_eq!(other.publish(vec![sent]).await.unwrap().duplicates, 0);
    advance(MEMORY / 2).await;
    assert_eq!(stage.publish(&["m1"]).await, 0);
}

/// The wall clock was a day ahead, and was set right between two runs.
#[tokio::test]
async fn an_id_that_was_seen_by_a_clock_that_was_ahead_is_not_a_duplicate_for_as_long() {
    let stage = Stage::open().await;
    stage.publish(&["m1"]).await;
    let received = stage.take(1).await;
    stage.done(&received[0]).await;
    let Stage { store, queue, folder } = stage;
    drop((store, queue));
    let file = Connection::open(state(&folder)).unwrap();
    let day = 86_400_000;
    let ten_minutes = 600_000;
    file.execute("UPDATE ids SET at = at + ?1", [day - ten_minutes]).unwrap();
    drop(file);
    let stage = Stage::open_in(folder).await;
    assert_eq!(stage.publish(&["m1"]).await, 0);
    assert_eq!(stage.publish(&["m1"]).await, 1, "and now it is one");
    assert_eq!(stage.take_ids(9).await, ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn old_ids_are_forgotten_bit_by_bit() {
    let stage = Stage::open().await;
    let connection = Connection::open(state(&stage.folder)).unwrap();
    let remembered = || -> i64 {
        connection.query_row("SELECT count(*) FROM ids", (), |row| row.get(0)).unwrap()
    };
    let batch = |round: usize| (0..100).map(move |n| format!("m{}", round * 100 + n));
    let mut most = 0;
    for round in 0..60 {
        let sent: Vec<String> = batch(round).collect();
        let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
        stage.publish(&sent).await;
        stage.all_done(stage.take(100).await).await;
        most = most.max(remembered());
        advance(Duration::from_secs(30)).await;
    }
    // A thousand are of the last five minutes; the sweep is behind by a third of that.
    assert!((1000..1600).contains(&most), "{most} were remembered");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_is_found_however_old_it_is() {
    let stage = Stage::open().await;
    stage.publish(&["old"]).await;
    advance(MEMORY * 2).await;
    for n in 0..20 {
        stage.publish(&[&format!("m{n}")]).await;
    }
    let found = stage.queue.find("old").await.unwrap().unwrap();
    assert!(found.age >= MEMORY * 2, "{:?}", found.age);
}

/// The database itself reads no JSON that is nested deeper than a thousand.
#[tokio::test(start_paused = true)]
async fn a_message_is_found_however_deep_it_is() {
    let stage = Stage::open().await;
    let payload = format!("{}1{}", "[".repeat(1_100), "]".repeat(1_100));
    let body = format!(
        r#"{{"id":"deep","poolCode":"A","mediationTarget":"http://127.0.0.1:1/","payload":{payload}}}"#
    );
    stage.queue.publish(vec![wire::publication(&body).unwrap()]).await.unwrap();
    assert!(stage.queue.find("deep").await.unwrap().is_some());
    assert_eq!(stage.store.stored_in_any("deep").await.unwrap().len(), 1);
    assert_eq!(stage.queue.discard("deep").await, Ok(Discarded::Done));
    assert!(stage.queue.find("deep").await.unwrap().is_none());
}
