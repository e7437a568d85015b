//! Pools that change while they work.

use std::time::Duration;

use sluicegate_dispatch::{AckError, MessageState, Ordering, PoolSettings};
use sluicegate_testkit::scripted::grouped;

use sluicegate_testkit::scripted::rig::{Rig, done_after, pool};

fn many(count: usize) -> impl Iterator<Item = sluicegate_dispatch::Message> {
    (0..count).map(|n| grouped(&format!("m{n}"), "A", &format!("g{n}")))
}

/// docs/rules.md#pool-2
#[tokio::test(start_paused = true)]
async fn concurrency_grows_at_once_and_shrinks_as_work_ends() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.otherwise(done_after(1_000));
    rig.hand_out(many(40));
    rig.settle_down().await;
    assert_eq!(rig.executor.running(), 2);
    rig.router.set_pool(PoolSettings::new("A", 5)).expect("sound");
    rig.settle_down().await;
    assert_eq!(rig.executor.running(), 5);
    rig.router.set_pool(PoolSettings::new("A", 1)).expect("sound");
    rig.settle_down().await;
    assert_eq!(rig.executor.running(), 5);
    rig.pass(2).await;
    assert_eq!(rig.executor.running(), 1);
    assert!(rig.router.set_pool(PoolSettings::new("A", 0)).is_err());
    rig.source.until_settled(40).await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_holds_and_goes_at_once() {
    let limited = |rate| PoolSettings { rate_limit_per_minute: rate, ..PoolSettings::new("A", 40) };
    let rig = Rig::new([limited(Some(60))]).await;
    rig.hand_out(many(30));
    rig.pass(9).await;
    let ran = rig.executor.started().len();
    assert!((9..=11).contains(&ran), "{ran}");
    let waiting = rig.router.message("m29").and_then(|message| message.why).expect("it waits");
    assert_eq!(waiting.reason, "rate_limited");
    assert!(waiting.rest.is_some_and(|rest| rest <= Duration::from_secs(1)));
    rig.router.set_pool(limited(None)).expect("sound");
    rig.settle_down().await;
    assert_eq!(rig.executor.started().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn sources_hear_which_pools_are_strict() {
    let rig = Rig::new([pool("S", 1, Ordering::Strict), pool("B", 1, Ordering::Batch)]).await;
    let strict = || {
        let all = rig.source.strict_pools();
        all.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(strict(), ["S"]);
    rig.router.set_pool(pool("B", 1, Ordering::Strict)).expect("sound");
    assert_eq!(strict(), ["B", "S"]);
    rig.router.remove_pool("S");
    // What it may still run stays in order.
    assert_eq!(strict(), ["B", "S"]);
    rig.router.clean_up().await;
    assert_eq!(strict(), ["B"]);
}

#[tokio::test(start_paused = true)]
async fn tenants_share_a_pool() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(done_after(100));
    let of = |tenant: &str, n: usize| {
        let mut message = grouped(&format!("{tenant}{n}"), "A", &format!("{tenant}{n}"));
        message.tenant = Some(tenant.into());
        message
    };
    rig.hand_out((0..20).map(|n| of("a", n)));
    rig.hand_out([of("b", 0)]);
    rig.source.until_settled(21).await;
    let at = rig.executor.started().iter().position(|id| id == "b0#1").expect("it ran");
    assert!(at <= 2, "tenant b waited for {at} of tenant a");
}

/// Its items are numbered anew in each pool of a code: what is done to a message of one must not reach
/// one of the next.
#[tokio::test(start_paused = true)]
async fn a_message_of_a_pool_that_went_is_not_taken_for_one_of_its_successor() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.otherwise(done_after(10_000));
    rig.hand_out([grouped("old1", "A", "g1"), grouped("old2", "A", "g2")]);
    rig.executor.until_started(2).await;
    rig.router.remove_pool("A");
    rig.router.set_pool(PoolSettings::new("A", 1)).expect("sound");
    rig.hand_out([grouped("new1", "A", "g3"), grouped("new2", "A", "g4")]);
    rig.executor.until_started(3).await;
    assert_eq!(rig.router.ack("old2"), Err(AckError::Busy), "it runs");
    assert_eq!(rig.router.message("new2").expect("it is here").state, MessageState::Waiting);
    rig.source.until_settled(4).await;
    assert_eq!(rig.executor.started(), ["old1#1", "old2#1", "new1#1", "new2#1"]);
}
