//! The kernel beside what it is measured against.

use std::time::{Duration, Instant};

use sluicegate_tasks::{Context, Entry, Permits, Sluice, TaskGroup};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::child::figures_of;
use crate::load::{BATCH, Load, Many, phase_admit, phase_complete, phase_decide};
use crate::probe::{Phase, Probe};
use crate::report::{Promise, Report, Row};
use crate::timing::{by_turns, median, timed};

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Report {
    let mut report = Report::new("kernel", quick);
    let rounds = if quick { 5 } else { 41 };
    eprintln!("permits and tasks …");
    permits(&mut report, rounds);
    tasks(&mut report, rounds);
    turns(&mut report, rounds);
    let counts: &[u64] = if quick { &[1_000, 100_000] } else { &[1_000, 100_000, 1_000_000] };
    for many in [Many::Keys, Many::Tenants] {
        decisions(&mut report, many, counts, rounds);
    }
    memory(&mut report, counts);
    eprintln!("instruction counts under callgrind …");
    instructions(&mut report, counts);
    report
}

fn permits(report: &mut Report, rounds: usize) {
    let (permits, semaphore) = (Permits::new(8).expect("a limit"), Semaphore::new(8));
    let compared = by_turns(
        rounds,
        100_000,
        |loops| {
            timed(|| (0..loops).for_each(|_| drop(std::hint::black_box(permits.try_acquire()))))
        },
        |loops| {
            timed(|| (0..loops).for_each(|_| drop(std::hint::black_box(semaphore.try_acquire()))))
        },
    );
    let row = Row::new("try_acquire + drop", "ns", compared.ours)
        .beside("tokio::sync::Semaphore", compared.baseline)
        .promised(Promise::RatioAtMost(1.0));
    report.rows.push(row);
}

fn tasks(report: &mut Report, rounds: usize) {
    let runtimes = [
        ("one thread", Builder::new_current_thread().enable_time().build()),
        ("two threads", Builder::new_multi_thread().worker_threads(2).enable_time().build()),
    ];
    for (name, runtime) in runtimes {
        let runtime = runtime.expect("a runtime");
        let group = TaskGroup::new("bench", 64).expect("a limit");
        let compared = by_turns(
            rounds,
            20_000,
            |loops| inside(&runtime, submit_and_wait(group.clone(), loops)),
            |loops| inside(&runtime, spawn_and_join(loops)),
        );
        let row = Row::new(format!("submit, run, result: {name}"), "ns", compared.ours)
            .beside("tokio::spawn + join", compared.baseline)
            .promised(Promise::RatioAtMost(2.0));
        report.rows.push(row);
    }
}

/// Runs the loop as a task of its own: the runtime's way, with no thread to wake from outside.
fn inside(runtime: &Runtime, work: impl Future<Output = Duration> + Send + 'static) -> Duration {
    runtime.block_on(async { tokio::spawn(work).await.expect("it ends") })
}

async fn submit_and_wait(group: TaskGroup, loops: u32) -> Duration {
    let (cx, start) = (Context::new(), Instant::now());
    for n in 0..loops {
        let task = group.submit(&cx, move |_cx| async move { n }).await.expect("there is room");
        assert_eq!(task.await.expect("it ends"), n);
    }
    start.elapsed()
}

async fn spawn_and_join(loops: u32) -> Duration {
    let start = Instant::now();
    for n in 0..loops {
        assert_eq!(tokio::spawn(async move { n }).await.expect("it ends"), n);
    }
    start.elapsed()
}

/// A caller's turn beside a tokio permit: what fairness, order and rates cost. And the same by two
/// threads at once, each with a tenant and a key of its own, beside what it costs one of them alone;
/// with what two threads cost each other that share nothing, and that share a semaphore.
fn turns(report: &mut Report, rounds: usize) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let sluice = runtime.block_on(async { Sluice::builder("bench", 8, 100).build() });
    let sluice = sluice.expect("sound settings");
    let semaphore = std::sync::Arc::new(Semaphore::new(8));
    let compared = by_turns(
        rounds,
        20_000,
        |loops| inside(&runtime, take_turns(sluice.clone(), 0, loops)),
        |loops| inside(&runtime, take_permits(semaphore.clone(), loops)),
    );
    let row = Row::new("admit, turn, finish", "ns", compared.ours)
        .beside("tokio acquire + drop (no tenant, no key)", compared.baseline);
    report.rows.push(row);
    let other = runtime.block_on(async { Sluice::builder("other", 8, 100).build() });
    let other = other.expect("sound settings");
    let alone = |loops| inside(&runtime, take_turns(sluice.clone(), 0, loops));
    let shared = |loops| {
        let turns = |who| take_turns(sluice.clone(), who, loops);
        by_two(&runtime, turns(0), turns(1))
    };
    let apart = |loops| {
        by_two(&runtime, take_turns(sluice.clone(), 0, loops), take_turns(other.clone(), 1, loops))
    };
    let compared = by_turns(rounds, 20_000, shared, alone);
    let row = Row::new("admit, turn, finish: two threads, each", "ns", compared.ours)
        .beside("one thread", compared.baseline)
        .promised(Promise::RatioAtMost(1.5));
    report.rows.push(row);
    let compared = by_turns(rounds, 20_000, shared, apart);
    let row = Row::new("  the same", "ns", compared.ours)
        .beside("two threads, a sluice each", compared.baseline);
    report.rows.push(row);
    let compared = by_turns(
        rounds,
        20_000,
        |loops| {
            let permits = || take_permits(semaphore.clone(), loops);
            by_two(&runtime, permits(), permits())
        },
        |loops| inside(&runtime, take_permits(semaphore.clone(), loops)),
    );
    let row = Row::new("  tokio acquire + drop: two threads, each", "ns", compared.ours)
        .beside("one thread", compared.baseline);
    report.rows.push(row);
}

