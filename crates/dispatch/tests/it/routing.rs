//! The three phases of routing.

use sluicegate_dispatch::{
    DEFAULT_POOL, Delivery, Malformed, Ordering, PoolSettings, Receipt, Ungrouped,
};
use sluicegate_testkit::scripted::{Step, delivery, grouped, message};

use sluicegate_testkit::scripted::rig::{Rig, done_after, pool};

#[tokio::test(start_paused = true)]
async fn a_batch_goes_to_its_pools_and_is_acked() {
    let rig = Rig::new([PoolSettings::new("A", 2), PoolSettings::new("B", 2)]).await;
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "B", "g"), grouped("m3", "A", "h")]);
    rig.source.until_settled(3).await;
    assert_eq!(rig.sorted(), ["m1 gone", "m2 gone", "m3 gone"]);
    assert_eq!(rig.router.in_flight(), 0);
    assert_eq!(rig.facts.of("unknown-pool"), Vec::<String>::new());
}

/// docs/rules.md#dedupe-1
#[tokio::test(start_paused = true)]
async fn a_redelivery_runs_once_and_is_settled_by_the_latest_receipt() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.on("m1", [done_after(50)]);
    rig.hand_out([message("m1", "A")]);
    rig.executor.until_started(1).await;
    let receipt = Receipt { handle: Some("r-newer".into()), ..Receipt::default() };
    rig.deliver([Delivery { receipt, ..delivery(message("m1", "A")) }]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["newer gone"]);
    assert_eq!(rig.executor.started(), ["m1#1"]);
    assert_eq!(rig.facts.of("redelivered"), ["redelivered m1"]);
}

