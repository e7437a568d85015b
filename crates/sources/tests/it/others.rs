//! Other processes at the same file.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use sluicegate_dispatch::{Demand, Depth, Order, Settled, Source};
use sluicegate_sources::sqlite::{Store, StoreSettings};
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, sleep};

use crate::stage::{Stage, again, ids, state, strict};

#[tokio::test(start_paused = true)]
async fn what_another_process_publishes_is_noticed_soon() {
    let stage = Stage::open().await;
    let publisher = Store::open_publishing(state(&stage.folder)).await.unwrap();
    for n in 0..4 {
        let id = format!("m{n}");
        let publish = async {
            // The receiver waits by then.
            sleep(Duration::from_millis(50)).await;
            publisher.publish("orders", vec![publication(&id)]).await.unwrap();
            Instant::now()
        };
        let receive = async {
            let received = stage.queue.receive(Demand::any(10)).await.unwrap();
            (received, Instant::now())
        };
        let (published, (received, at)) = tokio::join!(publish, receive);
        assert_eq!(ids(&received), [id]);
        assert!(at - published < Duration::from_millis(300), "after {:?}", at - published);
        stage.done(&received[0]).await;
    }
}

#[tokio::test]
async fn both_can_write_at_once() {
    let stage = Stage::open().await;
    let publisher = Store::open_publishing(state(&stage.folder)).await.unwrap();
    let theirs = async {
        for n in 0..50 {
            let sent = (0..10).map(|m| publication(&format!("theirs {n}/{m}"))).collect();
            assert_eq!(publisher.publish("orders", sent).await.unwrap().accepted, 10);
        }
    };
    let ours = async {
        for n in 0..50 {
            let sent = (0..10).map(|m| publication(&format!("ours {n}/{m}"))).collect();
            assert_eq!(stage.queue.publish(sent).await.unwrap().accepted, 10);
        }
    };
    let mut seen = Vec::new();
    let receive = async {
        let end = Instant::now() + Duration::from_secs(60);
        while seen.len() < 1000 && Instant::now() < end {
            let received = stage.queue.receive(Demand::any(100)).await.unwrap();
            for delivery in &received {
                stage.done(delivery).await;
            }
            seen.extend(ids(&received));
        }
    };
    tokio::join!(theirs, ours, receive);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 1000);
    assert_eq!(stage.queue.depth().await.unwrap(), Depth::default());
}

#[tokio::test]
async fn their_ids_are_deduplicated_and_their_order_is_kept() {
    let stage = Stage::open().await;
    stage.queue.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    let publisher = Store::open_publishing(state(&stage.folder)).await.unwrap();
    stage.queue.publish(vec![strict("a1", "a")]).await.unwrap();
    let sent = vec![strict("a1", "a"), strict("a2", "a"), strict("b1", "b")];
    let published = publisher.publish("orders", sent).await.unwrap();
    assert_eq!((published.accepted, published.duplicates), (3, 1));
    let received = stage.take(9).await;
    assert_eq!(ids(&received), ["a1", "b1"]);
    // One that comes while the head is out, and goes before what waits.
    let high = publication_in("h", "STRICT", Some("a"), true);
    publisher.publish("orders", vec![high]).await.unwrap();
    assert_eq!(stage.take_ids(9).await, [""; 0]);
    stage.done(&received[0]).await;
    let next = stage.take(9).await;
    assert_eq!(ids(&next), ["h"]);
    stage.done(&next[0]).await;
    assert_eq!(stage.take_ids(9).await, ["a2"]);
}

#[tokio::test]
async fn a_publisher_makes_the_file_and_other_queues() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = Store::open_publishing(state(&folder)).await.unwrap();
    publisher.publish("orders", vec![publication("m1")]).await.unwrap();
    publisher.publish("mails", vec![publication("m1"), publication("m2")]).await.unwrap();
    let stage = Stage::open_in(folder).await;
    assert_eq!(stage.take_ids(9).await, ["m1"]);
    let mails = stage.store.queue("mails", Duration::from_secs(30)).await.unwrap();
    assert_eq!(ids(&mails.receive(Demand::any(10)).await.unwrap()), ["m1", "m2"]);
    assert_eq!(mails.depth().await.unwrap().out, 2);
    assert_eq!(stage.queue.depth().await.unwrap().out, 1);
}

