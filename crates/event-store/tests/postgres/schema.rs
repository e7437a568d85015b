//! The tables make themselves, once, and are not to be changed by anybody else.

use std::sync::Arc;

use sluicegate_event_store::postgres::{OpenError, PostgresEngine, PostgresSettings};
use sluicegate_event_store::{Engine, Query};
use tokio::sync::Barrier;

use crate::stage::{Crowd, Sql, all, append, database, database_with, event, lent, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_engines_that_start_at_once_make_the_tables_once() {
    let Some(server) = lent() else { return };
    for _ in 0..5 {
        let url = database(server.url()).await;
        let barrier = Arc::new(Barrier::new(4));
        let mut crowd = Crowd::new();
        for n in 0..4 {
            let (url, barrier) = (url.clone(), Arc::clone(&barrier));
            crowd
                .join(async move {
                    barrier.wait().await;
                    let engine = open(&url).await;
                    append(&*engine, vec![event("Opened", &format!("by:{n}"))], None)
                        .await
                        .unwrap();
                })
                .await;
        }
        crowd.results().await;
        let sql = Sql::connect(&url).await;
        assert_eq!(sql.number("SELECT count(*) FROM sluicegate.event_version").await, 1);
        assert_eq!(all(&*open(&url).await, Query::all(), 10).await.len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_newer_version_are_left_alone() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let older = open(&url).await;
    let sql = Sql::connect(&url).await;
    sql.run("INSERT INTO sluicegate.event_version VALUES (3, now())").await;
    let refused = PostgresEngine::open(PostgresSettings::parse(&url).unwrap()).await.unwrap_err();
    assert_eq!(refused, OpenError::Newer { found: 3, known: 2 });
    assert!(refused.to_string().contains("version 3"), "{refused}");
    assert!(refused.to_string().contains("version 2"), "{refused}");
    // Who runs already goes on: what it calls is still there.
    append(&*older, vec![event("A", "k:v")], None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_cannot_hold_every_text_is_refused() {
    let Some(server) = lent() else { return };
    let how = "ENCODING 'LATIN1' TEMPLATE template0";
    let url = database_with(server.url(), how).await;
    let refused = PostgresEngine::open(PostgresSettings::parse(&url).unwrap()).await.unwrap_err();
    assert!(matches!(&refused, OpenError::Refused(why) if why.contains("LATIN1")), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_by_the_lock_is_refused() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    append(&*engine, vec![event("A", "k:v")], None).await.unwrap();
    let sql = Sql::connect(&url).await;
    for statement in [
        "INSERT INTO sluicegate.events VALUES (9, now(), NULL, 1, 'A', '{k:v}', '{}')",
        "INSERT INTO sluicegate.event_keys VALUES ('k:v', 9)",
        "COPY sluicegate.event_keys FROM PROGRAM 'true'",
        "UPDATE sluicegate.events SET type = 'B'",
        "DELETE FROM sluicegate.events",
        "TRUNCATE sluicegate.events",
        "UPDATE sluicegate.event_keys SET position = 2",
        "DELETE FROM sluicegate.event_keys",
        "TRUNCATE sluicegate.event_keys",
    ] {
        let why = sql.refused(statement).await;
        assert_eq!(why, "events are only appended, and only by append_events", "{statement}");
    }
    assert_eq!(all(&*engine, Query::tagged("k", "v"), 10).await.len(), 1);
    let position = append(&*engine, vec![event("B", "k:v")], None).await.unwrap();
    assert_eq!(engine.head().await.unwrap(), position);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_opened_says_why_without_secrets() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let sql = Sql::connect(&url).await;
    let role = url.rsplit('/').next().unwrap().to_owned();
    sql.run(&format!("CREATE ROLE {role} LOGIN PASSWORD 's3cret'")).await;
    let cases = [
        (url.replace("postgres@", &format!("{role}:s3cret@")), "grant CREATE on the database"),
        (format!("{url}_not"), "create the database"),
        (url.replace("postgres@", "nobody_at_all:s3cret@"), "check the user"),
    ];
    for (url, advice) in cases {
        let settings = PostgresSettings::parse(&url).unwrap();
        let refused = PostgresEngine::open(settings).await.unwrap_err();
        assert!(matches!(&refused, OpenError::Refused(why) if why.contains(advice)), "{refused}");
        assert!(!format!("{refused} {refused:?}").contains("s3cret"), "{refused:?}");
    }
    let nowhere = PostgresSettings::parse("postgres://me:s3cret@127.0.0.1:1/d").unwrap();
    let unreachable = PostgresEngine::open(nowhere).await.unwrap_err();
    assert!(matches!(&unreachable, OpenError::Unreachable(_)), "{unreachable}");
    assert!(!format!("{unreachable:?}").contains("s3cret"));
    sql.run(&format!("DROP ROLE {role}")).await;
}
