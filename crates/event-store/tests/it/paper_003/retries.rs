//! "Retry Logic": what an application does that was refused.

use std::time::Duration;

use sluicegate_tasks::{Context, TaskGroup};
use tokio::time::{Instant, sleep};

use super::*;

/// The paper's loop: again after 100 ms, 200 ms, and so on.
async fn with_retries(store: &EventStore, most: u32) -> Result<u64, ProjectError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match project(store).await {
            Err(ProjectError::TooManyProjections(_)) if attempt < most => {
                sleep(Duration::from_millis(100) * attempt).await;
            }
            other => return other.map(|(count, _)| count),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_comes_in_once_there_is_room() {
    let (engine, store) = limited(1).await;
    engine.let_through(0);
    let held = held(&store, 1).await;
    let begun = Instant::now();
    let room = async {
        sleep(Duration::from_millis(250)).await;
        engine.open();
        drop(held);
    };
    let (count, ()) = tokio::join!(with_retries(&store, 5), room);
    assert_eq!((count, begun.elapsed()), (Ok(10), Duration::from_millis(300)));
    assert_eq!(store.stats().projections_refused, 2);
}

#[tokio::test(start_paused = true)]
async fn it_is_told_the_truth_until_it_gives_up() {
    let (engine, store) = limited(1).await;
    engine.let_through(0);
    let _held = held(&store, 1).await;
    assert_eq!(with_retries(&store, 3).await, Err(too_many(1, 1, "project")));
    assert_eq!(store.stats().projections_refused, 3);
}

/// "Concurrent Usage": all come in at last, and never more at once than there may be.
#[tokio::test(start_paused = true)]
async fn with_retries_everybody_comes_in() {
    let (_engine, store) = limited(5).await;
    let group = TaskGroup::new("callers", 50).unwrap();
    let mut callers = Vec::new();
    for _ in 0..50 {
        let store = store.clone();
        let call =
            |cx: Context| async move { cx.until_interrupted(with_retries(&store, 20)).await };
        callers
            .push(group.try_submit(Context::new(), call).map_err(|refused| refused.why).unwrap());
    }
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), Ok(10));
    }
    assert!(store.stats().projections_refused >= 45, "all but five, the first time");
    assert_eq!(running(&store), 0);
}
