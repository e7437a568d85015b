//! Outcome Handling.

use sluicegate_dispatch::{Delivery, Outcome, PoolSettings};
use sluicegate_testkit::scripted::rig::{Rig, answers, done_after, fails, fails_for, rejects};
use sluicegate_testkit::scripted::{Step, delivery, grouped};

/// succeeded, failed, retried, parked
fn counts(rig: &Rig) -> (u64, u64, u64, u64) {
    let views = rig.router.pool_views();
    (views[0].succeeded, views[0].failed, views[0].retried, views[0].parked)
}

async fn one(step: Step) -> Rig {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.executor.on("m", [step]);
    rig.hand_out([grouped("m", "A", "g")]);
    rig.source.until_settled(1).await;
    rig.settle_down().await;
    rig
}

#[tokio::test(start_paused = true)]
async fn every_outcome() {
    let unreachable = || answers(Outcome::Unreachable { cause: "refused".to_owned() });
    #[rustfmt::skip]
    let cases = [
        // § SUCCESS: acked, counted as a success.
        (done_after(5), "m gone", (1, 0, 0, 0)),
        // § ERROR_CONFIG: acked, counted as a failure; and parked. #8
        (rejects(), "m gone", (0, 1, 0, 1)),
        // § ERROR_PROCESS with a delay: nacked with it, not counted as a failure.
        (fails_for(Some(9)), "m again 9s failed #1", (0, 0, 1, 0)),
        // § ERROR_PROCESS without: nacked for 30 seconds.
        (fails(), "m again 30s failed #1", (0, 0, 1, 0)),
        // § ERROR_CONNECTION: nacked for 30 seconds, counted as a failure.
        (unreachable(), "m again 30s failed #1", (0, 1, 0, 0)),
        // § No result at all cannot be; a panic is treated as ERROR_PROCESS without a delay.
        (Step::Panic("oops"), "m again 30s failed #1", (0, 0, 1, 0)),
    ];
    for (step, settled, counted) in cases {
        let rig = one(step.clone()).await;
        assert_eq!(rig.source.settlements(), [settled], "{step:?}");
        assert_eq!(counts(&rig), counted, "{step:?}");
        assert_eq!(rig.router.in_flight(), 0);
    }
}

// § Attempts are unlimited unless the pool says otherwise; then the message is parked. #11
#[tokio::test(start_paused = true)]
async fn attempts() {
    for (max_attempts, before, settled) in
        [(0, 1_000, "m again 30s failed #1001"), (3, 1, "m again 30s failed #2"), (3, 2, "m gone")]
    {
        let rig = Rig::new([PoolSettings { max_attempts, ..PoolSettings::new("A", 4) }]).await;
        rig.executor.on("m", [fails()]);
        rig.deliver([Delivery { attempts: before, ..delivery(grouped("m", "A", "g")) }]);
        rig.source.until_settled(1).await;
        assert_eq!(rig.source.settlements(), [settled]);
        assert_eq!(rig.parked.words().len(), usize::from(settled == "m gone"));
    }
}
