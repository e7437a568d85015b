//! Heads that rest when those who have them die, and what others do meanwhile.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_dispatch::{Demand, FoundState, Order, Reason, Rest, Settle, Settled, Source};
use sluicegate_sources::postgres::PostgresSource;
use sluicegate_testkit::conformance::source::publication_in;
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{Sql, again, database, ids, lent, open, receive, strict};

const WINDOW: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(1800);

fn in_order(sources: &[&PostgresSource]) {
    for source in sources {
        source.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    }
}

fn rest(delivery: &sluicegate_dispatch::Delivery, after: Duration) -> Rest {
    let (receipt, reason) = (delivery.receipt.clone(), Reason::Failed);
    Rest { receipt, after, attempts: 2, reason }
}

/// Drops a source that had registered, and has it taken for dead.
async fn bury(dead: PostgresSource, sql: &Sql) {
    drop(dead);
    sql.run("UPDATE sluicegate.instances SET seen = clock_timestamp() - interval '1 hour'").await;
    sql.until("buried", "SELECT count(*) FROM sluicegate.instances", 1).await;
}

/// As if it had been settled like that: contract of sources, 6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rests_of_the_dead_is_late_and_not_out() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (dead, alive) = (open(&url, WINDOW).await, open(&url, WINDOW).await);
    let sql = Sql::connect(&url).await;
    sql.until("registered", "SELECT count(*) FROM sluicegate.instances", 2).await;
    in_order(&[&dead, &alive]);
    alive.publish(vec![strict("a1", "a"), strict("a2", "a")]).await.unwrap();
    let head = receive(&dead, 1).await;
    assert_eq!(dead.rest(vec![rest(&head[0], LONG)]).await.unwrap(), [Settled::Done]);
    bury(dead, &sql).await;
    alive.publish(vec![publication_in("h1", "STRICT", Some("a"), true)]).await.unwrap();
    let none = timeout(Duration::from_secs(2), alive.receive(Demand::any(5))).await.unwrap();
    assert_eq!(ids(&none.unwrap()), [""; 0]);
    let depth = alive.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (2, 1, 0));
    let found = alive.find("a1").await.unwrap().unwrap();
    assert!(matches!(found.state, FoundState::Delayed { .. }), "{:?}", found.state);
    sql.run("UPDATE sluicegate.messages SET until = clock_timestamp() WHERE rank <= 1; UPDATE sluicegate.keys SET until = clock_timestamp() WHERE until IS NOT NULL").await;
    let head = receive(&alive, 1).await;
    assert_eq!((ids(&head), head[0].attempts), (vec!["a1".to_owned()], 2));
}

/// Looking at a key costs a write: those of many heads that rest are looked at rarely.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rests_of_the_dead_costs_little_meanwhile() {
    const GROUPS: usize = 200;
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let (dead, alive) = (open(&url, WINDOW).await, open(&url, WINDOW).await);
    let sql = Sql::connect(&url).await;
    sql.until("registered", "SELECT count(*) FROM sluicegate.instances", 2).await;
    in_order(&[&dead, &alive]);
    let heads = (0..GROUPS).map(|n| strict(&format!("m{n}"), &format!("g{n}"))).collect();
    alive.publish(heads).await.unwrap();
    let heads = receive(&dead, GROUPS).await;
    let rests = heads.iter().map(|head| rest(head, LONG)).collect();
    assert_eq!(dead.rest(rests).await.unwrap(), vec![Settled::Done; GROUPS]);
    bury(dead, &sql).await;
    let wait = async |span: u64| {
        let end = Instant::now() + Duration::from_secs(span);
        while Instant::now() < end {
            assert_eq!(ids(&alive.receive(Demand::any(5)).await.unwrap()), [""; 0]);
        }
    };
    let looked = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'keys'";
    wait(6).await;
    let before = sql.number(looked).await;
    wait(6).await;
    let looks = sql.number(looked).await - before;
    assert!(looks < 5 * GROUPS as i64, "{looks} looks at {GROUPS} keys");
}

/// Whoever rests, settles, extends and claims at once waits for nobody who waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_done_at_once_nobody_is_in_a_deadlock() {
    const GROUPS: usize = 60;
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let window = Duration::from_secs(2);
    let (one, two) = (open(&url, window).await, open(&url, window).await);
    in_order(&[&one, &two]);
    let publish = async |round: usize| {
        let message = |n: usize| {
            let pool = if n.is_multiple_of(3) { "PLAIN" } else { "STRICT" };
            publication_in(
                &format!("{round}/{n}"),
                pool,
                Some(&format!("g{n}")),
                n.is_multiple_of(7),
            )
        };
        one.publish((0..GROUPS).map(message).collect()).await.unwrap();
    };
    let end = Instant::now() + Duration::from_secs(15);
    let mut round = 0;
    while Instant::now() < end {
        publish(round).await;
        round += 1;
        let mut heads = one.receive(Demand::any(40)).await.unwrap();
        heads.extend(two.receive(Demand::any(40)).await.unwrap());
        let turned: Vec<_> = heads.iter().rev().cloned().collect();
        let rests = |span: u64| {
            let rests = heads.iter().map(|head| rest(head, Duration::from_millis(span)));
            rests.collect::<Vec<_>>()
        };
        let resting = join_all([one.rest(rests(30)), two.rest(rests(0)), one.rest(rests(3000))]);
        let receipts = turned.iter().map(|head| head.receipt.clone()).collect::<Vec<_>>();
        let extending = join_all([one.extend(receipts.clone()), two.extend(receipts)]);
        let settles = turned.iter().enumerate().map(|(n, head)| {
            let settlement = match n % 3 {
                0 => again(Duration::ZERO, 1),
                1 => again(Duration::from_millis(20), 1),
                _ => sluicegate_dispatch::Settlement::Ack,
            };
            Settle { receipt: head.receipt.clone(), settlement }
        });
        let settles: Vec<Settle> = settles.collect();
        let settling = async {
            sleep(Duration::from_millis(2)).await;
            join_all([one.settle(settles.clone()), two.settle(settles)]).await
        };
        let (rested, extended, settled) = tokio::join!(resting, extending, settling);
        for answer in rested.into_iter().chain(extended).chain(settled) {
            answer.unwrap();
        }
    }
    let sql = Sql::connect(&url).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(sql.number(deadlocks).await, 0, "after {round} rounds");
}
