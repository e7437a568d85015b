//! Settling, windows, pauses, panics.

use std::time::Duration;

use sluicegate_dispatch::{Delivery, Ordering, Outcome, PoolSettings, Profile, Receipt, Target};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped, message};

use sluicegate_testkit::scripted::rig::{
    QUEUE, Rig, answers, done_after, fails, fails_for, pool, rejects,
};

/// docs/rules.md#settle-1
#[tokio::test(start_paused = true)]
async fn every_outcome_is_settled_once_with_its_delay() {
    let unreachable = || answers(Outcome::Unreachable { cause: "refused".to_owned() });
    #[rustfmt::skip]
    let cases: Vec<(&str, Step, &str)> = vec![
        ("done", done_after(0), "done gone"),
        ("default", fails(), "default again 30s failed #1"),
        ("own", fails_for(Some(120)), "own again 120s failed #1"),
        ("short", fails_for(Some(0)), "short again 1s failed #1"),
        ("long", fails_for(Some(99_999)), "long again 43200s failed #1"),
        ("gone", unreachable(), "gone again 30s failed #1"),
        ("rejected", rejects(), "rejected gone"),
        ("panics", Step::Panic("oops"), "panics again 30s failed #1"),
    ];
    let rig = Rig::new([PoolSettings::new("A", 20)]).await;
    for (id, step, _) in &cases {
        rig.executor.on(id, [step.clone()]);
    }
    rig.hand_out(cases.iter().map(|(id, _, _)| grouped(id, "A", id)));
    rig.source.until_settled(cases.len()).await;
    let mut wanted: Vec<&str> = cases.iter().map(|(_, _, wanted)| *wanted).collect();
    wanted.sort_unstable();
    assert_eq!(rig.sorted(), wanted);
    assert_eq!(rig.facts.of("panicked"), ["panicked panics oops"]);
    assert_eq!(rig.parked.words(), ["rejected rejected"]);
    assert_eq!(rig.parked.all()[0].attempts, 1);
}

/// docs/rules.md#settle-3
#[tokio::test(start_paused = true)]
async fn a_panicking_executor_leaks_nothing_and_the_pool_lives_on() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m1", [Step::Panic("oops")]);
    rig.hand_out([grouped("m1", "A", "1"), grouped("m2", "A", "2")]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.router.in_flight(), 0);
    assert_eq!(rig.executor.running(), 0);
    assert_eq!(rig.router.pool_views()[0].stats.gauges.running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_used_up_message_is_parked_alone_without_strict_order() {
    let settings = PoolSettings { max_attempts: 3, ..PoolSettings::new("A", 4) };
    let rig = Rig::new([settings]).await;
    rig.executor.on("m1", [fails()]);
    rig.executor.on("m2", [fails()]);
    let third = Delivery { attempts: 2, ..delivery(grouped("m1", "A", "g")) };
    let second = Delivery { attempts: 1, ..delivery(grouped("m2", "A", "h")) };
    rig.deliver([third, second]);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["m1 gone", "m2 again 30s failed #2"]);
    let parked = rig.parked.all();
    assert_eq!((parked.len(), parked[0].attempts, parked[0].status), (1, 3, Some(503)));
    assert_eq!(parked[0].reason, "3 of 3 attempts: status 503");
}

#[tokio::test(start_paused = true)]
async fn without_parking_what_never_works_is_dropped() {
    let rig = Rig::new([PoolSettings { parking: false, ..PoolSettings::new("A", 4) }]).await;
    rig.executor.on("m1", [rejects()]);
    rig.hand_out([message("m1", "A")]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["m1 gone"]);
    assert_eq!(rig.parked.words(), Vec::<String>::new());
}

