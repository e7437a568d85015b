//! Settings that cannot work: refused when given, by the name of the field.
//!
//! `docs/rules.md#count-2`.

use std::time::Duration;

use sluicegate_tasks::{Context, Fault, Invalid, Permits, Rate, TaskGroup};
use tokio::time::Instant;

use crate::probe::settle;

fn check(cases: impl IntoIterator<Item = (Result<(), Invalid>, &'static str, Fault)>) {
    for (given, field, fault) in cases {
        let refused = given.unwrap_err();
        assert_eq!(refused, Invalid::new(field, fault));
        assert!(refused.to_string().starts_with(&format!("{field}: must ")), "{refused}");
    }
}

#[test]
fn of_permits() {
    let permits = Permits::new(1).unwrap();
    let too_large = || Fault::TooLarge { max: u64::from(Permits::MAX) };
    check([
        (Permits::new(0).map(drop), "limit", Fault::Zero),
        (Permits::new(Permits::MAX + 1).map(drop), "limit", too_large()),
        (permits.resize(0), "limit", Fault::Zero),
        (permits.resize(u32::MAX), "limit", too_large()),
    ]);
    assert_eq!(permits.limit(), 1, "nothing changed");
    assert_eq!(Permits::new(Permits::MAX).unwrap().limit(), Permits::MAX);
}

#[tokio::test(start_paused = true)]
async fn of_a_group() {
    let group = TaskGroup::new("group", 1).unwrap();
    let parent = group.clone();
    let inside = group.run(Context::new(), |cx| async move {
        drop(cx);
        parent.child("").map(drop)
    });
    let inside = inside.await.unwrap();
    let builder = || TaskGroup::builder("group", 1);
    check([
        (TaskGroup::new("", 1).map(drop), "name", Fault::Empty),
        (TaskGroup::new("group", 0).map(drop), "limit", Fault::Zero),
        (builder().unwind(Duration::ZERO).build().map(drop), "unwind", Fault::Zero),
        (group.child("").map(drop), "name", Fault::Empty),
        (inside, "name", Fault::Empty),
        (group.resize(0), "limit", Fault::Zero),
    ]);
    assert_eq!(group.stats().gauges.limit, 1, "nothing changed");
}

#[test]
fn of_a_rate() {
    let second = Duration::from_secs(1);
    check([
        (Rate::new(0, second, 1).map(drop), "rate", Fault::Zero),
        (Rate::new(1, Duration::ZERO, 1).map(drop), "period", Fault::Zero),
        (Rate::new(1, second, 0).map(drop), "burst", Fault::Zero),
        (Rate::per_minute(0).map(drop), "rate", Fault::Zero),
        (Rate::new(1, Duration::MAX, 1).map(drop), "period", Fault::TooLarge { max: u64::MAX }),
    ]);
}

#[tokio::test(start_paused = true)]
async fn an_unwind_without_end_is_waited_for_not_panicked_at() {
    let group = TaskGroup::builder("group", 1).unwind(Duration::MAX).build().unwrap();
    let task = group.submit(Context::new(), |cx| async move { cx.cancelled().await });
    let task = task.await.unwrap();
    settle().await;
    let report = group.drain(Instant::now()).await;
    assert_eq!((report.cancelled.len(), report.abandoned.len()), (1, 0));
    assert!(task.await.is_ok());
}
