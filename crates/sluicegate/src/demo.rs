//! `sluicegate demo`: messages of a few tenants, in groups, through one bounded pool to an endpoint
//! that fails at times. Everything is in memory: it shows what the kernel promises.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use indicatif::{ProgressBar, ProgressStyle};
use sluicegate::tasks::{
    Admitted, Context, Entry, Interrupt, Refusal, Task, TaskGroup, TenantLimits, Turnstile,
};
use tokio::time::{Instant, sleep};

const CONCURRENCY: u32 = 64;
const TENANTS: [(&str, u32); 3] = [("bronze", 1), ("silver", 2), ("gold", 4)];
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// A message, known by its place in its group.
#[derive(Clone, Copy, Debug)]
struct Message {
    group: u32,
    place: u32,
    /// How often the endpoint refuses it before it takes it.
    refusals: u32,
    work: Duration,
}

/// What arrived at the endpoint.
#[derive(Debug, Default)]
struct Ledger {
    /// The last place delivered of each group.
    last: HashMap<u32, u32>,
    delivered: u32,
    retried: u32,
    out_of_order: u32,
}

type Delivered = Task<Result<(), Interrupted>>;

/// The pool was closed, or the demo was told to stop, before the message was delivered.
#[derive(Debug)]
struct Interrupted;

/// Runs it and says whether every message arrived, in order.
pub(crate) fn run(messages: u32, groups: u32) -> Result<bool, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(demonstrate(messages, groups))
}

async fn demonstrate(messages: u32, groups: u32) -> Result<bool, Box<dyn Error>> {
    println!(
        "{messages} messages in {groups} groups of {} tenants, {CONCURRENCY} at once, \
         to an endpoint that refuses every tenth at first\n",
        TENANTS.len()
    );
    let mut pool = Turnstile::builder("demo", CONCURRENCY);
    for (tenant, weight) in TENANTS {
        pool = pool.tenant(tenant, TenantLimits::new().weight(weight));
    }
    let pool = pool.build()?;
    let deliveries = TaskGroup::new("deliveries", messages)?;
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let bar = progress(u64::from(messages));
    let begun = Instant::now();
    let tasks = publish(&pool, &deliveries, &ledger, &bar, messages, groups).await?;
    let mut lost = 0;
    for task in tasks {
        lost += u32::from(!matches!(task.await, Ok(Ok(()))));
    }
    let took = begun.elapsed();
    bar.finish_and_clear();
    let report = pool.drain(Instant::now() + Duration::from_secs(5)).await;
    let ledger = entries(&ledger);
    println!("{}", summary(&pool, &ledger, took));
    println!("{report}");
    println!("delivered {}", ledger.delivered);
    println!("order violations {}", ledger.out_of_order);
    Ok(lost == 0 && ledger.delivered == messages && ledger.out_of_order == 0 && report.is_clean())
}

/// Lets all messages in, in order, and starts a task for each that waits for its turn.
async fn publish(
    pool: &Turnstile,
    deliveries: &TaskGroup,
    ledger: &Arc<Mutex<Ledger>>,
    bar: &ProgressBar,
    messages: u32,
    groups: u32,
) -> Result<Vec<Delivered>, Refusal> {
    let cx = Context::new();
    let mut tasks = Vec::new();
    for n in 0..messages {
        let group = n % groups;
        let message = Message {
            group,
            place: n / groups,
            refusals: u32::from(mixed(n).is_multiple_of(10)),
            work: Duration::from_micros(1_000 + u64::from(mixed(n) % 4_000)),
        };
        let (tenant, _) = TENANTS[group as usize % TENANTS.len()];
        let entry = Entry::of(tenant).key(format!("group-{group}"));
        let admitted = pool.admit(&cx, entry, message)?;
        let (ledger, bar) = (Arc::clone(ledger), bar.clone());
        tasks.push(deliveries.submit(&cx, move |cx| deliver(cx, admitted, ledger, bar)).await?);
    }
    Ok(tasks)
}

/// The way of one message: its turn, the call, and back to the front of its group if refused.
async fn deliver(
    cx: Context,
    mut admitted: Admitted<Message>,
    ledger: Arc<Mutex<Ledger>>,
    bar: ProgressBar,
) -> Result<(), Interrupted> {
    loop {
        let mut turn = admitted.turn().await.map_err(|_| Interrupted)?;
        let called: Result<(), Interrupt> = cx.until_interrupted(sleep(turn.value().work)).await;
        called.map_err(|_| Interrupted)?;
        if turn.value().refusals == 0 {
            entries(&ledger).deliver(turn.finish());
            bar.inc(1);
            return Ok(());
        }
        turn.value_mut().refusals -= 1;
        entries(&ledger).retried += 1;
        admitted = turn.retry_at(Instant::now() + RETRY_AFTER);
    }
}

impl Ledger {
    fn deliver(&mut self, message: Message) {
        let expected = self.last.get(&message.group).map_or(0, |last| last + 1);
        self.out_of_order += u32::from(message.place != expected);
        self.last.insert(message.group, message.place);
        self.delivered += 1;
    }
}

fn entries(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

fn summary(pool: &Turnstile, ledger: &Ledger, took: Duration) -> Table {
    let stats = pool.stats();
    let rate = f64::from(ledger.delivered) / took.as_secs_f64();
    let quantiles = |histogram: &sluicegate::tasks::HistogramSnapshot| {
        let [half, most] = [0.5, 0.99].map(|part| histogram.quantile(part));
        format!("p50 {half:.1?}, p99 {most:.1?}")
    };
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.add_row(["delivered".to_owned(), ledger.delivered.to_string()]);
    table.add_row(["retried at the front of its group".to_owned(), ledger.retried.to_string()]);
    table.add_row(["order violations".to_owned(), ledger.out_of_order.to_string()]);
    table.add_row(["rate".to_owned(), format!("{rate:.0} a second")]);
    table.add_row(["waited for a turn".to_owned(), quantiles(&stats.wait_time)]);
    table.add_row(["took to deliver".to_owned(), quantiles(&stats.run_time)]);
    table
}

fn progress(messages: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} delivered, {per_sec}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(messages).with_style(style)
}

/// The same for every run, and without a pattern.
const fn mixed(n: u32) -> u32 {
    let n = (n ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
    (n ^ n >> 13).wrapping_mul(0xc2b2_ae35) >> 7
}
