//! Lines that are cut, brokers that crash or stand still, and channels that the broker ends.

use std::collections::BTreeSet;
use std::time::Duration;

use lapin::BasicProperties;
use sluicegate_dispatch::{Demand, Envelope, Settled, Source};
use sluicegate_sources::amqp::{
    AmqpAddress, AmqpConsume, AmqpSource, Binding, Connection, Exchange, ExchangeKind, Queue,
    Topology,
};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, timeout};

use crate::proxy::Proxy;
use crate::stage::{
    Other, PATIENCE, again, eventually, gone, name, own, receive, settings, settle, shared,
};

fn body(delivery: &sluicegate_dispatch::Delivery<Envelope>) -> String {
    let message = delivery.message.as_ref().unwrap();
    String::from_utf8(message.body.to_vec()).unwrap()
}

/// A cut line is made again, what was out comes again by the same name, and whoever waits for a
/// message gets the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_line_is_made_again() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("cut"));
    let source = AmqpSource::<Envelope>::open(settings(&proxy.url(url), &queue)).await.unwrap();
    let other = Other::at(url).await;
    // Neither of them has an id, and two say the same.
    for text in ["one", "two", "two"] {
        other.publish(&queue, text.as_bytes(), BasicProperties::default()).await;
    }
    let first = receive(&source, 3).await;
    let names: BTreeSet<_> = first.iter().map(|delivery| delivery.broker_id.clone()).collect();
    assert_eq!(names.len(), 3);
    for _ in 0..3 {
        proxy.cut();
        let second = receive(&source, 3).await;
        for (first, second) in first.iter().zip(&second) {
            assert_eq!((body(first), &first.broker_id), (body(second), &second.broker_id));
            assert!(second.message.as_ref().unwrap().redelivered);
        }
    }
    // While nobody answers, receiving fails, slowly, and the health says why.
    proxy.refuse(true);
    proxy.cut();
    eventually("it is ill", async || source.health().is_err()).await;
    let begun = Instant::now();
    source.receive(Demand::any(10)).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(500), "it failed at once");
    assert!(source.depth().await.is_err());
    proxy.refuse(false);
    let last = receive(&source, 3).await;
    let lot = last.iter().map(|delivery| gone(&delivery.receipt)).collect();
    assert_eq!(source.settle(lot).await.unwrap(), vec![Settled::Done; 3]);
    source.health().unwrap();
    other.wait_ready(&queue, 0).await;
}

/// A broker that crashes and comes back has everything that was confirmed, out or waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_crashes_loses_nothing() {
    let Some(mut broker) = own() else { return };
    let queue = name("crash");
    let settings = settings(broker.url(), &queue).with_prefetch(20);
    let source = AmqpSource::<Envelope>::open(settings).await.unwrap();
    let sent: Vec<_> = (0..60).map(|n| publication(&format!("m{n}"))).collect();
    source.publish(sent).await.unwrap();
    let first = receive(&source, 10).await;
    let lot = first[..5].iter().map(|delivery| gone(&delivery.receipt)).collect();
    assert_eq!(source.settle(lot).await.unwrap(), vec![Settled::Done; 5]);
    // The ack has come through when the broker says how much is left.
    assert_eq!(source.depth().await.unwrap().out, 5);
    broker.crash();
    eventually("it is ill", async || source.health().is_err()).await;
    assert_eq!(settle(&source, gone(&first[7].receipt)).await, Settled::Stale);
    let late = timeout(PATIENCE, source.publish(vec![publication("late")])).await;
    late.unwrap().unwrap_err();
    broker.restart().unwrap();
    let mut seen = BTreeSet::new();
    while seen.len() < 55 {
        for delivery in receive(&source, 1).await {
            let id = delivery.message.as_ref().unwrap().id.clone().unwrap();
            assert_eq!(settle(&source, gone(&delivery.receipt)).await, Settled::Done);
            // An ack may have been lost with the broker, but nothing else.
            assert!(id.starts_with('m'), "{id}");
            seen.insert(id);
        }
    }
    source.publish(vec![publication("after")]).await.unwrap();
    eventually("what was published after", async || {
        let received = receive(&source, 1).await;
        settle(&source, gone(&received[0].receipt)).await;
        received[0].message.as_ref().unwrap().id.as_deref() == Some("after")
    })
    .await;
}

/// A broker that stands still for a while and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_stands_still_is_waited_for() {
    let Some(broker) = own() else { return };
    let queue = name("still");
    let url = format!("{}?queue={queue}&heartbeat=2", broker.url());
    let settings = sluicegate_sources::amqp::AmqpSettings::parse(&url).unwrap();
    let source = AmqpSource::<Envelope>::open(settings.clone()).await.unwrap();
    source.publish((0..20).map(|n| publication(&format!("m{n}"))).collect()).await.unwrap();
    let first = receive(&source, 10).await;
    broker.pause();
    // Nothing hangs for ever: publishing gives up, and so does looking.
    let (published, counted) = tokio::join!(
        timeout(PATIENCE, source.publish(vec![publication("late")])),
        timeout(PATIENCE, source.depth()),
    );
    published.unwrap().unwrap_err();
    counted.unwrap().unwrap_err();
    let probed = timeout(PATIENCE, sluicegate_sources::amqp::probe(&settings)).await;
    assert!(matches!(probed.unwrap(), Err(sluicegate_sources::OpenError::Unreachable(_))));
    broker.resume();
    eventually("it is well", async || source.health().is_ok()).await;
    let mut seen = BTreeSet::new();
    for delivery in &first {
        // The line was given up, so what was out on it comes again.
        assert_eq!(settle(&source, gone(&delivery.receipt)).await, Settled::Stale);
    }
    while seen.len() < 20 {
        let delivery = receive(&source, 1).await.remove(0);
        settle(&source, gone(&delivery.receipt)).await;
        let id = delivery.message.unwrap().id.unwrap();
        if *id != *"late" {
            seen.insert(id);
        }
    }
}

