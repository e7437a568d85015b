//! What can be seen, and why something waits.

use std::time::Duration;

use sluicegate_dispatch::{AckError, MessageState, Ordering, Outcome, Phase, PoolSettings};
use sluicegate_testkit::scripted::{Step, grouped};

use sluicegate_testkit::scripted::rig::{Rig, answers, done_after, fails_for, pool};

#[tokio::test(start_paused = true)]
async fn a_message_says_what_it_waits_for() {
    let open = Outcome::BreakerOpen { name: "h:1".into(), rest: Duration::from_secs(5) };
    let strict = PoolSettings { max_attempts: 0, ..pool("S", 2, Ordering::Strict) };
    let rig = Rig::new([strict, PoolSettings::new("A", 1)]).await;
    rig.executor.on("open", [answers(open)]);
    rig.executor.on("fails", [fails_for(Some(60))]);
    rig.executor.on("runs", [Step::Hang]);
    rig.hand_out([
        grouped("open", "S", "o"),
        grouped("open2", "S", "o"),
        grouped("fails", "S", "f"),
        grouped("fails2", "S", "f"),
        grouped("runs", "A", "r"),
        grouped("runs2", "A", "r"),
        grouped("full", "A", "x"),
    ]);
    rig.settle_down().await;
    use MessageState::{Delayed, Running, Waiting};
    #[rustfmt::skip]
    let cases = [
        ("open", Delayed, Some(("breaker_open", "breaker open for h:1", Some(5)))),
        ("open2", Waiting, Some(("group_retrying", "group head open retries", Some(5)))),
        ("fails", Delayed, Some(("delayed", "an attempt failed; it waits", Some(60)))),
        ("fails2", Waiting, Some(("group_retrying", "group head fails retries", Some(60)))),
        ("runs", Running, None),
        ("runs2", Waiting, Some(("group_busy", "group head runs is running", None))),
        ("full", Waiting, Some(("pool_full", "pool A at 1 of 1", None))),
    ];
    for (id, state, why) in cases {
        let view = rig.router.message(id).expect(id);
        assert_eq!(view.state, state, "{id}");
        let seen = view.why.as_ref().map(|why| {
            let rest = why.rest.map(|rest| rest.as_secs_f64().ceil() as u64);
            (why.reason, why.detail.as_str(), rest)
        });
        assert_eq!(seen, why, "{id}");
    }
    assert!(rig.router.message("nobody").is_none());
}

#[tokio::test(start_paused = true)]
async fn pools_queues_groups_and_messages_are_listed() {
    let rig = Rig::new([pool("A", 2, Ordering::Batch)]).await;
    rig.executor.on("m1", [Step::Hang]);
    rig.hand_out([grouped("m1", "A", "g"), grouped("m2", "A", "g"), grouped("m3", "A", "h")]);
    rig.source.until_settled(1).await;
    rig.settle_down().await;
    let [a] = &rig.router.pool_views()[..] else { panic!("one pool") };
    let gauges = &a.stats.gauges;
    assert_eq!((gauges.running, gauges.queued, gauges.limit, a.capacity), (1, 1, 2, 50));
    assert_eq!((a.phase, a.groups, a.succeeded), (Phase::Running, 1, 1));
    let [q] = &rig.router.queue_views()[..] else { panic!("one queue") };
    assert_eq!((q.received, q.acked, q.in_flight, q.health.is_ok()), (3, 1, 2, true));
    let [g] = &rig.router.group_views(Some("A"))[..] else { panic!("one group") };
    assert_eq!((&*g.group, g.queued, g.running, &*g.head), ("g", 1, 1, "m1"));
    assert_eq!(rig.router.group_views(Some("B")).len(), 0);
    let messages = rig.router.message_views(Some("A"));
    let waits = |at: usize| messages[at].why.as_ref().map(|why| why.detail.as_str());
    assert_eq!((messages.len(), waits(0)), (2, None));
    assert_eq!(waits(1), Some("group head m1 is running"));
    assert_eq!(rig.router.ack("m1"), Err(AckError::Busy));
    assert_eq!(rig.router.ack("nobody"), Err(AckError::NotHere));
    assert_eq!(rig.router.ack("m2"), Ok(()));
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["m2 gone", "m3 gone"]);
    // The pools of 52, the window and a batch on its way.
    assert_eq!(rig.router.room(), 52 + 2000 + 10);
}

/// A message that goes back to its source is another delivery later: what was said of it before is known, until it is
/// over.
#[tokio::test(start_paused = true)]
async fn the_last_error_is_known_until_a_message_is_over() {
    let rig = Rig::new([pool("A", 2, Ordering::Batch)]).await;
    let failed = |body: &str| Outcome::RetryLater {
        after: Some(Duration::from_secs(5)),
        why: "no".to_owned(),
        status: Some(503),
        body: Some(body.into()),
    };
    let open = Outcome::BreakerOpen { name: "h:1".into(), rest: Duration::from_secs(5) };
    rig.executor.on("m", [answers(failed("first")), answers(open), done_after(50)]);
    let said = || {
        let last = rig.router.last_error("q", "m");
        last.map(|last| (last.status, last.body.as_deref().unwrap_or_default().to_owned()))
    };
    for settled in 1..=2 {
        rig.hand_out([grouped("m", "A", "g")]);
        rig.source.until_settled(settled).await;
        assert_eq!(said(), Some((Some(503), "first".to_owned())), "no call was made since");
    }
    rig.hand_out([grouped("m", "A", "g")]);
    rig.settle_down().await;
    let view = rig.router.message("m").expect("it runs");
    assert_eq!(view.last_error, rig.router.last_error("q", "m"));
    rig.source.until_settled(3).await;
    assert_eq!(said(), None);
}
