//! A tenant-fair pool: one tenant floods it, another sends one request at a time and hardly waits.
//! Each tenant's sessions stay in order, and no tenant takes more than half of the pool.
//!
//! `cargo run -p sluicegate-tasks --example tenant_fair_pool`

use std::error::Error;
use std::time::Duration;

use sluicegate_tasks::{Context, Entry, Interrupt, Overload, TaskGroup, TenantLimits, Turnstile};
use tokio::time::{Instant, sleep};

const SERVICE_TIME: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = Turnstile::builder("agents", 4)
        .overload(Overload::Queue { capacity: 500 })
        .each_tenant(TenantLimits::new().max_running(2))
        .build()?;
    let callers = TaskGroup::new("callers", 500)?;
    let service = Context::new();

    // Alice sends three hundred requests in ten sessions, all at once.
    let mut flood = Vec::new();
    for n in 0..300 {
        let (pool, session) = (pool.clone(), format!("alice-{}", n % 10));
        flood.push(callers.submit(&service, move |cx| ask(cx, pool, "alice", session)).await?);
    }
    // Bob sends one at a time.
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let pool = pool.clone();
        let one = callers.run(&service, move |cx| ask(cx, pool, "bob", "bob-1".to_owned())).await?;
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
    Ok(())
}

/// One request: waits for its turn, works, and says how long it waited.
async fn ask(
    cx: Context,
    pool: Turnstile,
    tenant: &str,
    session: String,
) -> Result<Duration, Interrupt> {
    let asked = Instant::now();
    let entry = Entry::of(tenant).key(session);
    let Ok(admitted) = pool.admit(&cx, entry, ()) else { return Err(Interrupt::Cancelled) };
    let Ok(turn) = admitted.turn().await else { return Err(Interrupt::Cancelled) };
    let waited = asked.elapsed();
    // The turn's own context: it ends with the caller's, and when the pool's drain deadline passes.
    turn.context().until_interrupted(sleep(SERVICE_TIME)).await?;
    turn.finish();
    Ok(waited)
}
