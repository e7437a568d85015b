//! Connections end, the server goes and comes, one of many is at fault: what was answered holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_event_store::postgres::{PostgresEngine, PostgresSettings};
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Engine, NewEvent, Position, Query,
};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{
    Crowd, PATIENCE, Sql, all, append, database, event, is_conflict, lent, open, own, until,
};

/// What became of appends, each by its own tag.
pub(crate) type Answers = Vec<(String, Result<Position, AppendError>)>;

/// Appends until told to stop, plain ones and conditional ones, each with a tag of its own.
pub(crate) async fn write(
    engine: Arc<PostgresEngine>,
    name: usize,
    stop: Arc<AtomicBool>,
) -> Answers {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut answers = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = format!("id:{name}-{n}");
        let new = |_| NewEvent::of("Wrote").with_tags([id.clone()]);
        let condition = (n.is_multiple_of(2))
            .then(|| AppendCondition::none(Query::types(["Wrote"]).tag("id", &id[3..])));
        let events = (0..1 + n % 3).map(new).collect();
        answers.push((id.clone(), append(&*engine, events, condition).await));
    }
    answers
}

/// Every answer is true: what is said to be there is, once and there; what is said to have failed is not.
pub(crate) async fn check(engine: &impl Engine, answers: &Answers) -> (usize, usize) {
    let log = all(engine, Query::all(), 1_000).await;
    let mut there: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in &log {
        let id = format!("id:{}", event.tag("id").unwrap());
        there.entry(id).or_default().push(event.position().get());
    }
    let (mut unknown, mut failed) = (0, 0);
    for (id, answer) in answers {
        let n: usize = id.rsplit('-').next().unwrap().parse().unwrap();
        let size = 1 + n % 3;
        let found = there.get(id).map_or(&[][..], Vec::as_slice);
        assert!(found.len() == size || found.is_empty(), "{id} is there {} times", found.len());
        match answer {
            Ok(position) => assert_eq!(found.last(), Some(&position.get()), "{id}: lost"),
            Err(AppendError::TimedOut { .. }) => unknown += 1,
            Err(AppendError::Failed(why)) => {
                failed += 1;
                assert!(found.is_empty(), "{id} is there, and was told: {why}");
            }
            Err(other) => panic!("{id}: {other}"),
        }
    }
    (unknown, failed)
}

/// Conflicts would mean that an append met itself: there are none, however often its connection is ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_lose_nothing_and_double_nothing() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engines = [open(&url).await, open(&url).await];
    let stop = Arc::new(AtomicBool::new(false));
    let mut crowd = Crowd::new();
    for n in 0..8 {
        crowd.join(write(Arc::clone(&engines[n % 2]), n, Arc::clone(&stop))).await;
    }
    let sql = Sql::connect(&url).await;
    let (mut ended, mut round) = (0, 0);
    // A busy machine gets less done in a round, so what counts is what was done.
    until("ended often enough while enough was appended", async || {
        ended += sql.kill_engines().await;
        round += 1;
        sleep(Duration::from_millis(round % 13 * 3)).await;
        let head = engines[0].head().await.map_or(0, Position::get);
        ended >= 60 && head > 1_000
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let answers = crowd.results().await.concat();
    let (unknown, failed) = check(&*engines[0], &answers).await;
    println!("{} appends, {ended} ended; {unknown} unknown, {failed} failed", answers.len());
    // The connection is not needed to find out: nobody had to be told that it is not known.
    assert_eq!(unknown, 0);
}

/// The server's process is ended when the transaction is over and the answer is not out yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_whose_answer_is_lost_is_answered_even_so() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    let sql = Sql::connect(&url).await;
    // It ends itself at the very commit, in every other call: before it is done.
    sql.run(
        "CREATE SEQUENCE calls;
         CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('calls') % 2 = 0 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
             RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER die AFTER INSERT ON sluicegate.events DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION die();",
    )
    .await;
    for n in 0..20 {
        let query = Query::tagged("n", n);
        let condition = Some(AppendCondition::none(query.clone()));
        let new = NewEvent::of("A").tag("n", n);
        append(&*engine, vec![new], condition).await.unwrap();
        assert_eq!(all(&*engine, query, 10).await.len(), 1);
    }
}

