//! Deliveries that rest with whoever has them: what is noted of them holds for that delivery alone.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Order, Reason, Settled, Settlement};
use tokio::time::{Instant, sleep};

use super::stage::{Stage, id, strict, strict_high};
use super::{Abilities, Check};

const fn keeps_rests_of_priorities(abilities: &Abilities) -> bool {
    abilities.keeps_rests && abilities.crashes && abilities.prioritises
}

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "what rests has its attempts and its time when its window ends",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(rests_beyond_its_window(stage)),
    },
    Check {
        name: "what rests is out until then, and is settled as ever",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(rests_and_is_settled(stage)),
    },
    Check {
        name: "after a crash a head that rested has its attempts and its time, and nothing goes before it",
        needs: keeps_rests_of_priorities,
        run: |stage| Box::pin(crashed_at_rest(stage)),
    },
    Check {
        name: "after a crash a head that was out goes before high priority that came since",
        needs: keeps_rests_of_priorities,
        run: |stage| Box::pin(crashed_before_high_priority(stage)),
    },
    Check {
        name: "what rested and was handed back has a window like others when it comes again",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(handed_back(stage)),
    },
    Check {
        name: "a shorter rest takes the place of a longer one",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(shorter(stage)),
    },
    Check {
        name: "what rests has its attempts and its time where no order is kept",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(without_order(stage)),
    },
    Check {
        name: "what rests has its time though order begins to be kept meanwhile, or ends",
        needs: |abilities| abilities.keeps_rests && abilities.keeps_order,
        run: |stage| Box::pin(while_order_changes(stage)),
    },
    Check {
        name: "after a crash a head whose window had ended goes before high priority that came since",
        needs: keeps_rests_of_priorities,
        run: |stage| Box::pin(ended_before_high_priority(stage)),
    },
    Check {
        name: "what rests for as long as can be said is settled as ever",
        needs: |abilities| abilities.keeps_rests,
        run: |stage| Box::pin(for_ever(stage)),
    },
];

async fn rests_beyond_its_window(stage: Stage) {
    stage.publish_in_order().await;
    let received = stage.receive(2).await;
    let begun = Instant::now();
    let delay = stage.window() * 2;
    assert_eq!(stage.rest(&received[0], delay, 3).await, Settled::Done);
    stage.done(&received[1]).await;
    let head = stage.receive_not_before(begun + delay).await;
    assert_eq!((id(&head).as_str(), head.attempts), ("a1", 3));
    assert_eq!(stage.rest(&received[0], delay, 4).await, Settled::Stale);
    stage.done(&head).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
}

async fn rests_and_is_settled(stage: Stage) {
    stage.publish_in_order().await;
    let [first, other] = &stage.receive(2).await[..] else { panic!("two came") };
    assert_eq!(stage.rest(first, stage.window() * 10, 1).await, Settled::Done);
    assert_eq!(stage.rest(other, stage.window() * 10, 2).await, Settled::Done);
    let depth = stage.source().depth().await.expect("it counts");
    assert_eq!((depth.waiting, depth.delayed, depth.out), (1, 0, 2));
    stage.expect_nothing_now().await;
    stage.done(first).await;
    assert_eq!(stage.next_ids(1).await, ["a2"]);
    let settlement =
        Settlement::Retry { after: Duration::ZERO, attempts: 5, reason: Reason::Failed };
    assert_eq!(stage.settle(&other.receipt, settlement).await, Settled::Done);
    let other = stage.receive_one().await;
    assert_eq!((id(&other).as_str(), other.attempts), ("b1", 5));
}

