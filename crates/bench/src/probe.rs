//! Instruction counts: this program runs a part of itself under callgrind and reads the total.
//!
//! Times on a shared machine are noise; instructions are the same whatever else it does.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use sluicegate_tasks::{Context, Permits, Sluice, TaskGroup};
use tokio::runtime::{Builder, Runtime};

use crate::load::{BATCH, Load, Many};
use crate::{kernel, router};

/// A part of this program that can be run under callgrind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Probe {
    PermitOurs,
    PermitTokio,
    SubmitOurs,
    SpawnTokio,
    /// A caller's turn, alone.
    TurnOurs,
    /// One phase of a schedule's cycle, with so many keys or tenants.
    Schedule(Phase, Many, u64),
    /// From a source in memory through a router to an executor that does nothing.
    RouterNoOp,
    /// A call over HTTP, by this side of the comparison.
    Http(&'static str),
    /// Out of a full pool, with so many groups.
    PoolDispatch(u64),
}

/// Which function's instructions are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    Decide,
    Complete,
    Admit,
}

impl Probe {
    /// The probe as words of a command line.
    fn words(self) -> Vec<String> {
        let words: &[&str] = match self {
            Self::PermitOurs => &["permit-ours"],
            Self::PermitTokio => &["permit-tokio"],
            Self::SubmitOurs => &["submit-ours"],
            Self::SpawnTokio => &["spawn-tokio"],
            Self::TurnOurs => &["turn-ours"],
            Self::Schedule(_, Many::Keys, count) => {
                return vec!["schedule-keys".to_owned(), count.to_string()];
            }
            Self::RouterNoOp => &["router-no-op"],
            Self::Http(side) => return vec!["http".to_owned(), side.to_owned()],
            Self::PoolDispatch(groups) => {
                return vec!["pool-dispatch".to_owned(), groups.to_string()];
            }
            Self::Schedule(_, Many::Tenants, count) => {
                return vec!["schedule-tenants".to_owned(), count.to_string()];
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// The function whose instructions count; the whole program without one.
    const fn counted(self) -> &'static str {
        match self {
            Self::PermitOurs => "permit_ours",
            Self::PermitTokio => "permit_tokio",
            Self::SubmitOurs => "submit_ours",
            Self::SpawnTokio => "spawn_tokio",
            Self::TurnOurs => "turn_ours",
            Self::Schedule(Phase::Decide, ..) => "phase_decide",
            Self::Schedule(Phase::Complete, ..) => "phase_complete",
            Self::Schedule(Phase::Admit, ..) => "phase_admit",
            Self::RouterNoOp => "router_no_op",
            Self::PoolDispatch(_) => "phase_dispatch",
            Self::Http(_) => "calls_over_http",
        }
    }

    const fn operations(self) -> u64 {
        match self {
            Self::Schedule(..) => (CYCLES * BATCH) as u64,
            Self::RouterNoOp => router::COUNTED,
            Self::PoolDispatch(_) => router::dispatched(),
            Self::Http(_) => router::COUNTED_CALLS as u64,
            _ => LOOPS as u64,
        }
    }

    /// Instructions of one operation, or why they could not be counted.
    pub(crate) fn instructions(self) -> Result<f64, String> {
        let mut words = vec!["probe".to_owned()];
        words.extend(self.words());
        let total = collected(Some(self.counted()), &words)?;
        Ok(total as f64 / self.operations() as f64)
    }
}

/// Instructions of this program with these words, by all of its threads.
pub(crate) fn instructions_of(words: &[String]) -> Result<u64, String> {
    collected(None, words)
}

fn collected(function: Option<&str>, words: &[String]) -> Result<u64, String> {
    let me = std::env::current_exe().map_err(|error| format!("no path to myself: {error}"))?;
    let out: PathBuf = std::env::temp_dir().join(format!(
        "sluicegate-callgrind-{}-{}",
        std::process::id(),
        function.unwrap_or("all")
    ));
    let run = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(function.map(|function| format!("--toggle-collect=*{function}*")))
        .arg(me)
        .args(words)
        .stdin(Stdio::null())
        .output();
    drop(std::fs::remove_file(&out));
    let run = run.map_err(|error| format!("valgrind did not start: {error}"))?;
    let text = String::from_utf8_lossy(&run.stderr);
    let collected = text.lines().find_map(|line| {
        line.split_once("Collected :")?.1.split_whitespace().next()?.parse::<u64>().ok()
    });
    match collected {
        Some(total) if run.status.success() && total > 0 => Ok(total),
        _ => Err(format!("callgrind gave no count: {}", text.trim())),
    }
}

const LOOPS: u32 = 2_000;
const CYCLES: usize = 20;

/// What runs under callgrind: the words after `probe`.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let count = || words.get(1).and_then(|word| word.parse().ok()).ok_or("how many?");
    match words.first().map(String::as_str) {
        Some("permit-ours") => permit_ours(&Permits::new(8).expect("8 is a limit")),
        Some("permit-tokio") => permit_tokio(&tokio::sync::Semaphore::new(8)),
        Some("submit-ours") => in_runtime(submit_ours),
        Some("spawn-tokio") => in_runtime(spawn_tokio),
        Some("turn-ours") => {
            turn_ours(&runtime(Builder::new_current_thread().enable_time()), LOOPS)
        }
        Some("router-no-op") => router::no_op(),
        Some("http") => router::count_http(words.get(1).map_or("", String::as_str))?,
        Some("pool-dispatch") => router::dispatch_some(count()?),
        Some("schedule-keys") => schedule(Many::Keys, count()?),
        Some("schedule-tenants") => schedule(Many::Tenants, count()?),
        other => return Err(format!("no probe {other:?}")),
    }
    Ok(())
}

#[inline(never)]
fn permit_ours(permits: &Permits) {
    for _ in 0..LOOPS {
        drop(std::hint::black_box(permits.try_acquire()));
    }
}

#[inline(never)]
fn permit_tokio(semaphore: &tokio::sync::Semaphore) {
    for _ in 0..LOOPS {
        drop(std::hint::black_box(semaphore.try_acquire()));
    }
}

fn schedule(many: Many, count: u64) {
    let mut load = Load::new(many, count);
    for _ in 0..CYCLES {
        load.cycle();
    }
}

/// Without a timer, which would be asked at each turn of the loop.
fn in_runtime(work: fn(&Runtime, u32)) {
    work(&runtime(&mut Builder::new_current_thread()), LOOPS);
}

fn runtime(builder: &mut Builder) -> Runtime {
    builder.build().expect("a runtime")
}

#[inline(never)]
fn submit_ours(runtime: &Runtime, loops: u32) {
    let group = TaskGroup::new("bench", 64).expect("64 is a limit");
    runtime.block_on(async {
        let cx = Context::new();
        for n in 0..loops {
            let task = group.submit(&cx, move |_cx| async move { n }).await.expect("there is room");
            assert_eq!(task.await.expect("it ends"), n);
        }
    });
}

#[inline(never)]
fn turn_ours(runtime: &Runtime, loops: u32) {
    runtime.block_on(async {
        let sluice = Sluice::builder("bench", 8, 100).build().expect("sound settings");
        kernel::take_turns(sluice, 0, loops).await;
    });
}

#[inline(never)]
fn spawn_tokio(runtime: &Runtime, loops: u32) {
    runtime.block_on(async {
        for n in 0..loops {
            assert_eq!(tokio::spawn(async move { n }).await.expect("it ends"), n);
        }
    });
}
