//! What the broker is told, and how often.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use sluicegate_dispatch::{Demand, Envelope, Settled, Source};
use sluicegate_sources::amqp::{AmqpAddress, AmqpConsume, AmqpSource, Connection, Topology};

use crate::proxy::{ACK, NACK, Proxy};
use crate::stage::{Other, again, consuming, eventually, gone, name, receive, settings, shared};

fn envelopes(count: usize) -> Vec<Envelope> {
    let envelope = |n: usize| Envelope { body: format!("m{n}").into(), ..Envelope::default() };
    (0..count).map(envelope).collect()
}

async fn on(proxy: &Proxy, url: &str, consume: AmqpConsume) -> AmqpSource<Envelope> {
    let address = AmqpAddress::parse(&proxy.url(url)).unwrap();
    let connection = Connection::open(address, Topology::new()).await.unwrap();
    AmqpSource::on(&connection, consume).await.unwrap()
}

/// A batch that is settled whole costs one frame, however it is shuffled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_acked_by_one_frame() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("frames"));
    let source = on(&proxy, url, AmqpConsume::new(&*queue).with_hold(Duration::ZERO)).await;
    source.connection().publish("", &queue, envelopes(300)).await.unwrap();
    let mut received = receive(&source, 300).await;
    received.reverse();
    let lot = received.iter().map(|delivery| gone(&delivery.receipt)).collect();
    assert_eq!(source.settle(lot).await.unwrap(), vec![Settled::Done; 300]);
    // The answer says that it is on the wire, and the depth that it has come through.
    assert_eq!(source.depth().await.unwrap().out, 0);
    assert_eq!((proxy.sent(ACK), proxy.sent(NACK)), (1, 0));
}

/// Handlers side by side, each settling its own, cost the broker hardly more than one would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_of_parallel_handlers_are_told_together() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("together"));
    let consume = AmqpConsume::new(&*queue).with_hold(Duration::from_millis(200));
    let source = on(&proxy, url, consume).await;
    consuming(&source).await;
    const COUNT: usize = 5_000;
    source.connection().publish("", &queue, envelopes(COUNT)).await.unwrap();
    let deliveries = stream::repeat_with(|| source.receive(Demand::any(100)))
        .then(|received| async { stream::iter(received.await.unwrap()) })
        .flatten()
        .take(COUNT);
    let handled = deliveries
        .map(|delivery| {
            let source = &source;
            async move {
                let pause = u64::from(delivery.message.unwrap().body[1]) % 3;
                tokio::time::sleep(Duration::from_millis(pause)).await;
                source.settle(vec![gone(&delivery.receipt)]).await.unwrap().remove(0)
            }
        })
        .buffer_unordered(64)
        .filter(|settled| std::future::ready(*settled == Settled::Done));
    assert_eq!(handled.count().await, COUNT);
    let frames = proxy.sent(ACK);
    assert!(frames < COUNT / 5, "{frames} frames for {COUNT} acks");
    assert_eq!(proxy.unknown_deliveries(), 0);
}

/// An ack above a missing one waits for it no longer than it may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ack_waits_for_a_missing_one_only_so_long() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("gap"));
    let consume = AmqpConsume::new(&*queue).with_hold(Duration::from_millis(300));
    let source = on(&proxy, url, consume).await;
    source.connection().publish("", &queue, envelopes(3)).await.unwrap();
    let received = receive(&source, 3).await;
    let begun = std::time::Instant::now();
    let settled = source.settle(vec![gone(&received[1].receipt)]).await.unwrap();
    assert_eq!(settled, [Settled::Done]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    eventually("the first ack", async || proxy.sent(ACK) == 1).await;
    // The missing one is old by now: nothing waits for it any more.
    assert_eq!(source.settle(vec![gone(&received[2].receipt)]).await.unwrap(), [Settled::Done]);
    assert_eq!(source.settle(vec![gone(&received[0].receipt)]).await.unwrap(), [Settled::Done]);
    eventually("three acks", async || proxy.sent(ACK) == 3).await;
    let other = Other::at(url).await;
    drop(source);
    other.wait_ready(&queue, 0).await;
}

