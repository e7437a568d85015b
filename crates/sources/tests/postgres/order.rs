//! Order among several instances: whatever they do at once, of a key one message is out at most, and
//! they come in order.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use sluicegate_dispatch::{Delivery, Demand, FoundState, Order, Settle, Settled, Source};
use sluicegate_sources::postgres::PostgresSource;
use sluicegate_testkit::conformance::source::publication_in;
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{
    PATIENCE, Sql, again, database, done, gone, id, ids, lent, open, receive, strict,
};

const INSTANCES: usize = 4;
const KEYS: usize = 12;
const EACH: usize = 20;
const FREE: usize = 120;

/// What is out and what is done, as seen by those who receive.
#[derive(Default)]
struct Watch {
    out: HashSet<String>,
    done: BTreeMap<String, usize>,
    free: HashSet<String>,
    retries: usize,
}

impl Watch {
    /// A message came: it is the next of its key, and no other of it is out.
    fn came(&mut self, delivery: &Delivery) {
        let id = id(delivery);
        let Some((key, number)) = id.split_once('/') else {
            assert!(!self.free.contains(&id), "{id} came after it was done");
            return;
        };
        let next = self.done.get(key).copied().unwrap_or(0);
        assert_eq!(number.parse::<usize>().unwrap(), next, "{id} is not the next of its key");
        assert!(self.out.insert(key.to_owned()), "two of {key} are out");
    }

    /// It is about to be settled.
    fn goes(&mut self, delivery: &Delivery, is_done: bool) {
        let id = id(delivery);
        let Some((key, _)) = id.split_once('/') else {
            if is_done {
                assert!(self.free.insert(id), "done twice");
            }
            return;
        };
        assert!(self.out.remove(key));
        if is_done {
            *self.done.entry(key.to_owned()).or_default() += 1;
        } else {
            self.retries += 1;
        }
    }

    fn is_over(&self) -> bool {
        self.done.values().sum::<usize>() == KEYS * EACH && self.free.len() == FREE
    }
}

/// Receives, retries some and settles the others, until all is done. Now and then it gives up a
/// receive in the middle.
async fn work(source: &PostgresSource, watch: &Mutex<Watch>, seed: usize) {
    let end = Instant::now() + PATIENCE * 3;
    let mut round = seed;
    while !watch.lock().is_over() {
        assert!(Instant::now() < end, "it never ends: {:?}", watch.lock().done);
        round += 1;
        let patience = Duration::from_millis([1500, 3, 1500, 1500, 11][round % 5]);
        let Ok(received) = timeout(patience, source.receive(Demand::any(1 + round % 9))).await
        else {
            continue;
        };
        let received = received.unwrap();
        for delivery in &received {
            watch.lock().came(delivery);
        }
        let settle = received.iter().map(|delivery| {
            round += 1;
            let after = Duration::from_millis([0, 4, 0, 17][round % 4]);
            let ending = again(after, 1);
            let is_done = !round.is_multiple_of(5);
            watch.lock().goes(delivery, is_done);
            if is_done {
                gone(delivery)
            } else {
                Settle { receipt: delivery.receipt.clone(), settlement: ending }
            }
        });
        let settle: Vec<Settle> = settle.collect();
        let settled = source.settle(settle).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claimers_keep_every_key_in_order() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let mut sources = Vec::new();
    for _ in 0..INSTANCES {
        let source = open(&url, Duration::from_secs(120)).await;
        source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
        sources.push(source);
    }
    let watch = Mutex::new(Watch::default());
    let publish = async {
        for number in 0..EACH {
            let mut batch: Vec<_> = (0..KEYS)
                .map(|key| strict(&format!("k{key}/{number}"), &format!("k{key}")))
                .collect();
            let free = number * FREE / EACH..(number + 1) * FREE / EACH;
            batch.extend(free.map(|n| publication_in(&format!("f{n}"), "FREE", Some("f"), false)));
            sources[number % INSTANCES].publish(batch).await.unwrap();
            sleep(Duration::from_millis(5)).await;
        }
    };
    let workers = (0..INSTANCES * 3).map(|n| work(&sources[n % INSTANCES], &watch, n * 7));
    tokio::join!(publish, join_all(workers));
    let watch = watch.into_inner();
    assert!(watch.retries > 20, "{} retries", watch.retries);
    assert_eq!(sources[0].depth().await.unwrap(), sluicegate_dispatch::Depth::default());
    // The keys go after their messages.
    let sql = Sql::connect(&url).await;
    let end = Instant::now() + PATIENCE;
    while sql.number("SELECT count(*) FROM sluicegate.keys").await > 0 {
        assert!(Instant::now() < end, "keys stay");
        assert!(sources[0].receive(Demand::any(1)).await.unwrap().is_empty());
    }
}

/// The earlier message of a group is locked by someone in the middle of a transaction: the later one
/// does not slip through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_head_holds_its_key() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(60)).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    source.publish(["a1", "a2"].map(|id| strict(id, "a")).into()).await.unwrap();
    let sql = Sql::connect(&url).await;
    for lock in [
        "SELECT seq FROM sluicegate.messages WHERE id = 'a1' FOR UPDATE",
        "SELECT head FROM sluicegate.keys FOR UPDATE",
    ] {
        sql.run("BEGIN").await;
        sql.rows(lock).await;
        // Whoever claims may wait for the lock, or go away empty, but not with the second one.
        let received = timeout(Duration::from_millis(600), source.receive(Demand::any(10))).await;
        if let Ok(received) = received {
            let received = received.unwrap();
            assert!(ids(&received).iter().all(|id| id == "a1"), "{:?}", ids(&received));
            source
                .settle(vec![Settle {
                    receipt: received.first().map(|it| it.receipt.clone()).unwrap_or_default(),
                    settlement: again(Duration::ZERO, 0),
                }])
                .await
                .unwrap();
        }
        sql.run("ROLLBACK").await;
    }
    let first = receive(&source, 1).await;
    assert_eq!(ids(&first), ["a1"]);
    done(&source, &first).await;
    assert_eq!(ids(&receive(&source, 1).await), ["a2"]);
}

