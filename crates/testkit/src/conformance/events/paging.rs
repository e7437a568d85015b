//! Page after page: nothing is lost and nothing comes twice.

use sluicegate_event_store::{Position, Query, Read};

use super::stage::{event, numbers, read_of};
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "pages of any size are the whole", run: |s| Box::pin(sizes(s)) },
    Check { name: "a few among many are found page by page", run: |s| Box::pin(sparse(s)) },
    Check { name: "large events come in pages that fit into memory", run: |s| Box::pin(large(s)) },
    Check { name: "pages up to a head stay as they were", run: |s| Box::pin(bounded(s)) },
];

/// 300 events: every third an A, every fifth tagged f.
async fn append_many(stage: &Stage) {
    for from in (0..300).step_by(50) {
        let of = |n: u64| {
            let tags: &[&str] = if n.is_multiple_of(5) { &["k:v", "f:1"] } else { &["k:v"] };
            event(if n.is_multiple_of(3) { "A" } else { "B" }, tags, n)
        };
        stage.append((from..from + 50).map(of).collect()).await;
    }
}

async fn sizes(stage: Stage) {
    append_many(&stage).await;
    type Asks = fn(u64) -> bool;
    let cases: [(Query, Asks); 4] = [
        (Query::all(), |_| true),
        (Query::types(["A"]), |n| n.is_multiple_of(3)),
        (Query::types(["A"]).tag("f", 1), |n| n.is_multiple_of(15)),
        (Query::types(["A"]).or(Query::tagged("f", 1)), |n| {
            n.is_multiple_of(3) || n.is_multiple_of(5)
        }),
    ];
    for (query, asks) in cases {
        let expected: Vec<u64> = (0..300).filter(|n| asks(*n)).collect();
        for limit in [1, 2, 7, 99, 100, 101, 299, 300, 301] {
            let mut read = read_of(query.clone());
            read.limit = limit;
            let pages = stage.pages(read).await;
            assert!(pages.iter().all(|page| page.events.len() <= limit));
            assert!(pages.iter().all(|page| page.next.is_none() || !page.events.is_empty()));
            let found: Vec<_> = pages.into_iter().flat_map(|page| page.events).collect();
            assert_eq!(numbers(&found), expected, "{query:?} in pages of {limit}");
        }
    }
}

async fn sparse(stage: Stage) {
    for from in (0..2_000).step_by(500) {
        let of = |n: u64| event("A", if n % 700 == 3 { &["k:v", "rare:1"] } else { &["k:v"] }, n);
        stage.append((from..from + 500).map(of).collect()).await;
    }
    for limit in [1, 2, 1_000] {
        let mut read = read_of(Query::tagged("rare", 1).tag("k", "v"));
        read.limit = limit;
        let found: Vec<_> = stage.pages(read).await.into_iter().flat_map(|p| p.events).collect();
        assert_eq!(numbers(&found), [3, 703, 1_403], "in pages of {limit}");
    }
    assert_eq!(stage.numbers(Query::all()).await, (0..2_000).collect::<Vec<_>>());
}

async fn large(stage: Stage) {
    let data = format!("\"{}\"", "x".repeat(1_000_000));
    for _ in 0..6 {
        stage.append(vec![event("A", &["k:v"], 0).raw_json(data.clone()); 2]).await;
    }
    let pages = stage.pages(read_of(Query::all())).await;
    let lengths: Vec<usize> = pages.iter().map(|page| page.events.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 12, "{lengths:?}");
    let most = Read::PAGE_BYTES / 1_000_000 + 1;
    assert!(lengths.iter().all(|length| *length <= most), "{lengths:?}");
    assert!(pages.iter().flat_map(|page| &page.events).all(|event| event.data() == data));
}

async fn bounded(stage: Stage) {
    append_many(&stage).await;
    let mut read = read_of(Query::types(["B"]));
    (read.limit, read.up_to) = (30, Some(stage.head().await));
    let (mut found, mut rounds) = (Vec::new(), 0);
    loop {
        let page = stage.page(read.clone()).await;
        found.extend(numbers(&page.events));
        // More comes with every page, and none of it is ours.
        stage.append(vec![event("B", &["k:v"], 1_000 + rounds)]).await;
        rounds += 1;
        let Some(next) = page.next else { break };
        read.after = next;
    }
    assert_eq!(found, (0..300).filter(|n| n % 3 != 0).collect::<Vec<_>>());
    let mut rest = read_of(Query::types(["B"]));
    rest.after = read.up_to.unwrap_or(Position::START);
    let rest = numbers(&stage.page(rest).await.events);
    assert_eq!(rest, (1_000..1_000 + rounds).collect::<Vec<_>>());
}