/// The answer of a batch is cut off on its way, after its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_answer_does_not_arrive_is_found() {
    let Some(server) = own() else { return };
    let url = database(server.url()).await;
    let cut = crate::stage::Cut::before(server.address()).await;
    let through = url.replace(&server.address().to_string(), &cut.address().to_string());
    let engine = open(&through).await;
    let sql = Sql::connect(&url).await;
    append(&*engine, vec![event("First", "k:v")], None).await.unwrap();
    for n in 0..10 {
        cut.withhold_answers();
        let mut crowd = Crowd::new();
        for part in 0..3 {
            let engine = Arc::clone(&engine);
            let new = NewEvent::of("A").tag("n", n).tag("part", part);
            let once = AppendCondition::none(Query::tagged("n", n).tag("part", part));
            crowd.join(async move { append(&*engine, vec![new], Some(once)).await }).await;
        }
        let there = format!("SELECT count(*) FROM sluicegate.event_keys WHERE key = 'n:{n}'");
        until("appended", async || sql.number(&there).await > 0).await;
        cut.sever();
        let results = crowd.results().await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        assert_eq!(sql.number(&there).await, 3);
    }
}

/// An event that the database refuses is refused alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_at_fault_fails_alone() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    let sql = Sql::connect(&url).await;
    sql.run("ALTER TABLE sluicegate.events ADD CHECK (type <> 'Poison')").await;
    let appends = (0..40).map(|n| {
        let name = if n % 10 == 3 { "Poison" } else { "Good" };
        engine.append(Append::new(vec![event(name, &format!("n:{n}"))], None).unwrap())
    });
    let answers = futures_util::future::join_all(appends).await;
    for (n, answer) in answers.iter().enumerate() {
        match answer {
            Ok(_) => assert_ne!(n % 10, 3),
            Err(AppendError::Failed(why)) => {
                assert!(n % 10 == 3 && why.cause.contains("check"), "{n}: {why}");
            }
            Err(other) => panic!("{n}: {other}"),
        }
    }
    assert_eq!(all(&*engine, Query::all(), 100).await.len(), 36);
}

/// Whoever keeps the lock of the log keeps others waiting no longer than they said, and they are told the truth.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_locked_is_an_error_in_time() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let settings = PostgresSettings::parse(&url).unwrap();
    let engine = PostgresEngine::open(settings.with_append_timeout(Duration::from_millis(300)))
        .await
        .unwrap();
    let mut sql = Sql::connect(&url).await;
    let other = sql.client.transaction().await.unwrap();
    other.batch_execute("LOCK TABLE sluicegate.events IN SHARE MODE").await.unwrap();
    let begun = Instant::now();
    let answer = timeout(PATIENCE, append(&engine, vec![event("A", "k:v")], None)).await.unwrap();
    let is_true = matches!(answer, Err(AppendError::TimedOut { .. } | AppendError::Failed(_)));
    assert!(is_true, "{answer:?} after {:?}", begun.elapsed());
    other.rollback().await.unwrap();
    until("appending again", async || append(&engine, vec![event("B", "k:v")], None).await.is_ok())
        .await;
    let there = all(&engine, Query::types(["A"]), 10).await.len();
    assert!(there == 0 || matches!(answer, Err(AppendError::TimedOut { .. })), "{answer:?}");
}

/// Who gives up before the database was asked is not appended, and nobody is held up by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_that_are_dropped_are_there_whole_or_not_at_all() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    for n in 0..200_u64 {
        let events = (0..5).map(|_| NewEvent::of("A").tag("n", n)).collect();
        let append = engine.append(Append::new(events, None).unwrap());
        timeout(Duration::from_micros(n * 20), append).await.map(drop).unwrap_or_default();
    }
    // They are one after the other: once this one is there, so is what was sent before.
    append(&*engine, vec![event("Last", "k:v")], None).await.unwrap();
    let log = all(&*engine, Query::types(["A"]), 1_000).await;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &log {
        *counts.entry(event.tag("n").unwrap()).or_default() += 1;
    }
    assert!(counts.values().all(|count| *count == 5), "{counts:?}");
    println!("{} of 200 are there", counts.len());
}

