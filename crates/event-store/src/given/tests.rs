//! What the words say when they are wrong, which is when they matter.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::json;

use super::*;
use crate::{Query, decision, fold};

fn paid(amount: u32) -> NewEvent {
    NewEvent::of("Paid").tag("order", 7).tag("amount", amount).json(&json!({"b": 1, "a": amount}))
}

/// Pays once.
fn pay() -> impl Decision<Error = &'static str> {
    decision(
        || fold::count(Query::types(["Paid"])),
        |paid_before| match paid_before {
            0 => Ok(vec![paid(5)]),
            1 => Err("it is paid"),
            2 => Ok(vec![]),
            _ => Ok(vec![NewEvent::of("Paid")]),
        },
    )
}

fn said(check: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("it should not hold");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn what_holds_passes() {
    given([]).when(&pay()).then_appends([paid(5)]);
    let same =
        NewEvent::of("Paid").with_tags(["amount:5", "order:7"]).raw_json(r#"{"a":5, "b":1}"#);
    given([]).when(&pay()).then_appends([same]);
    given([paid(5)]).when(&pay()).then_refuses(&"it is paid");
    given([paid(5), paid(6)]).when(&pay()).then_appends_nothing();
    given([NewEvent::of("Other").tag("k", "v")]).when(&pay()).then_appends([paid(5)]);
    assert_eq!(given([paid(5)]).when(&pay()).into_result(), Err("it is paid"));
}

#[test]
fn what_does_not_hold_says_both_sides() {
    let paid_5 = r#"Paid [amount:5, order:7] {"a":5,"b":1}"#;
    let paid_6 = r#"Paid [amount:6, order:7] {"a":6,"b":1}"#;
    assert_eq!(
        said(|| given([]).when(&pay()).then_appends([paid(6)])),
        format!("expected events:\n  {paid_6}\nbut it appends:\n  {paid_5}")
    );
    assert_eq!(
        said(|| given([]).when(&pay()).then_appends_nothing()),
        format!("expected events: none\nbut it appends:\n  {paid_5}")
    );
    assert_eq!(
        said(|| given([paid(5)]).when(&pay()).then_appends([paid(5)])),
        format!("expected events:\n  {paid_5}\nbut it refuses: \"it is paid\"")
    );
    assert_eq!(
        said(|| given([]).when(&pay()).then_refuses(&"it is paid")),
        format!("expected a refusal: \"it is paid\"\nbut it appends:\n  {paid_5}")
    );
    assert_eq!(
        said(|| given([paid(5)]).when(&pay()).then_refuses(&"no money")),
        "expected a refusal: \"no money\"\nbut it refuses: \"it is paid\""
    );
}

#[test]
fn what_no_store_takes_in_is_said() {
    assert_eq!(
        said(|| drop(given([NewEvent::of("Paid")]))),
        "the event given as number 1 could not be in a store: events[0].tags: there is none: give at \
         least one, as key:value"
    );
    let three = given([paid(1), paid(2), paid(3)]);
    assert_eq!(
        said(|| drop(three.when(&pay()))),
        "the decision would append what no store takes in: events[0].tags: there is none: give at least \
         one, as key:value"
    );
    let fails = decision(|| fold::merge(Query::all()), |_| Ok::<_, ()>(vec![]));
    let no_object = given([paid(1).raw_json("[]")]);
    assert!(
        said(|| drop(no_object.when(&fails))).starts_with(
            "the decision got no state: the event at position 1 could not be applied: "
        )
    );
}
