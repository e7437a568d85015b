//! Benchmarks, each beside its baseline in the same run. `cargo xtask bench` runs them.
//!
//! A promise that is broken is printed and written as such, and the exit code says so, except with
//! `--quick`, which only shows that everything runs.

mod agents;
mod amqp;
mod child;
mod events;
mod kernel;
mod lint;
mod load;
mod probe;
mod queue;
mod report;
mod router;
mod timing;

use std::path::PathBuf;
use std::process::ExitCode;

use mimalloc::MiMalloc;
use report::Report;

/// What the daemon runs with; baselines have it too.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const USAGE: &str = "usage: sluicegate-bench [agents | amqp | events | kernel | lint | queue | router] [--quick] [--json PATH]";

/// A benchmark: quick or not, to its rows.
type Benchmark = fn(bool) -> Result<Report, String>;

const ALL: [(&str, Benchmark); 7] = [
    ("kernel", |quick| Ok(kernel::run(quick))),
    ("lint", lint::run),
    ("queue", queue::run),
    ("router", router::run),
    ("amqp", amqp::run),
    ("agents", agents::run),
    ("events", events::run),
];

/// Parts of a benchmark that can be asked for by their names.
const PARTS: [(&str, Benchmark); 7] = [
    ("agents-sizing", agents::sizing::run),
    ("events-gate", events::run_gate),
    ("events-postgres", events::run_postgres),
    ("events-sqlite", events::run_sqlite),
    ("router-http", router::run_http),
    ("router-alone", router::run_alone),
    ("router-backlog", router::run_backlog),
];

#[derive(Debug, Default)]
struct Order {
    name: Option<String>,
    quick: bool,
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    // Before anything slow: agents are started by this.
    #[cfg(target_os = "linux")]
    if let Some(code) = sluicegate_executors::process::keeper::run_if_asked() {
        return code;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ran = match words.split_first() {
        Some((first, rest)) if first == "probe" => probe::run(rest).map(|()| true),
        Some((first, _)) if first == "endpoint" => router::endpoint::serve().map(|()| true),
        Some((first, rest)) if first == "spin" => router::spin(rest).map(|()| true),
        Some((first, rest)) if first == "consume" => amqp::spin(rest).map(|()| true),
        Some((first, rest)) if first == "held" => router::held(rest).map(|()| true),
        Some((first, rest)) if first == "queue-take" => queue::take(rest).map(|()| true),
        Some((first, rest)) if first == "queue-fill" => queue::fill(rest).map(|()| true),
        Some((first, rest)) if first == "queue-open" => queue::first(rest).map(|()| true),
        Some((first, rest)) if first == "agent" => agents::stand_in::run(rest).map(|()| true),
        Some((first, rest)) if first == "ask" => agents::spin(rest).map(|()| true),
        Some((first, rest)) if first == "append" => events::spin(rest).map(|()| true),
        Some((first, rest)) if first == "idle" => router::idle(rest).map(|()| true),
        _ => parse(&words).and_then(|order| benchmark(&order)),
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: &[String]) -> Result<Order, String> {
    let mut order = Order::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => order.quick = true,
            "--json" => order.json = Some(words.next().ok_or("--json needs a path")?.into()),
            name if ALL.iter().chain(&PARTS).any(|(known, _)| *known == name) => {
                order.name = Some(word.clone());
            }
            other => return Err(format!("unknown benchmark or option: {other}")),
        }
    }
    Ok(order)
}

fn benchmark(order: &Order) -> Result<bool, String> {
    let mut kept = true;
    let wanted = order.name.as_deref();
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
    let parts = PARTS.into_iter().filter(|_| wanted.is_some());
    for (name, benchmark) in ALL.into_iter().chain(parts) {
        if !is_wanted(name) {
            continue;
        }
        let report = benchmark(order.quick)?;
        println!("\n{name}, ours beside its baseline\n\n{}", report.table());
        let default = || PathBuf::from("target/bench").join(format!("{name}.json"));
        let path = order.json.clone().unwrap_or_else(default);
        report.write(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("written to {}", path.display());
        let broken = report.broken();
        if broken > 0 {
            println!("{broken} promises broken{}", if order.quick { " (a quick run)" } else { "" });
        }
        kept &= broken == 0 || order.quick;
    }
    Ok(kept)
}
