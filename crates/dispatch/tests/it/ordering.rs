//! Order within a batch, strict order, and none.

use std::time::Duration;

use sluicegate_dispatch::{OnExhausted, Ordering, Outcome, PoolSettings};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped, message};

use sluicegate_testkit::scripted::rig::{
    QUEUE, Rig, answers, done_after, fails, fails_for, pool, rejects,
};

/// docs/rules.md#fifo-1
#[tokio::test(start_paused = true)]
async fn one_of_a_group_at_a_time_and_groups_side_by_side() {
    for (ordering, most) in [(Ordering::Batch, 2), (Ordering::Strict, 2), (Ordering::None, 6)] {
        let rig = Rig::new([pool("A", 6, ordering)]).await;
        rig.executor.otherwise(done_after(10));
        let messages = (0..6).map(|n| grouped(&format!("m{n}"), "A", ["even", "odd"][n % 2]));
        rig.hand_out(messages);
        rig.source.until_settled(6).await;
        assert_eq!(rig.executor.most_running(), most, "{ordering:?}");
        if ordering != Ordering::None {
            let ended = rig.executor.ended();
            let at = |id: &str| ended.iter().position(|ended| ended == id);
            assert!(at("m0") < at("m2") && at("m2") < at("m4"), "{ended:?}");
        }
    }
}

