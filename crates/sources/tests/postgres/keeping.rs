//! What is kept and for how long: ids, buried messages, and the claims of those that died.

use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_dispatch::{
    Demand, Envelope, FoundState, Malformed, Order, Settle, Settled, Source,
};
use sluicegate_sources::postgres::PostgresSource;
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{
    Sql, again, database, done, id, ids, lent, open, receive, settings, strict, until,
};

const WINDOW: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_is_remembered_for_five_minutes_and_then_forgotten() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    let sql = Sql::connect(&url).await;
    let publish = async |id: &str| source.publish(vec![publication(id)]).await.unwrap().duplicates;
    assert_eq!(publish("m1").await, 0);
    sql.run("UPDATE sluicegate.ids SET at = at - interval '299 seconds'").await;
    assert_eq!(publish("m1").await, 1);
    // A duplicate does not begin the five minutes anew.
    sql.run("UPDATE sluicegate.ids SET at = at - interval '1 second'").await;
    assert_eq!(publish("m1").await, 0);
    let received = receive(&source, 2).await;
    assert_eq!(ids(&received), ["m1", "m1"]);
    done(&source, &received).await;
    // Old ids are forgotten bit by bit, but not those whose message waits.
    let many = (0..200).map(|n| publication(&format!("n{n}"))).collect();
    source.publish(many).await.unwrap();
    let received = receive(&source, 199).await;
    done(&source, &received).await;
    sql.run("UPDATE sluicegate.ids SET at = at - interval '10 minutes'").await;
    sql.until("forgotten", "SELECT count(*) FROM sluicegate.ids", 1).await;
    let found = source.find("n199").await.unwrap().unwrap();
    assert_eq!(found.state, FoundState::Ready);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_publish_an_id_at_once_one_does() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (one, two) = (open(&url, WINDOW).await, open(&url, WINDOW).await);
    for round in 0..20 {
        // In opposite orders, which would be a deadlock if they were taken in these.
        let sent: Vec<_> = (0..30).map(|n| publication(&format!("{round}/{n}"))).collect();
        let turned: Vec<_> = sent.iter().rev().cloned().collect();
        let racers = [one.publish(sent.clone()), two.publish(turned), two.publish(sent)];
        let stored: u64 = join_all(racers)
            .await
            .into_iter()
            .map(|it| it.unwrap())
            .map(|it| it.accepted - it.duplicates)
            .sum();
        assert_eq!(stored, 30);
    }
    assert_eq!(one.depth().await.unwrap().waiting, 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_buried_is_kept_apart() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    source
        .publish(vec![publication("m1"), publication("m2"), strict("a1", "a"), strict("a2", "a")])
        .await
        .unwrap();
    let received = receive(&source, 3).await;
    assert_eq!(ids(&received), ["m1", "m2", "a1"]);
    assert!(source.profile().keeps_dead_letters);
    let receipt = |place: usize| received[place].receipt.clone();
    let buried = source
        .settle(vec![receipt(0), receipt(2), receipt(0)].into_iter().map(Settle::park).collect())
        .await
        .unwrap();
    assert_eq!(buried, [Settled::Done, Settled::Done, Settled::Stale]);
    // Its key goes on.
    assert_eq!(ids(&receive(&source, 1).await), ["a2"]);
    let sql = Sql::connect(&url).await;
    let kept = sql.rows("SELECT convert_from(id, 'UTF8'), convert_from(body, 'UTF8') FROM sluicegate.buried ORDER BY seq").await;
    let kept: Vec<(String, String)> = kept.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(kept[0], ("m1".to_owned(), publication("m1").body.to_string()));
    assert_eq!((kept[1].0.as_str(), kept.len()), ("a1", 2));
    assert_eq!(source.depth().await.unwrap().out, 2);
}

/// The claims of one that died are another's long before their windows end; those of a live one are
/// not, however long it was not seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claims_of_the_dead_end() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (dead, alive) = (open(&url, WINDOW).await, open(&url, WINDOW).await);
    let sql = Sql::connect(&url).await;
    sql.until("registered", "SELECT count(*) FROM sluicegate.instances", 2).await;
    for source in [&dead, &alive] {
        source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    }
    alive
        .publish(vec![publication("m1"), strict("a1", "a"), strict("a2", "a"), publication("m2")])
        .await
        .unwrap();
    let theirs = receive(&dead, 2).await;
    assert_eq!(ids(&theirs), ["m1", "a1"]);
    let ours = receive(&alive, 1).await;
    assert_eq!(ids(&ours), ["m2"]);
    drop(dead);
    let long_ago = "UPDATE sluicegate.instances SET seen = clock_timestamp() - interval '1 hour'";
    sql.run(long_ago).await;
    let back = receive(&alive, 2).await;
    assert_eq!(ids(&back), ["m1", "a1"]);
    assert_eq!(back[0].broker_id, theirs[0].broker_id);
    assert_eq!(alive.extend(vec![theirs[0].receipt.clone()]).await.unwrap(), [Settled::Stale]);
    assert_eq!(alive.extend(vec![ours[0].receipt.clone()]).await.unwrap(), [Settled::Done]);
    sql.until("one left", "SELECT count(*) FROM sluicegate.instances", 1).await;
}