#[tokio::test(start_paused = true)]
async fn what_this_process_does_wakes_who_waits_at_once() {
    let stage = Stage::open().await;
    stage.queue.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    // What is not noticed at once is noticed when the file is looked at, which takes a while.
    let at_once = Duration::from_millis(20);
    let begun = Instant::now();
    let publish = async {
        tokio::task::yield_now().await;
        let sent = vec![strict("a1", "a"), strict("a2", "a")];
        stage.queue.publish(sent).await.unwrap();
    };
    let (received, ()) = tokio::join!(stage.queue.receive(Demand::any(1)), publish);
    let received = received.unwrap();
    assert!(begun.elapsed() < at_once, "after {:?}", begun.elapsed());
    let settle = async {
        tokio::task::yield_now().await;
        stage.done(&received[0]).await;
    };
    let (second, ()) = tokio::join!(stage.queue.receive(Demand::any(1)), settle);
    assert_eq!(ids(&second.unwrap()), ["a2"]);
    assert!(begun.elapsed() < at_once, "after {:?}", begun.elapsed());
}

/// Keeps everybody else from writing, as a process does that writes.
struct Busy(Connection);

impl Busy {
    fn begin(stage: &Stage) -> Self {
        let connection = Connection::open(state(&stage.folder)).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Self(connection)
    }

    fn end(self) {
        self.0.execute_batch("COMMIT").unwrap();
    }
}

/// While it is not known whether a message is gone nobody gets it; where it is not, it comes as before.
#[tokio::test]
async fn what_could_not_be_discarded_comes_as_before() {
    let mut settings = StoreSettings::default();
    settings.busy = Some(Duration::from_secs(2));
    let stage = Stage::open_with(tempfile::tempdir().unwrap(), settings).await;
    stage.queue.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
    stage.publish(&["m1", "m2"]).await;
    let sent = vec![strict("a1", "a"), strict("a2", "a"), strict("b1", "b")];
    stage.queue.publish(sent).await.unwrap();
    let busy = Busy::begin(&stage);
    let meanwhile = async {
        // Both wait for the file by then.
        sleep(Duration::from_millis(500)).await;
        stage.take(10).await
    };
    let (m1, a1, taken) =
        tokio::join!(stage.queue.discard("m1"), stage.queue.discard("a1"), meanwhile);
    for failed in [m1, a1] {
        assert!(failed.unwrap_err().cause.contains("nothing was written"));
    }
    let mut others = ids(&taken);
    others.sort();
    assert_eq!(others, ["b1", "m2"]);
    busy.end();
    let mut back = stage.take_ids(10).await;
    back.sort();
    assert_eq!(back, ["a1", "m1"]);
}

#[tokio::test]
async fn what_could_not_be_settled_is_out_as_before() {
    let mut settings = StoreSettings::default();
    settings.busy = Some(Duration::from_millis(20));
    let stage = Stage::open_with(tempfile::tempdir().unwrap(), settings).await;
    stage.publish(&["m1"]).await;
    let received = stage.take(1).await;
    let gone = || sluicegate_dispatch::Settle {
        receipt: received[0].receipt.clone(),
        settlement: sluicegate_dispatch::Settlement::Ack,
    };
    let busy = Busy::begin(&stage);
    let error = stage.queue.settle(vec![gone()]).await.unwrap_err();
    let words = "another process holds the state file for too long: nothing was written, try again";
    assert_eq!(error.cause, words);
    assert!(words.starts_with(&stage.queue.health().unwrap_err().cause), "it says the same");
    let error = stage.queue.publish(vec![publication("m2")]).await.unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    busy.end();
    assert_eq!(
        stage.queue.settle(vec![gone(), gone()]).await.unwrap(),
        [Settled::Done, Settled::Stale]
    );
    assert_eq!(stage.queue.health(), Ok(()));
    // It comes back if its window ended while it was tried.
    let queue = stage.store.queue("short", Duration::from_millis(100)).await.unwrap();
    queue.publish(vec![publication("m3")]).await.unwrap();
    let received = queue.receive(Demand::any(1)).await.unwrap();
    let busy = Busy::begin(&stage);
    sleep(Duration::from_millis(90)).await;
    let gone = sluicegate_dispatch::Settle { receipt: received[0].receipt.clone(), ..gone() };
    assert!(queue.settle(vec![gone]).await.is_err());
    busy.end();
    assert_eq!(ids(&queue.receive(Demand::any(1)).await.unwrap()), ["m3"]);
}

