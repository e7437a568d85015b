//! Tables of earlier versions become those of the latest, with all that is in them.

use std::time::Duration;

use sluicegate_dispatch::{FoundState, Order, Reason, Rest, Settle, Settled, Source};
use tokio::time::Instant;

use crate::stage::{PATIENCE, Sql, database, done, gone, id, ids, lent, open, receive};

/// The tables and functions as version 1 made them.
fn version_1() -> String {
    let lock = "1";
    include_str!("version_1.sql").replace("{s}", "sluicegate").replace("{lock}", lock)
}

/// A queue as a daemon of version 1 leaves it: messages that wait, that are late, that were tried, that are
/// out by themselves and as the head of their key, and one that is buried.
async fn old(sql: &Sql) {
    sql.run(
        "CREATE SCHEMA sluicegate;
         CREATE TABLE sluicegate.version (number int PRIMARY KEY, at timestamptz NOT NULL);
         INSERT INTO sluicegate.version VALUES (1, now());",
    )
    .await;
    sql.run(&version_1()).await;
    let message = |n: i64, id: &str, pool: &str, group: &str, more: &str| {
        let body = format!(
            r#"{{"id":"{id}","poolCode":"{pool}","mediationType":"HTTP","mediationTarget":"http://localhost/in"}}"#
        );
        format!(
            "INSERT INTO sluicegate.ids (queue, id, seq, at) VALUES (1, '{id}', {n}, now());
             INSERT INTO sluicegate.messages
                (seq, at, place, queue, attempts, state, rank, high, id, pool, grp, body, until, token, reason)
             SELECT {n}, now(), {n}, 1, o.attempts, 0, 2, false, '{id}', '{pool}', '{group}', '{body}',
                now() + o.until * interval '1 second', o.token, o.reason
             FROM (SELECT {more}) AS o (attempts, until, token, reason);"
        )
    };
    let sent = [
        message(1, "plain", "P", "__DEFAULT__", "0, NULL::int, NULL::bigint, NULL"),
        message(2, "late", "P", "g", "0, 3600, NULL::bigint, 'scheduled'"),
        message(3, "tried", "P", "g", "4, NULL::int, NULL::bigint, 'failed'"),
        message(4, "out", "P", "g", "1, 3600, 77, NULL"),
        message(5, "a1", "STRICT", "a", "0, NULL::int, NULL::bigint, NULL"),
        message(6, "a2", "STRICT", "a", "0, NULL::int, NULL::bigint, NULL"),
        message(7, "b1", "STRICT", "b", "3, 2, NULL::bigint, 'failed'"),
        message(8, "b2", "STRICT", "b", "0, NULL::int, NULL::bigint, NULL"),
    ];
    sql.run("INSERT INTO sluicegate.queues (name) VALUES ('orders')").await;
    sql.run(&sent.concat()).await;
    sql.run(
        "SELECT setval('sluicegate.numbers', 8); SELECT setval('sluicegate.tokens', 100);
         UPDATE sluicegate.messages SET state = 1 WHERE id IN ('tried', 'out');
         INSERT INTO sluicegate.buried (seq, queue, at, buried_at, attempts, id, pool, grp, body)
         VALUES (0, 1, now(), now(), 9, 'dead', 'P', 'g', '{}');
         SELECT sluicegate.fold(1, '{5,6,7,8}', now());
         UPDATE sluicegate.messages SET rank = 0 WHERE id = 'b1';
         UPDATE sluicegate.keys SET head = 5, token = 88, until = now() + interval '1 hour' WHERE grp = 'a';",
    )
    .await;
}

