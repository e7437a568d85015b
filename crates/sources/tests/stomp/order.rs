//! Order: what is handed back keeps its place, and what must stay in order does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Order, Settled, Settlement, Source};
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use sluicegate_testkit::conformance::source::publication_in;
use tokio::time::Instant;

use crate::rig::{fresh_name, settings};
use crate::stage::{
    Queue, again, expect_nothing, id, ids, numbered, open, publish, receipts, receive, settle,
    settle_all, until, within,
};

/// A daemon that drains hands everything back, in whatever order, and the next one gets it in order.
#[tokio::test]
async fn what_is_handed_back_keeps_its_place() {
    let Some(mut broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let sent = numbered(60);
    let mut source = open(settings.clone()).await;
    publish(&source, sent.clone()).await;
    for round in 0..6 {
        let mut received = receive(&source, 30).await;
        assert_eq!(ids(&received), sent[..30], "round {round}");
        received.reverse();
        received.swap(3, 20);
        // Some of them are handed back, some have nobody to do it.
        let (back, _) = received.split_at(20);
        let settled = settle_all(&source, receipts(back), again(Duration::ZERO, 0)).await;
        assert_eq!(settled.unwrap(), vec![Settled::Done; 20]);
        if round % 3 == 2 {
            broker.crash();
            until("it notices", || source.health().is_err()).await;
            broker.restart().unwrap();
        } else {
            if round % 3 == 1 {
                within(source.stop()).await;
            }
            drop(source);
            source = open(settings.clone()).await;
        }
    }
}

fn strict(id: &str, group: &str) -> sluicegate_dispatch::Publication {
    publication_in(id, "STRICT", Some(group), false)
}

/// A head that is handed back with a delay holds its group, and is held here with its place.
#[tokio::test]
async fn a_delayed_head_holds_its_key_in_pools_that_keep_order() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let source = open(settings.clone()).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    let all = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("a3", "a")];
    let all = all.map(|(id, group)| strict(id, group));
    within(source.publish(all.into())).await.unwrap();
    let heads = receive(&source, 2).await;
    assert_eq!(ids(&heads), ["a1", "b1"]);
    expect_nothing(&source, Duration::from_millis(500)).await;
    let begun = Instant::now();
    let delay = Duration::from_secs(2);
    assert_eq!(settle(&source, &heads[0], again(delay, 3)).await, Settled::Done);
    assert_eq!(settle(&source, &heads[1], Settlement::Ack).await, Settled::Done);
    let other = receive(&source, 1).await;
    assert_eq!(ids(&other), ["b2"]);
    let head = receive(&source, 1).await;
    assert_eq!((ids(&head), head[0].attempts), (vec!["a1".to_owned()], 3));
    assert!(begun.elapsed() >= delay);
    // After a crash of the daemon the order is the same.
    drop(source);
    let source = open(settings).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    for expected in [&["a1", "b2"][..], &["a2"], &["a3"]] {
        let received = receive(&source, expected.len()).await;
        assert_eq!(ids(&received), expected);
        expect_nothing(&source, Duration::from_millis(200)).await;
        settle_all(&source, receipts(&received), Settlement::Ack).await.unwrap();
    }
}

/// Order can be asked for, and let go, while messages are here.
#[tokio::test]
async fn order_can_be_switched_on_and_off() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let source = open(settings(&broker, &fresh_name())).await;
    let all = ["a1", "a2", "a3", "a4", "a5"].map(|id| strict(id, "a"));
    within(source.publish(all.into())).await.unwrap();
    let two = receive(&source, 2).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    expect_nothing(&source, Duration::from_millis(300)).await;
    settle(&source, &two[0], Settlement::Ack).await;
    expect_nothing(&source, Duration::from_millis(300)).await;
    settle(&source, &two[1], again(Duration::from_millis(100), 1)).await;
    let back = receive(&source, 1).await;
    assert_eq!(ids(&back), ["a2"]);
    settle(&source, &back[0], Settlement::Ack).await;
    assert_eq!(ids(&receive(&source, 1).await), ["a3"]);
    source.keep_order(&std::sync::Arc::default());
    assert_eq!(ids(&receive(&source, 2).await), ["a4", "a5"]);
}

/// With several instances the broker sticks a group to one of them, and a retried message of it too.
#[tokio::test]
async fn a_group_goes_to_one_of_several_instances() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let settings = settings(&broker, &fresh_name());
    let sources: [Arc<Queue>; 2] =
        [Arc::new(open(settings.clone()).await), Arc::new(open(settings).await)];
    // Both are known to the broker before the first group is.
    for source in &sources {
        assert_eq!(within(source.receive(Demand::any(1))).await.unwrap(), []);
    }
    let message = |n: usize| strict(&format!("{}/{:02}", n % 10, n / 10), &(n % 10).to_string());
    within(sources[0].publish((0..100).map(message).collect())).await.unwrap();
    let mut by_group: BTreeMap<String, (BTreeSet<usize>, Vec<String>)> = BTreeMap::new();
    let mut left = 100;
    let end = Instant::now() + crate::stage::PATIENCE;
    while left > 0 {
        assert!(Instant::now() < end, "{left} never came");
        for (who, source) in sources.iter().enumerate() {
            for delivery in within(source.receive(Demand::any(20))).await.unwrap() {
                let group = delivery.message.as_ref().unwrap().group.clone().unwrap();
                let (whose, seen) = by_group.entry(group.to_string()).or_default();
                whose.insert(who);
                if delivery.attempts == 0 && seen.len() == 4 {
                    let settlement = again(Duration::from_millis(200), 1);
                    assert_eq!(settle(&**source, &delivery, settlement).await, Settled::Done);
                    seen.push("retried".to_owned());
                    continue;
                }
                seen.push(id(&delivery));
                assert_eq!(settle(&**source, &delivery, Settlement::Ack).await, Settled::Done);
                left -= 1;
            }
        }
    }
    assert!(by_group.values().all(|(whose, _)| whose.len() == 1), "{by_group:?}");
    let both: BTreeSet<_> = by_group.values().flat_map(|(whose, _)| whose).collect();
    assert_eq!(both.len(), 2, "all went to one of them");
}
