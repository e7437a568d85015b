//! A great backlog: a million messages in a pool, and a million in a file, in many groups and in few.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_dispatch::{Ordering, PoolSettings, QueueSettings};
use sluicegate_sources::sqlite::SqliteSource;
use tokio::runtime::Builder;

use super::Scene;
use super::portion::Portion;
use super::rig::{File, Rig, VISIBILITY, batch};
use super::sample::POOL;
use super::spring::Spring;
use crate::child::{figures, number};
use crate::probe::Probe;
use crate::report::{Promise, Report, Row};
use crate::timing::by_turns;

/// How many messages wait, in how many groups, beside how many.
#[derive(Clone, Copy)]
struct Size {
    messages: u64,
    many: u64,
    few: u64,
}

impl Size {
    const fn of(quick: bool) -> Self {
        match quick {
            true => Self { messages: 50_000, many: 10_000, few: 1_000 },
            false => Self { messages: 1_000_000, many: 100_000, few: 1_000 },
        }
    }
}

/// In a pool: each in a process of its own, by turns. The memory is the process's, as the system
/// sees it.
pub(super) fn in_a_pool(report: &mut Report, _scene: &Scene, quick: bool) -> Result<(), String> {
    let Size { messages, many, few } = Size::of(quick);
    eprintln!("{messages} messages in a pool …");
    let held = |groups: u64| -> Result<[f64; 2], String> {
        figures(&["held".to_owned(), groups.to_string(), messages.to_string()])
    };
    let mut rates = Vec::new();
    let mut bytes = 0.0;
    for _ in 0..if quick { 1 } else { 5 } {
        let ([more, ours], [_, baseline]) = (held(many)?, held(few)?);
        bytes = f64::max(bytes, more);
        rates.push((1e9 / ours, 1e9 / baseline));
    }
    rates.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let (ours, baseline) = rates[rates.len() / 2];
    let what = format!("memory of a message in a pool, {messages} in {many} groups");
    report.rows.push(Row::new(what, "bytes", bytes).promised(Promise::AtMost(1024.0)));
    let row = Row::new(format!("dispatched of {messages} in {many} groups"), "/s", ours)
        .beside(format!("in {few} groups"), baseline)
        .promised(Promise::RatioAtLeast(0.8));
    report.rows.push(row);
    if !quick {
        instructions(report, Size::of(quick));
    }
    Ok(())
}

/// How many messages wait and are dispatched under callgrind: fewer, for it is slow.
const COUNTED: (u64, u64) = (200_000, 10_000);

fn instructions(report: &mut Report, size: Size) {
    eprintln!("instructions of a dispatch …");
    let (many, few) = (Probe::PoolDispatch(size.many), Probe::PoolDispatch(size.few));
    let counted = many.instructions().and_then(|ours| Ok((ours, few.instructions()?)));
    match counted {
        Err(why) => eprintln!("skipped: {why}"),
        Ok((ours, baseline)) => {
            let row = Row::new(format!("dispatch with {} groups", size.many), "instr", ours)
                .beside(format!("with {}", size.few), baseline)
                .promised(Promise::RatioAtMost(1.2));
            report.rows.push(row);
        }
    }
}

/// A pool that is full and starts nothing, until it is let go.
struct Full {
    rig: Rig,
}

