//! Bounded fan-out with panic recovery: check a hundred links, eight at a time, under one deadline.
//! One of them makes the code panic; the others do not notice, and the report says where it was.
//!
//! `cargo run -p sluicegate-tasks --example bounded_fan_out`

use std::error::Error;
use std::time::Duration;

use sluicegate_tasks::{Context, TaskError, TaskGroup};
use tokio::time::{Instant, sleep};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let group = TaskGroup::new("link-check", 8)?;
    let request = Context::new().with_timeout(Duration::from_secs(10));

    let mut tasks = Vec::new();
    for link in 0..100 {
        // Waits here while eight are at work: the fan-out is bounded, not the list.
        tasks.push(group.submit(&request, move |cx| check(cx, link)).await?);
    }

    let (mut sound, mut broken) = (0, 0);
    for task in tasks {
        match task.await {
            Ok(Ok(true)) => sound += 1,
            Ok(Ok(false)) => broken += 1,
            Ok(Err(interrupted)) => println!("gave up: {interrupted}"),
            Err(TaskError::Panicked(panic)) => println!("one of them {panic}"),
            Err(other) => println!("no answer: {other}"),
        }
    }
    println!("{sound} sound, {broken} broken");

    let stats = group.stats();
    println!(
        "{} completed, {} panicked, never more than {} at once, median {:?}",
        stats.completed,
        stats.panicked,
        stats.gauges.limit,
        stats.run_time.quantile(0.5)
    );
    println!("{}", group.drain(Instant::now() + Duration::from_secs(1)).await);
    Ok(())
}

/// Pretends to ask for a link. Gives up as soon as nobody waits for the answer any more.
async fn check(cx: Context, link: u32) -> Result<bool, sluicegate_tasks::Interrupt> {
    assert!(link != 42, "link {link} has no scheme");
    cx.until_interrupted(sleep(Duration::from_millis(5))).await?;
    Ok(!link.is_multiple_of(10))
}
