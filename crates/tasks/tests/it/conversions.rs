//! Errors that become each other by `?`, so that nobody has to map them by hand.

use std::cell::Cell;
use std::error::Error;

use sluicegate_tasks::{
    AcquireManyError, Context, Entry, Interrupt, Permits, Refusal, Sluice, TaskError, TaskGroup,
};

fn cancelled() -> Context {
    let cx = Context::new();
    cx.cancel();
    cx
}

/// A refusal and what became of the task are one error.
async fn checksum(group: &TaskGroup, cx: &Context) -> Result<u32, TaskError> {
    group.submit_blocking(cx, |_| 42).await?.await
}

#[tokio::test]
async fn a_refused_task_is_a_task_error() {
    let group = TaskGroup::new("files", 1).unwrap();
    assert_eq!(checksum(&group, &Context::new()).await, Ok(42));
    let why = Refusal::Interrupted(Interrupt::Cancelled);
    assert_eq!(checksum(&group, &cancelled()).await, Err(TaskError::Refused(why)));
}

/// Waiting for a turn and working under it are one error.
async fn ask(sluice: &Sluice<&str>, cx: &Context, work: &Context) -> Result<(), Refusal> {
    let turn = sluice.turn(cx, Entry::of("alice"), "ask").await?;
    work.check()?;
    turn.finish();
    Ok(())
}

#[tokio::test]
async fn a_refused_turn_and_an_interrupt_are_refusals() {
    let sluice = Sluice::builder("agents", 1, 1).build().unwrap();
    let (live, gone) = (Context::new(), cancelled());
    let why = Err(Refusal::Interrupted(Interrupt::Cancelled));
    assert_eq!(ask(&sluice, &live, &live).await, Ok(()));
    assert_eq!(ask(&sluice, &gone, &live).await, why);
    assert_eq!(ask(&sluice, &live, &gone).await, why);
}

/// Looking at the context and asking for permits are one error.
fn take(megabytes: &Permits, cx: &Context) -> Result<u32, AcquireManyError> {
    cx.check()?;
    Ok(megabytes.try_acquire_many(48)?.count())
}

#[test]
fn an_interrupt_is_an_error_of_asking_for_permits() {
    let megabytes = Permits::new(64).unwrap();
    assert_eq!(take(&megabytes, &Context::new()), Ok(48));
    let why = AcquireManyError::Interrupted(Interrupt::Cancelled);
    assert_eq!(take(&megabytes, &cancelled()), Err(why));
}

/// Work that threads cannot share does not fit into such an error; its reason always does.
fn offer(group: &TaskGroup) -> Result<(), Box<dyn Error + Send + Sync>> {
    let not_sync = Cell::new(42);
    let work = move |_| async move { not_sync.get() };
    drop(group.try_submit(cancelled(), work).map_err(Refusal::from)?);
    Ok(())
}

#[tokio::test]
async fn the_reason_alone_fits_into_any_error() {
    let group = TaskGroup::new("files", 1).unwrap();
    assert_eq!(offer(&group).unwrap_err().to_string(), "cancelled before it could start");
}
