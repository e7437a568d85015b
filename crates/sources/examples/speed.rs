//! How fast the embedded queue is, and what it costs to wait:
//! `cargo run --release -p sluicegate-sources --example speed [messages] [folder]`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluicegate_dispatch::{Delivery, Ending, Publication, Settle, Source};
use sluicegate_sources::sqlite::{SqliteSource, Store};
use sluicegate_tasks::{Context, TaskGroup};
use sluicegate_testkit::FakeSource;
use sluicegate_testkit::conformance::source::publication_in;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How many messages are published at once.
const BATCH: usize = 100;

/// What is measured.
struct Case {
    callers: usize,
    receivers: usize,
    /// How many are received and settled at once.
    taken: usize,
    groups: usize,
    strict: bool,
}

const CASES: [Case; 6] = [
    Case { callers: 8, receivers: 1, taken: 100, groups: 1000, strict: false },
    Case { callers: 8, receivers: 4, taken: 100, groups: 1000, strict: false },
    Case { callers: 1, receivers: 1, taken: 10, groups: 1000, strict: false },
    Case { callers: 8, receivers: 4, taken: 100, groups: 100, strict: true },
    Case { callers: 8, receivers: 4, taken: 100, groups: 1000, strict: true },
    Case { callers: 8, receivers: 4, taken: 100, groups: 100_000, strict: true },
];

fn message(n: usize, groups: usize) -> Publication {
    let group = format!("group-{}", n % groups);
    publication_in(&format!("0191d5c2-{n:012x}"), "ORDERS", Some(&group), false)
}

async fn publish_all(source: &Arc<dyn Source>, case: &Case, messages: usize) -> Outcome<f64> {
    let batch = |b: usize| (b * BATCH..(b + 1) * BATCH).map(|n| message(n, case.groups)).collect();
    let batches: Vec<Vec<Publication>> = (0..messages / BATCH).rev().map(batch).collect();
    let batches = Arc::new(Mutex::new(batches));
    let group = TaskGroup::new("callers", 64)?;
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..case.callers {
        let (source, batches) = (Arc::clone(source), Arc::clone(&batches));
        let work = move |cx: Context| async move {
            while cx.check().is_ok() {
                let Some(batch) = batches.lock().pop() else { break };
                source.publish(batch).await?;
            }
            Outcome::Ok(())
        };
        tasks.push(group.submit(Context::new(), work).await?);
    }
    for task in tasks {
        task.await??;
    }
    Ok(messages as f64 / begun.elapsed().as_secs_f64())
}

async fn take_all(source: &Arc<dyn Source>, case: &Case, messages: usize) -> Outcome<f64> {
    let left = Arc::new(AtomicUsize::new(messages));
    let group = TaskGroup::new("receivers", 64)?;
    let ended = Arc::new(Mutex::new(None));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..case.receivers {
        let (source, left, ended) = (Arc::clone(source), Arc::clone(&left), Arc::clone(&ended));
        let max = case.taken;
        let work = move |cx: Context| async move {
            while cx.check().is_ok() && left.load(Ordering::Relaxed) > 0 {
                let some = source.receive(max).await?;
                let count = some.len();
                let gone =
                    |delivery: Delivery| Settle { receipt: delivery.receipt, ending: Ending::Gone };
                source.settle(some.into_iter().map(gone).collect()).await?;
                if left.fetch_sub(count, Ordering::Relaxed) == count && count > 0 {
                    *ended.lock() = Some(Instant::now());
                }
            }
            Outcome::Ok(())
        };
        tasks.push(group.submit(Context::new(), work).await?);
    }
    for task in tasks {
        task.await??;
    }
    let ended = ended.lock().ok_or("not all of them came")?;
    Ok(messages as f64 / (ended - begun).as_secs_f64())
}

/// The processor time of this process so far, in microseconds.
fn cpu() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(") ").ok_or("no name")?.1.split(' ').collect();
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) * 10_000.0)
}

async fn open(path: &Path) -> Outcome<SqliteSource> {
    let store = Store::open_serving(path).await?;
    Ok(store.queue("orders", Duration::from_secs(300)).await?)
}

async fn measure(case: &Case, messages: usize, folder: &Path) -> Outcome<()> {
    let folder = tempfile::tempdir_in(folder)?;
    let source: Arc<dyn Source> = Arc::new(open(&folder.path().join("state.db")).await?);
    if case.strict {
        source.keep_order_for(&["ORDERS".into()]);
    }
    let before = cpu()?;
    let published = publish_all(&source, case, messages).await?;
    let between = cpu()?;
    let taken = take_all(&source, case, messages).await?;
    let costs = [between - before, cpu()? - between].map(|cost| cost / messages as f64);
    let size =
        |name: &str| std::fs::metadata(folder.path().join(name)).map(|file| file.len() >> 20);
    let Case { callers, receivers, taken: max, groups, strict } = case;
    println!(
        "{callers} callers published {published:.0}/s, {receivers} receivers of {max} took \
         {taken:.0}/s ({groups} groups, order {}); {:.1} and {:.1} us of processor each; file {} \
         MiB, log {} MiB",
        if *strict { "kept" } else { "not kept" },
        costs[0],
        costs[1],
        size("state.db")?,
        size("state.db-wal")?,
    );
    Ok(())
}

async fn measure_waiting(folder: &Path) -> Outcome<()> {
    let folder = tempfile::tempdir_in(folder)?;
    let source = open(&folder.path().join("state.db")).await?;
    let (begun, before) = (Instant::now(), cpu()?);
    while begun.elapsed() < Duration::from_secs(10) {
        source.receive(10).await?;
    }
    println!("waiting: {:.2} % of a processor", (cpu()? - before) / 10e6 * 100.0);
    Ok(())
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let messages = arguments.next().map_or(Ok(200_000), |n| n.parse())?;
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    for case in &CASES {
        measure(case, messages, &folder).await?;
    }
    let fake: Arc<dyn Source> = Arc::new(FakeSource::new(Duration::from_secs(300)));
    let case = Case { callers: 1, receivers: 1, taken: 10, groups: 1000, strict: false };
    let published = publish_all(&fake, &case, messages).await?;
    let taken = take_all(&fake, &case, messages).await?;
    println!("fake: published {published:.0}/s, taken {taken:.0}/s");
    measure_waiting(&folder).await
}
