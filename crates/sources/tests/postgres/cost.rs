//! What a claim costs does not grow with what waits, for whom, or how: pages touched, counted by the database.

use std::time::Duration;

use sluicegate_dispatch::{Demand, Source};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::Instant;

use crate::stage::{Sql, database, done, lent, open};

/// A backlog, made by a statement with its size put in.
struct Backlog {
    name: &'static str,
    /// Columns `delay`, `pool`, `grp` and `tenant` of message `n` of `size`.
    columns: &'static str,
    /// The pools that are asked for, and how many messages of each.
    pools: &'static str,
    rooms: &'static str,
    /// 0 keeps no order, 1 that of groups, 3 that of all.
    order: u8,
    /// How many of pools that are not named.
    others: u8,
    /// What a claim of ten gets.
    claimed: i64,
}

const PLAIN: Backlog = Backlog {
    name: "ready",
    columns: "0, 'P', 'g', ''",
    pools: "'{}'",
    rooms: "'{}'",
    order: 0,
    others: 10,
    claimed: 10,
};

/// The names of a thousand pools.
const POOLS: &str = "(SELECT array_agg(('p' || lpad(n::text, 4, '0'))::bytea ORDER BY n) FROM generate_series(0, 999) n)";

const BACKLOGS: &[Backlog] = &[
    PLAIN,
    Backlog {
        name: "late",
        columns: "CASE WHEN n > 100 THEN 3600000000 ELSE 0 END, 'P', 'g', ''",
        ..PLAIN
    },
    Backlog {
        name: "behind a late head",
        columns: "CASE WHEN n = 1 THEN 3600000000 ELSE 0 END, 'S', CASE WHEN n % 20 = 2 AND n < 1000 THEN n::text ELSE 'g' END, ''",
        order: 3,
        ..PLAIN
    },
    Backlog { name: "a head for each", columns: "0, 'S', n::text, ''", order: 3, ..PLAIN },
    Backlog { name: "one group", columns: "0, 'S', 'g', ''", order: 3, claimed: 1, ..PLAIN },
    Backlog {
        name: "behind a pool without room",
        columns: "0, CASE WHEN n % 20 = 0 AND n < 1000 THEN 'S' ELSE 'P' END, n::text, ''",
        pools: "'{P,S}'",
        rooms: "'{0,10}'",
        others: 0,
        ..PLAIN
    },
    Backlog {
        name: "behind groups, without a group",
        columns: "0, 'P', CASE WHEN n % 20 = 0 AND n < 1000 THEN '__DEFAULT__' ELSE 'g' END, ''",
        order: 1,
        ..PLAIN
    },
    Backlog { name: "a tenant for each five", columns: "0, 'P', 'g', 't' || n / 5", ..PLAIN },
    Backlog {
        name: "a tenant for each five, in order",
        columns: "0, 'P', n::text, 't' || n / 5",
        order: 3,
        ..PLAIN
    },
    Backlog {
        name: "a pool for each, all with room",
        columns: "0, 'p' || lpad((n % least(1000, :size / 50))::text, 4, '0'), n::text, 't' || n % 7",
        pools: POOLS,
        rooms: "array_fill(10, ARRAY[1000])",
        others: 0,
        ..PLAIN
    },
    Backlog {
        name: "a pool for each, all with room, in order",
        columns: "0, 'p' || lpad((n % least(1000, :size / 50))::text, 4, '0'), n::text, 't' || n % 7",
        pools: POOLS,
        rooms: "array_fill(10, ARRAY[1000])",
        order: 3,
        others: 0,
        ..PLAIN
    },
    Backlog {
        name: "a pool for each, one with room",
        columns: "0, 'p' || lpad((n % least(1000, :size / 50))::text, 4, '0'), n::text, 't' || n % 7",
        pools: POOLS,
        rooms: "array_fill(0, ARRAY[7]) || 10 || array_fill(0, ARRAY[992])",
        others: 0,
        ..PLAIN
    },
    Backlog {
        name: "a pool for each, none with room",
        columns: "0, 'p' || lpad((n % least(1000, :size / 50))::text, 4, '0'), n::text, 't' || n % 7",
        pools: POOLS,
        rooms: "array_fill(0, ARRAY[1000])",
        claimed: 0,
        ..PLAIN
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

/// The pages that a claim of ten touches, and how many it gets. A tenth of that is a message.
async fn cost(server: &str, backlog: &Backlog, size: i64) -> (i64, i64) {
    let url = database(server).await;
    drop(open(&url, Duration::from_secs(60)).await);
    let sql = Sql::connect(&url).await;
    let Backlog { columns, pools, rooms, order, others, .. } = backlog;
    let columns = columns.replace(":size", &size.to_string());
    sql.run(&format!(
        "SELECT sluicegate.publish(1, array_agg(n::text::bytea), array_agg(o.p::bytea), array_agg(o.g::bytea),
            array_agg(o.t::bytea), array_agg(false), array_agg(o.d::bigint), array_agg(repeat('x', 200)::bytea))
         FROM generate_series(1, {size}) n, LATERAL (SELECT {columns}) AS o (d, p, g, t)
         GROUP BY n / 5000 ORDER BY n / 5000",
    ))
    .await;
    let claim = format!(
        "sluicegate.claim(1, {pools}, {rooms}, array_fill({order}::smallint, ARRAY[cardinality({rooms}::int[])]),
            array_fill(NULL::bytea, ARRAY[cardinality({rooms}::int[])]), {others}, {order}::smallint, '', '', false,
            10, 1000000, 600000000, 1)"
    );
    sql.run("VACUUM ANALYZE sluicegate.messages").await;
    sql.run("VACUUM ANALYZE sluicegate.keys").await;
    // Plans are made, and late heads are put off.
    for _ in 0..2 {
        sql.run(&format!("SELECT {claim}")).await;
    }
    let counted = pages(&sql, &format!("SELECT * FROM {claim}")).await;
    let claimed = sql.number(&format!("SELECT count(seq) FROM {claim}")).await;
    (counted, claimed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_touches_as_much_of_a_long_backlog_as_of_a_short_one() {
    let Some(server) = lent() else { return };
    for backlog in BACKLOGS {
        let (few, _) = cost(server.url(), backlog, 1_000).await;
        let (many, claimed) = cost(server.url(), backlog, 50_000).await;
        println!("{}: {few} pages of 1,000, {many} of 50,000, {claimed} claimed", backlog.name);
        assert!(many < few * 3 / 2 + 60, "{}: {few} pages, then {many}", backlog.name);
        // Those that wait for others are out by then.
        assert!(claimed == backlog.claimed || backlog.claimed == 1, "{}: {claimed}", backlog.name);
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
