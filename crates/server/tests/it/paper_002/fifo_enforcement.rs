//! FIFO Enforcement (Batch+Group).

use sluicegate_dispatch::{Ordering, Outcome};
use sluicegate_testkit::scripted::rig::{Rig, answers, fails, fails_for, pool};
use sluicegate_testkit::scripted::{Step, grouped};

fn batch(group: &str, count: usize) -> Vec<sluicegate_dispatch::Message> {
    (1..=count).map(|n| grouped(&format!("{group}{n}"), "A", group)).collect()
}

// § Level 1: when a pool has no room, the messages after the refused one go back with it.
#[tokio::test(start_paused = true)]
async fn level_1_at_routing_time() {
    // Another pool has room, so the queue is asked for more.
    let pools = [pool("A", 1, Ordering::Batch), pool("B", 1, Ordering::Batch)];
    let rig = Rig::without_window(pools).await;
    rig.executor.otherwise(Step::Hang);
    rig.hand_out((0..50).map(|n| grouped(&format!("w{n}"), "A", &format!("{n}"))));
    rig.pass(2).await;
    rig.hand_out(batch("x", 3));
    rig.pass(2).await;
    let all =
        ["x1 again 30s pool_full #0", "x2 again 30s pool_full #0", "x3 again 30s pool_full #0"];
    assert_eq!(rig.sorted(), all);
}

// § Level 2: after a failure of processing or of the connection the rest goes back for 10 seconds.
#[tokio::test(start_paused = true)]
async fn level_2_inside_the_pool() {
    let outcomes = [
        (fails(), "30s failed #1"),
        (fails_for(Some(5)), "5s failed #1"),
        (answers(Outcome::Unreachable { cause: "refused".to_owned() }), "30s failed #1"),
    ];
    for (step, how) in outcomes {
        let rig = Rig::new([pool("A", 4, Ordering::Batch)]).await;
        rig.executor.on("g2", [step]);
        rig.hand_out(batch("g", 4));
        rig.source.until_settled(4).await;
        let wanted = [
            "g1 gone".to_owned(),
            format!("g2 again {how}"),
            "g3 again 10s cascade #0".to_owned(),
            "g4 again 10s cascade #0".to_owned(),
        ];
        assert_eq!(rig.sorted(), wanted);
    }
}

// § Other groups, and the same group in another batch, are not touched.
// § The books of a batch and group are closed with its last message.
#[tokio::test(start_paused = true)]
async fn only_its_batch_and_group() {
    let rig = Rig::new([pool("A", 4, Ordering::Batch)]).await;
    rig.executor.on("g1", [fails()]);
    rig.hand_out([batch("g", 2), batch("h", 2)].concat());
    rig.hand_out([grouped("next", "A", "g")]);
    rig.source.until_settled(5).await;
    let gone =
        ["g1 again 30s failed #1", "g2 again 10s cascade #0", "h1 gone", "h2 gone", "next gone"];
    assert_eq!(rig.sorted(), gone);
    // The same messages in a new batch: nothing is remembered against them.
    rig.settle_down().await;
    rig.hand_out(batch("g", 2));
    rig.source.until_settled(7).await;
    assert_eq!(&rig.source.settlements()[5..], ["g1 gone", "g2 gone"]);
}

// § Order across batches is the pool's choice: `strict` holds the group. #9
#[tokio::test(start_paused = true)]
async fn strict_holds_the_group() {
    let rig = Rig::new([pool("A", 4, Ordering::Strict)]).await;
    rig.executor.on("g1", [fails()]);
    rig.hand_out(batch("g", 2));
    rig.hand_out([grouped("next", "A", "g")]);
    rig.source.until_settled(3).await;
    assert_eq!(rig.source.settlements(), ["g1 gone", "g2 gone", "next gone"]);
}
