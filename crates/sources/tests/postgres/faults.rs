//! The server is killed, stopped, cut off or not there: nothing is lost, and what was answered holds.

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Publication, Settle, Settled, Source};
use sluicegate_sources::postgres::PostgresSource;
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{
    PATIENCE, Sql, again, database, done, gone, id, ids, lent, open, own, receive, settings, until,
};

fn batch(name: &str, count: usize) -> Vec<Publication> {
    (0..count).map(|n| publication(&format!("{name}{n}"))).collect()
}

async fn recovers(source: &PostgresSource) {
    until("healthy", async || source.health().is_ok() && source.depth().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_forgets_nothing_it_has_answered() {
    let Some(mut server) = own() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(3)).await;
    let (mut expected, mut settled_gone) = (BTreeSet::new(), BTreeSet::new());
    let mut unknown = Vec::new();
    for round in 0..4 {
        let sent = batch(&format!("r{round}-"), 20);
        expected.extend(sent.iter().map(|it| it.message.id.to_string()));
        source.publish(sent).await.unwrap();
        let received = receive(&source, 12).await;
        done(&source, &received[..4]).await;
        for delivery in &received[..4] {
            settled_gone.insert(id(delivery));
        }
        // Some are late when it dies, and some are out.
        let late = received[4..8].iter().map(|delivery| Settle {
            receipt: delivery.receipt.clone(),
            settlement: again(Duration::from_secs(2), 7),
        });
        let begun = Instant::now();
        let answers = source.settle(late.collect()).await.unwrap();
        assert_eq!(answers, vec![Settled::Done; 4]);
        server.crash();
        // Its children outlive it by a moment, and one may still answer.
        match source.settle(vec![gone(&received[8])]).await {
            Ok(_) => assert!(settled_gone.insert(id(&received[8]))),
            Err(_) => unknown.push(id(&received[8])),
        }
        server.restart().unwrap();
        recovers(&source).await;
        let found = source.find(&id(&received[4])).await.unwrap().unwrap();
        assert_eq!(found.attempts, 7);
        // A receipt of before the crash holds, for the window goes on.
        if begun.elapsed() < Duration::from_secs(2) {
            assert_eq!(source.settle(vec![gone(&received[9])]).await.unwrap(), [Settled::Done]);
            settled_gone.insert(id(&received[9]));
        }
    }
    let mut left: BTreeSet<String> = expected.difference(&settled_gone).cloned().collect();
    left.retain(|id| !unknown.contains(id));
    let end = Instant::now() + PATIENCE;
    while !left.is_empty() {
        assert!(Instant::now() < end, "lost: {left:?}");
        let received = receive(&source, 1).await;
        assert!(!settled_gone.contains(&id(&received[0])), "{} came back", id(&received[0]));
        left.remove(&id(&received[0]));
        source.settle(vec![gone(&received[0])]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_flow_on_through_many_kills() {
    let Some(mut server) = own() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(2)).await;
    let sent = batch("m", 300);
    let expected: BTreeSet<String> = sent.iter().map(|it| it.message.id.to_string()).collect();
    source.publish(sent).await.unwrap();
    let mut seen = BTreeSet::new();
    let consume = async {
        let end = Instant::now() + PATIENCE * 2;
        let mut round = 0_u32;
        while seen.len() < expected.len() {
            assert!(Instant::now() < end, "{} of {} came", seen.len(), expected.len());
            round += 1;
            let Ok(received) = source.receive(Demand::any(7)).await else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            for delivery in received {
                let ending = again(Duration::from_millis(100), delivery.attempts + 1);
                let retry = delivery.attempts == 0 && round.is_multiple_of(2);
                let settle = if retry {
                    Settle { receipt: delivery.receipt.clone(), settlement: ending }
                } else {
                    gone(&delivery)
                };
                // An error says nothing about whether it was done; then it may come again.
                if source.settle(vec![settle]).await.is_ok_and(|it| it == [Settled::Done]) && !retry
                {
                    assert!(seen.insert(id(&delivery)), "{} came after it was gone", id(&delivery));
                } else if !retry && source.find(&id(&delivery)).await.is_ok_and(|it| it.is_none()) {
                    seen.insert(id(&delivery));
                }
            }
        }
    };
    let kill = async {
        for _ in 0..5 {
            sleep(Duration::from_millis(700)).await;
            server.crash();
            server.restart().unwrap();
        }
    };
    tokio::join!(consume, kill);
    recovers(&source).await;
    assert_eq!(source.depth().await.unwrap(), sluicegate_dispatch::Depth::default());
}

fn signal(signal: &str, pids: &[i32]) {
    let pids = pids.iter().map(ToString::to_string);
    let sent = std::process::Command::new("kill").arg(signal).args(pids).status().unwrap();
    assert!(sent.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_an_error_and_then_goes_on() {
    let Some(server) = own() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(60)).await;
    source.publish(batch("m", 10)).await.unwrap();
    let received = receive(&source, 5).await;
    // New connections and old ones: a server is many processes.
    let sql = Sql::connect(&url).await;
    let busy = "SELECT pid FROM pg_stat_activity \
                WHERE datname = current_database() AND application_name = 'sluicegate'";
    // First the one that makes the others: from then on there are no more of them.
    server.pause();
    let busy: Vec<i32> = sql.rows(busy).await.iter().map(|row| row.get(0)).collect();
    signal("-STOP", &busy);
    let begun = Instant::now();
    let answer = timeout(PATIENCE, source.settle(vec![gone(&received[0])])).await.unwrap();
    assert!(answer.is_err());
    assert!(source.health().is_err());
    let answer = timeout(PATIENCE, source.receive(Demand::any(5))).await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    println!("it was given up after {:?}", begun.elapsed());
    signal("-CONT", &busy);
    server.resume();
    recovers(&source).await;
    // It may have been settled after all, when the server went on.
    source.settle(vec![gone(&received[0])]).await.unwrap();
    done(&source, &received[1..]).await;
    until("all done", async || {
        if let Ok(more) = source.receive(Demand::any(5)).await {
            done(&source, &more).await;
        }
        // What was claimed for the receive that failed comes when its window ends: it is out.
        source.depth().await.is_ok_and(|depth| depth.waiting == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_are_made_anew() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(60)).await;
    let sql = Sql::connect(&url).await;
    source.publish(batch("m", 30)).await.unwrap();
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let received = receive(&source, 5).await;
        sql.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'sluicegate'",
        )
        .await;
        let end = Instant::now() + PATIENCE;
        // The receipts are of the tables, not of a connection.
        while let Err(error) = source.settle(received.iter().map(gone).collect()).await {
            assert!(Instant::now() < end, "{error}");
        }
        assert!(ids(&received).into_iter().all(|id| seen.insert(id)));
    }
    assert_eq!(seen.len(), 30);
    recovers(&source).await;
    // Hints come again, too.
    let other = open(&url, Duration::from_secs(60)).await;
    until("listening", async || {
        let begun = Instant::now();
        let publish = async {
            sleep(Duration::from_millis(100)).await;
            other.publish(vec![publication(&format!("{begun:?}"))]).await.unwrap();
        };
        let (received, ()) = tokio::join!(source.receive(Demand::any(1)), publish);
        let received = received.unwrap();
        done(&source, &received).await;
        !received.is_empty() && begun.elapsed() < Duration::from_millis(600)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_up_later_is_found() {
    let Some(mut server) = own() else { return };
    let url = database(server.url()).await;
    server.crash();
    let begun = Instant::now();
    let source = open(&url, Duration::from_secs(60)).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    let why = source.health().unwrap_err();
    assert!(why.cause.contains("refused"), "{why}");
    assert!(source.publish(batch("m", 1)).await.is_err());
    assert!(source.receive(Demand::any(1)).await.is_err());
    let probed = sluicegate_sources::postgres::probe(&settings(&url, Duration::from_secs(1))).await;
    assert!(matches!(probed, Err(sluicegate_sources::OpenError::Unreachable(_))), "{probed:?}");
    server.restart().unwrap();
    recovers(&source).await;
    source.publish(batch("m", 1)).await.unwrap();
    assert_eq!(ids(&receive(&source, 1).await), ["m0"]);
}
