//! Pools that keep order: a later message of a group is not handed out while an earlier one is out,
//! waits or is delayed.

use std::time::Duration;

use sluicegate_dispatch::{FoundState, Order, Ordered};
use tokio::time::Instant;

use super::stage::{Stage, id, ids, publication_in, strict};
use super::{Abilities, Check};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "of a key that is kept in order one message is out",
        needs: keeps_order,
        run: |stage| Box::pin(one_at_a_time(stage)),
    },
    Check {
        name: "a delayed head holds its key, and only that",
        needs: keeps_order,
        run: |stage| Box::pin(delayed_head(stage)),
    },
    Check {
        name: "a head that comes back is before what follows it",
        needs: keeps_order,
        run: |stage| Box::pin(head_comes_back(stage)),
    },
    Check {
        name: "messages without a group are one key",
        needs: keeps_order,
        run: |stage| Box::pin(ungrouped(stage)),
    },
    Check {
        name: "messages without a group are in order with nothing where only groups are",
        needs: |abilities| abilities.keeps_order && abilities.selects,
        run: |stage| Box::pin(ungrouped_apart(stage)),
    },
    Check {
        name: "pools that keep no order hand out several of a group",
        needs: |abilities| abilities.keeps_order && abilities.names_pools,
        run: |stage| Box::pin(other_pools(stage)),
    },
    Check {
        name: "a first delivery that is delayed holds what follows it",
        needs: |abilities| abilities.keeps_order && abilities.schedules,
        run: |stage| Box::pin(scheduled_head(stage)),
    },
    Check {
        name: "order can be switched on and off",
        needs: keeps_order,
        run: |stage| Box::pin(switched(stage)),
    },
    Check {
        name: "who waits for a key is woken when it is free",
        needs: keeps_order,
        run: |stage| Box::pin(woken_by_settling(stage)),
    },
];

pub(super) const fn keeps_order(abilities: &Abilities) -> bool {
    abilities.keeps_order
}

async fn one_at_a_time(stage: Stage) {
    stage.keep_order();
    let mut sent = Vec::new();
    for n in 0..5 {
        for group in ["a", "b", "c"] {
            sent.push(strict(&format!("{group}{n}"), group));
        }
    }
    stage.publish(sent).await;
    for n in 0..5 {
        let mut heads = stage.receive(3).await;
        heads.sort_by_key(id);
        assert_eq!(ids(&heads), [format!("a{n}"), format!("b{n}"), format!("c{n}")]);
        stage.expect_nothing_now().await;
        stage.all_done(&heads).await;
    }
    stage.expect_nothing_now().await;
    assert_eq!(
        stage.source().depth().await.expect("it works"),
        sluicegate_dispatch::Depth::default()
    );
}

async fn delayed_head(stage: Stage) {
    stage.keep_order();
    let sent = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")];
    stage.publish(sent.map(|(id, group)| strict(id, group)).into()).await;
    let heads = stage.receive(2).await;
    assert_eq!(ids(&heads), ["a1", "b1"]);
    let begun = Instant::now();
    let delay = stage.window() / 2;
    stage.bring_back(&heads[0], delay).await;
    stage.done(&heads[1]).await;
    let other = stage.receive_one().await;
    assert_eq!(id(&other), "b2");
    stage.done(&other).await;
    if stage.abilities.finds {
        let behind = stage.source().find("a2").await.expect("it works").expect("it works");
        assert_eq!(behind.state, FoundState::Behind("a1".into()));
    }
    let head = stage.receive_not_before(begun + delay).await;
    assert_eq!(id(&head), "a1");
    stage.expect_nothing_now().await;
    stage.done(&head).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
}

async fn head_comes_back(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    let first = stage.receive_one().await;
    // Its window ends.
    let second = stage.receive_one().await;
    assert_eq!(second.broker_id, first.broker_id);
    stage.bring_back(&second, Duration::ZERO).await;
    let third = stage.receive_one().await;
    assert_eq!(third.broker_id, first.broker_id);
    stage.expect_nothing_now().await;
    stage.done(&third).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
}

async fn ungrouped(stage: Stage) {
    stage.keep_order();
    let sent = |id| publication_in(id, "STRICT", None, false);
    stage.publish(["m1", "m2"].map(sent).into()).await;
    let first = stage.receive_one().await;
    stage.expect_nothing_now().await;
    stage.done(&first).await;
    assert_eq!(stage.next_ids(1).await, ["m2"]);
}

async fn ungrouped_apart(stage: Stage) {
    let order = Order::default().with("STRICT", Ordered::Groups);
    stage.source().keep_order(&std::sync::Arc::new(order));
    let sent = |(id, group)| publication_in(id, "STRICT", group, false);
    let all = [("m1", None), ("m2", None), ("g1", Some("g")), ("g2", Some("g")), ("m3", None)];
    stage.publish(all.map(sent).into()).await;
    let received = stage.receive(4).await;
    let mut came = ids(&received);
    came.sort();
    assert_eq!(came, ["g1", "m1", "m2", "m3"]);
    stage.expect_nothing_now().await;
    stage.all_done(&received).await;
    assert_eq!(stage.next_ids(1).await, ["g2"]);
}

async fn other_pools(stage: Stage) {
    stage.keep_order();
    let sent = |(id, pool)| publication_in(id, pool, Some("a"), false);
    let all = [("s1", "STRICT"), ("s2", "STRICT"), ("p1", "PLAIN"), ("p2", "PLAIN"), ("q1", "Q")];
    stage.publish(all.map(sent).into()).await;
    let mut received = stage.next_ids(4).await;
    received.sort();
    assert_eq!(received, ["p1", "p2", "q1", "s1"]);
    stage.expect_nothing_now().await;
}

async fn scheduled_head(stage: Stage) {
    stage.keep_order();
    let begun = Instant::now();
    let mut late = strict("a1", "a");
    late.delay = stage.window() / 2;
    stage.publish(vec![late, strict("a2", "a"), strict("b1", "b")]).await;
    let other = stage.receive_one().await;
    assert_eq!(id(&other), "b1");
    stage.done(&other).await;
    let head = stage.receive_not_before(begun + stage.window() / 2).await;
    assert_eq!(id(&head), "a1");
    stage.done(&head).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
}

async fn switched(stage: Stage) {
    let sent = ["a1", "a2", "a3", "a4", "a5"].map(|id| strict(id, "a"));
    stage.publish(sent.into()).await;
    let two = stage.receive(2).await;
    assert_eq!(ids(&two), ["a1", "a2"]);
    stage.keep_order();
    stage.expect_nothing_now().await;
    stage.done(&two[0]).await;
    stage.expect_nothing_now().await;
    stage.bring_back(&two[1], stage.window() / 10).await;
    let back = stage.receive_one().await;
    assert_eq!(id(&back), "a2");
    stage.expect_nothing_now().await;
    stage.done(&back).await;
    let third = stage.receive_one().await;
    assert_eq!(id(&third), "a3");
    stage.source().keep_order(&std::sync::Arc::default());
    assert_eq!(stage.next_ids(2).await, ["a4", "a5"]);
    stage.done(&third).await;
}

async fn woken_by_settling(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    let first = stage.receive_one().await;
    let settle = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        stage.done(&first).await;
        Instant::now()
    };
    let wait = async { (stage.receive_one().await, Instant::now()) };
    let (settled, (second, received)) = tokio::join!(settle, wait);
    assert_eq!(id(&second), "a2");
    let took = received.saturating_duration_since(settled);
    assert!(took < stage.window() / 2, "it came after {took:?}");
}
