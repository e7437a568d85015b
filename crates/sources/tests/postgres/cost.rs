//! What a claim costs does not grow with what waits: pages touched, counted by the database.

use std::time::Duration;

use sluicegate_dispatch::{Demand, Source};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::Instant;

use crate::stage::{Sql, database, done, lent, open};

/// A backlog, made by a statement with its size put in.
struct Backlog {
    name: &'static str,
    /// Columns `until`, `pool` and `grp` of message `n`.
    columns: &'static str,
    strict: &'static str,
    /// What a claim of ten gets.
    claimed: i64,
}

const BACKLOGS: &[Backlog] = &[
    Backlog { name: "ready", columns: "NULL, 'P', 'g'", strict: "{}", claimed: 10 },
    Backlog {
        name: "late",
        columns: "CASE WHEN n > 20 THEN now() + interval '1 hour' END, 'P', 'g'",
        strict: "{}",
        claimed: 10,
    },
    Backlog {
        name: "behind a late head",
        columns: "CASE WHEN n = 1 THEN now() + interval '1 hour' END, 'S', CASE WHEN n % 50 = 2 AND n < 1000 THEN n::text ELSE 'g' END",
        strict: "{S}",
        claimed: 10,
    },
    Backlog { name: "a head for each", columns: "NULL, 'S', n::text", strict: "{S}", claimed: 10 },
    Backlog {
        name: "behind other pools",
        columns: "NULL, CASE WHEN n % 2 = 0 THEN 'S' ELSE 'P' END, 'g'",
        strict: "{S}",
        claimed: 10,
    },
];

/// The pages that a statement touches.
async fn pages(sql: &Sql, statement: &str) -> i64 {
    let rows = sql.rows(&format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {statement}")).await;
    let line =
        rows.iter().map(|row| row.get::<_, String>(0)).find(|line| line.contains("Buffers:"));
    let line = line.unwrap();
    let number = |name: &str| -> i64 {
        let part = line.split(name).nth(1).unwrap_or("0");
        part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    };
    number("hit=") + number("read=")
}

async fn cost(server: &str, backlog: &Backlog, size: i64) -> (i64, i64) {
    let url = database(server).await;
    drop(open(&url, Duration::from_secs(60)).await);
    let sql = Sql::connect(&url).await;
    sql.run(&format!(
        "INSERT INTO sluicegate.messages
            (seq, at, until, place, queue, attempts, state, rank, high, id, pool, grp, body)
         SELECT n, now(), o.u::timestamptz, n, 1, 0, 0, 2, false, n::text::bytea, o.p::bytea, o.g::bytea, repeat('x', 200)::bytea
         FROM generate_series(1, {size}) n, LATERAL (SELECT {}) AS o (u, p, g);
         SELECT setval('sluicegate.numbers', {size});",
        backlog.columns
    ))
    .await;
    let claim = format!("sluicegate.claim(1, '{}', 10, 1000000, 60000000, 1)", backlog.strict);
    if backlog.strict != "{}" {
        // Each claim does that for some; here it is done at once.
        sql.run("SELECT sluicegate.fold(1, (SELECT array_agg(seq) FROM sluicegate.messages WHERE pool = 'S'), now())")
            .await;
    }
    sql.run(
        "UPDATE sluicegate.keys SET token = NULL, until = now() - interval '1 minute' WHERE token IS NOT NULL;
         UPDATE sluicegate.messages SET token = NULL, until = NULL WHERE token IS NOT NULL",
    )
    .await;
    sql.run("VACUUM ANALYZE sluicegate.messages").await;
    sql.run("VACUUM ANALYZE sluicegate.keys").await;
    // Plans are made, and late heads are put off.
    sql.run(&format!("SELECT {claim}")).await;
    let counted = pages(&sql, &format!("SELECT * FROM {claim}")).await;
    let claimed = sql.number(&format!("SELECT count(seq) FROM {claim}")).await;
    (counted, claimed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_touches_as_much_of_a_long_backlog_as_of_a_short_one() {
    let Some(server) = lent() else { return };
    for backlog in BACKLOGS {
        let (few, _) = cost(server.url(), backlog, 1_000).await;
        let (many, claimed) = cost(server.url(), backlog, 30_000).await;
        println!("{}: {few} pages of 1,000, {many} of 30,000", backlog.name);
        assert!(many < few * 2 + 60, "{}: {few} pages, then {many}", backlog.name);
        assert!(claimed <= backlog.claimed, "{}: {claimed}", backlog.name);
    }
}

/// A queue that was used for long without being cleaned is as quick as a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_go_through_at_a_steady_rate() {
    const BATCH: usize = 250;
    const ROUNDS: usize = 40;
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let source = open(&url, Duration::from_secs(60)).await;
    Sql::connect(&url)
        .await
        .run("ALTER TABLE sluicegate.messages SET (autovacuum_enabled = off)")
        .await;
    let mut times = Vec::new();
    let mut publishing = Duration::ZERO;
    for round in 0..ROUNDS {
        let begun = Instant::now();
        let sent = (0..BATCH).map(|n| publication(&format!("{round}/{n}"))).collect();
        source.publish(sent).await.unwrap();
        publishing += begun.elapsed();
        let begun = Instant::now();
        let mut received = 0;
        while received < BATCH {
            let some = source.receive(Demand::any(BATCH - received)).await.unwrap();
            done(&source, &some).await;
            received += some.len();
        }
        times.push(begun.elapsed());
    }
    let sum = |times: &[Duration]| times.iter().sum::<Duration>();
    let rate = |time: Duration, rounds: usize| (BATCH * rounds) as f64 / time.as_secs_f64();
    let (first, last) = (sum(&times[..ROUNDS / 2]), sum(&times[ROUNDS / 2..]));
    println!(
        "published {:.0}/s, received and settled {:.0}/s, then {:.0}/s",
        rate(publishing, ROUNDS),
        rate(first, ROUNDS / 2),
        rate(last, ROUNDS / 2)
    );
    assert!(last < first * 4 + Duration::from_secs(2), "{first:?}, then {last:?}");
    assert!(rate(first + last, ROUNDS) > 300.0, "{first:?} and {last:?}");
}
