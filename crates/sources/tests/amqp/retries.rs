//! What comes again: as it was, with its count, by its name.

use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use sluicegate_dispatch::{Delivery, Depth, Envelope, Settle, Settled, Source};
use sluicegate_sources::amqp::{AmqpSource, Queue, Topology};
use sluicegate_testkit::conformance::source::{publication, publication_in};
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::stage::{Other, again, eventually, gone, name, receive, settings, settle, shared};

const SOON: Duration = Duration::from_millis(100);

/// A message of someone else's comes back as it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_comes_back_as_it_was() {
    let Some(url) = shared() else { return };
    let queue = name("again");
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    let other = Other::at(url).await;
    let mut headers = FieldTable::default();
    headers.insert("tenant".into(), AMQPValue::LongString("acme".into()));
    headers.insert("number".into(), AMQPValue::LongInt(7));
    // A copy would go there as well.
    let copies = vec![AMQPValue::LongString(queue.as_str().into())];
    headers.insert("CC".into(), AMQPValue::FieldArray(copies.into()));
    let properties = BasicProperties::default()
        .with_headers(headers)
        .with_type("order.created".into())
        .with_correlation_id("c7".into())
        .with_content_type("text/plain".into())
        .with_timestamp(1_700_000_000)
        // It would be refused from anybody else, and is from us who are guests.
        .with_user_id("guest".into())
        // With it a copy would come before its time.
        .with_expiration("60000".into());
    other.publish(&queue, b"\xff\x00 no text", properties).await;
    let mut last = receive(&source, 1).await.remove(0);
    assert_eq!(last.attempts, 0);
    for attempts in 1..4 {
        let begun = Instant::now();
        let delay = SOON * attempts;
        assert_eq!(settle(&source, again(&last.receipt, delay, attempts)).await, Settled::Done);
        let next = receive(&source, 1).await.remove(0);
        assert!(begun.elapsed() >= delay, "it came after {:?}", begun.elapsed());
        assert_eq!((next.attempts, &next.broker_id), (attempts, &last.broker_id));
        let (mut before, after) = (last.message.unwrap(), next.message.clone().unwrap());
        before.redelivered = true;
        assert_eq!(before, after);
        last = next;
    }
    let seen = last.message.clone().unwrap();
    assert_eq!(&*seen.body, b"\xff\x00 no text");
    assert_eq!(seen.event_type.as_deref(), Some("order.created"));
    assert_eq!(seen.routing_key.as_deref(), Some(&*queue));
    assert_eq!(seen.id, None);
    let header = |name| seen.header(name);
    assert_eq!(
        [header("tenant"), header("number"), header("correlation-id"), header("content-type")],
        [Some("acme"), Some("7"), Some("c7"), Some("text/plain")]
    );
    assert_eq!(seen.headers.iter().filter(|(name, _)| name.starts_with("x-")).count(), 0);
    assert_eq!(settle(&source, gone(&last.receipt)).await, Settled::Done);
    // No copy went astray.
    assert_eq!(source.depth().await.unwrap(), Depth::default());
}

/// Handed back at once it keeps its place; with another count of attempts it is a copy at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_once_it_keeps_its_place_unless_it_counts() {
    let Some(url) = shared() else { return };
    let queue = name("place");
    let source =
        AmqpSource::<Envelope>::open(settings(url, &queue).with_prefetch(1)).await.unwrap();
    source.publish(["a", "b", "c"].map(publication).into()).await.unwrap();
    let id = |delivery: &Delivery<Envelope>| delivery.message.as_ref().unwrap().id.clone().unwrap();
    let first = receive(&source, 1).await.remove(0);
    settle(&source, again(&first.receipt, Duration::ZERO, 0)).await;
    let first = receive(&source, 1).await.remove(0);
    assert_eq!(&*id(&first), "a");
    settle(&source, again(&first.receipt, Duration::ZERO, 1)).await;
    let mut order = Vec::new();
    for _ in 0..3 {
        let next = receive(&source, 1).await.remove(0);
        order.push(format!("{} {}", id(&next), next.attempts));
        settle(&source, gone(&next.receipt)).await;
    }
    assert_eq!(order, ["b 0", "c 0", "a 1"]);
}

/// Groups and long ids come back too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_and_groups_are_carried() {
    let Some(url) = shared() else { return };
    let queue = name("carried");
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    let long = "ü".repeat(250);
    let sent = vec![publication_in(&long, "POOL", Some("group 7"), false), publication("short")];
    source.publish(sent).await.unwrap();
    for attempts in 1..3 {
        for delivery in receive(&source, 2).await {
            let envelope = delivery.message.unwrap();
            let is_long = envelope.group.is_some();
            let (id, group) = if is_long { (&*long, Some("group 7")) } else { ("short", None) };
            assert_eq!((envelope.id.as_deref(), envelope.group.as_deref()), (Some(id), group));
            assert_eq!(&*delivery.broker_id, id);
            settle(&source, again(&delivery.receipt, SOON, attempts)).await;
        }
    }
    receive(&source, 2).await;
}

/// Another life of the program counts what waits from an earlier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_counted_by_the_next_life() {
    let Some(url) = shared() else { return };
    let queue = name("counted");
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    let mut late = publication("late");
    late.delay = Duration::from_secs(3000);
    source.publish(vec![late, publication("now")]).await.unwrap();
    assert_eq!(source.depth().await.unwrap(), Depth { waiting: 1, delayed: 1, out: 0 });
    source.close().await;
    drop(source);
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    assert_eq!(source.depth().await.unwrap(), Depth { waiting: 1, delayed: 1, out: 0 });
}

