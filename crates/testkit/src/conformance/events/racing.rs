//! Conditions under concurrency: short, and for every engine; the checker does the same at length.

use std::sync::Arc;

use sluicegate_event_store::{AppendCondition, Position, Query};

use super::stage::{append_if, at_once, event};
use super::{Check, Stage};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "of those who decided on the same, one gets through", run: |s| Box::pin(one(s)) },
    Check {
        name: "those who decided on different things all get through",
        run: |s| Box::pin(apart(s)),
    },
    Check {
        name: "a counter that is read and appended loses no step",
        run: |s| Box::pin(counter(s)),
    },
    Check {
        name: "a plain append that was answered is seen by every condition",
        run: |s| Box::pin(plain(s)),
    },
];

async fn one(stage: Stage) {
    let engines = stage.engines(3).await;
    for round in 0..20 {
        let tag = format!("race:{round}");
        let racer = |number: u64| {
            let engine = Arc::clone(&engines[number as usize % engines.len()]);
            let (events, query) =
                (vec![event("Won", &[&tag], number)], Query::tagged("race", round));
            async move { append_if(&*engine, events, AppendCondition::none(query)).await }
        };
        let answers = at_once((0..8).map(racer)).await;
        let found = stage.all(Query::tagged("race", round)).await;
        let [won] = &*found else { panic!("one wins: {found:?}") };
        for (number, answer) in answers.iter().enumerate() {
            let expected = match won.data() == number.to_string() {
                true => Ok(won.position()),
                false => Err(won.position()),
            };
            assert_eq!(*answer, expected, "racer {number} of round {round}");
        }
    }
}

async fn apart(stage: Stage) {
    let engines = stage.engines(3).await;
    for _ in 0..5 {
        let after = stage.head().await;
        let racer = |number: u64| {
            let engine = Arc::clone(&engines[number as usize % engines.len()]);
            let events = vec![event("Done", &[&format!("own:{number}"), "shared:1"], number)];
            let query = Query::types(["Done"]).tag("own", number);
            let condition = AppendCondition::none_after(query, after);
            async move { append_if(&*engine, events, condition).await }
        };
        let answers = at_once((0..16).map(racer)).await;
        assert!(answers.iter().all(Result::is_ok), "nobody is in anybody's way: {answers:?}");
    }
    assert_eq!(stage.all(Query::tagged("shared", 1)).await.len(), 80);
}

async fn counter(stage: Stage) {
    const STEPS: usize = 10;
    let engines = stage.engines(3).await;
    let counting = |number: usize| {
        let engine = Arc::clone(&engines[number % engines.len()]);
        async move {
            let mut done = 0;
            while done < STEPS {
                let read = super::stage::read_of(Query::types(["Counted"]));
                let seen = engine.read(read).await.expect("it can be read").events;
                let last = seen.last().map_or(Position::START, |event| event.position());
                let events = vec![event("Counted", &["k:v"], seen.len() as u64)];
                let condition = AppendCondition::none_after(Query::types(["Counted"]), last);
                done += usize::from(append_if(&*engine, events, condition).await.is_ok());
            }
        }
    };
    at_once((0..4).map(counting)).await;
    assert_eq!(stage.numbers(Query::all()).await, (0..4 * STEPS as u64).collect::<Vec<_>>());
}

async fn plain(stage: Stage) {
    let engines = stage.engines(3).await;
    for round in 0..20 {
        let tag = format!("plain:{round}");
        let condition =
            AppendCondition::none_after(Query::tagged("plain", round), stage.head().await);
        let conditional = |number: u64| {
            let engine = Arc::clone(&engines[number as usize % engines.len()]);
            let (events, condition) =
                (vec![event("Conditional", &[&tag], number)], condition.clone());
            async move { append_if(&*engine, events, condition).await }
        };
        let position = stage.append(vec![event("Plain", &[&tag], 100)]).await;
        let answers = at_once((0..4).map(conditional)).await;
        assert_eq!(answers, [Err(position); 4], "round {round}");
    }
}
