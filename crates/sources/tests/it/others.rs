//! Other processes at the same file.

use std::time::Duration;

use sluicegate_dispatch::Source;
use sluicegate_sources::sqlite::Store;
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, sleep};

use crate::stage::{Stage, ids, state, strict};

#[tokio::test]
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
            let received = stage.queue.receive(10).await.unwrap();
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
            let received = stage.queue.receive(100).await.unwrap();
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
    assert_eq!(stage.queue.depth().await.unwrap(), sluicegate_dispatch::Depth::default());
}

#[tokio::test]
async fn their_ids_are_deduplicated_and_their_order_is_kept() {
    let stage = Stage::open().await;
    stage.queue.keep_order_for(&["STRICT".into()]);
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
    assert_eq!(ids(&mails.receive(10).await.unwrap()), ["m1", "m2"]);
    assert_eq!(mails.depth().await.unwrap().out, 2);
    assert_eq!(stage.queue.depth().await.unwrap().out, 1);
}
