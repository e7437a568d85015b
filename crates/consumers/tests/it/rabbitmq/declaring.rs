//! What is declared at a broker, and what is not.

use std::time::Duration;

use sluicegate_consumers::amqp::{AmqpAddress, Connection, Queue, Topology};
use sluicegate_consumers::{Consumer, Declarations, Failure, Handler, Service, StartError};
use sluicegate_testkit::brokers::{Kind, lend};
use tokio::time::{Instant, sleep};

use super::rig::{Handled, Other, address, name, until};
use crate::stage::{Book, words};

/// A queue that somebody else declares is waited for by its name, and never made by us: it would not be
/// what its owner declares.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_somebody_elses_is_waited_for_and_never_made() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let (queue, handled, facts) = (name("theirs"), Handled::default(), Book::default());
    let mut declared = Declarations::new();
    declared.standing_queue(&queue);
    declared.consumer(Consumer::of(queue.as_str()).handler(handled.after(Duration::ZERO)));
    let book = facts.clone();
    let service = Service::builder()
        .declared(address(broker.url()), declared)
        .observe(move |fact| book.write(words(fact)))
        .start()
        .await
        .expect("a service that waits");
    let other = Other::at(broker.url()).await;
    let is_named = |line: &String| line.contains(&queue) && line.contains("not there");
    until("the queue is missed by its name", async || facts.lines().iter().any(is_named)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(other.ready(&queue).await, None, "nobody makes it");

    // Its owner comes, and declares it in a way that we would not.
    let topology = Topology::new().with_queue(Queue::new(&queue).max_length(7));
    let owner = Connection::open(address(broker.url()), topology).await.expect("it is declared");
    other.publish(&queue, 3, 1).await;
    handled.until_all(3).await;
    let report = service.shutdown(Instant::now() + Duration::from_secs(10)).await;
    assert!(report.is_clean(), "{report:?} {facts:?}");
    owner.close().await;
}

/// What is declared in several parts is declared all of it.
#[tokio::test(flavor = "multi_thread")]
async fn declarations_for_one_broker_add_up() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let queues = [name("first"), name("second")];
    let handled = Handled::default();
    let builder = queues.iter().fold(Service::builder(), |builder, queue| {
        let mut declared = Declarations::new();
        declared.queue(Queue::new(queue));
        declared.consumer(Consumer::of(queue.as_str()).handler(handled.after(Duration::ZERO)));
        builder.declared(address(broker.url()), declared)
    });
    let service = builder.start().await.expect("a service that can start");
    assert_eq!(service.stats().len(), 2);
    let other = Other::at(broker.url()).await;
    for queue in &queues {
        other.publish(queue, 10, 1).await;
    }
    until("all are handled", async || handled.counts().0 == 20).await;
    let report = service.shutdown(Instant::now() + Duration::from_secs(10)).await;
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test]
async fn declarations_for_two_brokers_are_refused_by_their_names() {
    let handler = Handler::bytes(|_body, _about, _cx| async { Ok::<_, Failure>(()) });
    let declared = |queue: &str| {
        let mut declared = Declarations::new();
        declared.queue(Queue::new(queue));
        declared.consumer(Consumer::of(queue).handler(handler.clone()));
        declared
    };
    let at = |host: &str| AmqpAddress::parse(&format!("amqp://u:s3cret@{host}/")).expect("one");
    let builder = Service::builder().declared(at("one"), declared("a"));
    let started = builder.declared(at("other"), declared("b")).start().await;
    let Err(StartError::Declared(problems)) = started else { panic!("{started:?}") };
    let text = problems.to_string();
    assert!(text.contains("one:5672") && text.contains("other:5672"), "{text}");
    assert!(text.contains("declaring.rs") && !text.contains("s3cret"), "{text}");
}