/// A condition that is lost is lost in every round, with its position, though its neighbours in the batch are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_of_a_batch_has_its_own_answer() {
    let Some(server) = lent() else { return };
    let engine = open(&database(server.url()).await).await;
    let first = append(&*engine, vec![event("Taken", "seat:1")], None).await.unwrap();
    for _ in 0..10 {
        let appends = (0..30).map(|n| {
            let query = Query::types(["Taken"]).tag("seat", u64::from(n % 3 == 1));
            let events = vec![event("Other", "k:v"), event("Other", "k:v")];
            let append = Append::new(events, Some(AppendCondition::none(query))).unwrap();
            engine.append(append)
        });
        let answers = futures_util::future::join_all(appends).await;
        let mut last = Position::START;
        for (n, answer) in answers.into_iter().enumerate() {
            if n % 3 == 1 {
                assert_eq!(answer, Err(AppendError::Conflict { position: first }));
                assert!(is_conflict(&answer));
            } else {
                let position = answer.unwrap();
                assert!(position.get() >= last.get() + 2, "{position} after {last}");
                last = position;
            }
        }
    }
    assert_eq!(all(&*engine, Query::types(["Other"]), 1_000).await.len(), 10 * 20 * 2);
}

/// An event that is only half of what is asked for, so that the database has to look, and looks for so long.
async fn long_to_check(url: &str, time: Duration) {
    append(&*open(url).await, vec![event("Half", "a:1")], None).await.unwrap();
    Sql::connect(url).await.match_slowly(time).await;
}

fn both() -> Query {
    Query::tagged("a", 1).tag("b", 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_go_on_beside_a_condition_that_is_long_to_check() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    long_to_check(&url, Duration::from_secs(1)).await;
    let (engine, elsewhere) = (open(&url).await, open(&url).await);
    let plain = async || {
        for engine in [&engine, &elsewhere] {
            append(&**engine, vec![event("Plain", "k:v")], None).await.unwrap();
        }
    };
    let long = || append(&*engine, vec![event("Long", "k:v")], Some(AppendCondition::none(both())));
    let mut first = Box::pin(long());
    let mut beside = 0;
    let appended = loop {
        tokio::select! {
            biased;
            answer = &mut first => break answer.unwrap(),
            () = plain() => beside += 1,
        }
    };
    println!("{beside} times beside it");
    assert!(beside >= 5, "{beside} beside it");
    // It was checked up to its own place, and not only to where that began.
    assert!(appended > Position::new(10), "{appended}");
    // What comes while it is looked up is in its way, and what was there before too.
    let mut late = Box::pin(long());
    for n in 0..5 {
        tokio::select! {
            biased;
            answer = &mut late => panic!("{answer:?} after {n}"),
            () = plain() => {}
        }
    }
    let new = event("Whole", "a:1").tag("b", 1);
    let in_the_way = append(&*elsewhere, vec![new], None).await.unwrap();
    let conflict = Err(AppendError::Conflict { position: in_the_way });
    assert_eq!(late.await, conflict);
    assert_eq!(long().await, conflict);
    assert_eq!(all(&*engine, Query::types(["Long"]), 10).await.len(), 1);
}

/// Each is checked within milliseconds, but all of them under one lock would take longer than any of them waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_conditions_gets_somewhere() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    long_to_check(&url, Duration::from_millis(40)).await;
    let engine = PostgresEngine::open(PostgresSettings::parse(&url).unwrap()).await.unwrap();
    let appends = (0..256).map(|n| {
        let condition = AppendCondition::none(both());
        append(&engine, vec![NewEvent::of("C").tag("n", n)], Some(condition))
    });
    let begun = Instant::now();
    let answers = futures_util::future::join_all(appends).await;
    let good = answers.iter().filter(|answer| answer.is_ok()).count();
    println!("{good} of 256 were appended within {:?}", begun.elapsed());
    assert!(good >= 128, "{good} of 256 were appended");
    let there = all(&engine, Query::types(["C"]), 1_000).await.len();
    assert!(there >= good && there <= 256, "{there} are there of {good}");
}