/// docs/rules.md#park-1
#[tokio::test(start_paused = true)]
async fn the_source_is_told_only_after_the_message_is_kept() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.parked.fail(3);
    rig.executor.on("m1", [rejects()]);
    rig.hand_out([message("m1", "A")]);
    rig.settle_down().await;
    assert_eq!(rig.source.settlements(), Vec::<String>::new());
    assert_eq!(rig.router.in_flight(), 1);
    rig.source.until_settled(1).await;
    assert_eq!(rig.parked.words(), ["m1 rejected"]);
    assert_eq!(rig.facts.of("source-failed").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_settle_is_asked_again_and_the_message_stays_known() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.source.fail_settles(5);
    rig.hand_out([message("m1", "A")]);
    rig.pass(1).await;
    rig.hand_out([message("m1", "A")]);
    rig.settle_down().await;
    assert_eq!(rig.facts.of("redelivered"), ["redelivered m1"]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.executor.started(), ["m1#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_delivered_anew_while_it_is_settled_is_settled_anew() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.source.fail_settles(1);
    rig.source.expire(delivery(message("m1", "A")).receipt);
    rig.hand_out([message("m1", "A")]);
    rig.settle_down().await;
    let receipt = Receipt { handle: Some("r-newer".into()), ..Receipt::default() };
    rig.deliver([Delivery { receipt, ..delivery(message("m1", "A")) }]);
    rig.source.until_settled(1).await;
    assert_eq!(rig.source.settlements(), ["newer gone"]);
    assert_eq!(rig.executor.started(), ["m1#1"]);
}

/// docs/rules.md#dedupe-1
#[tokio::test(start_paused = true)]
async fn a_message_delivered_anew_before_its_settlement_is_heard_of_is_settled_anew() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.otherwise(done_after(500));
    rig.source.answer_after(Duration::from_millis(50));
    rig.hand_out([grouped("runs", "A", "g"), grouped("waits", "A", "g")]);
    rig.executor.until_started(1).await;
    assert!(rig.router.remove_pool("A"));
    rig.source.until_settled(1).await;
    let receipt = Receipt { handle: Some("r-newer".into()), ..Receipt::default() };
    rig.deliver([Delivery { receipt, ..delivery(grouped("waits", "A", "g")) }]);
    rig.source.until_settled(3).await;
    rig.pass(1).await;
    assert_eq!(
        rig.source.settlements(),
        ["waits again 0s draining #0", "newer again 1s draining #0", "runs gone"]
    );
    assert_eq!(rig.router.in_flight(), 0);
}

/// docs/rules.md#window-1
#[tokio::test(start_paused = true)]
async fn waiting_and_running_messages_are_extended_at_a_third_of_the_window() {
    let rig = Rig::new([pool("A", 1, Ordering::Strict)]).await;
    rig.executor.on("runs", [done_after(65_000)]);
    rig.executor.on("waits", [done_after(0)]);
    rig.hand_out([grouped("runs", "A", "g"), grouped("waits", "A", "h")]);
    rig.source.until_settled(2).await;
    let extensions = rig.source.extensions();
    assert_eq!(extensions, [("r-runs".to_owned(), 6), ("r-waits".to_owned(), 6)]);
}

/// docs/rules.md#window-1
#[tokio::test(start_paused = true)]
async fn extending_takes_its_time_and_begins_in_time() {
    let profile = Profile::new(Duration::from_secs(30), 1);
    let (source, rig) =
        (ScriptedSource::with(profile), Rig::new([pool("A", 1, Ordering::Batch)]).await);
    assert!(rig.router.add_queue("slow", QUEUE, source.clone()).await.expect("a queue"));
    source.answer_after(Duration::from_secs(6));
    rig.executor.on("runs", [done_after(64_000)]);
    source
        .hand_out(vec![delivery(grouped("runs", "A", "g")), delivery(grouped("waits", "A", "g"))]);
    rig.pass(60).await;
    // Two calls take 12 seconds: a round begins every 12, not every 22.
    assert_eq!(source.extensions(), [("r-runs".to_owned(), 5), ("r-waits".to_owned(), 4)]);
}

/// docs/rules.md#throttle-1
#[tokio::test(start_paused = true)]
async fn a_host_that_asks_for_a_pause_gets_it_and_others_go_on() {
    let rig = Rig::new([pool("A", 4, Ordering::Batch), pool("B", 4, Ordering::Batch)]).await;
    let throttled = Outcome::Throttled { after: Duration::from_secs(20) };
    rig.executor.on("m1", [answers(throttled)]);
    rig.hand_out([grouped("m1", "A", "1")]);
    rig.source.until_settled(1).await;
    let mut elsewhere = grouped("elsewhere", "A", "2");
    elsewhere.target = Target::parse("http://127.0.0.1:10/").expect("a target");
    rig.hand_out([grouped("m2", "A", "3"), elsewhere, grouped("b", "B", "1")]);
    rig.pass(5).await;
    assert_eq!(rig.executor.started(), ["m1#1", "elsewhere#1", "b#1"]);
    let waits = rig.router.message("m2").expect("here");
    let why = waits.why.expect("it waits");
    assert_eq!((why.reason, waits.attempts), ("rate_limited", 0));
    assert!(why.rest.is_some_and(|rest| rest <= Duration::from_secs(15)));
    rig.source.until_settled(4).await;
    let took = rig.source.settled_after("m2", rig.began).expect("settled");
    assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(21), "{took:?}");
    assert_eq!(rig.executor.started()[3], "m2#1");
}

