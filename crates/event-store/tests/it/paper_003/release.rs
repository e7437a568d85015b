//! "Semaphore": the place is given back on every path, and no sooner than the work is over.

use std::time::Duration;

use futures_util::StreamExt;
use sluicegate_event_store::{BoxError, Event, Projected, Projection, fold};
use sluicegate_tasks::Context;

use super::*;

/// What folds like this and that, on every path.
fn fails_at(position: u64, panics: bool) -> impl Projection<State = u64> {
    fold::try_of(Query::all(), 0, move |count: &mut u64, event: &Event| {
        *count += 1;
        match event.position() == Position::new(position) {
            true if panics => panic!("no more of it"),
            true => Err::<(), BoxError>("no more of it".into()),
            false => Ok(()),
        }
    })
}

#[tokio::test]
async fn after_an_answer_and_after_every_error() {
    let (engine, store) = limited(1).await;
    fill(&store, 3_000).await;
    for round in 0..3 {
        assert_eq!(project(&store).await.unwrap().0, 3_010, "round {round}");
        let invalid = store.project(fold::count(Query::types([""])), Position::START).await;
        assert!(matches!(invalid, Err(ProjectError::Invalid(_))));
        let invalid = store.project_stream(fold::count(Query::types([""])), Position::START).await;
        assert!(matches!(invalid.err(), Some(ProjectError::Invalid(_))));
        // On the first page and on a later one; alone and on tasks.
        for position in [5, 2_500] {
            for panics in [false, true] {
                let alone = store.project(fails_at(position, panics), Position::START).await;
                let three = || fails_at(position, panics);
                let several = store.project((three(), three(), three()), Position::START).await;
                for error in [alone.unwrap_err(), several.unwrap_err()] {
                    assert_eq!(matches!(error, ProjectError::Panicked { .. }), panics, "{error}");
                    assert!(error.to_string().contains("no more of it"), "{error}");
                }
                assert_eq!(running(&store), 0, "{position}, {panics}");
            }
        }
        engine.fail_read_after(round);
        assert!(matches!(project(&store).await, Err(ProjectError::Failed(_))));
        assert_eq!(running(&store), 0);
    }
}

#[tokio::test]
async fn after_streams_however_they_end() {
    let (engine, store) = limited(1).await;
    fill(&store, 3_000).await;
    for round in 0..3 {
        // Read to its end: free as soon as the end is heard of.
        let mut whole = stream(&store).await.unwrap();
        while !matches!(whole.next().await, Some(Ok(Projected::End { states: 3_010, .. }))) {
            assert_eq!(running(&store), 1, "round {round}");
        }
        assert_eq!(running(&store), 0);
        // Never read; read in part.
        drop(stream(&store).await.unwrap());
        assert_eq!(running(&store), 0);
        let mut part = stream(&store).await.unwrap();
        assert!(part.next().await.is_some());
        drop(part);
        assert_eq!(running(&store), 0);
        for panics in [false, true] {
            let three = || fails_at(2_500, panics);
            let projections = (three(), three(), three());
            let several = store.project_stream(projections, Position::START).await.unwrap();
            let last = several.collect::<Vec<_>>().await.pop().unwrap();
            assert_eq!(matches!(last, Err(ProjectError::Panicked { .. })), panics, "{last:?}");
            assert_eq!(running(&store), 0);
        }
        engine.fail_read_after(1);
        let broken: Vec<_> = stream(&store).await.unwrap().collect().await;
        assert!(broken.last().unwrap().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_timeout_a_cancellation_and_a_drop() {
    let (engine, store) = limited(1).await;
    engine.let_through(0);
    let timed_out = project(&store).await;
    assert_eq!(timed_out, Err(ProjectError::TimedOut { after: Duration::from_secs(10) }));
    assert_eq!(running(&store), 0);
    let mut late = stream(&store).await.unwrap();
    let timed_out = Some(Err(ProjectError::TimedOut { after: Duration::from_secs(10) }));
    assert_eq!(late.next().await, timed_out);
    assert_eq!(running(&store), 0);
    let cx = Context::new().with_timeout(Duration::from_secs(1));
    assert!(cx.until_interrupted(project(&store)).await.is_err());
    assert_eq!(running(&store), 0);
    let held = held(&store, 1).await;
    assert_eq!(running(&store), 1);
    drop(held);
    assert_eq!(running(&store), 0);
    // One that waits in line has no place to give back, and leaves none behind.
    let first = super::held(&store, 1).await;
    let end = tokio::time::Instant::now() + Duration::from_secs(9);
    let mut waiting =
        store.project(fold::count(Query::all()), Position::START).wait(end).into_future();
    assert!(begin(&mut waiting).await.is_pending());
    drop(waiting);
    drop(first);
    assert_eq!(running(&store), 0);
}

#[tokio::test]
async fn dropped_while_tasks_fold_when_the_last_of_them_is_gone() {
    let (engine, store) = limited(1).await;
    fill(&store, 5_000).await;
    engine.let_through(3);
    let counts: Vec<_> = (0..4).map(|_| fold::count(Query::all())).collect();
    let mut projecting = store.project(counts, Position::START).into_future();
    let mut polled = 0;
    // On this runtime nothing else runs meanwhile, but what it waits for.
    while engine.reads() < 4 {
        let poll = poll_fn(|cx| Poll::Ready(projecting.as_mut().poll(cx))).await;
        assert!(poll.is_pending());
        tokio::task::yield_now().await;
        polled += 1;
        assert!(polled < 1_000, "it reads on");
    }
    drop(projecting);
    let mut turns = 0;
    while running(&store) > 0 {
        tokio::task::yield_now().await;
        turns += 1;
        assert!(turns < 1_000, "its tasks end by themselves");
    }
    engine.open();
    assert_eq!(project(&store).await.unwrap().0, 5_010);
}
