//! The file: whose it is, of which version, and who else has something in it.

use std::time::Duration;

use rusqlite::Connection;
use sluicegate_event_store::{Engine, Query, SqliteEngine};
use sluicegate_sqlite_file::OpenError;

use crate::stage::{Stage, about, file};

#[tokio::test]
async fn what_was_appended_is_there_again() {
    let stage = Stage::open().await;
    let event = about("k", "ü:v \u{1F600}").tag("l", "2").raw_json("{\"a\": [1, \"\\u00fc\"]}");
    let at = stage.append(vec![event.clone()]).await.unwrap();
    let stage = stage.again().await;
    let events = stage.all(Query::tagged("k", "ü:v \u{1F600}")).await;
    let [stored] = &*events else { panic!("{events:?}") };
    assert_eq!((stored.position(), stored.event_type()), (at, "Said"));
    assert_eq!(stored.tags().collect::<Vec<_>>(), ["k:ü:v \u{1F600}", "l:2"]);
    assert_eq!(stored.data(), event.data().unwrap());
    assert!(stored.time().elapsed().unwrap() < Duration::from_secs(60));
    assert_eq!(stage.engine.head().await.unwrap(), at);
}

#[tokio::test]
async fn a_file_is_served_once() {
    let stage = Stage::open().await;
    let refused = SqliteEngine::open(file(&stage.folder)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Served { .. }), "{refused}");
    stage.again().await.append(vec![about("k", 1)]).await.unwrap();
}

#[tokio::test]
async fn a_newer_file_is_refused_and_left_as_it_is() {
    let stage = Stage::open().await;
    stage.append(vec![about("k", 1)]).await.unwrap();
    let Stage { engine, folder } = stage;
    drop(engine);
    let connection = Connection::open(file(&folder)).unwrap();
    connection.execute("UPDATE events_version SET version = 99", ()).unwrap();
    let refused = SqliteEngine::open(file(&folder)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found: 99, known: 2 }), "{refused:?}");
    connection.execute("UPDATE events_version SET version = 2", ()).unwrap();
    let engine = SqliteEngine::open(file(&folder)).await.unwrap();
    assert_eq!(engine.head().await.unwrap().get(), 1);
}

#[tokio::test]
async fn a_database_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(file(&folder)).unwrap();
    connection.execute_batch("CREATE TABLE theirs (a)").unwrap();
    let refused = SqliteEngine::open(file(&folder)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Foreign), "{refused:?}");
    let tables = "SELECT group_concat(name) FROM sqlite_schema";
    let tables: String = connection.query_row(tables, (), |row| row.get(0)).unwrap();
    assert_eq!(tables, "theirs");
}

#[tokio::test]
async fn positions_go_on_after_a_restart_and_times_never_go_back() {
    let mut stage = Stage::open().await;
    let mut last = 0;
    for round in 0..3 {
        last = stage.append(vec![about("r", round), about("r", round)]).await.unwrap().get();
        stage = stage.again().await;
    }
    assert_eq!(last, 6);
    let events = stage.all(Query::all()).await;
    assert!(events.is_sorted_by_key(sluicegate_event_store::Event::position));
    assert!(events.is_sorted_by_key(sluicegate_event_store::Event::time_ms));
}

#[tokio::test]
async fn the_file_is_for_nobody_else_to_read() {
    let stage = Stage::open().await;
    let mode = std::fs::metadata(file(&stage.folder)).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}
