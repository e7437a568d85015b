//! Publishing: each message is answered by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use sluicegate_dispatch::{Demand, Envelope, Settled, Source};
use sluicegate_sources::amqp::{
    AmqpAddress, AmqpSource, Binding, Connection, Exchange, ExchangeKind, Queue, Topology,
};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::timeout;

use crate::stage::{Other, PATIENCE, again, gone, name, receive, settings, settle, shared};

fn envelope(text: &str) -> Envelope {
    Envelope { body: text.to_owned().into(), ..Envelope::default() }
}

/// A full queue, a missing exchange and a route to nowhere fail those that go there, and nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_message_fails_alone() {
    let Some(url) = shared() else { return };
    let [good, full, exchange] = ["good", "full", "exchange"].map(name);
    let topology = Topology::new()
        .with_exchange(Exchange::new(&*exchange, ExchangeKind::Direct))
        .with_queue(Queue::new(&*good))
        .with_queue(Queue::new(&*full).max_length(1).argument("x-overflow", "reject-publish"))
        .with_binding(Binding::new(&*good, &*exchange, "good"));
    let connection = Connection::open(AmqpAddress::parse(url).unwrap(), topology).await.unwrap();
    connection.publish("", &full, vec![envelope("it is full")]).await.unwrap();
    let missing = name("missing");
    let publish = async |n: usize| {
        let text = format!("m{n}");
        let (exchange, key) = match n % 10 {
            3 => ("", &*full),
            5 => (&*missing, "good"),
            7 => ("", "no-such-queue"),
            8 | 9 => (&*exchange, "good"),
            _ => ("", &*good),
        };
        let published = connection.publish(exchange, key, vec![envelope(&text)]).await;
        (n, published)
    };
    let mut stored = 0;
    for (n, published) in join_all((0..300).map(publish)).await {
        match (n % 10, published) {
            (3, Err(error)) => assert!(error.cause.contains("did not take"), "{error}"),
            (5, Err(error)) => assert!(error.cause.contains(&missing), "{error}"),
            (7, Err(error)) => assert!(error.cause.contains("no-such-queue"), "{error}"),
            (0 | 1 | 2 | 4 | 6 | 8 | 9, Ok(())) => stored += 1,
            (_, other) => panic!("m{n}: {other:?}"),
        }
    }
    let other = Other::at(url).await;
    // Those that were not confirmed when the channel ended may be there twice; none is missing.
    let there = other.ready(&good).await.unwrap();
    assert!(there >= stored, "{there} of {stored}");
    let source = AmqpSource::<Envelope>::open(settings(url, &good)).await.unwrap();
    let all = receive(&source, there as usize).await;
    let texts: BTreeSet<_> = all.into_iter().map(|one| one.message.unwrap().body).collect();
    assert_eq!(texts.len(), stored as usize);
}

/// A copy that the broker does not take fails alone, and its message can be settled again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_not_taken_fails_alone() {
    let Some(url) = shared() else { return };
    let queue = name("narrow");
    let narrow = Queue::new(&*queue).max_length(2).argument("x-overflow", "reject-publish");
    let settings = settings(url, &queue).with_prefetch(4);
    let settings = settings.with_topology(Topology::new().with_queue(narrow));
    let source = AmqpSource::<Envelope>::open(settings).await.unwrap();
    for id in ["a", "b"] {
        source.publish(vec![publication(id)]).await.unwrap();
    }
    let mut received = receive(&source, 2).await;
    for id in ["c", "d"] {
        source.publish(vec![publication(id)]).await.unwrap();
    }
    received.extend(receive(&source, 2).await);
    // Four are out, and two more fill the queue.
    for id in ["e", "f"] {
        source.publish(vec![publication(id)]).await.unwrap();
    }
    let calls = vec![
        gone(&received[0].receipt),
        again(&received[1].receipt, Duration::from_millis(100), 1),
        gone(&received[2].receipt),
    ];
    // A copy without a delay goes straight to the queue, which is full until an ack makes room.
    let refused = settle(&source, again(&received[3].receipt, Duration::ZERO, 1)).await;
    let Settled::Failed(error) = refused else { panic!("{refused:?}") };
    assert!(error.cause.contains("did not take"), "{error}");
    assert_eq!(source.settle(calls).await.unwrap(), vec![Settled::Done; 3]);
    assert_eq!(settle(&source, gone(&received[3].receipt)).await, Settled::Done);
}

/// An exchange that is deleted while it is published to fails its own messages: those to other exchanges
/// and queues are all stored, though they were on their way on the same channel or connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_goes_away_fails_its_own_messages() {
    let Some(url) = shared() else { return };
    let [queue, going, staying] = ["kept", "going", "staying"].map(name);
    let mut topology = Topology::new().with_queue(Queue::new(&*queue));
    for exchange in [&going, &staying] {
        topology = topology
            .with_exchange(Exchange::new(&**exchange, ExchangeKind::Fanout))
            .with_binding(Binding::new(&*queue, &**exchange, ""));
    }
    let connection = Connection::open(AmqpAddress::parse(url).unwrap(), topology).await.unwrap();
    let other = Other::at(url).await;
    let publish = async |n: usize| {
        if n == 1500 {
            other.channel.exchange_delete(going.as_str().into(), Default::default()).await.unwrap();
        }
        let to = [("", &*queue), (&*going, ""), (&*staying, "")][n % 3];
        let text = format!("m{n}");
        (n, connection.publish(to.0, to.1, vec![envelope(&text)]).await)
    };
    let published = stream::iter(0..3000).map(publish).buffer_unordered(400);
    let answers = timeout(PATIENCE, published.collect::<Vec<_>>()).await.expect("in time");
    let mut expected = BTreeSet::new();
    for (n, answer) in answers {
        match answer {
            Ok(()) => drop(expected.insert(format!("m{n}"))),
            Err(error) => {
                assert!(n % 3 == 1 && error.cause.contains(&going), "m{n}: {error}");
            }
        }
    }
    assert!(expected.len() >= 2000 && expected.len() < 3000, "{} were stored", expected.len());
    let source = AmqpSource::<Envelope>::open(settings(url, &queue)).await.unwrap();
    let mut there = BTreeSet::new();
    while let Ok(received) = source.receive(Demand::any(1000)).await
        && !received.is_empty()
    {
        for delivery in &received {
            let body = &delivery.message.as_ref().unwrap().body;
            there.insert(String::from_utf8(body.to_vec()).unwrap());
        }
        let all = received.iter().map(|delivery| gone(&delivery.receipt)).collect();
        source.settle(all).await.unwrap();
    }
    assert!(expected.is_subset(&there), "{} of {}", there.len(), expected.len());
}
