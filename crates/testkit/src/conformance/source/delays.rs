//! Delays: kept, exact at the lower end, and never overwritten.

use std::collections::BTreeMap;

use sluicegate_dispatch::{Reason, Settled, Settlement};
use tokio::time::Instant;

use super::stage::{Stage, again, id, publication};
use super::{Check, any};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a delivery that is handed back comes after its delay, not before",
        needs: any,
        run: |stage| Box::pin(honoured(stage)),
    },
    Check {
        name: "a delay is not overwritten",
        needs: any,
        run: |stage| Box::pin(not_overwritten(stage)),
    },
    Check {
        name: "without a delay it comes at once",
        needs: any,
        run: |stage| Box::pin(at_once(stage)),
    },
    Check {
        name: "a first delivery can be delayed",
        needs: |abilities| abilities.schedules,
        run: |stage| Box::pin(scheduled(stage)),
    },
    Check {
        name: "many delays end each at its time",
        needs: any,
        run: |stage| Box::pin(each_at_its_time(stage)),
    },
    Check {
        name: "attempts are carried",
        needs: |abilities| abilities.counts_attempts,
        run: |stage| Box::pin(attempts(stage)),
    },
];

async fn honoured(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let received = stage.receive(2).await;
    let (short, long) = (stage.window() / 2, stage.window() * 2);
    let begun = Instant::now();
    stage.bring_back(&received[0], long).await;
    stage.bring_back(&received[1], short).await;
    let second = stage.receive_not_before(begun + short).await;
    assert_eq!(id(&second), "m2");
    stage.done(&second).await;
    // Longer than the window, in which it would come back had it not been settled.
    assert_eq!(id(&stage.receive_not_before(begun + long).await), "m1");
}

async fn not_overwritten(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    let received = stage.receive_one().await;
    let begun = Instant::now();
    let delay = stage.window();
    stage.bring_back(&received, delay).await;
    assert_eq!(stage.settle(&received.receipt, again(delay / 100)).await, Settled::Stale);
    assert_eq!(stage.extend(&received.receipt).await, Settled::Stale);
    stage.done(&stage.receive_not_before(begun + delay).await).await;
}

async fn at_once(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    for _ in 0..5 {
        let received = stage.receive_one().await;
        let begun = Instant::now();
        stage.bring_back(&received, std::time::Duration::ZERO).await;
        let again = stage.receive_one().await;
        assert!(begun.elapsed() < stage.window(), "it came after {:?}", begun.elapsed());
        assert_ne!(again.receipt, received.receipt);
        stage.bring_back(&again, std::time::Duration::ZERO).await;
    }
}

async fn scheduled(stage: Stage) {
    let begun = Instant::now();
    let (mut late, delay) = (publication("late"), stage.window());
    late.delay = delay;
    stage.publish(vec![late, publication("soon")]).await;
    assert_eq!(stage.next_ids(1).await, ["soon"]);
    stage.expect_nothing_until(begun + delay * 3 / 4).await;
    let mut received = stage.receive_one().await;
    // The one that was never settled may have come back by now.
    if id(&received) == "soon" {
        received = stage.receive_one().await;
    }
    assert!(begun.elapsed() >= delay, "it came after {:?}", begun.elapsed());
    assert_eq!((id(&received), received.attempts), ("late".to_owned(), 0));
}

async fn each_at_its_time(stage: Stage) {
    let sent: Vec<_> = (0..10).map(|n| publication(&format!("m{n}"))).collect();
    stage.publish(sent).await;
    let received = stage.receive(10).await;
    let step = stage.window() / 10;
    let mut ends = BTreeMap::new();
    for (n, delivery) in received.iter().rev().enumerate() {
        let delay = step * (n as u32 + 1);
        ends.insert(id(delivery), Instant::now() + delay);
        stage.bring_back(delivery, delay).await;
    }
    while !ends.is_empty() {
        let delivery = stage.receive_one().await;
        let end = ends.remove(&id(&delivery)).expect("it comes once");
        let early = end.saturating_duration_since(Instant::now());
        assert!(early.is_zero(), "{} came {early:?} too early", id(&delivery));
        stage.done(&delivery).await;
    }
}

async fn attempts(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    for attempts in [1, 2, 7] {
        let received = stage.receive_one().await;
        let settlement =
            Settlement::Retry { after: stage.window() / 20, attempts, reason: Reason::Failed };
        assert_eq!(stage.settle(&received.receipt, settlement).await, Settled::Done);
        let back = stage.receive_one().await;
        assert_eq!(back.attempts, attempts);
        stage.bring_back(&back, std::time::Duration::ZERO).await;
    }
    assert_eq!(stage.receive_one().await.attempts, 0);
}
