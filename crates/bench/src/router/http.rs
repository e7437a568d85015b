//! Over HTTP: from memory and from a file, to an endpoint that is fast and to one that is not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Uri;
use sluicegate_dispatch::{PoolSettings, Source};

use super::Scene;
use super::bare::Bare;
use super::endpoint::SLOWNESS;
use super::rig::{File, Rig, VISIBILITY, batch};
use super::sample::POOL;
use super::stock::Stock;
use crate::child::number;
use crate::probe::Probe;
use crate::report::{Promise, Report, Row};
use crate::timing::{Compared, by_turns};

/// Many groups, so that order holds nobody up.
const GROUPS: u64 = 10_000;
const CONCURRENCIES: [u32; 2] = [32, 64];
const BARE: &str = "bare client loop";
const BODY: &[u8] =
    br#"{"messageId":"msg-0000000000000000","payload":{"order":0,"amount":"19.90"}}"#;

/// Where messages come from.
#[derive(Clone, Copy, Debug)]
enum From {
    Memory,
    File,
}

impl From {
    const BOTH: [Self; 2] = [Self::Memory, Self::File];

    const fn named(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "SQLite",
        }
    }

    /// The part of a bare loop's rate that is promised.
    const fn part(self) -> f64 {
        match self {
            Self::Memory => 0.85,
            Self::File => 0.7,
        }
    }
}

/// All of it.
pub(super) fn run(report: &mut Report, scene: &Scene, quick: bool) -> Result<(), String> {
    for from in From::BOTH {
        for concurrency in CONCURRENCIES {
            eprintln!("a fast endpoint from {}, {concurrency} at once …", from.named());
            let compared = fast(scene, from, concurrency, quick);
            let what = format!("from {}, {concurrency} at once", from.named());
            let row = Row::new(what, "/s", 1e9 / compared.ours)
                .beside(BARE, 1e9 / compared.baseline)
                .promised(Promise::RatioAtLeast(from.part()));
            report.rows.push(row);
        }
    }
    instructions(report);
    for concurrency in CONCURRENCIES {
        for from in From::BOTH {
            eprintln!("an endpoint of 100 ms from {}, {concurrency} at once …", from.named());
            report.rows.push(slow(scene, from, concurrency, quick));
        }
    }
    Ok(())
}

/// What a call costs this process, without the system's part.
fn instructions(report: &mut Report) {
    eprintln!("instructions of a call …");
    let (ours, baseline) = (Probe::Http("memory"), Probe::Http("bare"));
    let counted = ours.instructions().and_then(|ours| Ok((ours, baseline.instructions()?)));
    match counted {
        Err(why) => eprintln!("skipped: {why}"),
        Ok((ours, baseline)) => {
            let what = format!("from memory, {} at once", CONCURRENCIES[0]);
            report.rows.push(Row::new(what, "instr", ours).beside(BARE, baseline));
        }
    }
}

fn fast(scene: &Scene, from: From, concurrency: u32, quick: bool) -> Compared {
    let (rounds, count) = if quick { (3, 2_000) } else { (21, 10_000) };
    let baseline = bare(scene, scene.endpoint.fast(), concurrency);
    match from {
        From::Memory => by_turns(rounds, count, from_memory(scene, concurrency), baseline),
        From::File => by_turns(rounds, count, from_file(scene, concurrency), baseline),
    }
}

fn bare(scene: &Scene, url: String, loops: u32) -> impl FnMut(u32) -> Duration {
    let (uri, bare): (Uri, _) = (url.parse().expect("it is a URL"), Bare::new());
    move |calls| {
        let body = Bytes::from_static(BODY);
        calls_over_http(scene, bare.call(&uri, &body, u64::from(calls), loops as usize))
    }
}

type Turn<'a> = Box<dyn FnMut(u32) -> Duration + 'a>;

fn side<'a>(scene: &'a Scene, name: &str, concurrency: u32) -> Result<Turn<'a>, String> {
    match name {
        "bare" => Ok(Box::new(bare(scene, scene.endpoint.fast(), concurrency))),
        "memory" => Ok(Box::new(from_memory(scene, concurrency))),
        "file" => Ok(Box::new(from_file(scene, concurrency))),
        other => Err(format!("{other:?} is none of bare, memory and file")),
    }
}

/// How many calls are counted under callgrind.
pub(crate) const COUNTED: u32 = 4_000;

/// Under callgrind: one side, from its first call on.
pub(super) fn count(scene: &Scene, name: &str) -> Result<(), String> {
    side(scene, name, CONCURRENCIES[0])?(COUNTED);
    Ok(())
}

/// What is counted: the calls, and not the making of the messages.
#[inline(never)]
fn calls_over_http(scene: &Scene, calling: impl Future<Output = Duration>) -> Duration {
    let before = scene.cpu_times();
    let took = scene.runtime.block_on(calling);
    let after = scene.cpu_times();
    *scene.ran.lock() = (after.0 - before.0, after.1 - before.1);
    took
}

