//! Large backlogs: what a message costs does not grow with them.

use std::collections::BTreeMap;

use rusqlite::{Connection, StatementStatus};
use sluicegate_dispatch::{Demand, Order, Publication, Source};
use sluicegate_testkit::conformance::source::publication_in;
use tokio::time::Duration;

use crate::stage::{Stage, again, ids, state, strict};

async fn publish_many(stage: &Stage, messages: impl Iterator<Item = Publication>) {
    let messages: Vec<Publication> = messages.collect();
    for part in messages.chunks(5000) {
        stage.queue.publish(part.to_vec()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_in_ten_thousand_groups_come_in_order_past_blocked_heads() {
    const GROUPS: usize = 10_000;
    let stage = Stage::open().await;
    stage.queue.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    let message =
        |n: usize| strict(&format!("{}/{}", n % GROUPS, n / GROUPS), &format!("g{}", n % GROUPS));
    publish_many(&stage, (0..100_000).map(message)).await;
    // The first hundred groups are blocked by their heads: one half is out, one is delayed.
    let heads = stage.take(100).await;
    for head in &heads[50..] {
        stage.settle(head, again(Duration::from_secs(3600), 1)).await;
    }
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    let mut count = 0;
    while count < 100_000 - 1000 {
        let received = stage.take(1000).await;
        assert!(!received.is_empty(), "nothing came after {count}");
        for id in ids(&received) {
            let (group, number) = id.split_once('/').unwrap();
            let next = seen.entry(group.parse().unwrap()).or_default();
            assert_eq!(number.parse::<usize>().unwrap(), *next, "group {group}");
            *next += 1;
        }
        count += received.len();
        stage.all_done(received).await;
    }
    assert!(seen.keys().all(|group| *group >= 100), "a blocked group went on");
    assert_eq!(stage.take(10).await, []);
    assert_eq!(stage.queue.depth().await.unwrap().waiting, 900);
    // Then a blocked one goes on at once.
    stage.done(&heads[7]).await;
    assert_eq!(stage.take_ids(10).await, ["7/1"]);
}

/// How many rows the database steps over for a statement, by its own count.
fn steps(connection: &Connection, sql: &str, params: &[&dyn rusqlite::ToSql]) -> i32 {
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.query(params).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    statement.get_status(StatementStatus::VmStep)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_of_a_key_is_looked_up_not_searched() {
    let stage = Stage::open().await;
    let count = |stage: &Stage| {
        let connection = Connection::open(state(&stage.folder)).unwrap();
        let next = "SELECT seq FROM messages WHERE pool = ?1 AND grp = ?2 AND high = ?3 \
                    AND seq > ?4 AND seq < ?5 ORDER BY seq LIMIT 1";
        let key: [&dyn rusqlite::ToSql; 5] = [&"STRICT", &"g7", &0, &0, &i64::MAX];
        let due = "SELECT seq FROM messages WHERE queue = ?1 AND due IS NOT NULL AND due > ?2 \
                   ORDER BY due, seq LIMIT 1";
        let high = "SELECT EXISTS (SELECT 1 FROM messages WHERE queue = ?1 AND high)";
        [
            steps(&connection, next, &key),
            steps(&connection, due, &[&1, &0]),
            steps(&connection, high, &[&1]),
        ]
    };
    let message = |n: usize| strict(&format!("m{n}"), &format!("g{}", n % 10));
    publish_many(&stage, (0..100).map(message)).await;
    let few = count(&stage);
    publish_many(&stage, (100..20_000).map(message)).await;
    assert_eq!(count(&stage), few);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_delayed_ones_come_when_their_time_has_come() {
    let stage = Stage::open().await;
    let delayed = |n: usize| {
        let mut message = publication_in(&format!("m{n}"), "POOL", None, false);
        message.delay = Duration::from_millis(400);
        message
    };
    publish_many(&stage, (0..3000).map(delayed)).await;
    let depth = stage.queue.depth().await.unwrap();
    assert_eq!(depth.waiting + depth.delayed, 3000);
    let mut seen = Vec::new();
    while seen.len() < 3000 {
        let received = stage.queue.receive(Demand::any(500)).await.unwrap();
        seen.extend(ids(&received));
    }
    seen.sort_by_key(|id| id[1..].parse::<usize>().unwrap());
    let expected: Vec<String> = (0..3000).map(|n| format!("m{n}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(stage.take(1).await, []);
}
