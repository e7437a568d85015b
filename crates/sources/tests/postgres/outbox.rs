//! Publishing within a transaction of the service's own, by `sluicegate_publish`.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Order, Source};
use sluicegate_testkit::conformance::source::publication;

use crate::stage::{Sql, database, done, ids, lent, open, receive, strict, until};

const WINDOW: Duration = Duration::from_secs(3600);

/// What publishes a message of a strict group.
fn publish(id: &str) -> String {
    let message = format!(
        r#"{{"id": "{id}", "poolCode": "STRICT", "messageGroupId": "g", "mediationTarget": "http://localhost/in"}}"#
    );
    format!("SELECT sluicegate_publish('orders', '{message}');")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_is_delivered_in_order_and_what_is_rolled_back_never() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    source.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    let service = Sql::connect(&url).await;
    service.run("CREATE TABLE payments (id text)").await;
    let paid = "BEGIN; INSERT INTO payments VALUES ('p1');";
    service.run(&format!("{paid} {} {} COMMIT;", publish("m1"), publish("m2"))).await;
    service.run(&format!("{paid} {} ROLLBACK;", publish("never"))).await;
    // An id that was seen shortly before is not stored again.
    service.run(&format!("{} {}", publish("m1"), publish("m3"))).await;
    for id in ["m1", "m2", "m3"] {
        let received = receive(&source, 1).await;
        assert_eq!(ids(&received), [id]);
        let message = received[0].message.as_ref().unwrap();
        assert_eq!((&*message.pool, message.group.as_deref()), ("STRICT", Some("g")));
        done(&source, &received).await;
    }
    assert_eq!(source.depth().await.unwrap().waiting, 0);
}

/// A transaction that takes its time stands in nobody's way, not even in that of its own group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_stays_open_holds_up_nobody() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    source.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    source.publish(vec![strict("m1", "g")]).await.unwrap();
    let service = Sql::connect(&url).await;
    service.run(&format!("BEGIN; {}", publish("late"))).await;
    let first = receive(&source, 1).await;
    assert_eq!(ids(&first), ["m1"]);
    source.publish(vec![strict("m2", "g"), publication("other")]).await.unwrap();
    Sql::connect(&url).await.run(&publish("m3")).await;
    done(&source, &first).await;
    let received = receive(&source, 2).await;
    assert_eq!(ids(&received), ["m2", "other"]);
    done(&source, &received).await;
    let received = receive(&source, 1).await;
    assert_eq!(ids(&received), ["m3"]);
    done(&source, &received).await;
    service.run("COMMIT").await;
    assert_eq!(ids(&receive(&source, 1).await), ["late"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_waits_until_somebody_receives_and_is_counted_meanwhile() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    let service = Sql::connect(&url).await;
    drop(source);
    // Whoever drops a source may still take in what it was told of: its connections are gone first.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                  AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    service.until("alone", others, 0).await;
    service.run(&format!("{} {}", publish("m1"), publish("m2"))).await;
    assert_eq!(service.number("SELECT count(*) FROM sluicegate.outbox").await, 2);
    let source = open(&url, WINDOW).await;
    assert_eq!(source.depth().await.unwrap().waiting, 2);
    assert_eq!(ids(&receive(&source, 2).await), ["m1", "m2"]);
    assert_eq!(service.number("SELECT count(*) FROM sluicegate.outbox").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_daemons_take_each_message_in_once_and_in_order() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let sources = [open(&url, WINDOW).await, open(&url, WINDOW).await, open(&url, WINDOW).await];
    let service = Sql::connect(&url).await;
    let many = "SELECT sluicegate_publish('orders', jsonb_build_object('id', 'm' || n, 'messageGroupId', 'g', \
                'mediationTarget', 'http://localhost/in')) FROM generate_series($1::int, $1 + 1499) n";
    for first in [0, 1500] {
        service.run(&many.replace("$1", &first.to_string())).await;
    }
    service.until("taken in", "SELECT count(*) FROM sluicegate.messages", 3000).await;
    let ordered = "SELECT count(*) FROM (SELECT id, lag(seq) OVER (ORDER BY substr(convert_from(id, 'UTF8'), 2)::int) \
                   > seq AS wrong FROM sluicegate.messages) o WHERE wrong";
    assert_eq!(service.number(ordered).await, 0);
    drop(sources);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_begins_when_it_is_published() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    let service = Sql::connect(&url).await;
    let message = r#"{"id": "m1", "delaySeconds": 3600, "highPriority": true, "tenant": "t", "mediationTarget": "http://localhost/in"}"#;
    service.run(&format!("SELECT sluicegate_publish('orders', '{message}')")).await;
    until("late", async || source.depth().await.unwrap().delayed == 1).await;
    let rest = "SELECT count(*) FROM sluicegate.messages WHERE high AND tenant = 't' \
                AND until BETWEEN now() + interval '50 minutes' AND now() + interval '1 hour'";
    assert_eq!(service.number(rest).await, 1);
}

/// The caller hears it, in the very transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_named_and_nothing_is_published() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    let service = Sql::connect(&url).await;
    let long = "x".repeat(513);
    let cases = [
        (
            r#"{"mediationTarget": "http://h/"}"#,
            "id is missing or empty; it must have 1 to 512 bytes",
        ),
        (r#"{"id": ""}"#, "id is missing or empty; it must have 1 to 512 bytes"),
        (r#"{"id": 7}"#, "id must be a string, not number"),
        (r#"["m1"]"#, "the message must be an object, not array"),
        (r#"{"id": "m", "poolCode": true}"#, "poolCode must be a string, not boolean"),
        (
            r#"{"id": "m", "highPriority": "yes"}"#,
            "highPriority must be true or false, not \"yes\"",
        ),
        (
            r#"{"id": "m", "delaySeconds": -1}"#,
            "delaySeconds is -1; a whole number from 0 to 315360000 is right",
        ),
        (
            r#"{"id": "m", "delaySeconds": 1.5}"#,
            "delaySeconds is 1.5; a whole number from 0 to 315360000 is right",
        ),
        (r#"{"id": "m", "delaySeconds": 1e99}"#, "a whole number from 0 to 315360000 is right"),
        (r#"{"id": "m", "mediationTarget": 1}"#, "mediationTarget must be a string, not number"),
        (
            &*format!(r#"{{"id": "m", "tenant": "{long}"}}"#),
            "tenant has 513 bytes; at most 512 are right",
        ),
        (
            &*format!(r#"{{"id": "m", "payload": "{}"}}"#, "x".repeat(1 << 20)),
            "at most 1048576 are right",
        ),
    ];
    for (message, why) in cases {
        let error =
            service.refused(&format!("SELECT sluicegate_publish('orders', '{message}')")).await;
        assert!(error.contains(why), "{message:.80}: {error}");
    }
    let error = service.refused("SELECT sluicegate_publish('nope', '{\"id\": \"m\"}')").await;
    assert_eq!(error, "there is no queue 'nope'");
    let error = service.refused("SELECT sluicegate_publish('orders', NULL)").await;
    assert_eq!(error, "the message is null");
    assert_eq!(source.depth().await.unwrap().waiting, 0);
}