/// docs/rules.md#dedupe-2
#[tokio::test(start_paused = true)]
async fn a_copy_under_another_broker_id_is_removed() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.on("m1", [done_after(50)]);
    rig.hand_out([message("m1", "A")]);
    rig.executor.until_started(1).await;
    let receipt = Receipt { handle: Some("r-copy".into()), ..Receipt::default() };
    let copy = Delivery { broker_id: "other".into(), receipt, ..delivery(message("m1", "A")) };
    rig.deliver([copy]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["copy gone"]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.source.settlements(), ["copy gone", "m1 gone"]);
    assert_eq!(rig.executor.started(), ["m1#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_in_the_same_batch_is_removed_too() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    let receipt = Receipt { handle: Some("r-copy".into()), ..Receipt::default() };
    let copy = Delivery { broker_id: "other".into(), receipt, ..delivery(message("m1", "A")) };
    rig.deliver([delivery(message("m1", "A")), copy]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["copy gone", "m1 gone"]);
    assert_eq!(rig.executor.started(), ["m1#1"]);
}

/// docs/rules.md#strict-5
#[tokio::test(start_paused = true)]
async fn in_strict_order_what_does_not_fit_waits_in_hand() {
    let strict = PoolSettings { ordering: Ordering::Strict, ..PoolSettings::new("A", 1) };
    let rig = Rig::new([strict]).await;
    rig.executor.on("first", [Step::Hang]);
    rig.hand_out([grouped("first", "A", "g")]);
    rig.executor.until_started(1).await;
    let ids: Vec<String> = (0..60).map(|n| format!("w{n:02}")).collect();
    for lot in ids.chunks(10) {
        rig.hand_out(lot.iter().map(|id| grouped(id, "A", "g")));
    }
    rig.pass(120).await;
    assert_eq!(rig.facts.of("pool-full"), [""; 0]);
    assert_eq!(rig.sorted(), [""; 0], "nothing went back");
    assert!(rig.router.in_flight() > 50, "{}", rig.router.in_flight());
}

/// docs/rules.md#route-2
#[tokio::test(start_paused = true)]
async fn a_missing_pool_is_the_default_pool() {
    let rig = Rig::new([]).await;
    rig.hand_out([message("m1", "NOWHERE"), message("m2", DEFAULT_POOL)]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.facts.of("unknown-pool"), ["unknown-pool NOWHERE m1"]);
    let made = rig.router.pool(DEFAULT_POOL).expect("made on demand");
    assert_eq!((made.concurrency, made.capacity()), (20, 400));
}

/// docs/rules.md#route-1, docs/rules.md#pool-1
#[tokio::test(start_paused = true)]
async fn a_part_that_does_not_fit_goes_back_whole_and_other_pools_go_on() {
    let rig = Rig::without_window([PoolSettings::new("A", 1), PoolSettings::new("B", 1)]).await;
    rig.executor.on("first", [Step::Hang]);
    rig.hand_out([grouped("first", "A", "g0")]);
    rig.executor.until_started(1).await;
    // The line of 50 is full but for one.
    rig.hand_out((0..49).map(|n| grouped(&format!("w{n}"), "A", &format!("g{n}"))));
    rig.hand_out([grouped("x1", "A", "x"), grouped("x2", "A", "y"), grouped("b", "B", "g")]);
    rig.pass(2).await;
    assert_eq!(rig.sorted(), ["b gone", "x1 again 30s pool_full #0", "x2 again 30s pool_full #0"]);
    assert_eq!(rig.facts.of("pool-full"), ["pool-full A 2"]);
    assert_eq!(rig.router.in_flight(), 50);
    // What was refused left nothing behind: it is taken in when it comes again.
    rig.hand_out([grouped("x1", "A", "x")]);
    rig.pass(2).await;
    assert_eq!((rig.facts.of("pool-full").len(), rig.router.in_flight()), (1, 51));
}

/// docs/rules.md#route-3
#[tokio::test(start_paused = true)]
async fn a_part_larger_than_its_pool_is_taken_in_pieces_in_order() {
    let rig = Rig::new([pool("A", 1, Ordering::Batch)]).await;
    rig.executor.otherwise(done_after(1));
    rig.hand_out((0..173).map(|n| grouped(&format!("m{n:03}"), "A", "g")));
    rig.source.until_settled(173).await;
    let wanted: Vec<String> = (0..173).map(|n| format!("m{n:03}#1")).collect();
    assert_eq!(rig.executor.started(), wanted);
    assert_eq!(rig.facts.of("pool-full"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_backlog_flows_at_the_speed_of_its_pool_and_is_not_handed_back() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    rig.executor.otherwise(done_after(10));
    for batch in 0..60 {
        rig.hand_out((0..10).map(|n| grouped(&format!("m{batch}-{n}"), "A", &format!("{n}"))));
    }
    rig.source.until_settled(600).await;
    assert_eq!(rig.facts.of("pool-full"), Vec::<String>::new());
    assert_eq!((rig.executor.started().len(), rig.executor.most_running()), (600, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_is_parked_with_its_text() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    let malformed = Malformed { why: "id: is empty".to_owned(), raw: "{\"id\":\"\"}".to_owned() };
    let bad = Delivery { message: Err(malformed), ..delivery(message("bad", "A")) };
    rig.deliver([bad, delivery(message("m1", "A"))]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["bad gone", "m1 gone"]);
    let parked = rig.parked.all();
    assert_eq!(rig.parked.words(), ["{\"id\":\"\"} malformed"]);
    assert_eq!((parked[0].reason.as_str(), parked[0].pool.as_deref()), ("id: is empty", None));
}

#[tokio::test(start_paused = true)]
async fn messages_without_a_group_are_one_group_unless_told() {
    for (ungrouped, most, said) in [(Ungrouped::Fifo, 1, 1), (Ungrouped::Parallel, 4, 0)] {
        let rig = Rig::new([PoolSettings { ungrouped, ..PoolSettings::new("A", 4) }]).await;
        rig.executor.otherwise(done_after(10));
        rig.hand_out((0..8).map(|n| message(&format!("m{n}"), "A")));
        rig.source.until_settled(8).await;
        assert_eq!(rig.executor.most_running(), most, "{ungrouped:?}");
        assert_eq!(rig.facts.of("ungrouped-serial").len(), said, "{ungrouped:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn high_priority_goes_first() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(done_after(10));
    let mut urgent = grouped("urgent", "A", "g");
    urgent.high_priority = true;
    rig.hand_out([
        grouped("m1", "A", "g"),
        grouped("m2", "A", "g"),
        grouped("m3", "A", "h"),
        urgent,
    ]);
    rig.source.until_settled(4).await;
    let started = rig.executor.started();
    let at = |id: &str| started.iter().position(|started| started.starts_with(id)).expect("ran");
    assert!(at("urgent") < at("m2") && at("urgent") < at("m3"), "{started:?}");
    assert!(at("m1") < at("m2"), "{started:?}");
}
