//! Order after a crash: what is new waits for what was unsettled, and only as long as it must.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use sluicegate_dispatch::{
    Demand, Envelope, Message, Order, Ordered, Settle, Settled, Settlement, Source,
};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::{Instant, sleep, timeout};

use crate::proxy::Wire;
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
    source.keep_order(&Arc::new(Order::of_pools(["POOL"])));
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
    source.keep_order(&Arc::new(Order::of_pools(["POOL"])));
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
    source.keep_order(&Arc::default());
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

/// Messages that nobody keeps in order pass by those that wait for an earlier life's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_stays_in_order_waits() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "passing", LONG).await;
    let of = |n: usize| match n % 3 {
        0 => publication_in(&format!("s{n}"), "STRICT", Some("g"), false),
        1 => publication_in(&format!("p{n}"), "PARALLEL", None, false),
        _ => publication_in(&format!("o{n}"), "OTHER", Some("g"), false),
    };
    source.publish((0..12).map(of).collect()).await.unwrap();
    receive(&source, 3).await;
    // What was asked for ahead goes back; those three stay out.
    source.stop().await;
    drop(source);
    let source = open(broker.url(), "passing", LONG).await;
    let order = Order::of_pools(["STRICT"]).with("PARALLEL", Ordered::Groups);
    source.keep_order(&Arc::new(order));
    let begun = Instant::now();
    assert_eq!(ids(&receive(&source, 6).await), ["p4", "o5", "p7", "o8", "p10", "o11"]);
    assert!(begun.elapsed() < LONG / 2, "after {:?}", begun.elapsed());
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
}

fn grouped(n: usize, group: &str) -> sluicegate_dispatch::Publication {
    publication_in(&format!("{group}{n:02}"), "ANY", Some(group), false)
}

async fn envelopes(base: &str, queue: &str, window: Duration) -> NatsSource<Envelope> {
    ready(NatsSettings::parse(&uri(base, queue)).unwrap().with_visibility(window)).await
}

/// The ids of a group in the order in which they came first.
fn of_group(seen: &[String], group: char) -> Vec<&String> {
    let mut first: Vec<&String> = Vec::new();
    for id in seen.iter().filter(|id| id.starts_with(group)) {
        if !first.contains(&id) {
            first.push(id);
        }
    }
    first
}

/// A consumer that orders by group, cut off again and again with deliveries on their way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_cuts_no_group_of_a_consumer_is_out_of_order() {
    let Some(broker) = server() else { return };
    let window = Duration::from_secs(3);
    let wire = Wire::to(broker.address()).await;
    let sender = open(broker.url(), "cuts", window).await;
    let source = envelopes(&wire.url(), "cuts", window).await;
    source.keep_order(&Arc::new(Order::everywhere(Ordered::Groups)));
    let mut seen = Vec::new();
    for round in 0..5 {
        let some = (0..40).map(|n| grouped(round * 20 + n / 2, ["a", "b"][n % 2])).collect();
        sender.publish(some).await.unwrap();
        // The server has sent some of them into a connection that nobody reads any more.
        let asked =
            timeout(Duration::from_micros(700 * round as u64), source.receive(Demand::any(40)));
        let mut taken = asked.await.map(|taken| taken.unwrap_or_default()).unwrap_or_default();
        wire.cut();
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            for delivery in taken {
                seen.push(delivery.message.unwrap().id.unwrap().to_string());
                let ack = vec![Settle::ack(delivery.receipt)];
                while source.settle(ack.clone()).await.is_err() {
                    sleep(Duration::from_millis(20)).await;
                }
            }
            let all: BTreeSet<&String> = seen.iter().collect();
            if all.len() >= (round + 1) * 40 {
                break;
            }
            assert!(Instant::now() < end, "round {round}: {} came", all.len());
            taken = source.receive(Demand::any(7)).await.unwrap_or_default();
        }
    }
    for group in ['a', 'b'] {
        assert!(of_group(&seen, group).is_sorted(), "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_without_order_waits_for_nothing() {
    let Some(broker) = server() else { return };
    let source = open(broker.url(), "unordered", LONG).await;
    source.publish((0..10).map(|n| grouped(n, "g")).collect()).await.unwrap();
    receive(&source, 4).await;
    // What was asked for ahead goes back; those four stay out.
    source.stop().await;
    drop(source);
    let source = envelopes(broker.url(), "unordered", LONG).await;
    source.keep_order(&Arc::default());
    let begun = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 6 && begun.elapsed() < LONG / 2 {
        let some = source.receive(Demand::any(10)).await.unwrap();
        seen.extend(some.into_iter().map(|delivery| delivery.message.unwrap().id.unwrap()));
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

/// Order that is asked for only once the server is reached, and after it was not, is kept too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_can_be_asked_for_at_any_time() {
    let Some(broker) = server() else { return };
    let window = Duration::from_secs(3);
    drop(left_behind(broker.url(), "later", window).await);
    let source = open(broker.url(), "later", window).await;
    source.keep_order(&Arc::default());
    source.keep_order(&Arc::new(Order::everywhere(Ordered::All)));
    assert_eq!(ids(&receive(&source, 9).await), names(1, 10));
}