/// docs/rules.md#fifo-2
#[tokio::test(start_paused = true)]
async fn a_failure_turns_back_the_rest_of_its_batch_and_group() {
    let rig = Rig::new([pool("A", 4, Ordering::Batch)]).await;
    rig.executor.on("m1", [fails()]);
    rig.hand_out([
        grouped("m1", "A", "g"),
        grouped("m2", "A", "g"),
        grouped("m3", "A", "g"),
        grouped("other", "A", "h"),
    ]);
    rig.source.until_settled(4).await;
    assert_eq!(
        rig.sorted(),
        [
            "m1 again 30s failed #1",
            "m2 again 10s cascade #0",
            "m3 again 10s cascade #0",
            "other gone"
        ]
    );
    let started = rig.executor.started();
    assert!(!started.iter().any(|id| id.starts_with("m2") || id.starts_with("m3")), "{started:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_in_the_middle_lets_the_earlier_and_later_batches_go_on() {
    let rig = Rig::new([pool("A", 4, Ordering::Batch)]).await;
    rig.executor.on("m2", [fails_for(Some(7))]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g"), grouped("m3", "A", "g")]);
    rig.hand_out([grouped("n1", "A", "g")]);
    rig.source.until_settled(4).await;
    assert_eq!(
        rig.sorted(),
        ["m1 gone", "m2 again 7s failed #1", "m3 again 10s cascade #0", "n1 gone"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_rejection_does_not_turn_back_its_batch() {
    let rig = Rig::new([pool("A", 4, Ordering::Batch)]).await;
    rig.executor.on("m1", [rejects()]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["m1 gone", "m2 gone"]);
    assert_eq!(rig.parked.words(), ["m1 rejected"]);
}

#[tokio::test(start_paused = true)]
async fn without_order_nothing_is_turned_back() {
    let rig = Rig::new([pool("A", 4, Ordering::None)]).await;
    rig.executor.on("m1", [fails()]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["m1 again 30s failed #1", "m2 gone"]);
}

/// docs/rules.md#strict-2
#[tokio::test(start_paused = true)]
async fn a_strict_head_is_tried_again_at_the_front_across_batches() {
    let rig = Rig::new([pool("A", 4, Ordering::Strict)]).await;
    rig.executor.on("m1", [fails_for(Some(5)), fails()]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.settle_down().await;
    rig.hand_out([grouped("m3", "A", "g"), grouped("other", "A", "h")]);
    rig.source.until_settled(4).await;
    assert_eq!(rig.source.settlements(), ["other gone", "m1 gone", "m2 gone", "m3 gone"]);
    assert_eq!(rig.executor.started(), ["m1#1", "other#1", "m1#2", "m1#3", "m2#1", "m3#1"]);
    let took = rig.source.settled_after("m1", rig.began).expect("settled");
    assert!(took >= Duration::from_secs(35) && took < Duration::from_secs(36), "{took:?}");
}

/// docs/rules.md#strict-1
#[tokio::test(start_paused = true)]
async fn the_next_of_a_strict_key_starts_when_the_source_knows() {
    let rig = Rig::new([pool("A", 4, Ordering::Strict)]).await;
    rig.source.fail_settles(3);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g"), grouped("other", "A", "h")]);
    rig.settle_down().await;
    // The permit is free meanwhile, the key is not.
    assert_eq!(rig.executor.started(), ["m1#1", "other#1"]);
    assert_eq!(rig.source.settlements(), Vec::<String>::new());
    rig.source.until_settled(3).await;
    assert_eq!(rig.executor.started(), ["m1#1", "other#1", "m2#1"]);
    assert_eq!(rig.facts.of("source-failed").len(), 3);
}

/// docs/rules.md#strict-3, docs/rules.md#strict-4
#[tokio::test(start_paused = true)]
async fn used_up_attempts_park_the_key_with_its_tail() {
    let settings = PoolSettings { max_attempts: 2, ..pool("A", 4, Ordering::Strict) };
    let rig = Rig::new([settings]).await;
    rig.executor.on("m1", [fails_for(Some(1)), fails_for(Some(1))]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g"), grouped("other", "A", "h")]);
    rig.source.until_settled(3).await;
    assert_eq!(rig.parked.words(), ["m1 exhausted", "m2 key_parked"]);
    // What comes later is parked too, and other groups are not.
    rig.hand_out([grouped("m3", "A", "g"), grouped("h2", "A", "h")]);
    rig.source.until_settled(5).await;
    assert_eq!(rig.parked.words(), ["m1 exhausted", "m2 key_parked", "m3 key_parked"]);
    let started = rig.executor.started();
    assert_eq!(started, ["m1#1", "other#1", "m1#2", "h2#1"]);
    // Until the key is free again.
    rig.parked.clear();
    rig.hand_out([grouped("m4", "A", "g")]);
    rig.source.until_settled(6).await;
    assert!(rig.executor.started().contains(&"m4#1".to_owned()));
    assert_eq!(rig.sorted(), ["h2 gone", "m1 gone", "m2 gone", "m3 gone", "m4 gone", "other gone"]);
}

/// docs/rules.md#strict-4
#[tokio::test(start_paused = true)]
async fn a_parked_key_holds_up_its_own_queue_only() {
    let settings = PoolSettings { max_attempts: 1, ..pool("A", 4, Ordering::Strict) };
    let rig = Rig::new([settings]).await;
    let other = ScriptedSource::new();
    assert!(rig.router.add_queue("other", QUEUE, other.clone()).await.expect("a queue"));
    let fails_later =
        Step::Answer(Duration::from_millis(50), Outcome::Unreachable { cause: "down".to_owned() });
    rig.executor.on("head", [fails_later]);
    rig.hand_out([grouped("head", "A", "g"), grouped("tail", "A", "g")]);
    rig.executor.until_started(1).await;
    other.hand_out(vec![delivery(grouped("theirs", "A", "g"))]);
    rig.source.until_settled(2).await;
    other.until_settled(1).await;
    assert_eq!(rig.parked.words(), ["head exhausted", "tail key_parked"]);
    assert_eq!(rig.executor.started(), ["head#1", "theirs#1"]);
}

/// docs/rules.md#strict-4
#[tokio::test(start_paused = true)]
async fn a_key_that_is_freed_while_its_tail_is_being_kept_is_not_overtaken() {
    let settings = PoolSettings { max_attempts: 1, ..pool("A", 4, Ordering::Strict) };
    let rig = Rig::new([settings]).await;
    rig.executor.on("head", [fails()]);
    rig.hand_out([grouped("head", "A", "g")]);
    rig.source.until_settled(1).await;
    rig.parked.fail(3);
    rig.hand_out([grouped("tail", "A", "g")]);
    rig.settle_down().await;
    rig.parked.clear();
    rig.hand_out([grouped("later", "A", "g")]);
    rig.source.until_settled(3).await;
    assert_eq!(rig.parked.words(), ["tail key_parked", "later key_parked"]);
    assert_eq!(rig.executor.started(), ["head#1"]);
}

/// docs/rules.md#strict-4
#[tokio::test(start_paused = true)]
async fn a_replayed_head_runs_though_its_tail_is_parked() {
    let settings = PoolSettings { max_attempts: 1, ..pool("A", 4, Ordering::Strict) };
    let rig = Rig::new([settings]).await;
    rig.executor.on("m1", [fails()]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.source.until_settled(2).await;
    rig.settle_down().await;
    rig.parked.replay("b-m1");
    rig.hand_out([grouped("m1", "A", "g")]);
    rig.source.until_settled(3).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m1#1"]);
    assert_eq!(rig.parked.words(), ["m2 key_parked"]);
}

#[tokio::test(start_paused = true)]
async fn used_up_attempts_skip_the_head_or_block_the_key() {
    for on_exhausted in [OnExhausted::Skip, OnExhausted::Block] {
        let strict = pool("A", 4, Ordering::Strict);
        let rig = Rig::new([PoolSettings { max_attempts: 1, on_exhausted, ..strict }]).await;
        rig.executor.on("m1", [fails()]);
        rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
        rig.pass(100_000).await;
        if on_exhausted == OnExhausted::Skip {
            assert_eq!(rig.source.settlements(), ["m1 gone", "m2 gone"]);
            assert_eq!(rig.parked.words(), ["m1 exhausted"]);
        } else {
            assert_eq!(rig.source.settlements(), Vec::<String>::new());
            assert_eq!(rig.facts.of("blocked"), ["blocked m1"]);
            // A person settles it by hand.
            rig.router.ack("m1").expect("it waits");
            rig.source.until_settled(2).await;
            assert_eq!(rig.source.settlements(), ["m1 gone", "m2 gone"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_strict_head_that_is_rejected_is_parked_alone() {
    let rig = Rig::new([pool("A", 4, Ordering::Strict)]).await;
    rig.executor.on("m1", [rejects()]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.source.settlements(), ["m1 gone", "m2 gone"]);
    assert_eq!(rig.parked.words(), ["m1 rejected"]);
}

#[tokio::test(start_paused = true)]
async fn high_priority_does_not_overtake_a_strict_head_that_retries() {
    let rig = Rig::new([pool("A", 4, Ordering::Strict)]).await;
    rig.executor.on("m1", [fails_for(Some(5))]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.settle_down().await;
    let mut urgent = grouped("urgent", "A", "g");
    urgent.high_priority = true;
    rig.hand_out([urgent]);
    rig.source.until_settled(3).await;
    assert_eq!(rig.source.settlements(), ["m1 gone", "urgent gone", "m2 gone"]);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_where_they_are_attempts() {
    // docs/rules.md#settle-2
    let open = Outcome::BreakerOpen { name: "h".into(), rest: Duration::from_millis(10) };
    let throttled = Outcome::Throttled { after: Duration::from_secs(3), body: None };
    let settings = PoolSettings { max_attempts: 2, ..pool("A", 4, Ordering::Batch) };
    let rig = Rig::new([settings]).await;
    rig.executor.on("open", [answers(open)]);
    rig.executor.on("failed", [fails()]);
    rig.hand_out([grouped("open", "A", "1"), grouped("failed", "A", "2")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["failed again 30s failed #1", "open again 1s breaker_open #0"]);
    rig.executor.on("throttled", [answers(throttled)]);
    rig.hand_out([message("throttled", "A")]);
    rig.source.until_settled(3).await;
    assert_eq!(rig.source.settlements()[2], "throttled again 3s throttled #0");
}
