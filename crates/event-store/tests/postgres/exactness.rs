//! An append is refused if and only if an event matches its condition, whoever else appends.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_event_store::postgres::PostgresEngine;
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Engine, NewEvent, Position, Query, QueryItem,
};
use tokio::sync::Barrier;

use crate::stage::{Crowd, Sql, all, append, database, event, is_conflict, lent, open, positions};

const ROUNDS: u64 = 60;

/// An attempt: what is appended, and under which query.
type Attempt = (NewEvent, Option<Query>);

/// Lets attempts race, each over one of the engines, and answers what became of them.
async fn race(
    engines: &[Arc<PostgresEngine>],
    after: Position,
    attempts: Vec<Attempt>,
) -> Vec<Result<Position, AppendError>> {
    let barrier = Arc::new(Barrier::new(attempts.len()));
    let mut crowd = Crowd::new();
    for (n, (event, query)) in attempts.into_iter().enumerate() {
        let (engine, barrier) = (Arc::clone(&engines[n % engines.len()]), Arc::clone(&barrier));
        let condition = query.map(|query| AppendCondition::none_after(query, after));
        let append = Append::new(vec![event], condition).unwrap();
        crowd
            .join(async move {
                barrier.wait().await;
                engine.append(append).await
            })
            .await;
    }
    crowd.results().await
}

fn winners(results: &[Result<Position, AppendError>]) -> usize {
    let others = results.iter().filter(|result| result.is_err());
    assert!(others.clone().all(is_conflict), "{results:?}");
    results.len() - others.count()
}

async fn engines(url: &str, count: usize) -> Vec<Arc<PostgresEngine>> {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(open(url).await);
    }
    engines
}