impl Full {
    /// With a concurrency that gives it the room, and a rate that keeps all but one waiting.
    async fn of(messages: u64, groups: u64) -> Self {
        let concurrency = u32::try_from(messages / 20).unwrap_or(u32::MAX);
        let settings =
            PoolSettings { rate_limit_per_minute: Some(1), ..PoolSettings::new(POOL, concurrency) };
        let rig = Rig::in_process().pool(settings);
        let queue = QueueSettings::new(1, 1000);
        rig.queue_with("spring", queue, Arc::new(Spring::new(messages, groups))).await;
        while rig.tally.admitted() < messages {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Self { rig }
    }

    fn let_go(self) -> Rig {
        self.rig.pool(PoolSettings::new(POOL, 64))
    }
}

/// In a process of its own: says the bytes of a message, and the nanoseconds of its dispatch.
pub(crate) fn held(words: &[String]) -> Result<(), String> {
    let (groups, messages) = (number(words, 0)?, number(words, 1)?);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let empty = resident()?;
        let full = Full::of(messages, groups).await;
        let bytes = (resident()? - empty) / messages as f64;
        let tally = Arc::clone(&full.rig.tally);
        let left = messages - tally.settled();
        let settled = tally.expect(left);
        let begun = Instant::now();
        let rig = full.let_go();
        settled.await;
        println!("{bytes} {}", begun.elapsed().as_nanos() as f64 / left as f64);
        drop(rig);
        Ok(())
    })
}

/// The bytes of this process that are in memory.
fn resident() -> Result<f64, String> {
    let statm = std::fs::read_to_string("/proc/self/statm").map_err(|error| error.to_string())?;
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.map(|pages| pages * 4096.0).ok_or_else(|| format!("what is {statm:?}?"))
}

/// Under callgrind: dispatches some of the messages of a full pool.
pub(crate) fn dispatch_some(groups: u64) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let full = runtime.block_on(Full::of(COUNTED.0, groups));
    let tally = Arc::clone(&full.rig.tally);
    let rig = full.let_go();
    phase_dispatch(|| runtime.block_on(tally.expect(COUNTED.1)));
    drop(rig);
}

/// How many are dispatched under callgrind.
pub(crate) const fn dispatched() -> u64 {
    COUNTED.1
}

#[inline(never)]
fn phase_dispatch(work: impl FnOnce()) {
    work();
}

/// Receives and settles what lies in two files, by turns: in many groups and in few.
pub(super) fn in_a_file(report: &mut Report, scene: &Scene, quick: bool) -> Result<(), String> {
    let Size { messages, many, few } = Size::of(quick);
    eprintln!("{messages} messages in a file …");
    let stored = |groups| scene.runtime.block_on(Stored::new(messages, groups));
    let (of_many, of_few) = (stored(many), stored(few));
    for (ordering, name) in [(Ordering::Batch, "batch"), (Ordering::Strict, "strict")] {
        let rig =
            || Rig::in_process().pool(PoolSettings { ordering, ..PoolSettings::new(POOL, 64) });
        let (ours, baseline) = scene.runtime.block_on(async { (rig(), rig()) });
        let turn = |rig: &Rig, stored: &Stored, count: u32| {
            scene.runtime.block_on(async {
                let portion = Portion::of(stored.source().await, count as usize);
                rig.drain_queue("backlog", Arc::new(portion), u64::from(count)).await
            })
        };
        let compared = by_turns(
            if quick { 3 } else { 15 },
            if quick { 2_000 } else { 20_000 },
            |count| turn(&ours, &of_many, count),
            |count| turn(&baseline, &of_few, count),
        );
        let what = format!("settled of {messages} in SQLite, {many} groups, {name}");
        let row = Row::new(what, "/s", 1e9 / compared.ours)
            .beside(format!("{few} groups"), 1e9 / compared.baseline)
            .promised(Promise::RatioAtLeast(0.8));
        report.rows.push(row);
        scene.runtime.block_on(async { tokio::join!(ours.stop(), baseline.stop()) });
    }
    Ok(())
}

/// A file full of messages.
struct Stored {
    file: File,
}

impl Stored {
    async fn new(messages: u64, groups: u64) -> Self {
        let stored = Self { file: File::new().await };
        let source = stored.source().await;
        for first in (0..messages).step_by(10_000) {
            let lot = batch(first, 10_000.min(messages - first), groups, "http://127.0.0.1:1/");
            stored.file.publish(&source, &lot).await;
        }
        stored
    }

    async fn source(&self) -> SqliteSource {
        self.file.store.queue("backlog", VISIBILITY).await.expect("the file can be used")
    }
}
