//! Publishing: each message is answered by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use sluicegate_dispatch::{Envelope, Settled, Source};
use sluicegate_sources::amqp::{
    AmqpAddress, AmqpSource, Binding, Connection, Exchange, ExchangeKind, Queue, Topology,
};
use sluicegate_testkit::conformance::source::publication;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::proxy::{CHANNEL_OPEN, CONFIRM_SELECT, PUBLISH, Proxy};
use crate::stage::{Other, PATIENCE, again, gone, name, receive, settings, settle, shared};

fn envelope(text: &str) -> Envelope {
    Envelope { body: text.to_owned().into(), ..Envelope::default() }
}

/// A queue to which two exchanges lead.
fn two_exchanges(queue: &str, left: &str, right: &str) -> Topology {
    let mut topology = Topology::new().with_queue(Queue::new(queue));
    for exchange in [left, right] {
        topology = topology
            .with_exchange(Exchange::new(exchange, ExchangeKind::Fanout))
            .with_binding(Binding::new(queue, exchange, ""));
    }
    topology
}

/// What the messages of a queue say, of which there are at least so many different ones. All that are in it
/// are taken, as a message may be there twice.
async fn texts_of(url: &str, queue: &str, count: usize) -> BTreeSet<String> {
    let ready = Other::at(url).await.ready(queue).await.unwrap() as usize;
    assert!(ready >= count, "{ready} of {count} are in {queue}");
    let source = AmqpSource::<Envelope>::open(settings(url, queue)).await.unwrap();
    let mut texts = BTreeSet::new();
    let mut left = ready;
    while left > 0 {
        let received = receive(&source, left.min(100)).await;
        left -= received.len();
        let all = received.iter().map(|delivery| gone(&delivery.receipt)).collect();
        source.settle(all).await.unwrap();
        let bodies = received.into_iter().map(|delivery| delivery.message.unwrap().body);
        texts.extend(bodies.map(|body| String::from_utf8(body.to_vec()).unwrap()));
    }
    texts
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

/// The broker ends a connection on which it finds the rest of what was published on a channel that it has
/// closed: only the messages to the exchange that is gone fail, whether that happens while others
/// are on their way or while a channel is opened for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_ends_for_one_message_fails_no_other() {
    let Some(url) = shared() else { return };
    let other = Other::at(url).await;
    for method in [PUBLISH, CHANNEL_OPEN, CONFIRM_SELECT] {
        let (proxy, going) = (Proxy::before(url).await, name("going"));
        let [queue, staying] = ["kept", "staying"].map(name);
        let topology = two_exchanges(&queue, &going, &staying);
        let address = AmqpAddress::parse(&proxy.url(url)).unwrap();
        let connection = Connection::open(address, topology).await.unwrap();
        let publish = async |n: usize| {
            let to = [("", &*queue), (&*going, ""), (&*staying, "")][n % 3];
            (n, connection.publish(to.0, to.1, vec![envelope(&format!("m{n}"))]).await)
        };
        for n in 0..3 {
            publish(n).await.1.unwrap();
        }
        other.channel.exchange_delete(going.as_str().into(), Default::default()).await.unwrap();
        proxy.end_at(method);
        let answers = timeout(PATIENCE, join_all((3..303).map(publish))).await.expect("in time");
        assert!(proxy.has_ended(), "{method:?} was not said");
        for (n, answer) in answers {
            match answer {
                Ok(()) => assert_ne!(n % 3, 1, "m{n}"),
                Err(error) => {
                    assert!(
                        n % 3 == 1 && error.cause.contains(&going),
                        "{method:?}: m{n}: {error}"
                    );
                }
            }
        }
        let there = texts_of(url, &queue, 201).await;
        assert!((3..303).all(|n| n % 3 == 1 || there.contains(&format!("m{n}"))), "{there:?}");
    }
}

/// An exchange that is deleted while it is published to fails its own messages: those to other exchanges
/// and queues are all stored, though they were on their way on the same channel or connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_goes_away_fails_its_own_messages() {
    let Some(url) = shared() else { return };
    let [queue, going, staying] = ["kept", "going", "staying"].map(name);
    let topology = two_exchanges(&queue, &going, &staying);
    let connection = Connection::open(AmqpAddress::parse(url).unwrap(), topology).await.unwrap();
    let other = Other::at(url).await;
    let (tell, deleted) = watch::channel(false);
    let publish = async |n: usize| {
        match n {
            1500 => {
                let going = going.as_str().into();
                other.channel.exchange_delete(going, Default::default()).await.unwrap();
                tell.send_replace(true);
            }
            // The last ones come when it is gone, however long that took.
            2900.. => drop(deleted.clone().wait_for(|is_deleted| *is_deleted).await),
            _ => {}
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
    let count = expected.len();
    assert!((2000..3000).contains(&count), "{count} were stored");
    let there = texts_of(url, &queue, count).await;
    let missing: Vec<_> = expected.difference(&there).collect();
    assert!(missing.is_empty(), "{} of {count} are missing: {missing:?}", missing.len());
}