/// The broker ends a channel on which a delivery is acked twice: that never happens, however many
/// settle, hand back, bury and extend at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_twice() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("twice"));
    let consume = AmqpConsume::new(&*queue)
        .with_prefetch(100)
        .with_hold(Duration::from_millis(2))
        .with_visibility(Duration::from_millis(1500));
    let source = on(&proxy, url, consume).await;
    consuming(&source).await;
    source.connection().publish("", &queue, envelopes(2_000)).await.unwrap();
    let work = |worker: usize| {
        let source = &source;
        async move {
            let mut done = Vec::new();
            let mut round = worker;
            loop {
                let received = source.receive(Demand::any(7)).await.unwrap();
                if received.is_empty() && source.depth().await.unwrap() == Default::default() {
                    return done;
                }
                for delivery in received {
                    round += 1;
                    let receipt = &delivery.receipt;
                    let lot = match round % 13 {
                        0 => vec![again(receipt, Duration::ZERO, 0)],
                        1 => vec![again(receipt, Duration::from_millis(1), 1), gone(receipt)],
                        // It is left to its window.
                        2 if round.is_multiple_of(5) => Vec::new(),
                        3 => vec![gone(receipt), gone(receipt), gone(receipt)],
                        _ => vec![gone(receipt)],
                    };
                    let is_gone = lot.first().is_some_and(|first| *first == gone(receipt));
                    let [left, right] = [lot.clone(), lot].map(|lot| source.settle(lot));
                    let (left, right, _) =
                        tokio::join!(left, right, source.extend(vec![receipt.clone()]));
                    let settled = [left.unwrap(), right.unwrap()].concat();
                    let count = settled.iter().filter(|answer| **answer == Settled::Done).count();
                    assert!(count <= 1, "{settled:?}");
                    if is_gone && count == 1 {
                        done.push(delivery.message.unwrap().body);
                    }
                }
            }
        }
    };
    let done = join_all((0..8).map(work)).await.concat();
    let distinct: BTreeSet<_> = done.iter().collect();
    assert_eq!((distinct.len(), done.len()), (2_000, 2_000));
    assert_eq!(proxy.unknown_deliveries(), 0);
}

/// A receipt of a line that was cut settles nothing, though the same tag is out again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receipts_of_an_earlier_line_settle_nothing() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("stale"));
    let source = on(&proxy, url, AmqpConsume::new(&*queue)).await;
    source.connection().publish("", &queue, envelopes(20)).await.unwrap();
    let first = receive(&source, 20).await;
    for _ in 0..3 {
        proxy.cut();
        eventually("it notices", async || source.health().is_err()).await;
        let second = receive(&source, 20).await;
        let tags = |all: &[sluicegate_dispatch::Delivery<Envelope>]| -> Vec<u64> {
            all.iter().map(|delivery| delivery.receipt.tag).collect()
        };
        assert_eq!(tags(&first), tags(&second));
        let old = first.iter().map(|delivery| gone(&delivery.receipt)).collect();
        assert_eq!(source.settle(old).await.unwrap(), vec![Settled::Stale; 20]);
        let receipts = first.iter().map(|delivery| delivery.receipt.clone()).collect();
        assert_eq!(source.extend(receipts).await.unwrap(), vec![Settled::Stale; 20]);
        assert_eq!(source.depth().await.unwrap().out, 20);
    }
}

/// What is settled whole while the line is cut is done or comes again, and nothing hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settling_over_a_line_that_is_cut_loses_nothing() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("cut"));
    let settings = settings(&proxy.url(url), &queue).with_prefetch(50);
    let source = AmqpSource::<Envelope>::open(settings).await.unwrap();
    let other = Other::at(url).await;
    for envelope in envelopes(500) {
        other.publish(&queue, &envelope.body, Default::default()).await;
    }
    let mut done = BTreeSet::new();
    let mut lots = 0;
    while done.len() < 500 {
        let received = receive(&source, 1).await;
        let more = source.receive(Demand::any(20)).await.unwrap_or_default();
        let received: Vec<_> = received.into_iter().chain(more).collect();
        let lot = received.iter().map(|delivery| gone(&delivery.receipt)).collect();
        lots += 1;
        let cut = async {
            if lots % 5 == 0 {
                proxy.cut();
            }
        };
        let (settled, ()) = tokio::join!(source.settle(lot), cut);
        for (delivery, settled) in received.into_iter().zip(settled.unwrap()) {
            if settled == Settled::Done {
                done.insert(delivery.message.unwrap().body);
            }
        }
    }
    drop(source);
    // Acks that were lost on the wire leave their messages.
    assert!(other.ready(&queue).await.is_some());
}
