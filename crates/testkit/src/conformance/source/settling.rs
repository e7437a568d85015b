//! Settling: in batches, each by its own receipt, with an answer for each; and counting.

use std::time::Duration;

use sluicegate_dispatch::{Depth, FoundState, Reason, Settle, Settled, Settlement};
use tokio::time::Instant;

use super::stage::{Stage, again, id, ids, publication};
use super::{Check, any};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "a batch is settled with different endings, and answered in order",
        needs: any,
        run: |stage| Box::pin(mixed(stage)),
    },
    Check { name: "the same receipt settles once", needs: any, run: |stage| Box::pin(once(stage)) },
    Check { name: "it knows how many it holds", needs: any, run: |stage| Box::pin(depth(stage)) },
    Check {
        name: "it finds messages and says where they are",
        needs: |abilities| abilities.finds,
        run: |stage| Box::pin(found(stage)),
    },
];

async fn mixed(stage: Stage) {
    stage.publish_ids(&["m0", "m1", "m2", "m3", "m4"]).await;
    let received = stage.receive(5).await;
    stage.done(&received[3]).await;
    let begun = Instant::now();
    let delay = stage.window() / 2;
    let endings =
        [Settlement::Ack, again(delay), again(Duration::ZERO), Settlement::Ack, Settlement::Ack];
    let settle = |(delivery, settlement): (&sluicegate_dispatch::Delivery, Settlement)| Settle {
        receipt: delivery.receipt.clone(),
        settlement,
    };
    let all = received.iter().zip(endings).map(settle).collect();
    let answers = stage.source().settle(all).await.expect("it works");
    let expected = [true, true, true, false, true];
    let expected = expected.map(|done| if done { Settled::Done } else { Settled::Stale });
    assert_eq!(answers, expected);
    let back = stage.receive_one().await;
    assert_eq!(id(&back), "m2");
    stage.done(&back).await;
    assert_eq!(id(&stage.receive_not_before(begun + delay).await), "m1");
}

async fn once(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let received = stage.receive(2).await;
    let gone = Settle { receipt: received[0].receipt.clone(), settlement: Settlement::Ack };
    let settled = stage.source().settle(vec![gone.clone(), gone.clone()]).await.expect("it works");
    assert_eq!(settled, [Settled::Done, Settled::Stale]);
    let (left, right) =
        tokio::join!(stage.source().settle(vec![gone.clone()]), stage.source().settle(vec![gone]));
    assert_eq!(
        [left.expect("it works"), right.expect("it works")],
        [[Settled::Stale], [Settled::Stale]]
    );
    stage.done(&received[1]).await;
}

async fn depth(stage: Stage) {
    let depth = || async { stage.source().depth().await.expect("it works") };
    assert_eq!(depth().await, Depth::default());
    let mut late = publication("late");
    late.delay = Duration::from_secs(3600);
    let is_late = u64::from(stage.abilities.schedules);
    let soon = ["m1", "m2", "m3"].map(publication);
    stage.publish(soon.into_iter().chain((is_late > 0).then_some(late)).collect()).await;
    let delayed = u64::from(stage.abilities.counts_delayed);
    let mut seen = depth().await;
    let patience = Instant::now() + Duration::from_secs(30);
    while !stage.abilities.counts_at_once && seen.waiting < 3 && Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen = depth().await;
    }
    assert_eq!((seen.waiting, seen.out), (3 + is_late * (1 - delayed), 0));
    assert_eq!(seen.delayed, delayed * is_late);
    let received = stage.receive(3).await;
    assert_eq!(depth().await.out, 3);
    stage.done(&received[0]).await;
    stage.bring_back(&received[1], Duration::from_secs(3600)).await;
    let seen = depth().await;
    assert_eq!(seen.out, 1);
    assert_eq!(seen.waiting + seen.delayed, 1 + is_late);
    assert_eq!(seen.delayed, delayed * (1 + is_late));
    stage.done(&received[2]).await;
    assert_eq!(depth().await.out, 0);
}

async fn found(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    assert_eq!(stage.source().find("m9").await.expect("it works"), None);
    let ready = stage.source().find("m1").await.expect("it works").expect("it works");
    assert_eq!((ready.state, ready.attempts), (FoundState::Ready, 0));
    if stage.abilities.schedules {
        found_late(&stage).await;
    }
    let received = stage.receive(2).await;
    assert_eq!(ids(&received), ["m1", "m2"]);
    assert_eq!(
        stage.source().find("m1").await.expect("it works").expect("it works").state,
        FoundState::Out
    );
    stage.done(&received[0]).await;
    assert_eq!(stage.source().find("m1").await.expect("it works"), None);
    let after = Duration::from_secs(60);
    let settlement = Settlement::Retry { after, attempts: 3, reason: Reason::BreakerOpen };
    assert_eq!(stage.settle(&received[1].receipt, settlement).await, Settled::Done);
    let back = stage.source().find("m2").await.expect("it works").expect("it works");
    assert_eq!(back.attempts, 3);
    assert!(
        matches!(back.state, FoundState::Delayed { reason: Reason::BreakerOpen, .. }),
        "{:?}",
        back.state
    );
}

async fn found_late(stage: &Stage) {
    let mut late = publication("late");
    late.delay = Duration::from_secs(3600);
    stage.publish(vec![late.clone()]).await;
    let late_found = stage.source().find("late").await.expect("it works").expect("it works");
    assert_eq!(late_found.body, late.body);
    let FoundState::Delayed { rest, reason } = late_found.state else {
        panic!("{:?}", late_found.state)
    };
    assert_eq!(reason, Reason::Scheduled);
    assert!(rest > Duration::from_secs(3500) && rest <= Duration::from_secs(3601), "{rest:?}");
}
