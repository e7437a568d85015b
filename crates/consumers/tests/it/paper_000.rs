//! The unit tests that paper 000 names, under names that say the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluicegate_consumers::{Consumer, Failure, Handler, MemorySource, Size, available_cpus};
use tokio::time::{Instant, sleep};

use crate::stage::{Book, Stage, letter, text};

/// A handler that takes 100 ms, and how many of it ran at once at most.
fn slow(most: &Arc<AtomicU32>) -> Handler {
    let (most, now) = (Arc::clone(most), Arc::new(AtomicU32::new(0)));
    Handler::bytes(move |_body, _about, _cx| {
        let (most, now) = (Arc::clone(&most), Arc::clone(&now));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(100)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Failure>(())
        }
    })
}

fn queue_of(count: u32) -> MemorySource {
    let source = MemorySource::new();
    (0..count).for_each(|number| source.push(letter(&number.to_string())));
    source
}

#[test]
fn auto_scale_workers_default() {
    for (cpus, workers, prefetch) in [(1, 4, 40), (4, 16, 160), (8, 32, 320), (32, 128, 500)] {
        let size = Size::of(0, 0, cpus);
        assert_eq!((size.workers, size.prefetch), (workers, prefetch), "{cpus} CPUs");
    }
    let consumer = Consumer::of("q").handler(slow(&Arc::default()));
    assert_eq!(consumer.size().workers, (available_cpus() * 4).min(200));
}

#[test]
fn explicit_workers_override() {
    let consumer = Consumer::of("q").workers(100).prefetch(500).handler(slow(&Arc::default()));
    let size = consumer.size();
    assert_eq!((size.workers, size.prefetch), (100, 500));
    assert_eq!((size.workers_cut_from, size.prefetch_cut_from), (None, None));
}

#[tokio::test(start_paused = true)]
async fn sequential_processing() {
    let book = Book::default();
    let noted = book.clone();
    let handler = Handler::bytes(move |body, _about, _cx| {
        let book = noted.clone();
        async move {
            sleep(Duration::from_millis(100)).await;
            book.write(text(&body));
            Ok::<_, Failure>(())
        }
    });
    let stage = Stage::set(queue_of(10), Consumer::of("q").workers(1).handler(handler)).await;
    stage.emptied().await;
    assert_eq!(stage.began.elapsed(), Duration::from_secs(1));
    assert_eq!(book.lines(), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[tokio::test(start_paused = true)]
async fn worker_pool_concurrent_processing() {
    let most = Arc::default();
    let consumer = Consumer::of("q").workers(32).handler(slow(&most));
    let stage = Stage::set(queue_of(320), consumer).await;
    stage.emptied().await;
    assert_eq!(stage.began.elapsed(), Duration::from_secs(1)); // 320 a second
    assert_eq!(most.load(Ordering::SeqCst), 32);
}

#[test]
fn prefetch_auto_scaling() {
    for (workers, prefetch) in [(1, 10), (5, 50), (50, 500), (51, 500), (200, 500)] {
        assert_eq!(Size::of(workers, 0, 8).prefetch, prefetch, "{workers} workers");
    }
}

#[tokio::test(start_paused = true)]
async fn prefetch_capping() {
    let size = Size::of(300, 5000, 8);
    assert_eq!((size.workers, size.prefetch), (200, 1000));
    assert_eq!((size.workers_cut_from, size.prefetch_cut_from), (Some(300), Some(5000)));
    let consumer = Consumer::of("q").workers(300).prefetch(5000).handler(slow(&Arc::default()));
    let stage = Stage::set(MemorySource::new(), consumer).await;
    let expected = ["capped workers 300 200", "capped prefetch 5000 1000", "started 200 1000"];
    assert_eq!(stage.facts.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn worker_pool_graceful_shutdown() {
    let most = Arc::default();
    let consumer = Consumer::of("q").workers(4).prefetch(40).handler(slow(&most));
    let stage = Stage::set(queue_of(100), consumer).await;
    sleep(Duration::from_millis(50)).await;
    let (source, before) = (Arc::clone(&stage.source), Instant::now());
    let report = stage.end(Duration::from_secs(10)).await;
    assert_eq!(before.elapsed(), Duration::from_millis(50)); // no longer than the handlers take
    let one = &report.consumers[0];
    assert_eq!((one.handed_back, one.finished, one.aborted, one.unsettled), (36, 4, 0, 0));
    assert_eq!(source.len(), 96);
}

#[test]
fn worker_resource_caps() {
    for (workers, prefetch, cpus) in [(0, 0, 1000), (u32::MAX, u32::MAX, 1), (201, 1001, 1)] {
        let size = Size::of(workers, prefetch, cpus);
        assert_eq!(size.workers, 200, "{workers} workers on {cpus} CPUs");
        assert!(size.prefetch <= 1000, "{prefetch}");
    }
    assert_eq!(Size::of(0, 0, 0).workers, 1);
    assert_eq!(Size::of(0, 0, 1000).workers_cut_from, Some(4000));
}
