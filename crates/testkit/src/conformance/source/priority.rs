//! High priority in pools that keep order: before what waits, never before a head that is out, was
//! out or is delayed.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::stage::{Stage, id, strict, strict_high};
use super::{Abilities, Check};

const fn prioritises(abilities: &Abilities) -> bool {
    abilities.keeps_order && abilities.prioritises
}

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "high priority goes before what waits in its key",
        needs: prioritises,
        run: |stage| Box::pin(before_waiting(stage)),
    },
    Check {
        name: "high priority does not go before a head that is out or retried",
        needs: prioritises,
        run: |stage| Box::pin(not_before_a_head(stage)),
    },
    Check {
        name: "high priority that comes late goes before what was read ahead",
        needs: prioritises,
        run: |stage| Box::pin(before_read_ahead(stage)),
    },
    Check {
        name: "high priority that is delayed holds nobody before its time, and then goes first",
        needs: prioritises,
        run: |stage| Box::pin(delayed_high(stage)),
    },
    Check {
        name: "a retried head of high priority stays the head",
        needs: prioritises,
        run: |stage| Box::pin(retried_high(stage)),
    },
];

async fn before_waiting(stage: Stage) {
    stage.keep_order();
    let sent =
        [strict("a1", "a"), strict("a2", "a"), strict_high("h1", "a"), strict_high("h2", "a")];
    stage.publish(sent.into()).await;
    stage.publish(vec![strict("b1", "b")]).await;
    expect(&stage, &["h1", "h2", "a1", "a2"], "a").await;
}

/// The messages of a group come in this order, whatever else comes.
async fn expect(stage: &Stage, expected: &[&str], group: &str) {
    let mut seen = Vec::new();
    while seen.len() < expected.len() {
        let delivery = stage.receive_one().await;
        if delivery.message.as_ref().expect("it works").group.as_deref() == Some(group) {
            seen.push(id(&delivery));
        }
        stage.done(&delivery).await;
    }
    assert_eq!(seen, expected);
}

async fn not_before_a_head(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict("a2", "a")]).await;
    let head = stage.receive_one().await;
    stage.publish(vec![strict_high("h1", "a")]).await;
    stage.expect_nothing_now().await;
    let begun = Instant::now();
    let delay = stage.window() / 2;
    stage.bring_back(&head, delay).await;
    let head = stage.receive_not_before(begun + delay).await;
    assert_eq!(id(&head), "a1");
    stage.bring_back(&head, Duration::ZERO).await;
    expect(&stage, &["a1", "h1", "a2"], "a").await;
}

async fn before_read_ahead(stage: Stage) {
    stage.keep_order();
    let sent = (0..20).flat_map(|n| ["a", "b"].map(|group| strict(&format!("{group}{n}"), group)));
    stage.publish(sent.collect()).await;
    let mut heads = stage.receive(2).await;
    heads.sort_by_key(id);
    stage.done(&heads[0]).await;
    stage.done(&heads[1]).await;
    let other = stage.receive_one().await;
    // One of the two groups has its next message out now; the other's only waits.
    let waits = if id(&other) == "a1" { "b" } else { "a" };
    stage.publish(vec![strict_high("h", waits)]).await;
    let next = stage.receive_one().await;
    assert_eq!(id(&next), "h");
    stage.done(&next).await;
    let after = stage.receive_one().await;
    assert_eq!(id(&after), format!("{waits}1"));
}

async fn delayed_high(stage: Stage) {
    stage.keep_order();
    let begun = Instant::now();
    let delay = stage.window() / 2;
    let mut late = strict_high("h1", "a");
    late.delay = delay;
    stage.publish(vec![strict("a1", "a"), strict("a2", "a"), late, strict("a3", "a")]).await;
    // The delay began while it was published, so it has ended by then.
    let ended = Instant::now() + delay;
    let first = stage.receive_one().await;
    assert_eq!(id(&first), "a1");
    stage.done(&first).await;
    let second = stage.receive_one().await;
    assert_eq!(id(&second), "a2");
    stage.expect_nothing_until(ended).await;
    sleep_until(ended).await;
    stage.done(&second).await;
    expect(&stage, &["h1", "a3"], "a").await;
    assert!(begun.elapsed() >= delay);
    // One that comes while a head is about to be handed out.
    stage.publish(vec![strict("b1", "b"), strict("c1", "c"), strict("c2", "c")]).await;
    let other = stage.receive_one().await;
    assert_eq!(id(&other), "b1");
    let mut late = strict_high("h2", "c");
    late.delay = delay;
    stage.publish(vec![late]).await;
    expect(&stage, &["c1", "c2", "h2"], "c").await;
}

async fn retried_high(stage: Stage) {
    stage.keep_order();
    stage.publish(vec![strict("a1", "a"), strict_high("h1", "a")]).await;
    let head = stage.receive_one().await;
    assert_eq!(id(&head), "h1");
    stage.publish(vec![strict_high("h2", "a")]).await;
    stage.bring_back(&head, stage.window() / 4).await;
    expect(&stage, &["h1", "h2", "a1"], "a").await;
}
