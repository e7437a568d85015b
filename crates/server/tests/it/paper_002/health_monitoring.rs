//! Health Monitoring & Consumer Restart.

use sluicegate_dispatch::PoolSettings;
use sluicegate_server::chores;
use sluicegate_server::health::{Inputs, Probe, Seen, Stall, Status, assess};
use sluicegate_testkit::scripted::rig::{Rig, done_after};
use sluicegate_testkit::scripted::{ScriptedSource, delivery, grouped};

use super::{daemon, warnings};

// § Consumers are looked at every 60 seconds.
// § Draining resources are cleaned up every 10 seconds.
#[test]
fn how_often() {
    assert_eq!(chores::STALLED_SOURCES.as_secs(), 60);
    assert_eq!(chores::LEFTOVERS.as_secs(), 10);
}

// § An unhealthy consumer is replaced by a brand new one for the same queue.
// § Its messages stay known, so that nothing runs twice.
#[tokio::test(start_paused = true)]
async fn a_stalled_consumer_is_replaced() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.on("m1", [done_after(300_000)]);
    rig.hand_out([grouped("m1", "A", "g")]);
    rig.executor.until_started(1).await;
    rig.source.hang(true);
    rig.pass(85).await;
    assert_eq!(rig.router.stalled_queues(), ["q".into()]);
    let fresh = ScriptedSource::new();
    let stalled = rig.router.source("q").expect("it is there");
    assert!(rig.router.restart_queue("q", &stalled, fresh.clone()).await.expect("sound"));
    assert_eq!(rig.router.stalled_queues().len(), 0);
    fresh.hand_out(vec![delivery(grouped("m1", "A", "g")), delivery(grouped("m2", "A", "h"))]);
    fresh.until_settled(2).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m2#1"]);
}

// § A drained pool and a stopped consumer are removed when they are done, not before.
#[tokio::test(start_paused = true)]
async fn leftovers_are_cleaned_up() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.on("m1", [done_after(30_000)]);
    rig.hand_out([grouped("m1", "A", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_pool("A");
    rig.router.remove_queue("q", tokio::time::Instant::now()).await;
    assert_eq!(rig.router.clean_up().await, 2);
    rig.source.until_settled(1).await;
    rig.settle_down().await;
    assert_eq!(rig.router.clean_up().await, 0);
    assert_eq!(rig.router.pool_views().len(), 0);
}

// § A restart of a queue that is not configured fails, and is a critical warning.
#[tokio::test]
async fn a_restart_that_fails() {
    let (daemon, _folder) = daemon("").await;
    daemon.begin().await.expect("it begins");
    chores::restart(&daemon, &"nowhere".into()).await;
    let wanted = ["CONSUMER_RESTART WARNING nowhere", "CONSUMER_RESTART_FAILED CRITICAL nowhere"];
    assert_eq!(warnings(&daemon), wanted);
}

// § Unhealthy is having work and completing none; idle is healthy. #17
#[tokio::test(start_paused = true)]
async fn idle_is_healthy() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    let seen = Seen::of(&rig.router, &Default::default());
    assert_eq!((seen.in_flight, seen.pools.len()), (0, 1));
    let idle = Inputs { started: true, ..Inputs::default() };
    assert_eq!(assess(Probe::Overall, &idle).status, Status::Up);
    let stall = Stall::NotStarting { pool: "A".into(), since: std::time::Duration::from_secs(90) };
    let stuck = Inputs { stalls: vec![stall], ..idle };
    assert_eq!(assess(Probe::Overall, &stuck).status, Status::Down);
}
