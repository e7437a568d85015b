//! Many who decide the same at once: one of them is right.
//!
//! `docs/rules.md#events-1`.

use sluicegate_event_store::{AppendCondition, AppendError, Engine, Query, QueryItem};

use crate::stage::{Stage, about, all, append, at_once};

#[tokio::test(flavor = "multi_thread")]
async fn of_64_that_race_one_wins_in_every_round() {
    let stage = Stage::open().await;
    for round in 0..50 {
        let racer = |n: usize| {
            let engine = stage.engine.clone();
            async move {
                // Different conditions that overlap: every other one asks for the racers' own tag too.
                let mut query = Query::types(["Said"]).tag("seat", round);
                if n % 2 == 1 {
                    query = query.or(Query::tagged("racer", n));
                }
                let event = about("seat", round).tag("racer", format!("{round}-{n}"));
                append(&engine, vec![event], Some(AppendCondition::none(query))).await
            }
        };
        let answers = at_once((0..64).map(racer)).await;
        let seats = stage.all(Query::tagged("seat", round)).await;
        let winners = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect::<Vec<_>>();
        assert_eq!(winners, [&seats[0].position()], "round {round}");
        assert_eq!(seats.len(), 1, "round {round}");
        let is_conflict = |answer: &Result<_, _>| match answer {
            Err(AppendError::Conflict { position }) => *position == seats[0].position(),
            _ => false,
        };
        assert_eq!(answers.iter().filter(|answer| is_conflict(answer)).count(), 63, "{round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_under_a_race_stay_within_their_bound() {
    // Each reads how many there are, and appends while there are fewer than 20.
    let stage = Stage::open().await;
    let racer = |n: u32| {
        let engine = stage.engine.clone();
        async move {
            loop {
                let seen = all(&engine, Query::tagged("course", "c")).await;
                if seen.len() >= 20 {
                    return 0;
                }
                let last = seen.last().map(sluicegate_event_store::Event::position);
                let query = Query::tagged("course", "c");
                let condition = AppendCondition::none_after(query, last.unwrap_or_default());
                let event = about("course", "c").tag("student", n);
                match append(&engine, vec![event], Some(condition)).await {
                    Ok(_) => return 1,
                    Err(AppendError::Conflict { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    let let_in = at_once((0..64).map(racer)).await;
    assert_eq!(let_in.iter().sum::<u32>(), 20);
    assert_eq!(stage.all(Query::tagged("course", "c")).await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_fails_only_for_what_it_asks() {
    let stage = Stage::open().await;
    let first = stage.append(vec![about("a", 1).tag("b", 1)]).await.unwrap();
    let second = stage.append(vec![about("a", 2).tag("b", 2)]).await.unwrap();
    let item = |tags: [&str; 2]| QueryItem::default().types(["Said"]).tags(tags);
    let cases = [
        (Query::tagged("a", 1), Some(first)),
        (Query::tagged("a", 3), None),
        (Query::any_of([item(["a:1", "b:2"])]), None),
        (Query::any_of([item(["a:1", "b:2"]), item(["a:2", "b:2"])]), Some(second)),
        (Query::types(["Said"]), Some(first)),
        (Query::types(["said"]), None),
        (Query::types(["Other", "Said"]).tag("a", 2), Some(second)),
        (Query::all(), Some(second)),
    ];
    for (query, conflict) in cases {
        let condition = AppendCondition::none(query.clone());
        let answer = append(&stage.engine, vec![about("x", 1)], Some(condition)).await;
        match (answer, conflict) {
            (Err(AppendError::Conflict { position }), Some(expected)) => {
                // Of everything, any event will do.
                assert!(position == expected || query.is_all(), "{query:?}");
            }
            (Ok(_), None) => {}
            (answer, _) => panic!("{query:?}: {answer:?}"),
        }
        let head = stage.engine.head().await.unwrap();
        let condition = AppendCondition::none_after(query, head);
        append(&stage.engine, vec![about("x", 2)], Some(condition)).await.unwrap();
    }
}