/// docs/rules.md#throttle-1
#[tokio::test(start_paused = true)]
async fn a_host_is_paused_in_every_spelling() {
    let rig = Rig::new([pool("A", 4, Ordering::Batch)]).await;
    let throttled = Outcome::Throttled { after: Duration::from_secs(20) };
    rig.executor.on("first", [answers(throttled)]);
    let to = |id: &str, url: &str| {
        let mut message = grouped(id, "A", id);
        message.target = Target::parse(url).expect("a target");
        message
    };
    rig.hand_out([to("first", "https://API.example.com/a")]);
    rig.source.until_settled(1).await;
    rig.hand_out([
        to("case", "https://api.Example.com/b"),
        to("port", "https://api.example.com:443/c"),
        to("other-port", "https://api.example.com:444/d"),
    ]);
    rig.pass(5).await;
    assert_eq!(rig.executor.started(), ["first#1", "other-port#1"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_receive_is_asked_again() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.source.fail_receives(3);
    rig.hand_out([message("m1", "A")]);
    rig.source.until_settled(1).await;
    assert!(rig.facts.of("source-failed").len() <= 3);
}

/// What was done and could not be said yet would all be done again after a crash.
#[tokio::test(start_paused = true)]
async fn nothing_more_is_received_while_as_much_is_unsettled_as_the_pools_can_hold() {
    let rig = Rig::new([PoolSettings::new("A", 2)]).await;
    let room = PoolSettings::new("A", 2).capacity() + 2;
    rig.source.fail_settles(8); // for some 20 seconds
    for batch in 0..50 {
        let ids = (0..10).map(|n| format!("m{}", batch * 10 + n));
        rig.hand_out(ids.map(|id| grouped(&id, "A", &id)));
    }
    rig.pass(10).await;
    let calls = rig.executor.started().len();
    assert!((2..=room as usize + 10).contains(&calls), "{calls} calls, and room for {room}");
    rig.source.until_settled(500).await;
    assert_eq!((rig.executor.started().len(), rig.router.in_flight()), (500, 0));
}

/// docs/rules.md#park-2
#[tokio::test(start_paused = true)]
async fn a_replayed_copy_that_comes_before_its_original_is_settled_is_not_lost() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    rig.executor.on("m1", [rejects(), done_after(0)]);
    rig.source.fail_settles(1_000_000);
    rig.hand_out([message("m1", "A")]);
    rig.pass(1).await;
    // It is parked, and its source has not heard: a replay puts it in again.
    assert_eq!(rig.parked.words(), ["m1 rejected"]);
    let handle = |name: &str| Receipt { handle: Some(name.into()), ..Receipt::default() };
    let copy = Delivery {
        broker_id: "copy".into(),
        receipt: handle("r-copy"),
        ..delivery(message("m1", "A"))
    };
    rig.deliver([copy]);
    rig.pass(1).await;
    rig.source.fail_settles(0);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["copy again 1s draining #0", "m1 gone"]);
}
