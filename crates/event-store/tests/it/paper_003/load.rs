//! "Load Testing Results" and "Performance Characteristics", with what they really come to.

use std::time::{Duration, Instant};

use sluicegate_tasks::{Context, TaskGroup};
use tokio::sync::watch;

use super::*;

/// How a load went.
struct Load {
    let_in: u32,
    /// How long each refusal took.
    refusals: Vec<Duration>,
}

/// So many callers at once, whose projections all go on until the last of them has an answer or a place.
async fn load(store: &EventStore, engine: &Gated, callers: u32) -> Load {
    engine.let_through(0);
    let limit = store.settings().max_concurrent_projections;
    let group = TaskGroup::new("callers", callers).unwrap();
    let refused = watch::Sender::new(0_u32);
    let mut tasks = Vec::new();
    for _ in 0..callers {
        let (store, refused) = (store.clone(), refused.clone());
        let call = group.try_submit(Context::new(), |cx| async move {
            let begun = Instant::now();
            let answer = cx.until_interrupted(project(&store)).await.unwrap();
            let took = begun.elapsed();
            refused.send_modify(|count| *count += u32::from(answer.is_err()));
            (answer, took)
        });
        tasks.push(call.map_err(|refused| refused.why).unwrap());
    }
    let mut heard = refused.subscribe();
    heard.wait_for(|count| *count >= callers.saturating_sub(limit)).await.unwrap();
    engine.until_waiting(callers.min(limit) as usize).await;
    assert_eq!(running(store), callers.min(limit));
    engine.open();
    let mut load = Load { let_in: 0, refusals: Vec::new() };
    for task in tasks {
        match task.await.unwrap() {
            (Ok((count, _)), _) => {
                assert_eq!(count, 10);
                load.let_in += 1;
            }
            (Err(error), took) => {
                // The counts are those of that moment: all places were taken.
                assert_eq!(error, too_many(limit, limit, "project"));
                load.refusals.push(took);
            }
        }
    }
    assert_eq!(running(store), 0, "the gate is at zero");
    load.refusals.sort_unstable();
    load
}

/// The paper's rows: they are those of a limit of 50.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_those_in_excess_are_refused() {
    let (engine, store) = limited(50).await;
    println!("callers  let in  refused  let in %");
    for callers in [1, 50, 51, 100, 101, 200, 201, 400] {
        let Load { let_in, refusals } = load(&store, &engine, callers).await;
        let share = f64::from(let_in) * 100.0 / f64::from(callers);
        println!("{callers:>7}  {let_in:>6}  {:>7}  {share:>7.1}", refusals.len());
        assert_eq!((let_in, refusals.len() as u32), (callers.min(50), callers.saturating_sub(50)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_callers_at_a_limit_of_a_hundred() {
    let (engine, store) = limited(100).await;
    let Load { let_in, refusals } = load(&store, &engine, 1_000).await;
    assert_eq!((let_in, refusals.len()), (100, 900));
    let (median, p99, most) = (refusals[450], refusals[891], refusals[899]);
    println!("900 refusals: median {median:?}, p99 {p99:?}, longest {most:?}");
    // A machine that is busy with other things stops any of them for longer than that.
    assert!(median < Duration::from_millis(1), "{median:?}");
    assert!(p99 < Duration::from_millis(100), "{p99:?}");
    assert_eq!(store.stats().projections_refused, 900);
    assert_eq!(project(&store).await.unwrap().0, 10);
}

/// A refusal is a look at a counter: no read, no task, no wait.
#[tokio::test]
async fn a_refusal_touches_nothing() {
    let (engine, store) = limited(1).await;
    let _held = stream(&store).await.unwrap();
    let reads = engine.reads();
    let begun = Instant::now();
    for _ in 0..10_000 {
        let Poll::Ready(Err(_)) = begin(&mut project(&store)).await else { panic!("at once") };
    }
    println!("a refusal takes {:?}", begun.elapsed() / 10_000);
    assert_eq!((engine.reads(), store.stats().projections_refused), (reads, 10_000));
}