fn receipt(seq: u64, mark: u64) -> sluicegate_dispatch::Receipt {
    sluicegate_dispatch::Receipt { tag: seq, generation: mark, handle: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_taken_over() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let sql = Sql::connect(&url).await;
    old(&sql).await;
    let begun = Instant::now();
    let source = open(&url, Duration::from_secs(60)).await;
    source.health().unwrap();
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    let depth = source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (4, 2, 2));
    assert_eq!(sql.number("SELECT count(*) FROM sluicegate.buried WHERE attempts = 9").await, 1);
    // What waits, with its attempts; what is out holds its key.
    let received = receive(&source, 2).await;
    assert_eq!(ids(&received), ["plain", "tried"]);
    assert_eq!(received[1].attempts, 4);
    done(&source, &received).await;
    for (id, state) in [("out", FoundState::Out), ("a1", FoundState::Out)] {
        assert_eq!(source.find(id).await.unwrap().unwrap().state, state);
    }
    let behind = source.find("a2").await.unwrap().unwrap().state;
    assert_eq!(behind, FoundState::Behind("a1".into()));
    // A late head keeps its delay, its attempts and its place.
    let head = receive(&source, 1).await;
    assert_eq!((id(&head[0]), head[0].attempts), ("b1".to_owned(), 3));
    assert!(begun.elapsed() > Duration::from_secs(1), "it came too early");
    done(&source, &head).await;
    assert_eq!(ids(&receive(&source, 1).await), ["b2"]);
    // Receipts of before are good.
    let old = vec![receipt(4, 77), receipt(5, 88)];
    assert_eq!(source.extend(old.clone()).await.unwrap(), [Settled::Done, Settled::Done]);
    let settled = source.settle(old.into_iter().map(Settle::ack).collect()).await.unwrap();
    assert_eq!(settled, [Settled::Done, Settled::Done]);
    let next = receive(&source, 1).await;
    assert_eq!(ids(&next), ["a2"]);
    assert_eq!(source.settle(vec![gone(&next[0])]).await.unwrap(), [Settled::Done]);
    // Ids are still known, and numbers go on.
    let again = sluicegate_testkit::conformance::source::publication("late");
    assert_eq!(source.publish(vec![again]).await.unwrap().duplicates, 1);
    let late = source.find("late").await.unwrap().unwrap().state;
    assert!(matches!(late, FoundState::Delayed { rest, .. } if rest > PATIENCE), "{late:?}");
}

/// A daemon of version 1 that goes on beside a new one is told so, and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_daemon_can_neither_claim_nor_publish() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let sql = Sql::connect(&url).await;
    old(&sql).await;
    let source = open(&url, Duration::from_secs(60)).await;
    for (statement, why) in [
        ("SELECT * FROM sluicegate.claim(1, '{}', 10, 1000, 1000, 1)", "does not exist"),
        ("INSERT INTO sluicegate.messages (seq, state) VALUES (1, 0)", "does not exist"),
        ("SELECT sluicegate.reorder(1, '{}', 10)", "does not exist"),
    ] {
        let error = sql.refused(statement).await;
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(source.depth().await.unwrap().waiting, 4);
}

/// The tables of version 2 become the latest while a daemon still works with them, and nobody notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_version_goes_on_under_a_daemon_that_runs() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let sql = Sql::connect(&url).await;
    let window = Duration::from_secs(60);
    let running = open(&url, window).await;
    let message = sluicegate_testkit::conformance::source::publication;
    running.publish(["m1", "m2", "m3"].map(message).into()).await.unwrap();
    let out = receive(&running, 2).await;
    running.extend(vec![out[0].receipt.clone()]).await.unwrap();
    sql.run(
        "ALTER TABLE sluicegate.messages DROP COLUMN rests;
         DROP FUNCTION sluicegate.rest, sluicegate.take_in, sluicegate.name_in;
         DROP FUNCTION public.sluicegate_publish, sluicegate.sluicegate_publish;
         DROP TABLE sluicegate.outbox;
         UPDATE sluicegate.version SET number = 2;",
    )
    .await;
    let source = open(&url, window).await;
    assert_eq!(sql.number("SELECT max(number)::bigint FROM sluicegate.version").await, 5);
    assert_eq!(ids(&receive(&source, 1).await), ["m3"]);
    let receipts = out.iter().map(|delivery| delivery.receipt.clone()).collect();
    assert_eq!(running.extend(receipts).await.unwrap(), [Settled::Done, Settled::Done]);
    let (receipt, reason) = (out[0].receipt.clone(), Reason::Failed);
    let rest = Rest { receipt, after: window, attempts: 1, reason };
    assert_eq!(source.rest(vec![rest]).await.unwrap(), [Settled::Done]);
    done(&running, &out).await;
}
