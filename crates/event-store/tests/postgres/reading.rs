//! Pages: complete, in order, bounded, whatever the lists of keys look like.

use std::collections::BTreeSet;

use sluicegate_event_store::postgres::{PostgresEngine, PostgresSettings};
use sluicegate_event_store::{AppendCondition, Engine, NewEvent, Position, Query, QueryItem, Read};

use crate::stage::{
    PATIENCE, Sql, all, append, database, event, is_conflict, lent, open, positions, until,
};

/// A log whose lists of keys are long, short, dense and sparse; what it has is computed beside it.
fn history(count: u64) -> Vec<NewEvent> {
    let new = |n: u64| {
        let event = NewEvent::of(["A", "B", "C"][usize::try_from(n % 3).unwrap()]).tag("all", 1);
        let event = event.tag("mod7", n % 7).tag("half", u64::from(n > count / 2));
        let event = if n.is_multiple_of(97) { event.tag("rare", 1) } else { event };
        let event = if n.is_multiple_of(2) { event.tag("even", 1) } else { event.tag("odd", 1) };
        event.json(&n)
    };
    (1..=count).map(new).collect()
}

fn queries() -> Vec<Query> {
    let item = QueryItem::default;
    vec![
        Query::all(),
        Query::types(["A"]),
        Query::types(["A", "C", "Z"]),
        Query::types(["Z"]),
        Query::tagged("all", 1),
        Query::tagged("none", 1),
        Query::tagged("all", 1).tag("rare", 1),
        Query::tagged("all", 1).tag("none", 1),
        Query::tagged("even", 1).tag("odd", 1),
        Query::tagged("even", 1).tag("mod7", 3),
        Query::tagged("all", 1).tag("mod7", 3).tag("half", 1),
        Query::types(["B"]).tag("all", 1),
        Query::types(["B", "C"]).tag("rare", 1),
        Query::types(["Z"]).tag("all", 1),
        Query::types(["A"]).tag("half", 1).tag("rare", 1),
        Query::any_of([
            item().tags(["rare:1"]),
            item().types(["A"]),
            item().tags(["mod7:1", "even:1"]),
        ]),
        Query::any_of([item().tags(["none:1"]), item().tags(["half:0"])]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_finds_what_it_asks_for() {
    let Some(server) = lent() else { return };
    let engine = open(&database(server.url()).await).await;
    for chunk in history(5_000).chunks(1_000) {
        append(&*engine, chunk.to_vec(), None).await.unwrap();
    }
    let log = all(&*engine, Query::all(), 1_000).await;
    assert_eq!(log.len(), 5_000);
    assert!(log.windows(2).all(|two| two[0].position() < two[1].position()));
    for query in queries() {
        let expected: Vec<u64> = log
            .iter()
            .filter(|event| query.matches(event))
            .map(|event| event.position().get())
            .collect();
        for limit in [1_000, 7] {
            if limit == 7 && expected.len() > 1_000 {
                continue;
            }
            assert_eq!(
                positions(&all(&*engine, query.clone(), limit).await),
                expected,
                "{query:?}"
            );
        }
        // From any place up to any place, and the check of a condition agrees.
        for (after, up_to) in
            [(0, 10), (96, 97), (97, 97), (98, 1_000), (2_499, 4_000), (5_000, 9_000), (7, 5)]
        {
            let mut read = Read::new(query.clone()).unwrap();
            (read.after, read.up_to) = (Position::new(after), Some(Position::new(up_to)));
            let page = engine.read(read).await.unwrap();
            let part: Vec<u64> =
                expected.iter().copied().filter(|it| (after + 1..=up_to).contains(it)).collect();
            let cut = part.len().min(1_000);
            assert_eq!(positions(&page.events), part[..cut], "{query:?} {after}..={up_to}");
        }
        for after in [0, 2_500, 4_999] {
            let condition = AppendCondition::none_after(query.clone(), Position::new(after));
            let spoils = [event("Never", "own:1")];
            let answer = append(&*engine, spoils.to_vec(), Some(condition)).await;
            let matches = expected.iter().any(|it| *it > after);
            // What is appended by it must not be found by the next.
            let appended = answer.is_ok() || query.is_all();
            assert_eq!(is_conflict(&answer), matches || query.is_all(), "{query:?} after {after}");
            assert!(appended || matches);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_when_it_has_many_bytes() {
    let Some(server) = lent() else { return };
    let engine = open(&database(server.url()).await).await;
    let data = "x".repeat(700_000);
    for _ in 0..3 {
        let events = (0..5).map(|_| event("Big", "k:v").json(&data)).collect();
        append(&*engine, events, None).await.unwrap();
    }
    let page = engine.read(Read::new(Query::tagged("k", "v")).unwrap()).await.unwrap();
    assert_eq!(page.events.len(), 6, "6 of 700 kB are more than 4 MiB");
    assert_eq!(page.next, page.events.last().map(|event| event.position()));
    assert_eq!(all(&*engine, Query::all(), 100).await.len(), 15);
}

/// Whoever goes leaves nothing behind, long before the time of the statement is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_are_given_up_end_in_the_server() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let settings = PostgresSettings::parse(&url).unwrap().with_read_timeout(PATIENCE * 10);
    let engine = PostgresEngine::open(settings).await.unwrap();
    let (sql, onlooker) = (Sql::connect(&url).await, Sql::connect(&url).await);
    sql.run("BEGIN; LOCK TABLE sluicegate.events").await;
    let at_work = async || {
        let processes = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                         AND query LIKE '%read_events%' AND application_name = 'sluicegate-events' \
                         AND state = 'active'";
        onlooker.number(processes).await
    };
    for _ in 0..3 {
        tokio::select! {
            page = engine.read(Read::new(Query::all()).unwrap()) => panic!("{page:?}"),
            () = until("at work", async || at_work().await == 1) => {}
        }
        until("stopped", async || at_work().await == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_text_comes_back_as_it_was() {
    let Some(server) = lent() else { return };
    let engine = open(&database(server.url()).await).await;
    let texts = [
        "ü",
        "\u{1F600}",
        "e\u{301}",
        "\u{e9}",
        "A",
        "a",
        " ",
        "\t\n",
        "{}",
        "{a,b}",
        "\"",
        "\\",
        "\\\"",
        "NULL",
        "'; DROP TABLE events; --",
        "\u{1}",
        "\u{7f}",
        "\u{202e}",
        "\u{10FFFF}",
        "null",
        ",",
        ":",
        "%",
        "_",
        "\u{FEFF}",
        "ß",
        "ss",
        "İ",
    ];
    let mut seen = BTreeSet::new();
    for text in texts {
        let new = NewEvent::of(text)
            .tag("k", text)
            .tag(text.trim_start_matches(':').to_owned() + "k", "v");
        let new = new.json(&text);
        append(&*engine, vec![new.clone()], None).await.unwrap();
        for query in [Query::types([text]), Query::tagged("k", text)] {
            let found = all(&*engine, query.clone(), 10).await;
            assert_eq!(found.len(), 1, "{text:?}: {query:?} finds {found:?}");
            let mut tags = [format!("k:{text}"), text.trim_start_matches(':').to_owned() + "k:v"];
            tags.sort_unstable();
            assert_eq!(found[0].event_type(), text);
            assert_eq!(found[0].tags().collect::<Vec<_>>(), tags);
            assert_eq!(found[0].json::<String>().unwrap(), text);
            let again =
                append(&*engine, vec![new.clone()], Some(AppendCondition::none(query))).await;
            assert!(is_conflict(&again), "{text:?}: {again:?}");
        }
        assert!(seen.insert(text));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_two_schemas_and_two_databases_are_apart() {
    let Some(server) = lent() else { return };
    let (one, other) = (database(server.url()).await, database(server.url()).await);
    let logs = [one.clone(), format!("{one}?schema=b"), format!("{one}?schema=c"), other];
    for (n, url) in logs.iter().enumerate() {
        let engine = open(url).await;
        assert_eq!(engine.head().await.unwrap(), Position::START);
        let condition = Some(AppendCondition::none(Query::all()));
        append(&*engine, vec![event("Mine", "k:v").json(&n)], condition).await.unwrap();
    }
    for (n, url) in logs.iter().enumerate() {
        let engine = open(url).await;
        let log = all(&*engine, Query::all(), 10).await;
        assert_eq!(log.len(), 1);
        assert_eq!(log[0].json::<usize>().unwrap(), n);
    }
}
