//! The intake: what waits for one pool hides nothing from another, and one settlement holds up no other.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Ordering, Outcome, PoolSettings, Publication, QueueSettings};
use sluicegate_testkit::FakeSource;
use sluicegate_testkit::scripted::rig::{QUEUE, Rig, answers, done_after, fails, pool};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped, message};

fn many(count: usize, pool: &str) -> impl Iterator<Item = sluicegate_dispatch::Message> {
    (0..count).map(move |n| grouped(&format!("{pool}{n:04}"), pool, &format!("{pool}{n}")))
}

/// docs/rules.md#route-4
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_busy_pool_does_not_hide_what_an_idle_one_could_run() {
    let rig = Rig::new([PoolSettings::new("BUSY", 4), PoolSettings::new("IDLE", 4)]).await;
    rig.executor.otherwise(done_after(100));
    let busy: Vec<_> = many(1200, "BUSY").collect();
    busy.chunks(10).for_each(|batch| rig.hand_out(batch.to_vec()));
    rig.hand_out([message("idle", "IDLE")]);
    rig.pass(1).await;
    assert!(rig.executor.started().contains(&"idle#1".to_owned()), "it waits behind the busy pool");
    // Nothing goes back, and the others run in their order.
    rig.source.until_settled(1201).await;
    assert_eq!(rig.facts.of("pool-full").len(), 0);
    let started = rig.executor.started();
    let busy: Vec<_> = started.iter().filter(|one| one.starts_with("BUSY")).collect();
    assert!(busy.is_sorted(), "{busy:?}");
    assert!(rig.sorted().iter().all(|settled| settled.ends_with("gone")));
}

/// docs/rules.md#route-4
#[tokio::test(start_paused = true)]
async fn a_full_window_stops_receiving_and_goes_back_at_once_when_the_router_ends() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let (source, queue) = (ScriptedSource::new(), QueueSettings { window: 20, ..QUEUE });
    assert!(rig.router.add_queue("small", queue, source.clone()).await.expect("a queue"));
    rig.executor.otherwise(Step::Hang);
    for batch in many(200, "A").collect::<Vec<_>>().chunks(10) {
        source.hand_out(batch.iter().cloned().map(delivery).collect());
    }
    rig.pass(5).await;
    // One runs, fifty wait, and no more than the window is read ahead.
    let here = rig.router.in_flight();
    assert!((61..=71).contains(&here), "{here} are here");
    assert_eq!(source.settlements().len(), 0);
    let now = tokio::time::Instant::now();
    rig.router.shutdown(now, now + Duration::from_secs(1)).await;
    let settled = source.settlements();
    assert_eq!(settled.len(), here);
    assert!(settled.iter().all(|one| one.contains("again 0s draining #0")), "{settled:?}");
}

/// docs/rules.md#settle-5
#[tokio::test(start_paused = true)]
async fn what_is_done_and_cannot_be_settled_is_bounded_by_what_its_pool_may_hold() {
    let rig = Rig::new([PoolSettings::new("A", 2), PoolSettings::new("BIG", 100)]).await;
    rig.source.fail_settles(1_000_000);
    for batch in many(500, "A").collect::<Vec<_>>().chunks(10) {
        rig.hand_out(batch.to_vec());
    }
    rig.pass(15).await;
    let calls = rig.executor.started().len();
    assert!(calls <= 52, "{calls} calls whose settlement is not durable");
    rig.source.fail_settles(0);
    rig.source.until_settled(500).await;
    assert_eq!(rig.executor.started().len(), 500);
}

