//! Projections: states, the condition, how they are read and folded, and how they end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::ThreadId;

use futures_util::StreamExt;
use parking_lot::Mutex;
use sluicegate_event_store::{
    EngineError, Event, EventStore, Position, ProjectError, Projected, Projection, Query, Settings,
    fold,
};

use crate::gated::Gated;
use crate::{fill, of_course, store_with};

fn sum(query: Query) -> impl Projection<State = u64> {
    fold::try_of(query, 0, |sum: &mut u64, event| {
        *sum += event.json::<u64>()?;
        Ok::<(), serde_json::Error>(())
    })
}

#[tokio::test]
async fn states_have_the_types_and_the_shape_of_what_was_asked() {
    let store = store_with(10).await;
    let (evens, odds) = (Query::types(["Even"]), Query::types(["Odd"]));
    let one = store.project(sum(evens.clone()), Position::START).await.unwrap();
    assert_eq!(one.0, 20);
    let three =
        (fold::count(odds.clone()), fold::exists(Query::types(["None"])), sum(evens.clone()));
    let ((count, exists, sum_of_evens), condition) =
        store.project(three, Position::START).await.unwrap();
    assert_eq!((count, exists, sum_of_evens), (5, false, 20));
    assert_eq!(condition.after, Position::new(10));
    let list: Vec<_> = (0..7).map(|n| fold::count(Query::tagged("n", n))).collect();
    let (counts, _) = store.project(list, Position::START).await.unwrap();
    assert_eq!(counts, [2, 2, 2, 1, 1, 1, 1]);
    let (last, _) = store.project((fold::last(odds),), Position::new(3)).await.unwrap();
    assert_eq!(last.0.unwrap().json::<u64>().unwrap(), 9);
    let eight = || fold::count(evens.clone());
    let all = (eight(), eight(), eight(), eight(), eight(), eight(), eight(), eight());
    assert_eq!(store.project(all, Position::START).await.unwrap().0, (5, 5, 5, 5, 5, 5, 5, 5));
    let none = store.project(Vec::<fold::Count>::new(), Position::START).await.unwrap_err();
    assert_eq!(none.to_string(), "projections: there is none: give at least one");
}

#[tokio::test]
async fn the_condition_is_what_was_read_after_the_last_that_was() {
    let store = store_with(10).await;
    let evens = || Query::types(["Even"]);
    let threes = || Query::tagged("n", 3);
    let both = || (fold::count(evens()), fold::count(threes()), fold::exists(evens()));
    let (_, condition) = store.project(both(), Position::START).await.unwrap();
    assert_eq!(condition.fail_if_events_match, evens().or(threes()), "each item once");
    assert_eq!(condition.after, Position::new(9), "the last that was read, not the head");
    // Nothing came: the cursor stays where it was, wherever that is.
    for cursor in [9, 10, 77] {
        let after = Position::new(cursor);
        let (states, condition) = store.project(both(), after).await.unwrap();
        assert_eq!((states, condition.after), ((0, 0, false), after));
    }
    let (_, of_all) = store
        .project((fold::count(evens()), fold::count(Query::all())), Position::START)
        .await
        .unwrap();
    assert_eq!(of_all.fail_if_events_match, Query::all());
    // It holds until one of them gets an event, and not for what none of them asks for.
    store.append_if([of_course("Odd", "c2")], condition.clone()).await.unwrap();
    store.append([of_course("Even", "c2")]).await.unwrap();
    assert!(store.append_if([of_course("Odd", "c2")], condition).await.is_err());
}

#[tokio::test]
async fn several_are_read_once_up_to_the_head_of_the_start() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    fill(&store, 2_500).await;
    engine.let_through(1);
    let projections = (sum(Query::types(["Even"])), sum(Query::types(["Odd"])), sum(Query::all()));
    let projecting = store.project(projections, Position::START);
    let more = async {
        // After the first page, and so after the head was taken.
        engine.until_waiting(1).await;
        while engine.reads() < 2 {
            tokio::task::yield_now().await;
        }
        fill(&store, 500).await;
        engine.open();
    };
    let (projected, ()) = tokio::join!(projecting, more);
    let ((evens, odds, all), condition) = projected.unwrap();
    assert_eq!((evens, odds, all), (1_249 * 1_250, 1_250 * 1_250, 2_499 * 1_250));
    assert_eq!((engine.reads(), condition.after), (3, Position::new(2_500)));
}

/// Adds up, and notes on which tasks and threads it was called.
fn noting(on: &Arc<Mutex<BTreeSet<String>>>) -> impl Projection<State = Vec<u64>> + use<> {
    let on = Arc::clone(on);
    let id = |thread: ThreadId, task| format!("{thread:?} {task:?}");
    fold::of(Query::all(), Vec::new(), move |seen: &mut Vec<u64>, event: &Event| {
        on.lock().insert(id(std::thread::current().id(), tokio::task::try_id()));
        seen.push(event.position().get());
    })
}

