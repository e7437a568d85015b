//! Graceful Shutdown.

use std::time::Duration;

use sluicegate_dispatch::{Ordering, PoolSettings};
use sluicegate_server::NotPublished;
use sluicegate_server::health::Probe;
use sluicegate_server::settings::Settings;
use sluicegate_testkit::scripted::rig::{Rig, done_after, fails_for, pool};
use sluicegate_testkit::scripted::{Step, grouped};
use tokio::time::Instant;

use super::daemon;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn shut_down(rig: &Rig) -> Duration {
    let now = Instant::now();
    let report = rig.router.shutdown(now + seconds(25), now + seconds(55)).await;
    assert_eq!((report.unsettled, report.abandoned.len()), (0, 0));
    now.elapsed()
}

// § Step 1: scheduled tasks stop, and nothing is accepted any more.
// § 25 seconds for consumers and 30 for pools are one deadline of 55.
#[tokio::test]
async fn step_1_nothing_new() {
    assert_eq!(Settings::default().server.drain, seconds(55));
    let (daemon, _folder) = daemon("").await;
    daemon.begin().await.expect("it begins");
    let report = daemon.shutdown().await;
    assert_eq!(report, Default::default());
    assert_eq!(daemon.publish(None, Vec::new()).await, Err(NotPublished::ShuttingDown));
    assert!(!daemon.health(Probe::Ready).is_ok() && daemon.health(Probe::Live).is_ok());
}

// § Step 2: consumers stop; a receive that waits ends at once.
#[tokio::test(start_paused = true)]
async fn step_2_consumers_stop() {
    let rig = Rig::new([]).await;
    rig.pass(1).await;
    assert!(shut_down(&rig).await < seconds(1));
    rig.hand_out([grouped("late", "A", "g")]);
    rig.pass(60).await;
    assert_eq!(rig.facts.of("received").len(), 0);
}

// § Step 2: one that does not stop is left after 25 seconds.
#[tokio::test(start_paused = true)]
async fn step_2_has_a_limit() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(Step::Hang);
    // A batch that waits for room that never comes is given up, not waited for.
    rig.hand_out((0..200).map(|n| grouped(&format!("m{n}"), "A", "g")));
    rig.pass(1).await;
    assert!(shut_down(&rig).await <= seconds(56));
    assert_eq!(rig.sorted().len(), 200);
}

// § Step 3: what waits in pools goes back, none of it is dropped. #4
// § Step 3: what runs ends, for up to 30 seconds and more; it is not interrupted before.
#[tokio::test(start_paused = true)]
async fn step_3_pools_drain() {
    let rig = Rig::new([pool("A", 1, Ordering::Strict)]).await;
    rig.executor.on("runs", [done_after(29_000)]);
    rig.executor.on("retries", [fails_for(Some(500))]);
    rig.hand_out([grouped("retries", "A", "h"), grouped("after", "A", "h")]);
    rig.settle_down().await;
    rig.hand_out([grouped("runs", "A", "g"), grouped("waits", "A", "g")]);
    rig.executor.until_started(2).await;
    rig.settle_down().await;
    let took = shut_down(&rig).await;
    assert!(took >= seconds(28) && took < seconds(30), "{took:?}");
    let wanted = [
        "after again 0s draining #0",
        "retries again 0s draining #1",
        "runs gone",
        "waits again 0s draining #0",
    ];
    assert_eq!(rig.sorted(), wanted);
}

// § Step 3: at the deadline what still runs is cancelled.
// § Step 4: whatever is left goes back to its queue.
#[tokio::test(start_paused = true)]
async fn step_4_the_rest_goes_back() {
    let rig = Rig::new([pool("A", 2, Ordering::Batch)]).await;
    rig.executor.otherwise(Step::Hang);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "h"), grouped("m3", "A", "g")]);
    rig.executor.until_started(2).await;
    rig.settle_down().await;
    let took = shut_down(&rig).await;
    assert!(took >= seconds(55) && took < seconds(57), "{took:?}");
    let wanted = ["m1 again 0s draining #0", "m2 again 0s draining #0", "m3 again 0s draining #0"];
    assert_eq!(rig.sorted(), wanted);
    assert_eq!(rig.router.in_flight(), 0);
}