/// docs/rules.md#settle-4
#[tokio::test(start_paused = true)]
async fn acks_wait_for_nothing_that_is_parked() {
    let rig = Rig::new([PoolSettings { max_attempts: 1, ..PoolSettings::new("A", 4) }]).await;
    rig.parked.fail(1_000_000);
    rig.executor.on("bad", [fails()]);
    rig.hand_out([grouped("bad", "A", "b"), grouped("m1", "A", "g"), grouped("m2", "A", "h")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["m1 gone", "m2 gone"]);
    rig.parked.fail(0);
    rig.source.until_settled(3).await;
    assert_eq!(rig.parked.words(), ["bad exhausted"]);
}

/// docs/rules.md#strict-6
#[tokio::test(start_paused = true)]
async fn order_holds_while_a_strict_pool_goes_and_comes_back() {
    let rig = Rig::new([pool("S", 4, Ordering::Strict), PoolSettings::default_pool()]).await;
    rig.executor.on("m1", [done_after(5_000)]);
    rig.hand_out([grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_pool("S");
    rig.hand_out([grouped("m2", "S", "g"), grouped("other", "S", "h")]);
    rig.pass(1).await;
    assert_eq!(rig.executor.started(), ["m1#1", "other#1"], "m2 waits for m1");
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound");
    rig.hand_out([grouped("m3", "S", "g")]);
    rig.pass(1).await;
    assert_eq!(rig.executor.started(), ["m1#1", "other#1"]);
    rig.source.until_settled(4).await;
    assert_eq!(rig.executor.started(), ["m1#1", "other#1", "m2#1", "m3#1"]);
}

/// docs/rules.md#pool-5
#[tokio::test(start_paused = true)]
async fn what_a_removed_pool_left_goes_to_it_again_when_it_comes_back() {
    let rig = Rig::new([PoolSettings { concurrency: 1, ..PoolSettings::default_pool() }]).await;
    rig.executor.on("first", [Step::Hang]);
    rig.hand_out([grouped("first", "X", "x")]);
    rig.executor.until_started(1).await;
    rig.hand_out([grouped("m1", "P", "g"), grouped("m2", "P", "g")]);
    rig.settle_down().await;
    rig.router.set_pool(PoolSettings::new("P", 1)).expect("sound");
    rig.source.until_settled(2).await;
    let all = ["m1 again 0s draining #0", "m2 again 0s draining #0"];
    assert_eq!(rig.sorted(), all);
}

/// docs/rules.md#pool-4
#[tokio::test(start_paused = true)]
async fn messages_of_a_paused_host_hold_no_more_than_half_of_a_pool() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("A0000", [answers(Outcome::Throttled { after: Duration::from_secs(600) })]);
    for batch in many(60, "A").collect::<Vec<_>>().chunks(10) {
        rig.hand_out(batch.to_vec());
    }
    rig.pass(5).await;
    let back = rig.sorted().iter().filter(|one| one.contains("throttled #0")).count();
    // One was throttled, 25 rest, and the others went back for the rest of the pause.
    assert_eq!((back, rig.router.in_flight()), (35, 25));
}

/// docs/rules.md#throttle-1
#[tokio::test(start_paused = true)]
async fn a_pause_is_listed_and_lifted() {
    let rig = Rig::new([PoolSettings::new("A", 1), PoolSettings::new("B", 1)]).await;
    let throttled = Outcome::Throttled { after: Duration::from_secs(600) };
    rig.executor.on("m1", [answers(throttled)]);
    rig.hand_out([grouped("m1", "A", "g")]);
    rig.source.until_settled(1).await;
    rig.hand_out([grouped("m2", "A", "h")]);
    rig.pass(1).await;
    assert_eq!(rig.executor.started(), ["m1#1"]);
    let pauses = rig.router.pauses();
    assert_eq!((pauses.len(), &*pauses[0].pool), (1, "A"));
    let host = pauses[0].host.to_string();
    assert!(!rig.router.lift_pause(&host, Some("B")) && !rig.router.lift_pause("nobody", None));
    assert!(rig.router.lift_pause(&host, Some("A")));
    rig.settle_down().await;
    assert_eq!(rig.executor.started(), ["m1#1", "m2#1"]);
    assert_eq!(rig.router.pauses(), []);
}

/// docs/rules.md#pool-4
#[tokio::test(start_paused = true)]
async fn what_went_back_for_a_pause_comes_soon_after_it_is_lifted() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let source = Arc::new(FakeSource::new(Duration::from_secs(30)));
    assert!(rig.router.add_queue("fake", QUEUE, source.clone()).await.expect("a queue"));
    let throttled = Outcome::Throttled { after: Duration::from_secs(600) };
    rig.executor.on("A0000", [answers(throttled)]);
    let publication = |message| Publication { message, body: "".into(), delay: Duration::ZERO };
    source.push(many(60, "A").map(publication));
    rig.pass(5).await;
    assert_eq!(rig.executor.started(), ["A0000#1"]);
    let host = rig.router.pauses()[0].host.to_string();
    assert!(rig.router.lift_pause(&host, None));
    rig.pass(60).await;
    // All but the one that was throttled itself.
    assert_eq!((rig.executor.started().len(), source.len()), (60, 1));
}