#[tokio::test]
async fn many_projections_fold_on_as_many_tasks_as_they_may() {
    // Tasks of a runtime with one thread: what differs is the task. The first page is folded by the caller.
    for (projections, most, events, tasks) in [
        (10, 4, 5_500, 5),
        (10, 1, 5_500, 1),
        (1, 4, 5_500, 1),
        (10, 4, 1_000, 1),
        (3, 50, 5_500, 4),
    ] {
        let store = store_with(events).await;
        let settings = Settings { max_projection_tasks: most, ..Settings::default() };
        store.change(settings).unwrap();
        let on = Arc::default();
        let list: Vec<_> = (0..projections).map(|_| noting(&on)).collect();
        let (states, condition) = store.project(list, Position::START).await.unwrap();
        assert_eq!(on.lock().len(), tasks, "{projections} on {most}: {:?}", on.lock());
        let expected: Vec<u64> = (1..=events).collect();
        assert!(states.iter().all(|state| *state == expected), "each gets all, in order");
        assert_eq!(condition.after, Position::new(events));
        assert_eq!(store.stats().projections_running, 0);
    }
}

#[tokio::test]
async fn parallel_and_one_by_one_come_to_the_same() {
    let store = store_with(7_777).await;
    let list = || -> Vec<fold::Count> {
        (0..29).map(|n| fold::count(Query::tagged("n", n % 9).or(Query::types(["Odd"])))).collect()
    };
    let mut all = Vec::new();
    for most in [1, 2, 3, 29, 50] {
        let settings = Settings { max_projection_tasks: most, ..Settings::default() };
        store.change(settings).unwrap();
        all.push(store.project(list(), Position::new(5)).await.unwrap());
    }
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}

#[tokio::test]
async fn an_event_that_cannot_be_applied_is_named() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    fill(&store, 3_000).await;
    let position = store.append([of_course("Even", "c1").raw_json("\"no number\"")]).await.unwrap();
    fill(&store, 3_000).await;
    let one = store.project(sum(Query::all()), Position::START).await.unwrap_err();
    let several = (sum(Query::types(["Odd"])), sum(Query::all()));
    let several = store.project(several, Position::START).await.unwrap_err();
    for error in [one, several] {
        let ProjectError::Unapplied { position: named, cause } = &error else { panic!("{error}") };
        assert_eq!((*named, cause.contains("invalid type")), (position, true), "{cause}");
    }
    assert_eq!(store.stats().projections_running, 0);
}

#[tokio::test]
async fn a_stream_gives_out_states_and_says_when_it_is_complete() {
    let store = store_with(2_500).await;
    for most in [1, 50] {
        store.change(Settings { max_projection_tasks: most, ..Settings::default() }).unwrap();
        let projections = (fold::count(Query::types(["Even"])), fold::count(Query::all()));
        let mut stream = store.project_stream(projections, Position::START).await.unwrap();
        let mut seen = Vec::new();
        while let Some(projected) = stream.next().await {
            seen.push(projected.unwrap());
        }
        let page =
            |evens, all| Projected::Page { states: (evens, all), position: Position::new(all) };
        assert_eq!(seen[..3], [page(500, 1_000), page(1_000, 2_000), page(1_250, 2_500)]);
        let [Projected::End { states: (1_250, 2_500), condition }] = &seen[3..] else {
            panic!("{seen:?}")
        };
        assert_eq!(condition.after, Position::new(2_500));
    }
    let mut empty = EventStore::in_memory()
        .project_stream(fold::exists(Query::all()), Position::new(3))
        .await
        .unwrap();
    let Some(Ok(Projected::End { states: false, condition })) = empty.next().await else {
        panic!()
    };
    assert_eq!(condition.after, Position::new(3));
    assert!(empty.next().await.is_none());
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_the_error() {
    let engine = Gated::new();
    let store = EventStore::new(engine.clone());
    fill(&store, 2_500).await;
    engine.fail_read_after(1);
    let mut states =
        store.project_stream(fold::count(Query::all()), Position::START).await.unwrap();
    assert!(matches!(states.next().await, Some(Ok(Projected::Page { states: 1_000, .. }))));
    let gone = || EngineError::new("the disk is gone");
    assert_eq!(states.next().await, Some(Err(ProjectError::Failed(gone()))));
    assert_eq!(store.stats().projections_running, 0, "its place is free before it is dropped");
    assert!(states.next().await.is_none());
    engine.fail_read_after(1);
    let error = store.project(fold::count(Query::all()), Position::START).await.unwrap_err();
    assert_eq!(error, ProjectError::Failed(gone()));
}