/// Of a batch of which one part cannot be done, the rest is done, and the part can be tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_fails_in_part_can_be_tried_again() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("part"));
    let source = AmqpSource::<Envelope>::open(settings(&proxy.url(url), &queue)).await.unwrap();
    let other = Other::at(url).await;
    for text in ["a", "b", "c"] {
        other.publish(&queue, text.as_bytes(), BasicProperties::default()).await;
    }
    let received = receive(&source, 3).await;
    // The line for copies cannot be made now, the one for acks stands.
    proxy.refuse(true);
    let lot = vec![
        gone(&received[0].receipt),
        again(&received[1].receipt, SOON, 1),
        again(&received[2].receipt, Duration::ZERO, 0),
    ];
    let settled = source.settle(lot.clone()).await.unwrap();
    assert!(
        matches!(&settled[..], [Settled::Done, Settled::Failed(_), Settled::Done]),
        "{settled:?}"
    );
    source.health().unwrap();
    // The third one was handed back, and the second one is still out.
    let third = receive(&source, 1).await.remove(0);
    assert_eq!(&*third.message.as_ref().unwrap().body, b"c");
    assert_eq!(source.depth().await.map_or(2, |depth| depth.out), 2);
    proxy.refuse(false);
    let expected = [Settled::Stale, Settled::Done, Settled::Stale];
    assert_eq!(source.settle(lot).await.unwrap(), expected);
    let second = receive(&source, 1).await.remove(0);
    assert_eq!((&*second.message.as_ref().unwrap().body, second.attempts), (&b"b"[..], 1));
    settle(&source, gone(&second.receipt)).await;
    settle(&source, gone(&third.receipt)).await;
    assert_eq!(source.depth().await.unwrap(), Depth::default());
}

/// A delay queue that someone deleted is made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_queue_that_is_gone_is_made_again() {
    let Some(url) = shared() else { return };
    let queue = name("gone");
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    let other = Other::at(url).await;
    source.publish(vec![publication("m1")]).await.unwrap();
    for attempts in 1..3 {
        let delivery = receive(&source, 1).await.remove(0);
        assert_eq!(delivery.attempts + 1, attempts);
        eventually("it is settled", async || {
            let lot = vec![again(&delivery.receipt, SOON, attempts)];
            source.settle(lot).await.is_ok_and(|settled| settled == [Settled::Done])
        })
        .await;
        eventually("it is on its way", async || {
            other.ready(&format!("sluicegate.wait.{queue}.100")).await == Some(0)
        })
        .await;
        other.delete(&format!("sluicegate.wait.{queue}.100")).await;
    }
    assert_eq!(receive(&source, 1).await[0].attempts, 2);
}

/// What is buried goes where the queue's dead letters go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_buried_is_kept_by_the_queue_that_keeps() {
    let Some(url) = shared() else { return };
    let [queue, dead] = ["buried", "dead"].map(name);
    let topology = Topology::new()
        .with_queue(Queue::new(&*queue).dead_letter("", &*dead))
        .with_queue(Queue::new(&*dead));
    let source = AmqpSource::<Envelope>::open(settings(url, &queue).with_topology(topology)).await;
    let source = source.unwrap();
    assert!(source.profile().keeps_dead_letters);
    source.publish((0..5).map(|n| publication(&format!("m{n}"))).collect()).await.unwrap();
    let received = receive(&source, 5).await;
    let receipts: Vec<_> = received[1..3].iter().map(|delivery| delivery.receipt.clone()).collect();
    assert_eq!(
        source.settle(receipts.into_iter().map(Settle::park).collect()).await.unwrap(),
        vec![Settled::Done; 2]
    );
    let receipts: Vec<_> = received[2..4].iter().map(|delivery| delivery.receipt.clone()).collect();
    assert_eq!(
        source.settle(receipts.into_iter().map(Settle::park).collect()).await.unwrap(),
        [Settled::Stale, Settled::Done]
    );
    let other = Other::at(url).await;
    other.wait_ready(&dead, 3).await;
    let plain = AmqpSource::<Envelope>::open(settings(url, &dead)).await.unwrap();
    assert!(!plain.profile().keeps_dead_letters);
    let dead = receive(&plain, 3).await;
    let ids: Vec<_> = dead.iter().map(|one| one.message.as_ref().unwrap().id.clone()).collect();
    assert_eq!(ids, ["m1", "m2", "m3"].map(|id| Some(id.into())));
}

/// A quorum queue's messages wait in quorum queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_can_wait_in_quorum_queues() {
    let Some(url) = shared() else { return };
    let (queue, other) = (name("quorum"), Other::at(url).await);
    let topology = Topology::new().with_queue(Queue::new(&*queue).quorum());
    // Making the queues may take seconds, in which the window must not end.
    let settings = settings(url, &queue).with_topology(topology);
    let settings = settings.with_visibility(Duration::from_secs(120));
    let source = AmqpSource::<Envelope>::open(settings).await.unwrap();
    source.publish((0..20).map(|n| publication(&format!("m{n}"))).collect()).await.unwrap();
    let received = receive(&source, 20).await;
    let lot = || received.iter().map(|one| again(&one.receipt, SOON * 3, 1)).collect();
    eventually("they are settled", async || {
        let settled = source.settle(lot()).await.unwrap();
        settled.iter().all(|answer| !matches!(answer, Settled::Failed(_)))
    })
    .await;
    let settled = Instant::now();
    assert_eq!(other.ready(&format!("sluicegate.wait.{queue}.300")).await, None);
    assert!(other.ready(&format!("sluicegate.wait.{queue}.300q")).await.is_some());
    for delivery in receive(&source, 20).await {
        assert_eq!(delivery.attempts, 1);
        assert_eq!(settle(&source, gone(&delivery.receipt)).await, Settled::Done);
    }
    assert!(settled.elapsed() < Duration::from_secs(30), "after {:?}", settled.elapsed());
}