/// What each of two loops takes that run at once.
fn by_two(
    runtime: &Runtime,
    one: impl Future<Output = Duration> + Send + 'static,
    other: impl Future<Output = Duration> + Send + 'static,
) -> Duration {
    runtime.block_on(async {
        let (one, other) = (tokio::spawn(one), tokio::spawn(other));
        (one.await.expect("it ends") + other.await.expect("it ends")) / 2
    })
}

/// Turns of one tenant and key, one after the other.
pub(crate) async fn take_turns(sluice: Sluice<()>, who: u32, loops: u32) -> Duration {
    let (cx, tenant, key) = (Context::new(), format!("tenant-{who}"), format!("key-{who}"));
    let start = Instant::now();
    for _ in 0..loops {
        let entry = Entry::of(&*tenant).key(&*key);
        sluice.turn(&cx, entry, ()).await.expect("there is room").finish();
    }
    start.elapsed()
}

async fn take_permits(semaphore: std::sync::Arc<Semaphore>, loops: u32) -> Duration {
    let start = Instant::now();
    for _ in 0..loops {
        drop(semaphore.acquire().await);
    }
    start.elapsed()
}

fn decisions(report: &mut Report, many: Many, counts: &[u64], rounds: usize) {
    let mut least = None;
    for &count in counts {
        eprintln!("decisions with {count} {} …", named(many));
        let mut load = Load::new(many, count);
        load.warm_up();
        let (mut decide, mut rest) = (Vec::new(), Duration::ZERO);
        let per_decision = median(rounds * 8, BATCH as u32, || {
            let took = timed(|| phase_decide(&mut load));
            decide.push(took);
            rest += timed(|| phase_complete(&mut load)) + timed(|| phase_admit(&mut load));
            took
        });
        let what = format!("decision with {count} {}", named(many));
        let mut row = Row::new(what, "ns", per_decision).promised(Promise::AtMost(2_000.0));
        match least {
            None => least = Some((count, per_decision)),
            Some((count, figure)) => row = row.beside(format!("with {count}"), figure),
        }
        report.rows.push(row);
        let per_second = 1e9 / per_decision;
        report.rows.push(Row::new(format!("  decisions a second with {count}"), "/s", per_second));
        let others = rest.as_nanos() as f64 / (decide.len() * BATCH) as f64;
        report.rows.push(Row::new("  its completion and a new admission", "ns", others));
    }
}

fn memory(report: &mut Report, counts: &[u64]) {
    let count = counts.last().copied().unwrap_or(1_000);
    for many in [Many::Keys, Many::Tenants] {
        let words = [named(many).to_owned(), count.to_string()];
        let [per_item, per_decision] = match figures_of("sluicegate-bench-counted", &words) {
            Ok(figures) => figures,
            Err(why) => {
                eprintln!("skipped the memory of {}: {why}", named(many));
                continue;
            }
        };
        let what = format!("memory of a queued item, {count} {} with two each", named(many));
        report.rows.push(Row::new(what, "bytes", per_item).promised(Promise::AtMost(1024.0)));
        let what = format!("  allocations per decision, {}", named(many));
        report.rows.push(Row::new(what, "", per_decision).promised(Promise::AtMost(0.0)));
    }
}

fn instructions(report: &mut Report, counts: &[u64]) {
    let mut count = |what: &str, probe: Probe, baseline: Option<(&str, Probe)>, promise| {
        let figures = probe.instructions().and_then(|ours| match baseline {
            None => Ok((ours, None)),
            Some((name, probe)) => Ok((ours, Some((name, probe.instructions()?)))),
        });
        match figures {
            Err(why) => eprintln!("skipped {what}: {why}"),
            Ok((ours, beside)) => {
                let mut row = Row::new(what, "instr", ours);
                if let Some((name, figure)) = beside {
                    row = row.beside(name, figure);
                }
                row.promise = promise;
                report.rows.push(row);
            }
        }
    };
    let tokio = ("tokio::sync::Semaphore", Probe::PermitTokio);
    count("try_acquire + drop", Probe::PermitOurs, Some(tokio), Some(Promise::RatioAtMost(1.0)));
    let spawn = ("tokio::spawn + join", Probe::SpawnTokio);
    let twice = Some(Promise::RatioAtMost(2.0));
    count("submit, run, result", Probe::SubmitOurs, Some(spawn), twice);
    count("admit, turn, finish", Probe::TurnOurs, None, None);
    let (least, most) = (counts[0], counts[counts.len() - 1]);
    for many in [Many::Keys, Many::Tenants] {
        for (phase, name) in
            [(Phase::Decide, "decide"), (Phase::Complete, "complete"), (Phase::Admit, "admit")]
        {
            let what = format!("{name} with {most} {}", named(many));
            let beside = format!("with {least}");
            let baseline = (beside.as_str(), Probe::Schedule(phase, many, least));
            let promise = Some(Promise::RatioAtMost(3.0));
            count(&what, Probe::Schedule(phase, many, most), Some(baseline), promise);
        }
    }
}

const fn named(many: Many) -> &'static str {
    match many {
        Many::Keys => "keys",
        Many::Tenants => "tenants",
    }
}