async fn one_wins_every_round(url: &str, count: usize) {
    let engines = engines(url, count).await;
    for round in 0..ROUNDS {
        let after = engines[0].head().await.unwrap();
        let query = Query::types(["Taken"]).tag("seat", round);
        let attempt = (NewEvent::of("Taken").tag("seat", round), Some(query));
        let results = race(&engines, after, vec![attempt; 12]).await;
        assert_eq!(winners(&results), 1, "round {round}: {results:?}");
    }
    assert_eq!(all(&*engines[0], Query::types(["Taken"]), 1_000).await.len() as u64, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racers_over_one_engine_one_wins() {
    let Some(server) = lent() else { return };
    one_wins_every_round(&database(server.url()).await, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racers_over_two_engines_one_wins() {
    let Some(server) = lent() else { return };
    one_wins_every_round(&database(server.url()).await, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racers_over_three_engines_one_wins() {
    let Some(server) = lent() else { return };
    one_wins_every_round(&database(server.url()).await, 3).await;
}

/// An older transaction that has written and does not end neither hides anything nor holds anybody up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racers_one_wins_beside_an_older_transaction() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let mut sql = Sql::connect(&url).await;
    sql.run("CREATE TABLE other (n int)").await;
    let older = sql.client.transaction().await.unwrap();
    older.batch_execute("INSERT INTO other VALUES (1)").await.unwrap();
    one_wins_every_round(&url, 2).await;
    let written = older.query_one("SELECT pg_current_xact_id_if_assigned() IS NOT NULL", &[]).await;
    assert!(written.unwrap().get::<_, bool>(0));
    older.commit().await.unwrap();
}

/// None of them can be checked while others wait, so each is looked up by itself, and under the lock from there on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racers_one_wins_whose_conditions_are_long_to_check() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    append(&*open(&url).await, vec![event("Half", "a:1")], None).await.unwrap();
    Sql::connect(&url).await.match_slowly(Duration::from_millis(40)).await;
    let engines = engines(&url, 3).await;
    let long = Query::tagged("a", 1).tag("b", 1);
    for round in 0..8 {
        let query = Query::types(["Taken"]).tag("seat", round).or(long.clone());
        let attempt = (NewEvent::of("Taken").tag("seat", round), Some(query));
        let plain = (NewEvent::of("Plain").tag("seat", 100), None);
        let attempts = [vec![attempt; 24], vec![plain; 6]].concat();
        let mut results = race(&engines, Position::START, attempts).await;
        let plain = results.split_off(24);
        assert!(plain.iter().all(Result::is_ok), "round {round}: {plain:?}");
        assert_eq!(winners(&results), 1, "round {round}: {results:?}");
    }
    assert_eq!(all(&*engines[0], Query::types(["Taken"]), 1_000).await.len(), 8);
    assert_eq!(all(&*engines[0], Query::types(["Plain"]), 1_000).await.len(), 48);
}

/// It was with others whose conditions are long to check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_that_is_looked_up_counts_from_its_position() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let first = append(&*open(&url).await, vec![event("Half", "a:1")], None).await.unwrap();
    Sql::connect(&url).await.match_slowly(Duration::from_millis(300)).await;
    let engine = open(&url).await;
    let long = AppendCondition::none(Query::tagged("a", 1).tag("b", 1));
    let half = |after| AppendCondition::none_after(Query::tagged("a", 1), after);
    let conditions = [long, half(Position::START), half(first), half(Position::new(u64::MAX))];
    let appends =
        conditions.iter().cycle().take(16).map(|condition| {
            append(&*engine, vec![event("Other", "k:v")], Some(condition.clone()))
        });
    let answers = futures_util::future::join_all(appends).await;
    for (n, answer) in answers.iter().enumerate() {
        match n % 4 {
            1 => assert_eq!(*answer, Err(AppendError::Conflict { position: first }), "{n}"),
            _ => assert!(answer.is_ok(), "{n}: {answer:?}"),
        }
    }
}

/// A level at which a lock is of no use is not worked at, whatever a role has for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_racers_one_wins_whose_role_would_read_from_old_snapshots() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let sql = Sql::connect(&url).await;
    let role = url.rsplit('/').next().unwrap().to_owned();
    sql.run(&format!(
        "CREATE ROLE {role} LOGIN SUPERUSER;
         ALTER ROLE {role} SET default_transaction_isolation = 'repeatable read';"
    ))
    .await;
    let own = url.replace("postgres@", &format!("{role}@"));
    let level =
        "SELECT (current_setting('transaction_isolation') = 'repeatable read')::int::bigint";
    assert_eq!(Sql::connect(&own).await.number(level).await, 1);
    one_wins_every_round(&own, 2).await;
    // Who calls it by another way is refused.
    let call = "SELECT sluicegate.append_events('{1}', '{1}', '{A}', '{\"{k:v}\"}', '{\"{}\"}', '{1,1}', \
                '{k:v,:A}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')";
    let why = Sql::connect(&own).await.refused(call).await;
    assert!(why.contains("READ COMMITTED only"), "{why}");
    sql.run(call).await;
    sql.run(&format!("DROP OWNED BY {role} CASCADE")).await;
    sql.run(&format!("DROP ROLE {role}")).await;
}

/// Two decisions whose conditions are not the same, but each of which spoils the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_that_overlap_are_exact() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engines = engines(&url, 2).await;
    for round in 0..ROUNDS {
        let after = engines[0].head().await.unwrap();
        let both = NewEvent::of("Joined").tag("course", round).tag("student", round);
        let of_course = Query::types(["Joined", "Closed"]).tag("course", round);
        let of_student = Query::tagged("student", round);
        let attempts = vec![
            (both.clone(), Some(of_course.clone())),
            (both.clone(), Some(of_student.clone())),
            (both.clone(), Some(of_course.or(of_student))),
            (
                both.clone(),
                Some(Query::types(["Joined"]).tag("course", round).tag("student", round)),
            ),
        ];
        let results = race(&engines, after, [attempts.clone(), attempts].concat()).await;
        assert_eq!(winners(&results), 1, "round {round}: {results:?}");
    }
}

/// Each of a ring asks for what the one before appends, and for its own: at most every other one can win.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rings_of_or_items_are_exact() {
    const RING: u64 = 5;
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engines = engines(&url, 2).await;
    for round in 0..ROUNDS {
        let after = engines[0].head().await.unwrap();
        let tag = |n: u64| format!("node:{round}-{}", n % RING);
        let attempt = |n| {
            let items =
                [tag(n), tag(n + 1)].map(|tag| QueryItem::default().types(["Lit"]).tags([tag]));
            (NewEvent::of("Lit").with_tags([tag(n)]), Some(Query::any_of(items)))
        };
        let results = race(&engines, after, (0..RING).map(attempt).collect()).await;
        let lit: Vec<bool> = results.iter().map(Result::is_ok).collect();
        // The log is the order: no event may have been there when it was appended that its condition asks for.
        let log = all(&*engines[0], Query::types(["Lit"]), 1_000).await;
        let log: Vec<_> = log.iter().filter(|event| event.position() > after).collect();
        for (n, event) in log.iter().enumerate() {
            let own: u64 = event.tag("node").unwrap().rsplit('-').next().unwrap().parse().unwrap();
            let before =
                log[..n].iter().any(|it| it.tags().any(|it| it == tag(own) || it == tag(own + 1)));
            assert!(!before, "round {round}: {log:?}");
        }
        for n in 0..RING as usize {
            let spoiled = lit[n] || lit[(n + 1) % RING as usize];
            assert!(spoiled, "round {round}: {n} lost for nothing: {results:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_appends_spoil_conditions() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engines = engines(&url, 2).await;
    let (mut held, mut lost) = (0, 0);
    for round in 0..ROUNDS {
        let after = engines[0].head().await.unwrap();
        let query = Query::tagged("seat", round);
        let mut attempts = vec![(NewEvent::of("Taken").tag("seat", round), None); 2];
        attempts.insert(
            usize::try_from(round % 3).unwrap(),
            (NewEvent::of("Asked").tag("ask", round), Some(query.clone())),
        );
        let results = race(&engines, after, attempts).await;
        let asked = all(&*engines[0], Query::tagged("ask", round), 10).await;
        let taken = positions(&all(&*engines[0], query, 10).await);
        assert_eq!(taken.len(), 2);
        match results.iter().find(|result| is_conflict(result)) {
            None => {
                held += 1;
                assert!(asked[0].position().get() < taken[0], "round {round}: {results:?}");
            }
            Some(Err(AppendError::Conflict { position })) => {
                lost += 1;
                assert!(asked.is_empty() && taken.contains(&position.get()), "{results:?}");
            }
            Some(other) => panic!("{other:?}"),
        }
    }
    println!("held {held}, lost {lost}");
}

/// Requests of one batch are compared with one another, by positions too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_exact_in_itself() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    let sql = Sql::connect(&url).await;
    // Within a transaction the server goes on showing the processes it had when it was first asked.
    let onlooker = Sql::connect(&url).await;
    for round in 0..10 {
        // While the table is locked the first batch waits, and all others become one.
        let before = sql.number("SELECT coalesce(max(position), 0) FROM sluicegate.events").await;
        sql.run("BEGIN; LOCK TABLE sluicegate.events IN SHARE MODE").await;
        let mut crowd = Crowd::new();
        let first = Arc::clone(&engine);
        crowd.join(async move { append(&*first, vec![event("First", "k:v")], None).await }).await;
        let waits = "SELECT count(*) FROM pg_stat_activity \
                     WHERE wait_event = 'relation' AND datname = current_database()";
        crate::stage::until("waiting", async || onlooker.number(waits).await == 1).await;
        let seat = format!("seat:{round}");
        let after = |n: i64| Position::new(u64::try_from(before + n).unwrap());
        let query = || Query::any_of([QueryItem::default().tags([seat.clone()])]);
        let attempts = [
            ("A", None),
            // An event of this batch is after the position, unless the position is beyond all of them.
            ("B", Some(AppendCondition::none_after(query(), after(0)))),
            ("C", Some(AppendCondition::none_after(query(), after(1_000)))),
            (
                "D",
                Some(AppendCondition::none_after(Query::types(["B"]).tag("seat", round), after(0))),
            ),
            (
                "E",
                Some(AppendCondition::none_after(Query::types(["D"]).tag("seat", round), after(0))),
            ),
            ("F", Some(AppendCondition::none_after(Query::all(), Position::new(u64::MAX)))),
        ];
        let mut answers = Vec::new();
        for (name, condition) in attempts {
            let events = vec![NewEvent::of(name).with_tags([seat.clone()])];
            answers.push(engine.append(Append::new(events, condition).unwrap()));
        }
        // They line up in the order in which they are first polled.
        let answers = futures_util::future::join_all(answers);
        let (answers, ()) = tokio::join!(answers, sql.run("COMMIT"));
        let held: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        assert_eq!(held, [true, false, true, true, false, true], "{answers:?}");
        crowd.results().await;
        let log = all(&*engine, query(), 100).await;
        let names: Vec<&str> = log.iter().map(|event| event.event_type()).collect();
        assert_eq!(names, ["A", "C", "D", "F"]);
    }
}
