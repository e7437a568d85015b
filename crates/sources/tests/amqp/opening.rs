//! Opening and closing: who is refused, who is waited for, and what is handed back.

use std::net::TcpListener;
use std::time::Duration;

use sluicegate_dispatch::{Demand, Envelope, Message, Settled, Source};
use sluicegate_sources::OpenError;
use sluicegate_sources::amqp::{
    AmqpAddress, AmqpConsume, AmqpSettings, AmqpSource, Connection, Queue, Topology, probe,
};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, timeout};

use crate::proxy::Proxy;
use crate::stage::{
    Other, PATIENCE, consuming, eventually, gone, name, receive, settings, settle, shared,
};

async fn refused(settings: AmqpSettings) -> [String; 2] {
    let opened = AmqpSource::<Message>::open(settings.clone()).await.map(drop);
    [opened, probe(&settings).await].map(|outcome| match outcome {
        Err(OpenError::Refused(why)) => why,
        other => panic!("{other:?}"),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_refused() {
    let Some(url) = shared() else { return };
    let stranger = url.replace("guest:guest", "guest:s3cret");
    for why in refused(settings(&stranger, "q")).await {
        assert!(why.contains("check user, password and rights"), "{why}");
        assert!(!why.contains("s3cret"), "{why}");
    }
    let elsewhere = url.replace("%2f", "nowhere");
    for why in refused(settings(&elsewhere, "q")).await {
        assert!(why.contains("vhost nowhere"), "{why}");
    }
}

/// What stands with other properties is refused, and named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declaration_that_does_not_fit_is_refused() {
    let Some(url) = shared() else { return };
    let queue = name("declared");
    let open = |declared: Queue| {
        let settings = settings(url, &queue).with_topology(Topology::new().with_queue(declared));
        AmqpSource::<Message>::open(settings)
    };
    let first = open(Queue::new(&*queue).max_length(5)).await.unwrap();
    let Err(OpenError::Refused(why)) = open(Queue::new(&*queue).max_length(6)).await else {
        panic!("it was let in")
    };
    assert!(why.contains("x-max-length") && why.contains(&*queue), "{why}");
    // One that says nothing of it takes it as it is.
    AmqpSource::<Message>::open(settings(url, &queue)).await.unwrap();
    drop(first);
}

/// A missing queue is made by whoever opens it, and not by whoever only looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_queue_is_made() {
    let Some(url) = shared() else { return };
    let (queue, other) = (name("made"), Other::at(url).await);
    probe(&settings(url, &queue)).await.unwrap();
    assert_eq!(other.ready(&queue).await, None);
    let source = AmqpSource::<Message>::open(settings(url, &queue)).await.unwrap();
    source.health().unwrap();
    assert_eq!(other.ready(&queue).await, Some(0));
    probe(&settings(url, &queue)).await.unwrap();
}

/// A broker that is not there yet is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_not_there_is_waited_for() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::before(url).await, name("waited"));
    proxy.refuse(true);
    let settings = settings(&proxy.url(url), &queue);
    let begun = Instant::now();
    assert!(matches!(probe(&settings).await, Err(OpenError::Unreachable(_))));
    let source = AmqpSource::<Message>::open(settings).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
    source.health().unwrap_err();
    source.receive(Demand::any(1)).await.unwrap_err();
    source.publish(vec![publication("m1")]).await.unwrap_err();
    proxy.refuse(false);
    eventually("it is well", async || source.health().is_ok()).await;
    source.publish(vec![publication("m1")]).await.unwrap();
    assert_eq!(settle(&source, gone(&receive(&source, 1).await[0].receipt)).await, Settled::Done);
}

/// Nobody listens, or someone does who says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_and_closed_ports_are_told_apart_from_refusals() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [&silent, &closed].map(|listener| listener.local_addr().unwrap().port());
    drop(closed);
    for port in ports {
        let settings = settings(&format!("amqp://u:s3cret@127.0.0.1:{port}/"), "q");
        let probed = timeout(PATIENCE, probe(&settings)).await.unwrap();
        let Err(OpenError::Unreachable(why)) = probed else { panic!("{probed:?}") };
        assert!(why.contains(&port.to_string()) && !why.contains("s3cret"), "{why}");
    }
}

/// Stopping ends the consumer and hands back what was never handed out, in its order; what is out
/// can still be settled; closing hands the rest back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_hands_back_what_waits() {
    let Some(url) = shared() else { return };
    let (queue, other) = (name("stopped"), Other::at(url).await);
    let source = AmqpSource::<Message>::open(settings(url, &queue)).await.unwrap();
    source.publish((0..100).map(|n| publication(&format!("m{n:02}"))).collect()).await.unwrap();
    let received = receive(&source, 10).await;
    eventually("all is here", async || source.depth().await.unwrap().waiting == 90).await;
    assert_eq!(other.ready(&queue).await, Some(0));
    source.stop().await;
    other.wait_ready(&queue, 90).await;
    assert_eq!(source.receive(Demand::any(10)).await.unwrap(), []);
    for delivery in &received[..5] {
        assert_eq!(settle(&source, gone(&delivery.receipt)).await, Settled::Done);
    }
    // Others get what was handed back, and nobody gets it here.
    source.publish(vec![publication("more")]).await.unwrap();
    other.wait_ready(&queue, 91).await;
    source.close().await;
    other.wait_ready(&queue, 96).await;
    assert_eq!(settle(&source, gone(&received[6].receipt)).await, Settled::Stale);
    source.close().await;
    drop(source);
    let next = AmqpSource::<Message>::open(settings(url, &queue)).await.unwrap();
    let ids: Vec<_> = receive(&next, 96)
        .await
        .into_iter()
        .map(|delivery| delivery.message.unwrap().id.to_string())
        .collect();
    let mut expected: Vec<_> = (5..100).map(|n| format!("m{n:02}")).collect();
    expected.push("more".into());
    assert_eq!(ids, expected);
}

