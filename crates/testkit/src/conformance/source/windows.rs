//! The visibility window: what is out stays out, and what nobody settles comes back.

use sluicegate_dispatch::{Settled, Settlement};
use tokio::time::{Instant, sleep_until};

use super::stage::{Stage, again, id};
use super::{Check, any};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "what is out is not handed out again within its window",
        needs: any,
        run: |stage| Box::pin(hidden(stage)),
    },
    Check {
        name: "what nobody settles comes back with the same id and another receipt",
        needs: any,
        run: |stage| Box::pin(comes_back(stage)),
    },
    Check {
        name: "a receipt of an earlier delivery settles and extends nothing",
        needs: any,
        run: |stage| Box::pin(stale(stage)),
    },
    Check {
        name: "an extension begins the window anew",
        needs: any,
        run: |stage| Box::pin(extended(stage)),
    },
    Check {
        name: "what is settled does not come back after its window",
        needs: any,
        run: |stage| Box::pin(gone(stage)),
    },
];

async fn hidden(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let begun = Instant::now();
    assert_eq!(stage.next_ids(2).await, ["m1", "m2"]);
    assert_eq!(id(&stage.receive_not_before(begun + stage.window()).await), "m1");
}

async fn comes_back(stage: Stage) {
    stage.publish_ids(&["m1", "m2", "m3"]).await;
    let first = stage.receive(3).await;
    let second = stage.receive(3).await;
    for (first, second) in first.iter().zip(&second) {
        assert_eq!((id(first), &first.broker_id), (id(second), &second.broker_id));
        assert_ne!(first.receipt, second.receipt);
    }
    let distinct: std::collections::BTreeSet<_> = first.iter().map(|d| &d.broker_id).collect();
    assert_eq!(distinct.len(), 3);
    stage.all_done(&second).await;
}

async fn stale(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    let first = stage.receive_one().await;
    let second = stage.receive_one().await;
    assert_eq!(stage.extend(&first.receipt).await, Settled::Stale);
    assert_eq!(stage.settle(&first.receipt, Settlement::Ack).await, Settled::Stale);
    assert_eq!(stage.settle(&first.receipt, again(stage.window() * 100)).await, Settled::Stale);
    assert_eq!(stage.settle(&second.receipt, again(stage.window() / 10)).await, Settled::Done);
    assert_eq!(stage.settle(&second.receipt, Settlement::Ack).await, Settled::Stale);
    let third = stage.receive_one().await;
    assert_eq!(third.broker_id, first.broker_id);
    stage.done(&third).await;
}

async fn extended(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let received = stage.receive(2).await;
    let mut last = Instant::now();
    for _ in 0..4 {
        sleep_until(last + stage.window() / 2).await;
        last = Instant::now();
        let receipts = received.iter().map(|delivery| delivery.receipt.clone()).collect();
        let settled = stage.source().extend(receipts).await.expect("it works");
        assert_eq!(settled, [Settled::Done, Settled::Done]);
    }
    stage.done(&received[0]).await;
    let again = stage.receive_not_before(last + stage.window()).await;
    assert_eq!(id(&again), "m2");
    assert_eq!(stage.extend(&received[0].receipt).await, Settled::Stale);
    stage.done(&again).await;
}

async fn gone(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let received = stage.receive(2).await;
    stage.all_done(&received).await;
    stage.expect_nothing_until(Instant::now() + stage.window() * 2).await;
}
