//! A disk that is full.

use sluicegate_event_store::{AppendError, Query, SqliteSettings};

use crate::stage::{Stage, about, append, at_once, file};

fn long(n: usize) -> sluicegate_event_store::NewEvent {
    about("long", n).raw_json(format!("\"{}\"", "x".repeat(50_000)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_what_does_not_fit_and_heals() {
    let mut settings = SqliteSettings::default();
    settings.max_pages = Some(60);
    let stage = Stage::open_with(settings).await;
    let appender = |n: usize| {
        let engine = stage.engine.clone();
        // A long one and a short one by turns: what fits is written although it came with what does not.
        let event = if n.is_multiple_of(2) { long(n) } else { about("short", n) };
        async move { append(&engine, vec![event], None).await }
    };
    let answers = at_once((0..20).map(appender)).await;
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Err(AppendError::Failed(error)) => assert_eq!(error.cause, "the disk is full"),
            answer => assert!(answer.is_ok(), "{n}: {answer:?}"),
        }
    }
    let is_there = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!((10..20).contains(&is_there), "{is_there}");
    assert_eq!(stage.all(Query::all()).await.len(), is_there);

    // The engine goes on by itself once there is room: here the next one gets by with what is left.
    let refused = stage.append(vec![long(99), long(99)]).await.unwrap_err();
    assert!(stage.engine.failure().is_some(), "{refused}");
    stage.append(vec![about("short", 99)]).await.unwrap();
    assert_eq!(stage.engine.failure(), None);
    let Stage { engine, folder } = stage;
    drop(engine);
    let engine = sluicegate_event_store::SqliteEngine::open(file(&folder)).await.unwrap();
    append(&engine, vec![long(99), long(99)], None).await.unwrap();
    assert_eq!(crate::stage::all(&engine, Query::all()).await.len(), is_there + 3);
}
