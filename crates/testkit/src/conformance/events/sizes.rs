//! Sizes at their bounds: what may be given is taken.

use sluicegate_event_store::{
    AppendCondition, MAX_BATCH, MAX_BATCH_BYTES, MAX_DATA, MAX_DEPTH, MAX_ITEMS, MAX_NAMES,
    MAX_TAG, MAX_TAGS, MAX_TYPE, Position, Query, QueryItem,
};

use super::stage::{event, read_of};
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "the longest names are kept and found", run: |s| Box::pin(names(s)) },
    Check { name: "the largest event is kept", run: |s| Box::pin(data(s)) },
    Check { name: "the deepest data can be read", run: |s| Box::pin(depth(s)) },
    Check { name: "the largest batch is kept as one", run: |s| Box::pin(batch(s)) },
    Check { name: "the heaviest batch is kept as one", run: |s| Box::pin(bytes(s)) },
    Check { name: "the largest query and condition are understood", run: |s| Box::pin(query(s)) },
];

async fn names(stage: Stage) {
    let long_type = "\u{1f980}".repeat(MAX_TYPE);
    let value = |last: char| format!("{}{last}", "v".repeat(MAX_TAG - "k:".len() - 1));
    let tags: Vec<String> = (0..MAX_TAGS - 1).map(|n| format!("n:{n}")).collect();
    let with = |last| event(&long_type, &[], 0).with_tags(tags.clone()).tag("k", value(last));
    stage.append(vec![with('a'), with('b')]).await;
    assert_eq!(stage.all(Query::types([&long_type])).await.len(), 2);
    let found = stage.all(Query::tagged("k", value('a'))).await;
    assert_eq!(found.len(), 1, "the last byte counts");
    assert_eq!(found[0].tags().count(), MAX_TAGS);
    let all_of_them = QueryItem::default().types([&long_type]).tags(tags).tag("k", value('b'));
    assert_eq!(stage.all(Query::any_of([all_of_them])).await.len(), 1);
}

async fn data(stage: Stage) {
    let data = format!("\"{}\"", "\u{e9}".repeat((MAX_DATA - 2) / 2));
    stage.append(vec![event("A", &["k:v"], 0).raw_json(data.clone())]).await;
    assert!(stage.all(Query::all()).await[0].data() == data, "it is the same");
}

async fn depth(stage: Stage) {
    let data = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    stage.append(vec![event("A", &["k:v"], 0).raw_json(&*data)]).await;
    let read: serde_json::Value = stage.all(Query::all()).await[0].json().expect("it is JSON");
    assert_eq!(read.to_string(), data);
}

async fn batch(stage: Stage) {
    let events = (0..MAX_BATCH as u64).map(|n| event("A", &["k:v", "l:w"], n)).collect();
    let condition = AppendCondition::none(Query::tagged("k", "v"));
    let last = stage.append_if(events, condition).await.expect("nothing is there");
    assert_eq!(stage.head().await, last);
    assert_eq!(stage.numbers(Query::all()).await, (0..MAX_BATCH as u64).collect::<Vec<_>>());
}

async fn bytes(stage: Stage) {
    let length = MAX_BATCH_BYTES / 17;
    let heavy = event("A", &["k:v"], 0).raw_json(format!("\"{}\"", "x".repeat(length - 8)));
    stage.append(vec![heavy; 17]).await;
    let found = stage.all(Query::types(["A"]).tag("k", "v")).await;
    assert_eq!(found.len(), 17);
    assert!(found.iter().all(|event| event.data().len() == length - 6));
}

async fn query(stage: Stage) {
    let position = stage.append(vec![event("T7", &["k:7"], 7), event("U", &["u:1"], 8)]).await;
    let items = (0..MAX_ITEMS).map(|n| QueryItem::default().types([format!("T{n}")]).tag("k", n));
    let query = Query::any_of(items);
    assert_eq!(stage.numbers(query.clone()).await, [7]);
    let probe = || vec![event("P", &["p:p"], 9)];
    let refused = stage.append_if(probe(), AppendCondition::none(query.clone())).await;
    assert!(refused.is_err_and(|at| at < position), "{refused:?}");
    let condition = AppendCondition::none_after(query, position);
    assert!(stage.append_if(probe(), condition).await.is_ok());
    let types: Vec<String> = (0..MAX_NAMES).map(|n| format!("T{n}")).collect();
    let tags: Vec<String> = (0..MAX_NAMES).map(|n| format!("k:{n}")).collect();
    assert_eq!(stage.numbers(Query::types(types.clone())).await, [7]);
    // Nobody has all of them, and it takes no time to say so.
    let item = QueryItem::default().types(types).tags(tags);
    let page = stage.page(read_of(Query::any_of([item.clone()]))).await;
    assert!(page.events.is_empty());
    let condition = AppendCondition::none_after(Query::any_of([item]), Position::START);
    assert!(stage.append_if(probe(), condition).await.is_ok());
}
