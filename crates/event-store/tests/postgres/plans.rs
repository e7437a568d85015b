//! Every statement goes by its indexes, on tables of every kind.

use sluicegate_event_store::NewEvent;

use crate::stage::{Sql, append, database, lent, open};

/// The plans of all statements that run inside functions, in the server's log, are seen through `auto_explain`.
async fn plans_of(sql: &Sql, calls: &[&str]) -> String {
    let mut plans = String::new();
    sql.run(
        "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on; \
         SET auto_explain.log_level = 'notice'; SET client_min_messages = 'notice'",
    )
    .await;
    for call in calls {
        plans += &sql.noticed(call).await;
    }
    plans
}

const CALLS: [&str; 12] = [
    "SELECT sluicegate.match_events('{}', '{}', 5, 900, 10)",
    "SELECT sluicegate.match_events('{}', '{A,B}', 5, 900, 10)",
    "SELECT sluicegate.match_events('{k:1}', '{}', 5, 900, 10)",
    "SELECT sluicegate.match_events('{k:1}', '{A}', 5, 900, 10)",
    "SELECT sluicegate.match_events('{k:1,all:1}', '{}', 5, 900, 10)",
    "SELECT sluicegate.match_events('{all:1,none:1}', '{A,Z}', 5, 900, 10)",
    "SELECT * FROM sluicegate.read_events('{\"{}\",\"{k:1,all:1}\"}', '{\"{A}\",\"{}\"}', 5, 900, 10, 1000)",
    "SELECT * FROM sluicegate.read_events('{\"{k:1}\"}', '{\"{}\"}', 5, 900, 10, 1000)",
    "SELECT * FROM sluicegate.find_appends('{1,2}', 5)",
    "SELECT sluicegate.head_of_events()",
    "SELECT sluicegate.append_events('{1,2}', '{1,2}', '{A,B}', '{\"{k:v}\",\"{k:v}\"}', '{\"{}\",\"{}\"}', \
     '{1,1,2,2}', '{k:v,:A,k:v,:B}', '{1,1,2}', '{5,5,5}', '{k:1,NULL,all:1}', '{\"{k:1}\",\"{}\",\"{all:1,none:1}\"}', \
     '{\"{A}\",\"{}\",\"{}\"}', '{2}', '{5}', '{1}', '{1}')",
    "SELECT sluicegate.append_events('{1}', '{3}', '{A}', '{\"{k:v}\"}', '{\"{}\"}', '{1,1}', '{k:v,:A}', \
     '{1}', '{5}', '{k:1}', '{\"{k:1,all:1}\"}', '{\"{A}\"}', '{}', '{}', '{}', '{}')",
];

/// Six times each: from the sixth on a plan is used that does not look at the arguments.
async fn all_go_by_indexes(sql: &Sql, of: &str) {
    let calls = CALLS.map(|call| [call; 7]).concat();
    let plans = plans_of(sql, &calls).await;
    for table in ["events", "event_keys"] {
        assert!(plans.contains(&format!("using {table}_pkey")), "{of}: {plans}");
    }
    for scan in ["Seq Scan on", "Bitmap", "Hash Join", "Merge Join", "JIT"] {
        let line = plans.lines().find(|line| line.contains(scan));
        assert_eq!(line, None, "{of}: {plans}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_goes_by_its_indexes() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    all_go_by_indexes(&Sql::connect(&url).await, "fresh tables").await;
    // The statistics of empty tables say that anything is as good as an index.
    let other = database(server.url()).await;
    let empty = open(&other).await;
    let sql = Sql::connect(&other).await;
    sql.run("ANALYZE sluicegate.events; ANALYZE sluicegate.event_keys").await;
    all_go_by_indexes(&sql, "tables that were analysed while they were empty").await;
    for engine in [engine, empty] {
        for n in 0..5_u64 {
            let new = |m| NewEvent::of("A").tag("all", 1).tag("k", m % 2).tag("n", n * 1_000 + m);
            append(&*engine, (0..1_000).map(new).collect(), None).await.unwrap();
        }
    }
    all_go_by_indexes(&Sql::connect(&other).await, "full tables with the statistics of empty ones")
        .await;
    let sql = Sql::connect(&url).await;
    sql.run("VACUUM ANALYZE sluicegate.events").await;
    sql.run("VACUUM ANALYZE sluicegate.event_keys").await;
    all_go_by_indexes(&sql, "full tables").await;
}

/// Pages that are touched do not grow with the lists of other keys, and hardly with absent ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_pages_are_touched_for_few_events() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let engine = open(&url).await;
    for n in 0..20_u64 {
        let new = |m: u64| {
            let event = NewEvent::of(if m.is_multiple_of(2) { "A" } else { "B" }).tag("all", 1);
            let number = n * 1_000 + m;
            if number.is_multiple_of(5_000) { event.tag("rare", 1) } else { event.tag("n", number) }
        };
        append(&*engine, (0..1_000).map(new).collect(), None).await.unwrap();
    }
    let sql = Sql::connect(&url).await;
    let cases = [
        ("{absent:1}", "{}"),
        ("{absent:1,all:1}", "{}"),
        ("{all:1,zabsent:1}", "{A}"),
        ("{all:1}", "{Absent}"),
        ("{all:1,rare:1}", "{A}"),
        ("{n:7}", "{A,B}"),
        ("{}", "{Absent}"),
    ];
    let all = touched(&sql, "{all:1}", "{A,B}").await;
    assert!(all > 500, "all are {all} pages only: nothing can be seen here");
    for (tags, types) in cases {
        let pages = touched(&sql, tags, types).await;
        println!("{pages} pages, and {all} for all: {tags} {types}");
        assert!(pages < 150, "{pages} pages for {tags} {types}");
    }
}

/// How many pages are touched to find what has these tags and types.
async fn touched(sql: &Sql, tags: &str, types: &str) -> u64 {
    let call = format!("SELECT sluicegate.match_events('{tags}', '{types}', 0, 1000000, 1000000)");
    // What is looked up in the catalogue is known the second time.
    sql.run(&call).await;
    let plan = sql.rows(&format!("EXPLAIN (ANALYZE, BUFFERS) {call}")).await;
    let lines: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    let hit = lines.iter().find_map(|line| line.split_once("shared hit=")).unwrap().1;
    hit.split(' ').next().unwrap().parse().unwrap()
}