/// A queue that is deleted under a consumer is made again as it was declared, on the same
/// connection, and the other sources on that notice nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_the_broker_ends_is_opened_again() {
    let Some(url) = shared() else { return };
    let [queue, beside, exchange] = ["deleted", "beside", "exchange"].map(name);
    let topology = Topology::new()
        .with_exchange(Exchange::new(&*exchange, ExchangeKind::Topic))
        .with_queue(Queue::new(&*queue).max_length(100))
        .with_binding(Binding::new(&*queue, &*exchange, "orders.*"));
    let connection = Connection::open(AmqpAddress::parse(url).unwrap(), topology).await.unwrap();
    let source = AmqpSource::<Envelope>::on(&connection, AmqpConsume::new(&*queue)).await.unwrap();
    let calm = AmqpSource::<Envelope>::on(&connection, AmqpConsume::new(&*beside)).await.unwrap();
    let send = async |key: &str, text: &'static str| {
        let envelope = Envelope { body: text.into(), ..Envelope::default() };
        connection.publish(if key == beside { "" } else { &exchange }, key, vec![envelope]).await
    };
    send(&beside, "calm").await.unwrap();
    send("orders.new", "one").await.unwrap();
    let kept = receive(&calm, 1).await;
    let lost = receive(&source, 1).await;
    assert_eq!(lost[0].message.as_ref().unwrap().routing_key.as_deref(), Some("orders.new"));
    let other = Other::at(url).await;
    other.delete(&queue).await;
    eventually("a message comes by the exchange", async || send("orders.new", "two").await.is_ok())
        .await;
    assert_eq!(body(&receive(&source, 1).await[0]), "two");
    assert_eq!(settle(&source, gone(&lost[0].receipt)).await, Settled::Stale);
    assert_eq!(settle(&calm, gone(&kept[0].receipt)).await, Settled::Done);
    assert_eq!(connection.generation(), Some(1));
}

/// A delivery that is out for longer than the broker allows costs its channel: everything on it
/// comes again, and `oldest_out` has said so before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_consumer_timeout_is_survived() {
    let Some(mut broker) = own() else { return };
    let impatient = "[{rabbit,[{consumer_timeout,3000},{channel_tick_interval,1000}]}].";
    std::fs::write(broker.folder().join("advanced.config"), impatient).unwrap();
    broker.restart().unwrap();
    let queue = name("timeout");
    let address = AmqpAddress::parse(broker.url()).unwrap();
    let connection = Connection::open(address, Topology::new()).await.unwrap();
    let source = AmqpSource::<Envelope>::on(&connection, AmqpConsume::new(&*queue)).await.unwrap();
    assert_eq!(source.oldest_out(), None);
    let envelopes =
        ["slow", "fast"].map(|text| Envelope { body: text.into(), ..Envelope::default() });
    connection.publish("", &queue, envelopes.into()).await.unwrap();
    let received = receive(&source, 2).await;
    assert_eq!(settle(&source, gone(&received[1].receipt)).await, Settled::Done);
    let mut oldest = Duration::ZERO;
    let second = loop {
        oldest = oldest.max(source.oldest_out().unwrap_or_default());
        if let Some(again) = source.receive(Demand::any(10)).await.unwrap_or_default().pop() {
            break again;
        }
    };
    assert!(oldest >= Duration::from_secs(1), "the oldest was out for {oldest:?}");
    assert_eq!((body(&second), &second.broker_id), ("slow".to_owned(), &received[0].broker_id));
    assert_eq!(settle(&source, gone(&received[0].receipt)).await, Settled::Stale);
    assert_eq!(settle(&source, gone(&second.receipt)).await, Settled::Done);
    assert_eq!(connection.generation(), Some(1));
}

/// What is to come back later is somewhere at the broker at every moment, however often that
/// crashes on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delayed_messages_survive_crashes_of_the_broker() {
    let Some(mut broker) = own() else { return };
    let queue = name("delayed");
    let settings = settings(broker.url(), &queue).with_visibility(Duration::from_secs(5));
    let source = AmqpSource::<Envelope>::open(settings).await.unwrap();
    let sent: Vec<_> = (0..200).map(|n| publication(&format!("m{n:03}"))).collect();
    source.publish(sent).await.unwrap();
    let mut done = BTreeSet::new();
    for round in 0..6u64 {
        // Everything is on its way into delay queues, and out of them, when it crashes.
        let end = Instant::now() + Duration::from_millis(300 + round * 130);
        while Instant::now() < end {
            let received = source.receive(Demand::any(20)).await.unwrap_or_default();
            let delay = |n: usize| Duration::from_millis([100, 150, 300, 600][n % 4]);
            let lot = received.iter().enumerate();
            let lot = lot.map(|(n, delivery)| {
                let attempts = delivery.attempts + 1;
                again(&delivery.receipt, delay(n), attempts)
            });
            let settled = timeout(Duration::from_millis(200), source.settle(lot.collect())).await;
            drop(settled);
        }
        broker.crash();
        broker.restart().unwrap();
    }
    let begun = Instant::now();
    while done.len() < 200 {
        assert!(begun.elapsed() < PATIENCE, "{} of 200 are left", done.len());
        let received = source.receive(Demand::any(100)).await.unwrap_or_default();
        for delivery in &received {
            done.insert(delivery.message.as_ref().unwrap().id.clone().unwrap());
        }
        let lot = received.iter().map(|delivery| gone(&delivery.receipt)).collect();
        source.settle(lot).await.unwrap();
    }
}
