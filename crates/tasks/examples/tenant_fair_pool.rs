//! A tenant-fair pool with both ways out of a sluice. Callers wait for their own turns: one tenant
//! floods the pool, another sends one request at a time and hardly waits. Workers pull what needs no
//! caller, in the same places. Sessions stay in order, and no tenant takes more than half of the pool.
//!
//! `cargo run -p sluicegate-tasks --example tenant_fair_pool`

use std::error::Error;
use std::time::Duration;

use sluicegate_tasks::{
    Class, Context, Entry, Interrupt, Overload, Refusal, Sluice, TaskGroup, TenantLimits,
};
use tokio::time::{Instant, sleep};

const SERVICE_TIME: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Four at once; up to 400 wait inside, fairly. More callers would wait at the door, in order.
    let pool = Sluice::<&str>::builder("agents", 4, 400)
        .overload(Overload::Wait)
        .each_tenant(TenantLimits::new().max_running(2))
        .on_dropped(|report| eprintln!("{report} was not done"))
        .build()?;
    let tasks = TaskGroup::new("tasks", 500)?;
    let service = Context::new();

    // A worker runs the nightly reports, whenever nothing more urgent is to do.
    let reports = ["sales", "returns", "stock"];
    for report in reports {
        pool.admit(Entry::of("reports").class(Class::Low), report)?;
    }
    let worker = pool.clone();
    let worker = tasks.submit(&service, move |cx| work(cx, worker)).await?;

    // Alice sends three hundred requests in ten sessions, all at once.
    let mut flood = Vec::new();
    for n in 0..300 {
        let (pool, session) = (pool.clone(), format!("session-{}", n % 10));
        flood.push(tasks.submit(&service, move |cx| ask(cx, pool, "alice", session)).await?);
    }
    // Bob sends one at a time.
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let pool = pool.clone();
        let one =
            tasks.run(&service, move |cx| ask(cx, pool, "bob", "session-1".to_owned())).await?;
        longest = longest.max(one?);
    }
    println!(
        "bob waited at most {longest:.0?} for a turn, with a service time of {SERVICE_TIME:.0?}"
    );

    let mut waits = Vec::new();
    for task in flood {
        waits.push(task.await??);
    }
    waits.sort();
    println!("alice's flood waited up to {:.0?}", waits[waits.len() - 1]);

    println!("and leaves nothing behind: {} tenants known", pool.tenants().len());
    println!("{}", pool.drain(Instant::now() + Duration::from_secs(1)).await);
    println!("the worker finished {} of {} reports", worker.await??, reports.len());
    Ok(())
}

/// One request: waits for its turn, works, and says how long it waited.
async fn ask(
    cx: Context,
    pool: Sluice<&'static str>,
    tenant: &str,
    session: String,
) -> Result<Duration, Refusal> {
    let asked = Instant::now();
    let turn = pool.turn(&cx, Entry::of(tenant).tenant_key(session), "a question").await?;
    let waited = asked.elapsed();
    // The turn's own context: it ends with the caller's, and when the pool's drain deadline passes.
    turn.context().until_interrupted(sleep(SERVICE_TIME)).await?;
    turn.finish();
    Ok(waited)
}

/// A worker: takes whatever is next, until the pool is closed. Returns how much it did.
async fn work(cx: Context, pool: Sluice<&'static str>) -> Result<u32, Interrupt> {
    let mut done = 0;
    while let Some(turn) = cx.until_interrupted(pool.next()).await? {
        // Interrupted here, the turn is dropped: not done, and its value goes to `on_dropped`.
        turn.context().until_interrupted(sleep(SERVICE_TIME)).await?;
        turn.finish();
        done += 1;
    }
    Ok(done)
}
