//! Settlement without a word at every point: what was answered holds, and the rest is whole or not there.

use std::time::Duration;

use futures_util::FutureExt;
use sluicegate_dispatch::{Settled, Source};
use sluicegate_testkit::conformance::source::publication;

use crate::stage::{Stage, again, ids};

#[tokio::test]
async fn a_crash_after_publishing_keeps_all() {
    let stage = Stage::open().await;
    stage.publish(&["m1", "m2"]).await;
    let stage = stage.crash().await;
    assert_eq!(stage.take_ids(9).await, ["m1", "m2"]);
}

#[tokio::test]
async fn a_crash_while_publishing_keeps_all_or_none() {
    for round in 0..20u64 {
        let stage = Stage::open().await;
        let sent = (0..50).map(|n| publication(&format!("m{n}"))).collect();
        let publish = stage.queue.publish(sent);
        let cut = tokio::time::timeout(Duration::from_micros(round * 100), publish).await;
        let stage = stage.crash().await;
        // A write that is on its way when its caller is gone is done all the same.
        stage.store.flush().await.unwrap();
        let count = stage.queue.depth().await.unwrap().waiting;
        let expected: &[u64] = if cut.is_ok() { &[50] } else { &[0, 50] };
        assert!(expected.contains(&count), "{count} after {} us", round * 100);
    }
}

#[tokio::test]
async fn a_crash_after_settling_keeps_what_was_settled() {
    let stage = Stage::open().await;
    stage.publish(&["gone", "soon", "late", "out"]).await;
    let received = stage.take(9).await;
    stage.done(&received[0]).await;
    assert_eq!(stage.settle(&received[1], again(Duration::ZERO, 2)).await, Settled::Done);
    assert_eq!(stage.settle(&received[2], again(Duration::from_secs(600), 1)).await, Settled::Done);
    let stage = stage.crash().await;
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["soon", "out"]);
    assert_eq!(received.iter().map(|d| d.attempts).collect::<Vec<_>>(), [2, 0]);
    let depth = stage.queue.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.delayed, depth.out), (0, 1, 2));
}

#[tokio::test]
async fn a_crash_while_settling_settles_or_does_not() {
    for round in 0..20u64 {
        let stage = Stage::open().await;
        stage.publish(&["m1", "m2", "m3"]).await;
        let received = stage.take(3).await;
        let settle = received.iter().map(|delivery| sluicegate_dispatch::Settle {
            receipt: delivery.receipt.clone(),
            settlement: sluicegate_dispatch::Settlement::Ack,
        });
        let settle = stage.queue.settle(settle.collect());
        let cut = tokio::time::timeout(Duration::from_micros(round * 50), settle).await;
        let stage = stage.crash().await;
        stage.store.flush().await.unwrap();
        let left = stage.queue.depth().await.unwrap().waiting;
        let expected: &[u64] = if cut.is_ok() { &[0] } else { &[0, 3] };
        assert!(expected.contains(&left), "{left} after {} us", round * 50);
    }
}

#[tokio::test]
async fn numbers_are_not_used_twice() {
    let stage = Stage::open().await;
    stage.publish(&["m1", "m2"]).await;
    let received = stage.take(9).await;
    let last = received[1].broker_id.clone();
    stage.done(&received[0]).await;
    stage.done(&received[1]).await;
    let stage = stage.crash().await;
    stage.publish(&["m3"]).await;
    let received = stage.take(9).await;
    assert_ne!(received[0].broker_id, last);
    assert_eq!(ids(&received), ["m3"]);
}

#[tokio::test]
async fn a_dropped_settle_is_done_all_the_same_or_not_at_all() {
    let stage = Stage::open().await;
    stage.publish(&["m1"]).await;
    let received = stage.take(1).await;
    let gone = sluicegate_dispatch::Settle {
        receipt: received[0].receipt.clone(),
        settlement: sluicegate_dispatch::Settlement::Ack,
    };
    // Polled once, it is on its way.
    let settle = stage.queue.settle(vec![gone.clone()]);
    assert!(settle.now_or_never().is_none());
    stage.store.flush().await.unwrap();
    assert_eq!(stage.queue.settle(vec![gone]).await.unwrap(), [Settled::Stale]);
    assert_eq!(stage.queue.depth().await.unwrap(), sluicegate_dispatch::Depth::default());
}
