//! Order after a crash: what is new waits for what was unsettled, and only as long as it must.

use std::time::Duration;

use async_nats::jetstream;
use sluicegate_dispatch::{Demand, Message, Order, Settled, Settlement, Source};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, sleep};

use crate::rig::{again, ids, open, ready, receive, server, settle, uri};

const WINDOW: Duration = Duration::from_secs(5);
/// Where it is not to be waited for.
const LONG: Duration = Duration::from_secs(40);

fn names(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("m{n:02}")).collect()
}

/// A queue of ten, of which a first life has taken four and settled the first.
async fn left_behind(base: &str, queue: &str, window: Duration) -> NatsSource<Message> {
    let source = open(base, queue, window).await;
    let sent = names(0, 10).iter().map(|name| publication(name)).collect();
    source.publish(sent).await.unwrap();
    let received = receive(&source, 4).await;
    assert_eq!(settle(&source, &received[0].receipt, Settlement::Ack).await, Settled::Done);
    source
}

/// The name of a queue of which a first life has left exactly three behind. On a busy machine it may have
/// left more: an answer that it had given up, and that came after its end.
async fn left_three(base: &str, queue: &str, window: Duration) -> String {
    let context = jetstream::new(async_nats::connect(base).await.unwrap());
    for number in 0..10 {
        let queue = format!("{queue}{number}");
        drop(left_behind(base, &queue, window).await);
        let stream = context.get_stream(&queue).await.unwrap();
        if stream.consumer_info("workers").await.unwrap().num_ack_pending == 3 {
            return queue;
        }
    }
    panic!("every life left more behind than it should");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_all_come_in_their_order() {
    let Some(broker) = server() else { return };
    drop(left_behind(broker.url(), "crashed", WINDOW).await);
    let source = open(broker.url(), "crashed", WINDOW).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    let begun = Instant::now();
    assert_eq!(ids(&receive(&source, 9).await), names(1, 10));
    assert!(begun.elapsed() < WINDOW * 6, "after {:?}", begun.elapsed());
}

/// The windows of what was out end in another order than the messages have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_they_come_in_their_order_though_one_was_extended() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "extended", WINDOW).await;
    let sent = names(1, 10).iter().map(|name| publication(name)).collect();
    source.publish(sent).await.unwrap();
    let received = receive(&source, 3).await;
    sleep(WINDOW / 2).await;
    let extended = source.extend(vec![received[0].receipt.clone()]).await.unwrap();
    assert_eq!(extended, [Settled::Done]);
    drop(source);
    let source = open(broker.url(), "extended", WINDOW).await;
    source.keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    assert_eq!(ids(&receive(&source, 9).await), names(1, 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_that_follows_a_crash_too() {
    let Some(broker) = server() else { return };
    drop(left_behind(broker.url(), "twice", WINDOW).await);
    let source = open(broker.url(), "twice", WINDOW).await;
    // It takes new ones in, and dies before the older ones have come.
    assert_eq!(source.receive(Demand::any(9)).await.unwrap(), []);
    drop(source);
    let source = open(broker.url(), "twice", WINDOW).await;
    assert_eq!(ids(&receive(&source, 9).await), names(1, 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_needs_order_nothing_waits() {
    let Some(broker) = server() else { return };
    let base = broker.url();
    let queue = left_three(base, "orderless", LONG).await;
    let source = open(base, &queue, LONG).await;
    source.keep_order(&std::sync::Arc::default());
    let begun = Instant::now();
    assert_eq!(ids(&receive(&source, 6).await), names(4, 10));
    assert!(begun.elapsed() < LONG, "after {:?}", begun.elapsed());
    let queue = left_three(base, "shared", LONG).await;
    let shared = NatsSettings::parse(&format!("{}&shared=true", uri(base, &queue))).unwrap();
    let source: NatsSource<Message> = ready(shared.with_visibility(LONG)).await;
    let begun = Instant::now();
    assert_eq!(ids(&receive(&source, 6).await), names(4, 10));
    assert!(begun.elapsed() < LONG, "after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_handed_back_before_the_end_comes_at_once_and_first() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "drained", LONG).await;
    let sent = names(0, 10).iter().map(|name| publication(name)).collect();
    source.publish(sent).await.unwrap();
    for delivery in receive(&source, 4).await {
        let handed_back = settle(&source, &delivery.receipt, again(Duration::ZERO)).await;
        assert_eq!(handed_back, Settled::Done);
    }
    source.stop().await;
    drop(source);
    let source = open(broker.url(), "drained", LONG).await;
    let begun = Instant::now();
    assert_eq!(ids(&receive(&source, 10).await), names(0, 10));
    assert!(begun.elapsed() < LONG, "after {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_delay_holds_new_messages_for_one_window_only() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "long", WINDOW).await;
    // So many that every question is answered in full.
    let sent = names(0, 1000).iter().map(|name| publication(name)).collect();
    source.publish(sent).await.unwrap();
    let first = receive(&source, 1).await.remove(0);
    settle(&source, &first.receipt, again(Duration::from_secs(3600))).await;
    drop(source);
    let source = open(broker.url(), "long", WINDOW).await;
    let begun = Instant::now();
    assert_eq!(ids(&receive(&source, 2).await), names(1, 3));
    assert!(begun.elapsed() < WINDOW * 6, "after {:?}", begun.elapsed());
    let depth = source.depth().await.unwrap();
    assert_eq!((depth.waiting, depth.out), (998, 2));
    // Meanwhile nothing was asked for that would only have waited here.
    let client = async_nats::connect(broker.url()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream("long").await.unwrap();
    let unsettled = stream.consumer_info("workers").await.unwrap().num_ack_pending;
    assert!(unsettled < 50, "{unsettled} of 1000 were asked for");
}