async fn crashed_at_rest(mut stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    let head = stage.receive_one().await;
    let begun = Instant::now();
    let delay = stage.window() * 2;
    assert_eq!(stage.rest(&head, delay, 2).await, Settled::Done);
    stage.publish(vec![strict_high("h1", "a")]).await;
    stage.crash().await;
    stage.keep_order();
    stage.expect_nothing_until(begun + delay - Duration::from_millis(20)).await;
    let head = stage.receive_one().await;
    assert_eq!((id(&head).as_str(), head.attempts), ("a1", 2));
    stage.expect_nothing_now().await;
    stage.done(&head).await;
    assert_eq!(stage.next_ids(1).await, ["h1"]);
}

async fn crashed_before_high_priority(mut stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    assert_eq!(stage.next_ids(1).await, ["a1"]);
    stage.publish(vec![strict_high("h1", "a")]).await;
    stage.crash().await;
    stage.keep_order();
    stage.expect_one_by_one(&["a1", "h1", "a2"]).await;
}

async fn handed_back(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a")]).await;
    let head = stage.receive_one().await;
    assert_eq!(stage.rest(&head, stage.window() * 20, 1).await, Settled::Done);
    stage.bring_back(&head, Duration::ZERO).await;
    let head = stage.receive_one().await;
    let begun = Instant::now();
    assert_eq!(stage.extend(&head.receipt).await, Settled::Done);
    assert_eq!(id(&stage.receive_not_before(begun + stage.window()).await), "a1");
    assert!(begun.elapsed() < stage.window() * 10, "it came after {:?}", begun.elapsed());
}

async fn shorter(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a")]).await;
    let begun = Instant::now();
    let head = stage.receive_one().await;
    assert_eq!(stage.rest(&head, stage.window() * 20, 1).await, Settled::Done);
    assert_eq!(stage.rest(&head, Duration::ZERO, 2).await, Settled::Done);
    let head = stage.receive_not_before(begun + stage.window()).await;
    assert_eq!((id(&head).as_str(), head.attempts), ("a1", 2));
    assert!(begun.elapsed() < stage.window() * 10, "it came after {:?}", begun.elapsed());
}

async fn without_order(stage: Stage) {
    stage.publish_ids(&["m1", "m2"]).await;
    let received = stage.receive(2).await;
    let begun = Instant::now();
    let delay = stage.window() * 2;
    assert_eq!(stage.rest(&received[0], delay, 3).await, Settled::Done);
    stage.done(&received[1]).await;
    let first = stage.receive_not_before(begun + delay).await;
    assert_eq!((id(&first).as_str(), first.attempts), ("m1", 3));
    stage.done(&first).await;
}

async fn while_order_changes(stage: Stage) {
    for (before, after) in [(&["STRICT"][..], &[][..]), (&[][..], &["STRICT"][..])] {
        let keep = |pools: &[&str]| {
            stage.source().keep_order(&Arc::new(Order::of_pools(pools.iter().copied())));
        };
        keep(before);
        let name = format!("{}{}", before.len(), after.len());
        stage.publish(vec![strict(&name, "a")]).await;
        let head = stage.receive_one().await;
        let begun = Instant::now();
        let delay = stage.window() * 2;
        assert_eq!(stage.rest(&head, delay, 3).await, Settled::Done);
        keep(after);
        let head = stage.receive_not_before(begun + delay).await;
        assert_eq!((id(&head), head.attempts), (name, 3));
        stage.done(&head).await;
    }
}

async fn ended_before_high_priority(mut stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    assert_eq!(stage.next_ids(1).await, ["a1"]);
    sleep(stage.window() * 2).await;
    // Somebody looks, and nobody has room for it.
    stage.source().depth().await.expect("it counts");
    stage.publish(vec![strict_high("h1", "a")]).await;
    stage.crash().await;
    stage.keep_order();
    stage.expect_one_by_one(&["a1", "h1", "a2"]).await;
}

async fn for_ever(stage: Stage) {
    stage.publish_ids(&["m1"]).await;
    let received = stage.receive_one().await;
    assert_eq!(stage.rest(&received, Duration::MAX, 1).await, Settled::Done);
    stage.done(&received).await;
}
