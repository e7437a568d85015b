//! Queue Consumer Layer. What is of one broker alone is tested with that broker.

use std::time::Duration;

use sluicegate_dispatch::{Delivery, Malformed, PoolSettings};
use sluicegate_testkit::scripted::rig::{Rig, done_after, fails, fails_for};
use sluicegate_testkit::scripted::{delivery, grouped, message};
use tokio::time::Instant;

// § A consumer is unhealthy when it has not polled for 60 seconds, and healthy before its first poll.
#[tokio::test(start_paused = true)]
async fn sixty_seconds_without_a_poll() {
    let rig = Rig::new([]).await;
    assert_eq!(rig.router.stalled_queues().len(), 0);
    rig.hand_out([message("m", "A")]);
    rig.settle_down().await;
    rig.source.hang(true);
    // A poll that was under way ends within 20 seconds.
    rig.pass(58).await;
    assert_eq!(rig.router.stalled_queues().len(), 0);
    rig.pass(25).await;
    assert_eq!(rig.router.stalled_queues().len(), 1);
}

// § Stopping is graceful: what was received is finished and settled.
#[tokio::test(start_paused = true)]
async fn a_stopped_consumer_finishes() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(done_after(5_000));
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_queue("q", Instant::now() + Duration::from_secs(25)).await;
    rig.source.until_settled(2).await;
    assert_eq!(rig.source.settlements(), ["m1 gone", "m2 gone"]);
}

// § A body that cannot be parsed is acked at once. And kept, with its text and why. #13
#[tokio::test(start_paused = true)]
async fn a_malformed_body_is_acked_and_parked() {
    let rig = Rig::new([]).await;
    let malformed = Malformed { why: "id: is missing".to_owned(), raw: "{}".to_owned() };
    rig.deliver([Delivery { message: Err(malformed), ..delivery(message("x", "A")) }]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["x gone"]);
    assert_eq!(rig.parked.words(), ["{} malformed"]);
}

// § A redelivery's receipt replaces the one that is stored.
#[tokio::test(start_paused = true)]
async fn the_latest_receipt_counts() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m", [done_after(100)]);
    rig.hand_out([message("m", "A")]);
    rig.executor.until_started(1).await;
    let mut again = delivery(message("m", "A"));
    again.receipt.handle = Some("r-second".into());
    rig.deliver([again]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["second gone"]);
}

// § The default delay of a nack is 30 seconds, for every source. #19
// § The fast-fail delay is 10 seconds.
// § A custom delay is sent as it is, in the one step that settles. #1
#[tokio::test(start_paused = true)]
async fn the_delays_of_a_nack() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.executor.on("default", [fails()]);
    rig.executor.on("custom", [fails_for(Some(77))]);
    rig.hand_out([
        grouped("default", "A", "g"),
        grouped("fast", "A", "g"),
        grouped("custom", "A", "h"),
    ]);
    rig.source.until_settled(3).await;
    let wanted =
        ["custom again 77s failed #1", "default again 30s failed #1", "fast again 10s cascade #0"];
    assert_eq!(rig.sorted(), wanted);
    rig.pass(1_000).await;
    assert_eq!(rig.sorted().len(), 3, "each was settled once");
}
