//! The server is away: who was not sent waits for it, and is told the truth if it does not come in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_event_store::postgres::{PostgresEngine, PostgresSettings};
use sluicegate_event_store::{
    AppendCondition, AppendError, Engine, EventStore, NewEvent, Position, Query, Settings,
};
use sluicegate_testkit::brokers::Broker;
use tokio::time::timeout;

use crate::faults::{check, write};
use crate::stage::{
    Crowd, Cut, PATIENCE, Sql, all, append, database, event, lent, open, own, until,
};

async fn open_for(url: &str, limit: Duration) -> Arc<PostgresEngine> {
    let settings = PostgresSettings::parse(url).unwrap().with_append_timeout(limit);
    Arc::new(PostgresEngine::open(settings).await.unwrap())
}

/// Ends the server, and waits until its processes have noticed: one that works for an engine may answer once more.
async fn crash(server: &mut Broker, engine: &PostgresEngine) {
    server.crash();
    let goes = async || {
        let last = append(engine, vec![event("Last", "k:v")], None);
        !matches!(timeout(Duration::from_millis(500), last).await, Ok(Ok(_)))
    };
    until("away", goes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_load_costs_no_append_and_doubles_none() {
    let Some(mut server) = own() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut crowd = Crowd::new();
    for n in 0..4 {
        crowd.join(write(Arc::clone(&engine), n, Arc::clone(&stop))).await;
    }
    for round in 0..4 {
        let before = engine.head().await.unwrap();
        if round % 2 == 1 {
            server.bounce().unwrap();
        } else {
            server.restart().unwrap();
        }
        until("appending", async || engine.head().await.is_ok_and(|head| head > before)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let answers = crowd.results().await.concat();
    let (unknown, failed) = check(&*engine, &answers).await;
    println!("{} appends", answers.len());
    assert_eq!((unknown, failed), (0, 0));
    // Who follows hears of events again.
    let head = engine.head().await.unwrap();
    let other = open(&url).await;
    let heard = async {
        while engine.head().await.unwrap() == head {
            engine.changed(head).await;
        }
    };
    let tell = append(&*other, vec![event("A", "id:0-0")], None);
    let (told, ()) = timeout(PATIENCE, async { tokio::join!(tell, heard) }).await.unwrap();
    told.unwrap();
}

/// More of them than go into a batch, so that some wait in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_wait_for_a_server_that_is_away() {
    let Some(mut server) = own() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    append(&*engine, vec![event("First", "k:v")], None).await.unwrap();
    crash(&mut server, &engine).await;
    let mut crowd = Crowd::new();
    for n in 0..400 {
        let engine = Arc::clone(&engine);
        let once = AppendCondition::none(Query::tagged("n", n));
        let new = NewEvent::of("A").tag("n", n);
        crowd.join(async move { append(&*engine, vec![new], Some(once)).await }).await;
    }
    // Some are given up meanwhile. They were not sent, so they are not there.
    for n in 0..20_u64 {
        let gone = append(&*engine, vec![NewEvent::of("Gone").tag("n", 1_000 + n)], None);
        timeout(Duration::from_millis(n), gone).await.unwrap_err();
    }
    server.restart().unwrap();
    let answers = crowd.results().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(all(&*engine, Query::types(["A"]), 1_000).await.len(), 400);
    assert_eq!(all(&*engine, Query::types(["Gone"]), 1_000).await.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_was_not_sent_in_time_is_told_that_nothing_was_appended() {
    let Some(mut server) = own() else { return };
    let url = database(server.url()).await;
    let limit = Duration::from_secs(1);
    let engine = open_for(&url, limit).await;
    append(&*engine, vec![event("First", "k:v")], None).await.unwrap();
    let settings = Settings { append_timeout: limit, ..Settings::default() };
    let store = EventStore::with_engine(Arc::clone(&engine) as _, settings).unwrap();
    crash(&mut server, &engine).await;
    let appends = (0..400).map(|n| store.append([NewEvent::of("A").tag("n", n)]));
    for answer in join_all(appends).await {
        let Err(AppendError::Failed(why)) = answer else { panic!("{answer:?}") };
        assert!(why.cause.contains("waited 1s for it, nothing was appended"), "{why}");
    }
    server.restart().unwrap();
    let appended = async || append(&*engine, vec![event("Last", "k:v")], None).await.is_ok();
    until("appending again", appended).await;
    assert_eq!(all(&*engine, Query::types(["A"]), 1_000).await.len(), 0);
}

/// While the primary server moves, the address may lead to one that only reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_wait_for_a_server_that_takes_them() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    append(&*engine, vec![event("First", "k:v")], None).await.unwrap();
    let sql = Sql::connect(&url).await;
    let name = url.rsplit('/').next().unwrap();
    sql.run(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    sql.kill_engines().await;
    let mut waits = Box::pin(append(&*engine, vec![event("Second", "k:v")], None));
    timeout(Duration::from_millis(300), &mut waits).await.unwrap_err();
    sql.run(&format!("ALTER DATABASE {name} RESET default_transaction_read_only")).await;
    assert_eq!(waits.await.unwrap(), Position::new(2));
}

/// Appends are given up while their batch waits for a connection, and then the answer to the next batch is lost. On one
/// thread, so that those that are asked for together are one batch.
#[tokio::test]
async fn an_append_after_some_that_were_given_up_is_not_doubled() {
    let Some(server) = own() else { return };
    let url = database(server.url()).await;
    let cut = Cut::before(server.address()).await;
    let engine =
        open(&url.replace(&server.address().to_string(), &cut.address().to_string())).await;
    append(&*engine, vec![event("First", "k:v")], None).await.unwrap();
    let sql = Sql::connect(&url).await;
    cut.withhold_answers();
    sql.run("CREATE TABLE mark AS SELECT clock_timestamp() AS at").await;
    sql.kill_engines().await;
    let old = "SELECT count(*) FROM pg_stat_activity, mark WHERE backend_start < mark.at \
               AND datname = current_database() AND application_name = 'sluicegate-events'";
    until("ended", async || sql.number(old).await == 0).await;
    let large = |n: u64| append(&*engine, vec![NewEvent::of("Gone").tag("n", n); 100], None);
    let gone = timeout(Duration::from_millis(300), join_all((0..5).map(large)));
    let stays = append(&*engine, vec![event("Stays", "k:v")], None);
    let (gone, stays) = tokio::join!(gone, async {
        let mut stays = Box::pin(stays);
        timeout(Duration::from_millis(600), &mut stays).await.unwrap_err();
        cut.sever();
        stays.await
    });
    assert!(gone.is_err() && stays.is_ok(), "{stays:?}");
    assert_eq!(all(&*engine, Query::types(["Gone"]), 1_000).await.len(), 0);
    cut.withhold_answers();
    let there = "SELECT count(*) FROM sluicegate.events WHERE type = 'Once'";
    let (once, ()) = tokio::join!(append(&*engine, vec![event("Once", "k:v")], None), async {
        until("appended", async || sql.number(there).await > 0).await;
        cut.sever();
    });
    once.unwrap();
    assert_eq!(sql.number(there).await, 1);
}
