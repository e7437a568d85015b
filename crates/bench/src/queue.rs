//! The embedded queue by itself: what a hand-out and its settlement cost, however many tenants, pools and messages
//! wait; what opening a full file takes.
//!
//! Instructions are those of all threads of a program that takes some messages of a file, by 32, and settles each
//! lot before it asks for the next, or none of them; beside the same program that takes fewer. What opening the file
//! costs is in both, and so is what is read ahead at first: the difference is what messages cost once both go on evenly.
//! It is counted in whole lots, from 16 of a thousand messages, in which as many are read as are taken. With many
//! tenants and pools each has to have its turn: there it is eight rounds of all of them, for the numbers of eight
//! messages of a tenant are read at once, and a shorter span would leave that out or count it for one; a quick run
//! counts the first round. A file holds more than both take, so that neither comes to its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_dispatch::{Demand, Message, Openings, Room, Rooms, Settle, Source};
use sluicegate_sources::sqlite::{SqliteSource, Store, StoreSettings};
use sluicegate_sources::wire;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::child::{figures, number};
use crate::probe::instructions_of;
use crate::report::{Promise, Report, Row};

/// How many messages one receive asks for.
const BATCH: usize = 32;
/// How many are read ahead: few, so that reading is counted with the fewest messages too.
const AHEAD: usize = 64;
/// How many messages are taken by the two programs of a thousand, and of more.
const TAKEN_OF_FEW: (u64, u64) = (160, 672);
const TAKEN_OF_MANY: (u64, u64) = (4_000, 84_000);
const TAKEN_OF_MANY_QUICKLY: (u64, u64) = (4_000, 14_000);
/// What is counted.
const HAND_OUT: &str = "hand-out";
const SETTLED: &str = "hand-out, settle";
const VISIBILITY: Duration = Duration::from_secs(600);

/// How many messages are enough for both.
const ENOUGH: u64 = 200_000;

/// What waits in a file.
#[derive(Clone, Copy)]
struct Load {
    tenants: u64,
    pools: u64,
    messages: u64,
}

const ONE: Load = Load { tenants: 1, pools: 1, messages: 1_000 };

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    let mut report = Report::new("queue", quick);
    let most = if quick { 20_000 } else { 1_000_000 };
    let some = most.min(ENOUGH);
    let many = Load { tenants: 10_000, pools: 1_000, messages: most };
    let loads = [
        ("10,000 tenants", Load { messages: some, pools: 1, ..many }),
        ("1,000 pools", Load { messages: some, tenants: 1, ..many }),
        ("10,000 tenants, 1,000 pools", many),
        ("one tenant, one pool", Load { tenants: 1, pools: 1, ..many }),
    ];
    eprintln!("instructions of a hand-out, alone and with its settlement …");
    let few = Full::of(ONE)?;
    let baselines = [few.instructions(HAND_OUT)?, few.instructions(SETTLED)?];
    for (what, baseline) in [HAND_OUT, SETTLED].into_iter().zip(baselines) {
        let what = format!("{what}: one tenant, one pool, 1,000 messages");
        report.rows.push(Row::new(what, "instr", baseline));
    }
    for (name, load) in loads {
        let file = Full::of(load)?;
        for (what, baseline) in [HAND_OUT, SETTLED].into_iter().zip(baselines) {
            let counted = file.instructions(what)?;
            let row =
                Row::new(format!("{what}: {name}, {} messages", load.messages), "instr", counted)
                    .beside("one of each, 1,000", baseline)
                    .promised(Promise::RatioAtMost(1.2));
            report.rows.push(row);
        }
        if load.tenants > 1 && load.pools > 1 {
            let [millis, mebibytes] = figures(&["queue-open".to_owned(), file.path()])?;
            let row = Row::new(format!("open, first message of {most}"), "ms", millis);
            report.rows.push(row.promised(Promise::AtMost(1_000.0)));
            let row = Row::new("  memory after it", "MiB", mebibytes);
            report.rows.push(row.promised(Promise::AtMost(100.0)));
        }
        report.rows.push(Row::new("  published, 1,000 a call", "/s", file.rate));
    }
    Ok(report)
}

/// A file full of messages.
struct Full {
    load: Load,
    folder: TempDir,
    /// How many were published in a second.
    rate: f64,
}

