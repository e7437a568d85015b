//! Names: any Unicode but NUL, and what differs is different.

use sluicegate_event_store::{AppendCondition, Position, Query, QueryItem};

use super::stage::event;
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "tags that look alike are different", run: |s| Box::pin(tags(s)) },
    Check { name: "types that look alike are different", run: |s| Box::pin(types(s)) },
    Check { name: "a type is no tag", run: |s| Box::pin(kinds(s)) },
];

/// Names that some store, index, pattern or quoting might take for one another.
const NAMES: [&str; 40] = [
    "v",
    "V",
    "v ",
    " v",
    "v\t",
    "vv",
    "",
    "\u{e9}",
    "e\u{301}",
    "e",
    "\u{c9}",
    "\u{df}",
    "ss",
    "\u{131}",
    "i",
    "I",
    "\u{130}",
    "%",
    "_",
    "*",
    "?",
    "\\",
    "\\\\",
    "'",
    "''",
    "\"",
    "{v}",
    "v,v",
    "\u{1}",
    "\n",
    "\r\n",
    "\u{7f}",
    "\u{a0}",
    "\u{200b}",
    "\u{feff}",
    "\u{fffd}",
    "\u{10ffff}",
    "\u{1f980}",
    "\u{5d0}\u{5d1}",
    "v:w",
];

async fn tags(stage: Stage) {
    let tag = |name: &str| format!("k:x{name}");
    for (number, name) in (0..).zip(NAMES) {
        let condition =
            AppendCondition::none(Query::any_of([QueryItem::default().tags([tag(name)])]));
        let events = vec![event("T", &[&tag(name)], number)];
        let appended = stage.append_if(events.clone(), condition.clone()).await;
        assert!(appended.is_ok(), "{name:?} is not one of those before it: {appended:?}");
        assert_eq!(stage.append_if(events, condition).await, appended.map_or_else(Ok, Err));
    }
    for (number, name) in (0..).zip(NAMES) {
        let query = Query::any_of([QueryItem::default().tags([tag(name)])]);
        let found = stage.all(query).await;
        assert_eq!(found.len(), 1, "{name:?} finds {found:?}");
        assert_eq!(found[0].tags().collect::<Vec<_>>(), [tag(name)], "{number}");
    }
}

async fn types(stage: Stage) {
    let of = |name: &str| format!("x{name}");
    for (number, name) in (0..).zip(NAMES) {
        let condition = AppendCondition::none(Query::types([of(name)]));
        let appended = stage.append_if(vec![event(&of(name), &["k:v"], number)], condition).await;
        assert!(appended.is_ok(), "{name:?} is not one of those before it: {appended:?}");
    }
    for (number, name) in (0..).zip(NAMES) {
        let found = stage.all(Query::types([of(name)])).await;
        assert_eq!(found.len(), 1, "{name:?} finds {found:?}");
        assert_eq!((found[0].event_type(), found[0].data()), (&*of(name), &*number.to_string()));
    }
}

async fn kinds(stage: Stage) {
    // What an index of types and tags together could mix up.
    stage.append(vec![event("k:v", &["type:A"], 0), event("A", &["k:v"], 1)]).await;
    stage.append(vec![event("t:A", &["t:k:v"], 2), event("\u{1}A", &["t:A"], 3)]).await;
    let cases: [(Query, &[u64]); 6] = [
        (Query::types(["k:v"]), &[0]),
        (Query::tagged("k", "v"), &[1]),
        (Query::types(["A"]), &[1]),
        (Query::types(["t:A"]), &[2]),
        (Query::tagged("t", "A"), &[3]),
        (Query::tagged("type", "A"), &[0]),
    ];
    for (query, expected) in cases {
        assert_eq!(stage.numbers(query.clone()).await, expected, "{query:?}");
        let condition = AppendCondition::none_after(query.clone(), Position::START);
        let refused = stage.append_if(vec![event("P", &["p:p"], 9)], condition).await;
        assert!(refused.is_err(), "{query:?}");
    }
}
