//! Consumers at RabbitMQ, beside bare loops over the same client and the same broker.

mod bare;
mod load;
mod ours;
mod pool;

use std::time::Duration;

use sluicegate_testkit::brokers::{Broker, Kind, start};
use tokio::runtime::{Builder, Runtime};

use crate::report::{Promise, Report, Row};

/// How many deliveries may be here unsettled, on all sides.
const PREFETCH: u16 = 500;
/// How many keys the ordered side keeps apart.
const KEYS: usize = 1000;

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    let mut report = Report::new("amqp", quick);
    let scene = Scene::new()?;
    throughput(&mut report, &scene, quick)?;
    handlers_that_wait(&mut report, &scene, quick)?;
    pool::run(&mut report, &scene.runtime, quick)?;
    Ok(report)
}

/// One side alone, for a profiler: `each`, `hundred`, `ours` or `ordered`, and how many messages.
pub(crate) fn spin(words: &[String]) -> Result<(), String> {
    let scene = Scene::new()?;
    let side = words.first().ok_or("which side?")?;
    let count = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(200_000);
    let (_, side) = SIDES.iter().find(|(name, _)| name == side).ok_or("no such side")?;
    let Figures { rate, own, brokers } = side.measure(&scene, count)?;
    println!("{rate:.0} a second, {own:.1} us of CPU each, {brokers:.1} us at the broker");
    Ok(())
}

/// A broker and two threads.
struct Scene {
    runtime: Runtime,
    broker: Broker,
}

impl Scene {
    fn new() -> Result<Self, String> {
        let broker = start(Kind::RabbitMq).map_err(|error| error.to_string())?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Ok(Self { runtime: runtime.map_err(|error| error.to_string())?, broker })
    }
}

/// What one side did.
#[derive(Clone, Copy)]
struct Figures {
    /// Messages a second, from the first one to the last.
    rate: f64,
    /// The microseconds of CPU that this process took for a message.
    own: f64,
    /// The microseconds of CPU that the broker took for a message.
    brokers: f64,
}

/// One side of the comparison.
#[derive(Clone, Copy)]
enum Side {
    /// A loop that acknowledges each message.
    Each,
    /// A loop that acknowledges a hundred messages together.
    Hundred,
    /// A consumer.
    Ours,
    /// A consumer that keeps the order of a thousand keys.
    Ordered,
}

const SIDES: [(&str, Side); 4] = [
    ("each", Side::Each),
    ("hundred", Side::Hundred),
    ("ours", Side::Ours),
    ("ordered", Side::Ordered),
];

impl Side {
    fn measure(self, scene: &Scene, count: usize) -> Result<Figures, String> {
        let url = scene.broker.url();
        let broker = scene.broker.pid().to_string();
        let ran = || Ok::<_, String>((cpu_time("self")?, cpu_time(&broker)?));
        scene.runtime.block_on(async {
            let queue = load::publish(url, count, KEYS).await?;
            let before = ran()?;
            let took = match self {
                Self::Each => bare::consume(url, &queue, count, 1).await?,
                Self::Hundred => bare::consume(url, &queue, count, 100).await?,
                Self::Ours => ours::consume(url, &queue, count, false).await?,
                Self::Ordered => ours::consume(url, &queue, count, true).await?,
            };
            let after = ran()?;
            load::delete(url, &queue).await?;
            let each = |seconds: f64| seconds * 1e6 / count as f64;
            Ok(Figures {
                rate: count as f64 / took.as_secs_f64(),
                own: each(after.0 - before.0),
                brokers: each(after.1 - before.1),
            })
        })
    }
}

/// A handler that does nothing: all sides by turns, so that none has the better hour; the medians.
fn throughput(report: &mut Report, scene: &Scene, quick: bool) -> Result<(), String> {
    let (count, rounds) = if quick { (5_000, 1) } else { (60_000, 5) };
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for ((_, side), figures) in SIDES.iter().zip(&mut figures) {
            figures.push(side.measure(scene, count)?);
        }
    }
    let of = |figure: fn(&Figures) -> f64| {
        figures.each_ref().map(|side| median(side.iter().map(figure).collect()))
    };
    let [each, hundred, ours, ordered] = of(|figures| figures.rate);
    let row = |what: &str, figure| Row::new(what, "/s", figure);
    report.rows.push(
        row("a handler that does nothing", ours)
            .beside("a bare loop, acks by the hundred", hundred)
            .promised(Promise::RatioAtLeast(0.9)),
    );
    report
        .rows
        .push(row("a handler that does nothing", ours).beside("a bare loop, acks each", each));
    report.rows.push(
        row("in order by one of 1,000 keys", ordered)
            .beside("the same, unordered", ours)
            .promised(Promise::RatioAtLeast(0.9)),
    );
    let mut cpu = |what: &str, figure| {
        let [_, hundred, ours, _] = of(figure);
        let baseline = "a bare loop, acks by the hundred";
        report.rows.push(Row::new(what, "us", ours).beside(baseline, hundred));
    };
    cpu("CPU for a message", |figures| figures.own);
    cpu("CPU at the broker for a message", |figures| figures.brokers);
    Ok(())
}

/// A handler that waits 100 ms: as many a second as ten times the workers.
fn handlers_that_wait(report: &mut Report, scene: &Scene, quick: bool) -> Result<(), String> {
    let seconds = if quick { 1 } else { 5 };
    let url = scene.broker.url();
    for workers in [32, 64] {
        let count = workers as usize * 10 * seconds;
        let took: Duration = scene.runtime.block_on(async {
            let queue = load::publish(url, count, KEYS).await?;
            let took = ours::wait(url, &queue, count, workers).await?;
            load::delete(url, &queue).await?;
            Ok::<_, String>(took)
        })?;
        let ideal = f64::from(workers) * 10.0;
        report.rows.push(
            Row::new(
                format!("a handler of 100 ms, {workers} workers"),
                "/s",
                count as f64 / took.as_secs_f64(),
            )
            .beside("the most there can be", ideal)
            .promised(Promise::RatioAtLeast(0.98)),
        );
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// The seconds that a process has run, with all threads that it ever had: a connection's own thread
/// ends with it.
fn cpu_time(process: &str) -> Result<f64, String> {
    /// How many ticks a second has in the kernel's tables.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    let stat = stat.map_err(|error| error.to_string())?;
    // The name before may have spaces and brackets in it.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ran =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ran.sum::<f64>() / TICKS)
}