/// One side alone, for a profiler, and beside the bare loop by turns: says the calls a second, and
/// the microseconds that this process and the endpoint's ran for one.
pub(super) fn spin(scene: &Scene, words: &[String]) -> Result<(), String> {
    let (concurrency, seconds) = (number(words, 1)? as u32, number(words, 2)?);
    let calls = if words.len() > 4 { number(words, 4)? as u32 } else { CALLS };
    let name = words[0].as_str();
    let names = name.strip_prefix("by-turns-").map_or(vec![name], |name| vec!["bare", name]);
    let sides: Result<Vec<_>, _> =
        names.iter().map(|name| side(scene, name, concurrency)).collect();
    let (mut sides, mut turns) = (sides?, vec![Vec::new(); names.len()]);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        for (side, turns) in sides.iter_mut().zip(&mut turns) {
            turns.push(Spun::of(scene, side, calls));
        }
    }
    for (name, turns) in names.iter().zip(&mut turns) {
        turns.remove(0);
        let median = |of: fn(&Spun) -> f64| {
            let mut all: Vec<f64> = turns.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (rate, ours, its) = (median(|s| s.rate), median(|s| s.ours), median(|s| s.its));
        println!("{name}: {rate:.0}/s {ours:.1} + {its:.1} us");
    }
    if let [bare, ours] = &turns[..] {
        let median = |of: fn(&Spun) -> f64| {
            let mut all: Vec<f64> = bare.iter().zip(ours).map(|(b, o)| of(o) / of(b)).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (rate, cpu) = (median(|s| s.rate), median(|s| s.ours + s.its));
        println!("rate x {rate:.3}, CPU time x {:.3}", 1.0 / cpu);
    }
    Ok(())
}

/// How many calls a turn has unless told.
const CALLS: u32 = 4_000;

/// What one turn took.
#[derive(Clone, Copy)]
struct Spun {
    rate: f64,
    ours: f64,
    its: f64,
}

impl Spun {
    fn of(scene: &Scene, turn: &mut Turn<'_>, calls: u32) -> Self {
        let took = turn(calls);
        let calls = f64::from(calls);
        let (ours, its) = *scene.ran.lock();
        let micros = |nanos: f64| nanos / 1e3 / calls;
        Self { rate: calls / took.as_secs_f64(), ours: micros(ours), its: micros(its) }
    }
}

fn from_memory(scene: &Scene, concurrency: u32) -> impl FnMut(u32) -> Duration {
    let url = scene.endpoint.fast();
    let stock = Arc::new(Stock::default());
    let rig = scene.runtime.block_on(async {
        let rig = Rig::over_http().pool(PoolSettings::new(POOL, concurrency));
        rig.queue("memory", Arc::clone(&stock) as _).await;
        rig
    });
    move |count| {
        let count = u64::from(count);
        // Made where the work is done, as a source does: memory goes back cheaply only there.
        let (first, url) = (scene.number(count), url.clone());
        let messages = scene.runtime.spawn(async move { batch(first, count, GROUPS, &url) });
        let messages = scene.runtime.block_on(messages).expect("they can be made");
        calls_over_http(scene, rig.memory(&stock, messages))
    }
}

fn from_file(scene: &Scene, concurrency: u32) -> impl FnMut(u32) -> Duration {
    let url = scene.endpoint.fast();
    let (rig, file) = scene.runtime.block_on(async {
        let rig = Rig::over_http().pool(PoolSettings::new(POOL, concurrency));
        (rig, File::new().await)
    });
    move |count| {
        let count = u64::from(count);
        let first = scene.number(count);
        let (messages, name) = (batch(first, count, GROUPS, &url), format!("queue-{first}"));
        let source = scene.runtime.block_on(async {
            let source = file.store.queue(&*name, VISIBILITY).await.expect("the file can be used");
            file.publish(&source, &messages).await;
            Arc::new(source)
        });
        calls_over_http(scene, rig.drain_queue(&name, source, count))
    }
}

/// How many come through a second, of those that could if nothing but the endpoint took time.
fn slow(scene: &Scene, from: From, concurrency: u32, quick: bool) -> Row {
    let url = scene.endpoint.slow();
    let possible = f64::from(concurrency) / SLOWNESS.as_secs_f64();
    let (warm, window) = if quick { (0.5, 1.0) } else { (1.0, 10.0) };
    let count = (possible * (warm + window + 1.0)) as u64;
    let messages = batch(scene.number(count), count, GROUPS, &url);
    let ours = scene.runtime.block_on(async {
        let rig = Rig::over_http().pool(PoolSettings::new(POOL, concurrency));
        let file = File::new().await;
        let source: Arc<dyn Source> = match from {
            From::Memory => {
                let stock = Stock::default();
                stock.put(messages);
                Arc::new(stock)
            }
            From::File => {
                let source = file.store.queue("slow", VISIBILITY).await.expect("it can be used");
                file.publish(&source, &messages).await;
                Arc::new(source)
            }
        };
        rig.queue("slow", source).await;
        tokio::time::sleep(Duration::from_secs_f64(warm)).await;
        let (begun, before) = (Instant::now(), rig.tally.settled());
        tokio::time::sleep(Duration::from_secs_f64(window)).await;
        let rate = (rig.tally.settled() - before) as f64 / begun.elapsed().as_secs_f64();
        rig.stop().await;
        rate
    });
    let calls = (possible * window.min(3.0)) as u32;
    let took = bare(scene, url, concurrency)(calls);
    let what = format!("100 ms endpoint from {}, {concurrency} at once", from.named());
    Row::new(what, "/s", ours)
        .beside(BARE, f64::from(calls) / took.as_secs_f64())
        .promised(Promise::AtLeast(0.98 * possible))
}