/// An exclusive consumer waits for the end of another one, and then takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exclusive_consumer_waits_for_its_turn() {
    let Some(url) = shared() else { return };
    let queue = name("exclusive");
    let open = || AmqpSource::<Message>::open(settings(url, &queue).with_exclusive(true));
    let first = open().await.unwrap();
    let second = open().await.unwrap();
    consuming(&first).await;
    assert_eq!(first.receive(Demand::any(1)).await.unwrap(), []);
    second.receive(Demand::any(1)).await.unwrap_err();
    first.health().unwrap();
    second.health().unwrap_err();
    first.publish(vec![publication("m1")]).await.unwrap();
    receive(&first, 1).await;
    drop(first);
    receive(&second, 1).await;
    second.health().unwrap();
}

/// Several sources share a connection, each with its own prefetch; it outlives its first handle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_share_a_connection() {
    let Some(url) = shared() else { return };
    let connection = Connection::open(AmqpAddress::parse(url).unwrap(), Topology::new()).await;
    let connection = connection.unwrap();
    let queues: Vec<String> = (0..5).map(|_| name("shared")).collect();
    let mut sources = Vec::new();
    for (n, queue) in queues.iter().enumerate() {
        let consume = AmqpConsume::new(&**queue).with_prefetch(n as u16 + 1).with_tag("same");
        sources.push(AmqpSource::<Envelope>::on(&connection, consume).await.unwrap());
        let envelope = Envelope { body: "x".into(), ..Envelope::default() };
        connection.publish("", queue, vec![envelope; 10]).await.unwrap();
    }
    let nowhere = connection.publish("", "no-such-queue", vec![Envelope::default()]).await;
    assert!(nowhere.unwrap_err().cause.contains("no-such-queue"));
    drop(connection);
    for (n, source) in sources.iter().enumerate() {
        let received = receive(source, n + 1).await;
        assert_eq!(source.depth().await.unwrap().waiting, 9 - n as u64);
        let lot = received.iter().map(|delivery| gone(&delivery.receipt)).collect();
        assert_eq!(source.settle(lot).await.unwrap(), vec![Settled::Done; n + 1]);
    }
    sources[0].close().await;
    receive(&sources[1], 2).await;
}

/// An address of the new kind leads to its host, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ipv6_address_leads_to_its_host() {
    let Some(url) = shared() else { return };
    let (proxy, queue) = (Proxy::at("[::1]:0", url).await, name("six"));
    let address = format!("amqp://guest:guest@[::1]:{}/%2f", proxy.address.port());
    let source = AmqpSource::<Message>::open(settings(&address, &queue)).await.unwrap();
    source.publish(vec![publication("m1")]).await.unwrap();
    let received = receive(&source, 1).await;
    assert_eq!(settle(&source, gone(&received[0].receipt)).await, Settled::Done);
    // Nobody listens at the documentation's address; whoever listens here is not asked instead.
    let here = url::Url::parse(url).unwrap().port().unwrap();
    let elsewhere = settings(&format!("amqp://guest:s3cret@[::2]:{here}/"), &queue);
    let probed = timeout(PATIENCE, probe(&elsewhere)).await.unwrap();
    let Err(OpenError::Unreachable(why)) = probed else { panic!("{probed:?}") };
    assert!(why.contains(&format!("[::2]:{here}")) && !why.contains("s3cret"), "{why}");
}

/// A queue that somebody else declares is not made; it is consumed from when it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_somebody_elses_is_not_made() {
    let Some(url) = shared() else { return };
    let (queue, other) = (name("theirs"), Other::at(url).await);
    let connection = Connection::open(AmqpAddress::parse(url).unwrap(), Topology::new()).await;
    let connection = connection.unwrap();
    let consume = AmqpConsume::new(&*queue).with_standing_queue();
    let source = AmqpSource::<Envelope>::on(&connection, consume).await.unwrap();
    eventually("it says what is not there", async || {
        let error = source.receive(Demand::any(1)).await.unwrap_err();
        error.cause.contains(&queue) && error.cause.contains("not there")
    })
    .await;
    source.receive(Demand::any(1)).await.unwrap_err();
    assert_eq!(other.ready(&queue).await, None);
    let theirs = Topology::new().with_queue(Queue::new(&*queue).max_length(3));
    let owner = Connection::open(AmqpAddress::parse(url).unwrap(), theirs).await.unwrap();
    owner.publish("", &queue, vec![Envelope::default()]).await.unwrap();
    receive(&source, 1).await;
    source.health().unwrap();
}
