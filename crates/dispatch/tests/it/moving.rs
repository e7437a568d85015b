//! Pools that go while messages are on their way to them. An observer stands between the finding of a pool and the
//! admission: what happens there happens at the worst moment.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluicegate_dispatch::{Fact, Observer, Ordering, PoolSettings, Router};
use sluicegate_testkit::scripted::rig::{Rig, done_after, pool};
use sluicegate_testkit::scripted::{Step, grouped, message};
use tokio::time::Instant;

type Act = Box<dyn Fn(&Router) + Send + Sync>;

/// Does something when a message names a pool that does not exist.
#[derive(Default)]
struct OnUnknown {
    router: OnceLock<Router>,
    act: OnceLock<Act>,
}

impl Observer for OnUnknown {
    fn observe(&self, fact: &Fact<'_>) {
        if matches!(fact, Fact::UnknownPool { .. })
            && let (Some(router), Some(act)) = (self.router.get(), self.act.get())
        {
            act(router);
        }
    }
}

async fn rig(act: impl Fn(&Router) + Send + Sync + 'static) -> Rig {
    let observer = Arc::<OnUnknown>::default();
    let pools = [PoolSettings::new("A", 1), PoolSettings::default_pool()];
    let rig = Rig::observed(pools, Some(observer.clone())).await;
    assert!(observer.router.set(rig.router.clone()).is_ok());
    assert!(observer.act.set(Box::new(act)).is_ok());
    rig
}

/// docs/rules.md#pool-5
#[tokio::test(start_paused = true)]
async fn a_pool_that_goes_while_messages_are_on_their_way_to_it_holds_none() {
    let rig = rig(|router| {
        router.remove_pool("A");
    })
    .await;
    rig.hand_out([message("m1", "A"), message("m2", "A"), message("unknown", "NONE")]);
    rig.pass(1).await;
    let mut started = rig.executor.started();
    started.sort();
    assert_eq!(started, ["m1#1", "m2#1", "unknown#1"]);
    assert_eq!(rig.router.in_flight(), 0);
}

/// docs/rules.md#route-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_late_receiver_brings_goes_back_when_the_router_ends() {
    let (begun, hear) = std::sync::mpsc::sync_channel(8);
    let (go_on, wait) = std::sync::mpsc::sync_channel::<()>(1);
    let wait = std::sync::Mutex::new(wait);
    let rig = rig(move |_| {
        begun.send(()).expect("somebody hears");
        wait.lock().expect("not poisoned").recv().expect("told to go on");
    })
    .await;
    rig.hand_out([message("m1", "A"), message("m2", "A"), message("unknown", "NONE")]);
    while hear.try_recv().is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let now = Instant::now();
    let later = async {
        // Long enough for everything to be closed, and less than the last settlements may take.
        tokio::time::sleep(Duration::from_millis(300)).await;
        go_on.send(()).expect("it waits");
    };
    let (ended, ()) = tokio::join!(rig.router.shutdown(now, now), later);
    assert_eq!(ended.unsettled, 0);
    let back = ["m1", "m2", "unknown"].map(|id| format!("{id} again 0s draining #0"));
    assert_eq!(rig.sorted(), back);
}

/// docs/rules.md#route-4
#[tokio::test(start_paused = true)]
async fn a_message_that_is_read_ahead_is_acknowledged_by_hand() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m00", [Step::Hang]);
    let all: Vec<_> =
        (0..80).map(|n| grouped(&format!("m{n:02}"), "A", &format!("g{n}"))).collect();
    all.chunks(10).for_each(|batch| rig.hand_out(batch.to_vec()));
    rig.settle_down().await;
    assert_eq!(rig.router.ack("m70"), Ok(()));
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["m70 gone"]);
    assert_eq!(rig.router.in_flight(), 79);
}

/// docs/rules.md#strict-6
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_group_in_another_pool_says_so() {
    let rig = Rig::new([pool("S", 4, Ordering::Strict), PoolSettings::default_pool()]).await;
    rig.executor.on("m1", [done_after(5_000)]);
    rig.hand_out([grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_pool("S");
    rig.hand_out([grouped("m2", "S", "g"), grouped("m3", "S", "g")]);
    rig.settle_down().await;
    let why = rig.router.message("m2").and_then(|view| view.why).expect("it waits");
    assert_eq!(why.reason, "group_busy");
    assert_eq!(rig.router.ack("m2"), Ok(()));
    rig.source.until_settled(3).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m3#1"]);
}

/// docs/rules.md#strict-6. From a source that keeps no order (RabbitMQ, NATS), the next message of the group may
/// be on its way while those before it wait in the pool.
#[tokio::test(start_paused = true)]
async fn what_waits_in_a_strict_pool_that_goes_is_not_overtaken() {
    let pools = [pool("S", 1, Ordering::Strict), pool("DEFAULT-POOL", 4, Ordering::Strict)];
    let rig = Rig::new(pools).await;
    rig.executor.on("busy", [done_after(5_000)]);
    rig.hand_out([grouped("busy", "S", "other"), grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.remove_pool("S");
    rig.hand_out([grouped("m2", "S", "g")]);
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["busy#1", "m1#1", "m2#1"]);
}

/// docs/rules.md#strict-6. The same when it comes back.
#[tokio::test(start_paused = true)]
async fn what_waits_in_the_default_pool_is_not_overtaken_when_its_own_comes_back() {
    let default = pool("DEFAULT-POOL", 1, Ordering::Strict);
    let rig = Rig::new([default]).await;
    rig.executor.on("busy", [done_after(5_000)]);
    rig.hand_out([grouped("busy", "T", "other"), grouped("m1", "S", "g")]);
    rig.executor.until_started(1).await;
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound settings");
    rig.hand_out([grouped("m2", "S", "g")]);
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["busy#1", "m1#1", "m2#1"]);
}
