//! Which message is which: by its delivery within a channel, by its name across channels.

use std::time::Duration;

use lapin::BasicProperties;
use sluicegate_dispatch::{Delivery, Demand, Envelope, Settled, Source};
use sluicegate_sources::amqp::AmqpSource;
use tokio::time::sleep;

use crate::proxy::{ACK, Proxy};
use crate::stage::{Other, again, eventually, gone, name, receive, settings, settle, shared};

fn body(delivery: &Delivery<Envelope>) -> String {
    let message = delivery.message.as_ref().unwrap();
    String::from_utf8(message.body.to_vec()).unwrap()
}

/// An ack of one is not taken for an ack of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_messages_without_ids_are_two_messages() {
    let Some(url) = shared() else { return };
    let (queue, other) = (name("equal"), Other::at(url).await);
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    for _ in 0..2 {
        other.publish(&queue, b"same", BasicProperties::default()).await;
    }
    let two = receive(&source, 2).await;
    assert_ne!(two[0].broker_id, two[1].broker_id);
    assert_eq!(settle(&source, gone(&two[1].receipt)).await, Settled::Done);
    assert_eq!(settle(&source, again(&two[0].receipt, Duration::ZERO, 0)).await, Settled::Done);
    // The one that was handed back comes again, by its own name.
    let first = receive(&source, 1).await.remove(0);
    assert_eq!(first.broker_id, two[0].broker_id);
    // One that was never here has a name that nobody had.
    other.publish(&queue, b"same", BasicProperties::default()).await;
    let third = receive(&source, 1).await.remove(0);
    assert!(two.iter().all(|earlier| earlier.broker_id != third.broker_id), "{two:?} {third:?}");
    for delivery in [&first, &third] {
        assert_eq!(settle(&source, gone(&delivery.receipt)).await, Settled::Done);
    }
    assert_eq!(source.depth().await.unwrap().out, 0);
    other.wait_ready(&queue, 0).await;
}

/// A message that is settled keeps its name until whoever settled it has the answer: meanwhile
/// another one like it is not taken for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_taken_until_its_settlement_is_answered() {
    let Some(url) = shared() else { return };
    let (proxy, other) = (Proxy::before(url).await, Other::at(url).await);
    for id in [None, Some("order-7")] {
        let queue = name("answered");
        let source = AmqpSource::<Envelope>::open(settings(&proxy.url(url), &queue)).await.unwrap();
        let properties = match id {
            Some(id) => BasicProperties::default().with_message_id(id.into()),
            None => BasicProperties::default(),
        };
        other.publish(&queue, b"slow", BasicProperties::default()).await;
        other.publish(&queue, b"same", properties.clone()).await;
        let two = receive(&source, 2).await;
        // The line for copies leads nowhere, so the answer takes a while.
        proxy.mute_new(true);
        let acks = proxy.sent(ACK);
        let both = vec![again(&two[0].receipt, Duration::from_secs(1), 1), gone(&two[1].receipt)];
        let meanwhile = async {
            eventually("the ack goes out", async || proxy.sent(ACK) > acks).await;
            sleep(Duration::from_millis(500)).await;
            other.publish(&queue, b"same", properties.clone()).await;
            let third = receive(&source, 1).await.remove(0);
            assert_eq!(body(&third), "same");
            assert_ne!(third.broker_id, two[1].broker_id);
            third
        };
        let (settled, third) = tokio::join!(source.settle(both.clone()), meanwhile);
        let settled = settled.unwrap();
        assert!(matches!(&settled[..], [Settled::Failed(_), Settled::Done]), "{settled:?}");
        proxy.mute_new(false);
        assert_eq!(settle(&source, both[0].clone()).await, Settled::Done);
        assert_eq!(settle(&source, gone(&third.receipt)).await, Settled::Done);
        let copy = receive(&source, 1).await.remove(0);
        assert_eq!((body(&copy), &copy.broker_id), ("slow".into(), &two[0].broker_id));
        assert_eq!(settle(&source, gone(&copy.receipt)).await, Settled::Done);
        assert_eq!(source.depth().await.unwrap(), sluicegate_dispatch::Depth::default());
        source.close().await;
    }
}

/// A message that was acked and whose ack was lost comes again, with what came behind it, in its order,
/// by the same names and in another generation; without a loss the generation stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_ack_shows_as_another_generation() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("lost"));
    let source = AmqpSource::<Envelope>::open(settings(&proxy.url(url), &queue)).await.unwrap();
    let other = Other::at(url).await;
    for text in ["1", "2", "3"] {
        other.publish(&queue, text.as_bytes(), BasicProperties::default()).await;
    }
    let first = receive(&source, 3).await;
    let generation = first[0].receipt.generation;
    assert_eq!(settle(&source, again(&first[2].receipt, Duration::ZERO, 0)).await, Settled::Done);
    let third = receive(&source, 1).await.remove(0);
    assert_eq!((third.receipt.generation, body(&third)), (generation, "3".into()));
    assert_ne!(third.receipt, first[2].receipt);
    proxy.mute(true);
    assert_eq!(settle(&source, gone(&first[0].receipt)).await, Settled::Done);
    // What was sent is lost by now, and the line ends before anything passes again.
    tokio::time::sleep(Duration::from_millis(200)).await;
    proxy.cut();
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.mute(false);
    let second = receive(&source, 3).await;
    assert_eq!(second.iter().map(body).collect::<Vec<_>>(), ["1", "2", "3"]);
    for (first, second) in first.iter().zip(&second) {
        assert_ne!(second.receipt.generation, generation);
        if body(first) != "1" {
            assert_eq!(first.broker_id, second.broker_id);
        }
    }
    let all = second.iter().map(|delivery| gone(&delivery.receipt)).collect();
    assert_eq!(source.settle(all).await.unwrap(), vec![Settled::Done; 3]);
    assert_eq!(source.receive(Demand::any(1)).await.unwrap(), []);
}

/// A copy has the name of the first one, also where another message of the same id is here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_keeps_its_name_beside_another_of_its_id() {
    let Some(url) = shared() else { return };
    let (queue, other) = (name("beside"), Other::at(url).await);
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    for text in ["one", "two"] {
        let properties = BasicProperties::default().with_message_id("a".into());
        other.publish(&queue, text.as_bytes(), properties).await;
    }
    let two = receive(&source, 2).await;
    assert_eq!(&*two[0].broker_id, "a");
    assert_ne!(two[1].broker_id, two[0].broker_id);
    let mut last = two[1].clone();
    for attempts in 1..3 {
        let delay = Duration::from_millis(100);
        assert_eq!(settle(&source, again(&last.receipt, delay, attempts)).await, Settled::Done);
        last = receive(&source, 1).await.remove(0);
        assert_eq!((body(&last), &last.broker_id), ("two".into(), &two[1].broker_id));
        assert_eq!(last.message.as_ref().unwrap().id.as_deref(), Some("a"));
    }
    let all = [&two[0], &last].map(|delivery| gone(&delivery.receipt)).into();
    assert_eq!(source.settle(all).await.unwrap(), vec![Settled::Done; 2]);
}
