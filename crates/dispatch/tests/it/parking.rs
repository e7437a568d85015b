//! Keys that are parked with their tails: whom that holds up.

use sluicegate_dispatch::{DEFAULT_POOL, Ordering, PoolSettings};
use sluicegate_testkit::scripted::rig::{Rig, done_after, fails, pool};
use sluicegate_testkit::scripted::{grouped, message};

/// A strict pool of one, in which the first failure parks the key.
fn strict(code: &str) -> PoolSettings {
    PoolSettings { max_attempts: 1, ..pool(code, 1, Ordering::Strict) }
}

/// `m1` has failed and `m2` waited behind it: both are parked.
async fn two_are_parked() -> Rig {
    let rig = Rig::new([strict("A")]).await;
    rig.executor.on("m1", [fails()]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g")]);
    rig.source.until_settled(2).await;
    rig.settle_down().await;
    assert_eq!(rig.parked.words(), ["m1 exhausted", "m2 key_parked"]);
    rig
}

/// docs/rules.md#park-2. A broker gives what is replayed behind whatever came meanwhile.
#[tokio::test(start_paused = true)]
async fn what_is_replayed_is_not_parked_again_for_a_newcomer_before_it() {
    let rig = two_are_parked().await;
    rig.parked.replay("b-m1");
    rig.executor.on("busy", [done_after(1_000)]);
    rig.hand_out([grouped("busy", "A", "busy")]);
    rig.hand_out(["newcomer", "another", "m1", "last"].map(|id| grouped(id, "A", "g")));
    rig.source.until_settled(7).await;
    assert_eq!(rig.executor.started(), ["m1#1", "busy#1", "m1#1"]);
    let parked = ["m2", "newcomer", "another", "last"].map(|id| format!("{id} key_parked"));
    assert_eq!(rig.parked.words(), parked);
}

/// docs/rules.md#strict-4. Until it is kept that a head has failed again, the list lets pass what was replayed behind it.
#[tokio::test(start_paused = true)]
async fn what_is_replayed_behind_a_head_that_fails_again_is_parked_with_it() {
    let rig = two_are_parked().await;
    rig.parked.replay("b-m1");
    rig.parked.replay("b-m2");
    rig.executor.on("m1", [fails()]);
    rig.hand_out(["m1", "m2"].map(|id| grouped(id, "A", "g")));
    rig.source.until_settled(4).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m1#1"]);
    assert_eq!(rig.parked.words(), ["m1 exhausted", "m2 key_parked"]);
}

/// docs/rules.md#strict-4. The pool that serves both is not what they were published for.
#[tokio::test(start_paused = true)]
async fn a_key_is_of_the_pool_that_its_messages_were_published_for() {
    for group in [Some("g"), None] {
        let of = |id: &str, code: &str| match group {
            Some(group) => grouped(id, code, group),
            None => message(id, code),
        };
        let rig = Rig::new([strict(DEFAULT_POOL)]).await;
        rig.executor.on("a1", [fails()]);
        rig.hand_out([of("a1", "A"), of("b1", "B"), of("a2", "A")]);
        rig.source.until_settled(3).await;
        rig.hand_out([of("b2", "B"), of("a3", "A")]);
        rig.source.until_settled(5).await;
        assert_eq!(rig.executor.started(), ["a1#1", "b1#1", "b2#1"], "{group:?}");
        let parked = ["a1 exhausted", "a2 key_parked", "a3 key_parked"];
        assert_eq!(rig.parked.words(), parked, "{group:?}");
    }
}