impl Full {
    fn of(load: Load) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let rate = publish_all(&state(folder.path()), load)?;
        Ok(Self { load, folder, rate })
    }

    fn path(&self) -> String {
        state(self.folder.path()).display().to_string()
    }

    /// Instructions of one message.
    fn instructions(&self, what: &str) -> Result<f64, String> {
        let take = |count: u64| {
            let words = ["queue-take", &self.path(), &count.to_string(), what];
            instructions_of(&words.map(str::to_owned))
        };
        let (less, more) = match self.load.messages {
            ..=1_000 => TAKEN_OF_FEW,
            1_001..ENOUGH => TAKEN_OF_MANY_QUICKLY,
            _ => TAKEN_OF_MANY,
        };
        let (of_less, of_more) = (take(less)?, take(more)?);
        Ok((of_more as f64 - of_less as f64) / (more - less) as f64)
    }
}

/// Fills a file. Says how many messages were published in a second.
fn publish_all(path: &Path, load: Load) -> Result<f64, String> {
    runtime()?.block_on(async {
        let source = open(path).await?;
        let mut took = Duration::ZERO;
        for first in (0..load.messages).step_by(1_000) {
            let count = 1_000.min(load.messages - first);
            let messages = (first..first + count).map(|n| publication(n, load)).collect();
            let begun = Instant::now();
            source.publish(messages).await.map_err(|error| error.to_string())?;
            took += begun.elapsed();
        }
        Ok(load.messages as f64 / took.as_secs_f64())
    })
}

/// Fills a file with so many tenants, pools and messages, for a profiler to take from.
pub(crate) fn fill(words: &[String]) -> Result<(), String> {
    let path = words.first().ok_or("which file?")?;
    let load =
        Load { tenants: number(words, 1)?, pools: number(words, 2)?, messages: number(words, 3)? };
    publish_all(Path::new(path), load).map(drop)
}

fn state(folder: &Path) -> PathBuf {
    folder.join("state.db")
}

fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

fn publication(number: u64, load: Load) -> sluicegate_dispatch::Publication {
    let (tenant, pool) = (number % load.tenants, number % load.pools);
    let body = format!(
        r#"{{"id":"msg-{number:016}","poolCode":"POOL-{pool:04}","tenant":"tenant-{tenant:05}",
            "messageGroupId":"customer-{number:011}","authToken":"tok-0123456789abcdef",
            "mediationTarget":"http://hooks.example.com/v1/orders/created?source=shop-00001",
            "payload":{{"order":{number},"amount":"19.90"}}}}"#
    );
    wire::publication(&body).expect("it is a message")
}

async fn open(path: &Path) -> Result<SqliteSource, String> {
    let mut settings = StoreSettings::default();
    settings.read_ahead = Some(AHEAD);
    let store = Store::open_with(path, settings).await.map_err(|error| error.to_string())?;
    store.queue("queue", VISIBILITY).await.map_err(|error| error.to_string())
}

/// Every pool has room.
struct Wide;

impl Rooms for Wide {
    fn take(&self, _pool: &str) -> bool {
        true
    }

    fn room(&self) -> Room {
        Room::default()
    }
}

/// In a process of its own: takes some messages of a file, and settles them or not.
pub(crate) fn take(words: &[String]) -> Result<(), String> {
    let path = words.first().ok_or("which file?")?;
    let count = number(words, 1)?;
    let settles = words.get(2).is_some_and(|what| what == SETTLED);
    runtime()?.block_on(async {
        let source = open(Path::new(path)).await?;
        let openings = Arc::new(Openings::default());
        let mut taken = 0;
        while taken < count {
            let most = BATCH.min((count - taken) as usize);
            let demand = Demand::of(most, Arc::new(Wide), Arc::clone(&openings));
            let received = source.receive(demand).await.map_err(|error| error.to_string())?;
            taken += received.len() as u64;
            let settle = received.into_iter().map(|delivery| {
                let _: &Message = delivery.message.as_ref().expect("it is a message");
                Settle::ack(delivery.receipt)
            });
            let settle: Vec<Settle> = settle.collect();
            if settles {
                source.settle(settle).await.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    })
}

/// In a process of its own: says how many milliseconds it takes to open a file and receive a message, and how many
/// mebibytes are in memory then.
pub(crate) fn first(words: &[String]) -> Result<(), String> {
    let path = words.first().ok_or("which file?")?;
    runtime()?.block_on(async {
        let begun = Instant::now();
        let store = Store::open_serving(path).await.map_err(|error| error.to_string())?;
        let queue = store.queue("queue", VISIBILITY).await.map_err(|error| error.to_string())?;
        let received = queue.receive(Demand::any(1)).await.map_err(|error| error.to_string())?;
        assert_eq!(received.len(), 1, "there are messages");
        let millis = begun.elapsed().as_secs_f64() * 1e3;
        let statm =
            std::fs::read_to_string("/proc/self/statm").map_err(|error| error.to_string())?;
        let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
        println!("{millis} {}", pages.unwrap_or(f64::NAN) * 4096.0 / 1024.0 / 1024.0);
        Ok(())
    })
}
