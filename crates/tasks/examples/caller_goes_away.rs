//! Work that goes on when its caller goes away: a payment that was begun is made, also if the client
//! hangs up. The caller waits for its turn, then moves it into a task, which the group owns.
//!
//! `cargo run -p sluicegate-tasks --example caller_goes_away`

use std::error::Error;
use std::time::Duration;

use sluicegate_tasks::{Context, Entry, Interrupt, Sluice, TaskGroup};
use tokio::time::{Instant, sleep, timeout};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let turns = Sluice::<&str>::builder("payments", 4, 100)
        .on_dropped(|order| eprintln!("{order} was not paid"))
        .build()?;
    // As many as there are turns: who has a turn never waits for a permit.
    let tasks = TaskGroup::new("tasks", 4)?;
    let service = Context::new();

    println!("{}", pay(&turns, &tasks, &service, "order-1").await?);

    // This client hangs up: its call is dropped, its payment is not.
    let call = pay(&turns, &tasks, &service, "order-2");
    assert!(timeout(Duration::from_millis(5), call).await.is_err());
    println!("the client of order-2 is gone, {} runs", turns.stats().gauges.running);

    let deadline = Instant::now() + Duration::from_secs(1);
    println!("{}", turns.drain(deadline).await);
    println!("{}", tasks.drain(deadline).await);
    assert_eq!(turns.stats().completed, 2);
    Ok(())
}

/// One request. Dropped before its turn it leaves nothing behind; after that the payment goes on.
async fn pay(
    turns: &Sluice<&'static str>,
    tasks: &TaskGroup,
    cx: &Context,
    order: &'static str,
) -> Result<String, Box<dyn Error>> {
    let turn = turns.turn(cx, Entry::of("shop").key(order), order).await?;
    // Under the turn's context: the caller's, which must not end with the call, until the drain deadline.
    let paid = tasks.submit(turn.context(), |cx| async move {
        cx.until_interrupted(sleep(Duration::from_millis(50))).await?;
        Ok::<_, Interrupt>(format!("{} is paid", turn.finish()))
    });
    Ok(paid.await?.await??)
}