#[tokio::test]
async fn what_is_being_settled_does_not_come_back_though_its_window_ends() {
    let stage = Stage::open().await;
    let queue = stage.store.queue("short", Duration::from_millis(200)).await.unwrap();
    queue.publish(vec![publication("m1"), publication("m2")]).await.unwrap();
    let received = queue.receive(Demand::any(2)).await.unwrap();
    let busy = Busy::begin(&stage);
    let settle = queue.settle(vec![sluicegate_dispatch::Settle::ack(received[0].receipt.clone())]);
    let meanwhile = async {
        sleep(Duration::from_millis(300)).await;
        // The other one comes back, for nobody settles it.
        let back = queue.receive(Demand::any(10)).await.unwrap();
        assert_eq!(ids(&back), ["m2"]);
        busy.end();
        back
    };
    let (settled, back) = tokio::join!(settle, meanwhile);
    assert_eq!(settled.unwrap(), [Settled::Done]);
    assert_eq!(queue.depth().await.unwrap(), Depth { waiting: 0, delayed: 0, out: 1 });
    assert!(queue.extend(vec![back[0].receipt.clone()]).await.unwrap() == [Settled::Done]);
}

#[tokio::test]
async fn a_delay_that_has_passed_before_it_is_written_is_over() {
    let stage = Stage::open().await;
    stage.publish(&["m1", "m2"]).await;
    let received = stage.take(2).await;
    stage.settle(&received[1], again(Duration::from_millis(200), 1)).await;
    let busy = Busy::begin(&stage);
    let settle = stage.settle(&received[0], again(Duration::from_millis(50), 1));
    let meanwhile = async {
        // A later one is due and received before the earlier one is written.
        let second = stage.queue.receive(Demand::any(10)).await.unwrap();
        assert_eq!(ids(&second), ["m2"]);
        busy.end();
    };
    let (settled, ()) = tokio::join!(settle, meanwhile);
    assert_eq!(settled, Settled::Done);
    assert_eq!(stage.take_ids(10).await, ["m1"]);
}

#[tokio::test]
async fn what_could_not_be_noted_comes_when_its_window_ends() {
    let mut settings = StoreSettings::default();
    settings.busy = Some(Duration::from_millis(20));
    let stage = Stage::open_with(tempfile::tempdir().unwrap(), settings).await;
    for pools in [&[][..], &["STRICT"][..]] {
        let name = format!("short {}", pools.len());
        let queue = stage.store.queue(name, Duration::from_millis(300)).await.unwrap();
        queue.keep_order(&std::sync::Arc::new(Order::of_pools(pools.iter().copied())));
        queue.publish(vec![strict("a1", "a")]).await.unwrap();
        let received = queue.receive(Demand::any(1)).await.unwrap();
        let busy = Busy::begin(&stage);
        let (after, attempts, reason) =
            (Duration::from_secs(1), 1, sluicegate_dispatch::Reason::Failed);
        let receipt = received[0].receipt.clone();
        let rest = sluicegate_dispatch::Rest { receipt, after, attempts, reason };
        assert!(queue.rest(vec![rest]).await.is_err());
        busy.end();
        let end = Instant::now() + Duration::from_secs(5);
        let mut back = Vec::new();
        while back.is_empty() && Instant::now() < end {
            back = queue.receive(Demand::any(1)).await.unwrap();
        }
        assert_eq!(ids(&back), ["a1"], "{pools:?}");
    }
}