/// Begins to receive and gives up, until that has left so many claims behind.
async fn claim_and_go(source: &PostgresSource, sql: &Sql, count: i64) {
    let out = "SELECT count(*) FROM sluicegate.messages WHERE token IS NOT NULL";
    until("claimed", async || {
        match timeout(Duration::from_millis(1), source.receive(Demand::any(5))).await {
            Ok(received) => {
                let back = received.unwrap().into_iter().map(|delivery| Settle {
                    receipt: delivery.receipt,
                    settlement: again(Duration::ZERO, 0),
                });
                source.settle(back.collect()).await.unwrap();
                false
            }
            Err(_) => {
                sleep(Duration::from_millis(50)).await;
                sql.number(out).await == count
            }
        }
    })
    .await;
}

/// What was claimed for a receive that was dropped is handed back soon, as if it had not been out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_takes_is_handed_back() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (one, two) = (open(&url, WINDOW).await, open(&url, WINDOW).await);
    for source in [&one, &two] {
        source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    }
    one.publish(vec![publication("m1"), strict("a1", "a")]).await.unwrap();
    let sql = Sql::connect(&url).await;
    claim_and_go(&one, &sql, 2).await;
    let received = receive(&two, 2).await;
    assert_eq!(ids(&received), ["m1", "a1"]);
    assert!(received.iter().all(|delivery| delivery.attempts == 0));
    // So is what is there when it stops.
    done(&two, &received).await;
    two.publish(vec![publication("m2")]).await.unwrap();
    claim_and_go(&one, &sql, 1).await;
    one.stop().await;
    assert_eq!(ids(&receive(&two, 1).await), ["m2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envelopes_and_bad_bodies() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, WINDOW).await;
    source.publish(vec![publication_in("m1", "P", Some("g"), false)]).await.unwrap();
    let sql = Sql::connect(&url).await;
    sql.run(
        "SELECT sluicegate.publish(1, '{bad}', '{P}', '{g}', '{\"\"}', '{f}', '{0}', ARRAY['\\xff00'::bytea])",
    )
    .await;
    let received = receive(&source, 2).await;
    assert_eq!(id(&received[0]), "m1");
    let Err(Malformed { why, .. }) = &received[1].message else { panic!("it is none") };
    assert!(why.contains("UTF-8"), "{why}");
    done(&source, &received[1..]).await;
    drop(source);
    // The same message for a handler written in Rust.
    sql.run("UPDATE sluicegate.messages SET until = now()").await;
    let source: PostgresSource<Envelope> =
        PostgresSource::open(settings(&url, WINDOW)).await.unwrap();
    let received = source.receive(Demand::any(1)).await.unwrap();
    let envelope = received[0].message.as_ref().unwrap();
    assert_eq!((envelope.id.as_deref(), envelope.group.as_deref()), (Some("m1"), Some("g")));
    assert_eq!(&envelope.body[..], publication_in("m1", "P", Some("g"), false).body.as_bytes());
    assert!(envelope.redelivered);
    assert_eq!(envelope.routing_key.as_deref(), Some("orders"));
}

/// While thousands of messages go through, windows of what is out are extended, in time, and none is said to
/// have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_are_extended_in_a_flood() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(30)).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    let held = (0..200).map(|n| match n % 2 {
        0 => strict(&format!("held {n}"), &format!("held {n}")),
        _ => publication(&format!("held {n}")),
    });
    source.publish(held.collect()).await.unwrap();
    let held = receive(&source, 200).await;
    let end = Instant::now() + Duration::from_secs(4);
    let publish = async {
        let mut round = 0;
        while Instant::now() < end {
            round += 1;
            let sent = (0..200).map(|n| match n % 2 {
                0 => strict(&format!("{round}/{n}"), &format!("{n}")),
                _ => publication(&format!("{round}/{n}")),
            });
            source.publish(sent.collect()).await.unwrap();
        }
    };
    let consume = async || {
        while Instant::now() < end {
            let some = source.receive(Demand::any(50)).await.unwrap();
            done(&source, &some).await;
        }
    };
    let extend = async {
        let mut longest = Duration::ZERO;
        while Instant::now() < end {
            let begun = Instant::now();
            let receipts = held.iter().map(|delivery| delivery.receipt.clone()).collect();
            let answers = source.extend(receipts).await.unwrap();
            assert_eq!(answers, vec![Settled::Done; 200]);
            longest = longest.max(begun.elapsed());
            sleep(Duration::from_millis(50)).await;
        }
        longest
    };
    let ((), (), (), longest) = tokio::join!(publish, consume(), consume(), extend);
    println!("the slowest extension took {longest:?}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    done(&source, &held).await;
}
