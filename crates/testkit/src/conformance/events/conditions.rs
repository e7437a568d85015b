//! Conditions, one at a time: refused if and only if an event that matches is there after the position.

use sluicegate_event_store::{AppendCondition, Position, Query};

use super::reading::{append_events, queries};
use super::stage::event;
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a condition refuses if and only if an event matches after it",
        run: |s| Box::pin(exact(s)),
    },
    Check {
        name: "a condition beyond the head holds, and refuses nothing later",
        run: |s| Box::pin(beyond(s)),
    },
    Check {
        name: "events do not fail by a condition that they match themselves",
        run: |s| Box::pin(own(s)),
    },
    Check {
        name: "a condition on all events holds only where nothing came",
        run: |s| Box::pin(all(s)),
    },
    Check { name: "an old decision fails however much came since", run: |s| Box::pin(old(s)) },
];

/// What no query of the checks asks for, but those that ask for all.
fn probe() -> Vec<sluicegate_event_store::NewEvent> {
    vec![event("Probe", &["probe:1"], 0)]
}

async fn exact(stage: Stage) {
    let positions = append_events(&stage).await;
    let last = positions[positions.len() - 1];
    for (query, matching) in queries() {
        for (from, after) in (0..).zip([Position::START].into_iter().chain(positions.clone())) {
            // Where all events are asked for, the probes of earlier cases count as well.
            let ours: Vec<Position> = matching
                .iter()
                .filter(|number| **number >= from)
                .map(|number| positions[*number as usize])
                .collect();
            let probed = query.is_all() && stage.head().await > last.max(after);
            let condition = AppendCondition::none_after(query.clone(), after);
            match stage.append_if(probe(), condition).await {
                Ok(position) => {
                    assert!(ours.is_empty() && !probed, "{query:?} after {after}: {ours:?}");
                    assert_eq!(position, stage.head().await);
                }
                Err(position) => {
                    let named = ours.contains(&position) || probed && position > last;
                    assert!(named, "{query:?} after {after}: {position} is none of {ours:?}");
                }
            }
        }
    }
}

async fn beyond(stage: Stage) {
    append_events(&stage).await;
    let head = stage.head().await.get();
    for far in [head + 1, head + 1_000_000, i64::MAX as u64, u64::MAX] {
        for query in [Query::all(), Query::tagged("k", 1), Query::types(["A", "Probe"])] {
            let condition = AppendCondition::none_after(query, Position::new(far));
            // Even where the events of others are beyond it by then, these are not before it.
            let answer = stage.append_if(probe(), condition).await;
            let is_right = answer.is_ok() || answer.is_err_and(|position| position.get() > far);
            assert!(is_right, "after {far}: {answer:?}");
        }
    }
}

async fn own(stage: Stage) {
    for number in 0..3 {
        let query = Query::types(["A"]).tag("own", number);
        let events = vec![event("A", &[&format!("own:{number}")], number); 3];
        let condition = AppendCondition::none(query);
        assert!(stage.append_if(events.clone(), condition.clone()).await.is_ok());
        assert!(stage.append_if(events, condition).await.is_err());
    }
    assert_eq!(stage.numbers(Query::all()).await, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

async fn all(stage: Stage) {
    let none = |after| AppendCondition::none_after(Query::all(), after);
    let first = stage.append_if(probe(), none(Position::START)).await.expect("it is empty");
    assert_eq!(stage.append_if(probe(), none(Position::START)).await, Err(first));
    let second = stage.append_if(probe(), none(first)).await.expect("nothing came after it");
    assert_eq!(stage.append_if(probe(), none(first)).await, Err(second));
}

async fn old(stage: Stage) {
    let position = stage.append(vec![event("Old", &["old:1"], 0)]).await;
    for from in (0..2_000).step_by(500) {
        let more = (from..from + 500).map(|n| event("New", &["new:1", &format!("n:{n}")], n));
        stage.append(more.collect()).await;
    }
    let refused_by = |query: Query, after| {
        let condition = AppendCondition::none_after(query, after);
        stage.append_if(probe(), condition)
    };
    assert_eq!(refused_by(Query::types(["Old"]), Position::START).await, Err(position));
    assert_eq!(refused_by(Query::tagged("old", 1), Position::START).await, Err(position));
    assert!(refused_by(Query::types(["Old"]), position).await.is_ok());
    assert!(refused_by(Query::tagged("new", 1).tag("n", 1_999), position).await.is_err());
    assert!(refused_by(Query::types(["Old"]).tag("new", 1), Position::START).await.is_ok());
}
