//! How fast the embedded queue is. Not a test: `cargo test --release -- --ignored --nocapture speed`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sluicegate_dispatch::{Ending, Publication, Settle, Source};
use sluicegate_sources::sqlite::{SqliteSource, Store};
use sluicegate_tasks::{Context, TaskGroup};
use sluicegate_testkit::FakeSource;
use sluicegate_testkit::conformance::source::publication_in;

const MESSAGES: usize = 200_000;
const BATCH: usize = 100;

fn message(n: usize, groups: usize) -> Publication {
    let group = format!("group-{}", n % groups);
    publication_in(&format!("0191d5c2-{n:012x}"), "ORDERS", Some(&group), false)
}

async fn publish_all(source: &Arc<dyn Source>, callers: usize, groups: usize) -> f64 {
    let batches: Vec<Vec<Publication>> = (0..MESSAGES / BATCH)
        .map(|b| (b * BATCH..(b + 1) * BATCH).map(|n| message(n, groups)).collect())
        .collect();
    let batches = Arc::new(parking_lot::Mutex::new(batches));
    let group = TaskGroup::new("callers", 64).unwrap();
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..callers {
        let (source, batches) = (Arc::clone(source), Arc::clone(&batches));
        let work = move |cx: Context| async move {
            while cx.check().is_ok() {
                let Some(batch) = batches.lock().pop() else { return };
                source.publish(batch).await.unwrap();
            }
        };
        tasks.push(group.submit(Context::new(), work).await.unwrap());
    }
    for task in tasks {
        task.await.unwrap();
    }
    MESSAGES as f64 / begun.elapsed().as_secs_f64()
}

async fn take_all(source: &Arc<dyn Source>, receivers: usize, batch: usize) -> f64 {
    let left = Arc::new(AtomicUsize::new(MESSAGES));
    let group = TaskGroup::new("receivers", 64).unwrap();
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..receivers {
        let (source, left) = (Arc::clone(source), Arc::clone(&left));
        let work = move |cx: Context| async move {
            while cx.check().is_ok() && left.load(Ordering::Relaxed) > 0 {
                let some = source.receive(batch).await.unwrap();
                let count = some.len();
                let gone = |delivery: sluicegate_dispatch::Delivery| Settle {
                    receipt: delivery.receipt,
                    ending: Ending::Gone,
                };
                source.settle(some.into_iter().map(gone).collect()).await.unwrap();
                left.fetch_sub(count, Ordering::Relaxed);
            }
            Instant::now()
        };
        tasks.push(group.submit(Context::new(), work).await.unwrap());
    }
    let mut ended = begun;
    for task in tasks {
        let _ = task.await.unwrap();
        if ended == begun && left.load(Ordering::Relaxed) == 0 {
            ended = Instant::now();
        }
    }
    MESSAGES as f64 / (ended - begun).as_secs_f64()
}

/// The processor time of this process so far, in microseconds.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |n: usize| fields[n].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) * 10_000.0
}

async fn open(path: &Path) -> SqliteSource {
    let store = Store::open_serving(path).await.unwrap();
    store.queue("orders", Duration::from_secs(300)).await.unwrap()
}

#[ignore = "a measurement"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speed() {
    for (callers, receivers, batch, groups, strict) in [
        (8, 1, 100, 1000, false),
        (8, 4, 100, 1000, false),
        (1, 1, 10, 1000, false),
        (8, 4, 100, 10_000, true),
        (8, 4, 100, 100, true),
    ] {
        if std::env::var("SPEED_CASE").is_ok_and(|case| case != format!("{groups}{strict}")) {
            continue;
        }
        let folder =
            tempfile::tempdir_in(std::env::var("SPEED_DIR").unwrap_or("/tmp".into())).unwrap();
        let source: Arc<dyn Source> = Arc::new(open(&folder.path().join("state.db")).await);
        if strict {
            source.keep_order_for(&["ORDERS".into()]);
        }
        let before = cpu();
        let published = publish_all(&source, callers, groups).await;
        let between = cpu();
        let taken = take_all(&source, receivers, batch).await;
        let costs = [between - before, cpu() - between].map(|cost| cost / MESSAGES as f64);
        let file = std::fs::metadata(folder.path().join("state.db")).unwrap().len() >> 20;
        let log = std::fs::metadata(folder.path().join("state.db-wal")).unwrap().len() >> 20;
        println!(
            "{callers} callers: {published:.0}/s published; {receivers} receivers of {batch}, {groups} groups, \
             strict {strict}: {taken:.0}/s taken; file {file} MiB, log {log} MiB, CPU {costs:.1?} us"
        );
    }
    let fake: Arc<dyn Source> = Arc::new(FakeSource::new(Duration::from_secs(300)));
    let published = publish_all(&fake, 1, 1000).await;
    let taken = take_all(&fake, 1, 10).await;
    println!("fake: {published:.0}/s published, {taken:.0}/s taken");
}