/// One instance has the group; another sees it behind the head, and gets it when it is settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_seen_by_all() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (one, two) =
        (open(&url, Duration::from_secs(60)).await, open(&url, Duration::from_secs(60)).await);
    for source in [&one, &two] {
        source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    }
    one.publish(["a1", "a2"].map(|id| strict(id, "a")).into()).await.unwrap();
    let first = receive(&one, 1).await;
    assert_eq!(two.receive(Demand::any(10)).await.unwrap(), []);
    let found = two.find("a2").await.unwrap().unwrap();
    assert_eq!(found.state, FoundState::Behind("a1".into()));
    assert_eq!(two.find("a1").await.unwrap().unwrap().state, FoundState::Out);
    // Whoever has the receipt may settle it.
    done(&two, &first).await;
    assert_eq!(one.settle(vec![gone(&first[0])]).await.unwrap(), [Settled::Stale]);
    let second = receive(&two, 1).await;
    assert_eq!(ids(&second), ["a2"]);
    assert_eq!(one.extend(vec![second[0].receipt.clone()]).await.unwrap(), [Settled::Done]);
}

/// Instances that begin to keep order at different times, with messages out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_out_before_order_was_kept_holds_its_key() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(60)).await;
    let sent = (1..=6).map(|n| strict(&format!("a{n}"), "a")).collect();
    source.publish(sent).await.unwrap();
    let three = receive(&source, 3).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    // The middle one is settled first, then the last, then the first comes again.
    done(&source, &three[1..2]).await;
    done(&source, &three[2..]).await;
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
    let back = Settle {
        receipt: three[0].receipt.clone(),
        settlement: again(Duration::from_millis(200), 4),
    };
    assert_eq!(source.settle(vec![back.clone()]).await.unwrap(), [Settled::Done]);
    let head = receive(&source, 1).await;
    assert_eq!((ids(&head), head[0].attempts), (vec!["a1".to_owned()], 4));
    assert_eq!(source.settle(vec![back]).await.unwrap(), [Settled::Stale]);
    // And off again while it is out: the others are free, and its receipt is valid.
    source.keep_order(&std::sync::Arc::default());
    assert_eq!(ids(&receive(&source, 3).await), ["a4", "a5", "a6"]);
    assert_eq!(source.extend(vec![head[0].receipt.clone()]).await.unwrap(), [Settled::Done]);
    done(&source, &head).await;
}

/// One claimer has claimed a message, and it was tried, but nothing of that is committed. Another one gets nothing
/// of its key, and then gets it as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_claims_is_left_to_it() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(60)).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    assert_eq!(source.receive(Demand::any(1)).await.unwrap(), []);
    source.publish(vec![strict("a1", "a")]).await.unwrap();
    let sql = Sql::connect(&url).await;
    sql.run("BEGIN").await;
    sql.rows(
        "SELECT * FROM sluicegate.claim(1, '{STRICT}', '{1}', '{3}', '{NULL}', 0, 0::smallint, '', '', false, 1, \
         1000, 60000000, 0)",
    )
    .await;
    sql.rows(
        "SELECT sluicegate.settle(array_agg(seq), array_agg(token), '{1}', '{2000000}', '{1}', '{failed}') \
         FROM sluicegate.messages",
    )
    .await;
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
    sql.run("COMMIT").await;
    source.publish(vec![publication_in("high", "STRICT", Some("a"), true)]).await.unwrap();
    let head = receive(&source, 1).await;
    assert_eq!((ids(&head), head[0].attempts), (vec!["a1".to_owned()], 1));
}

/// A key that waits for a late message is looked at again when another one comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_message_holds_only_what_it_must() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(60)).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    let high = |id: &str, group| publication_in(id, "STRICT", Some(group), true);
    let late = |mut it: sluicegate_dispatch::Publication| {
        it.delay = Duration::from_secs(3600);
        it
    };
    source.publish(vec![late(high("a high", "a")), late(strict("b1", "b"))]).await.unwrap();
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
    source.publish(vec![strict("a1", "a"), strict("b2", "b"), high("b high", "b")]).await.unwrap();
    let received = receive(&source, 2).await;
    assert_eq!(ids(&received), ["a1", "b high"]);
    done(&source, &received).await;
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
    assert_eq!(source.depth().await.unwrap().delayed, 2);
}

/// A head whose window ended is still the head, and nothing overtakes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_whose_window_ends_stays_the_head() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(1)).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    source.publish(vec![strict("a1", "a"), strict("a2", "a")]).await.unwrap();
    let first = receive(&source, 1).await;
    source.publish(vec![publication_in("high", "STRICT", Some("a"), true)]).await.unwrap();
    let second = receive(&source, 1).await;
    assert_eq!((id(&second[0]), &second[0].broker_id), ("a1".to_owned(), &first[0].broker_id));
    assert_eq!(source.settle(vec![gone(&first[0])]).await.unwrap(), [Settled::Stale]);
    done(&source, &second).await;
    assert_eq!(ids(&receive(&source, 1).await), ["high"]);
}
