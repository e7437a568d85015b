//! The ordinary life of messages at a broker.

use std::time::Duration;

use serde::Deserialize;
use sluicegate_consumers::amqp::{AmqpAddress, Exchange, ExchangeKind, Queue};
use sluicegate_consumers::{
    Consumer, Declarations, Envelope, Failure, Handler, OrderBy, Retry, Service, StartError,
};
use sluicegate_testkit::brokers::{Kind, lend};
use tokio::time::Instant;

use super::rig::{Handled, Other, address, name, serve, until};
use crate::stage::Book;

#[derive(Deserialize)]
struct Order {
    number: u32,
}

fn event(event_type: &str, body: &str) -> Envelope {
    Envelope {
        body: body.to_owned().into(),
        id: Some("m1".into()),
        event_type: Some(event_type.into()),
        headers: vec![("customer".into(), "7".into())],
        ..Envelope::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_message_comes_through_an_exchange_and_poison_goes_to_the_dead_letters() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let (queue, exchange) = (name("typed"), name("shop"));
    let book = Book::default();
    let noted = book.clone();
    let mut declared = Declarations::new();
    declared.exchange(Exchange::new(&exchange, ExchangeKind::Topic));
    declared.queue_with_dead_letters(Queue::new(&queue));
    declared.bind(&queue, &exchange, "order.*");
    declared.consumer(Consumer::of(queue.as_str()).event_type("created").handle(
        move |order: Order, about, _cx| {
            let (customer, key) = (about.header("customer"), about.routing_key());
            let id = about.id();
            noted.write(format!("{} {customer:?} {key:?} {id:?}", order.number));
            async { Ok::<_, Failure>(()) }
        },
    ));
    let service = Service::builder().declared(address(broker.url()), declared).start().await;
    let service = service.expect("a service that can start");
    let connection = service.connection().expect("a connection").clone();
    let all = vec![
        event("created", r#"{"number": 1}"#),
        event("created", r#"{"number": -1}"#),
        event("paid", r#"{"number": 3}"#),
    ];
    connection.publish(&exchange, "order.new", all).await.expect("published");
    let other = Other::at(broker.url()).await;
    other.until_ready(&format!("{queue}.dead"), 2).await;
    until("settled", async || {
        let stats = service.stats()[0].1;
        (stats.done, stats.dead) == (1, 2)
    })
    .await;
    assert_eq!(book.lines(), ["1 Some(\"7\") Some(\"order.new\") Some(\"m1\")"]);
    let stats = service.stats()[0].1;
    assert_eq!((stats.poison, stats.dead, stats.received), (2, 2, 3));
    let report = service.shutdown(Instant::now() + Duration::from_secs(10)).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(other.ready(&queue).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_message_is_retried_and_then_dead() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let (queue, book) = (name("failing"), Book::default());
    let noted = book.clone();
    let handler = Handler::bytes(move |_body, about, _cx| {
        noted.write(format!("#{} {:?}", about.attempt(), about.header("key")));
        async { Err(Failure::retry("no")) }
    });
    let retry = Retry::after([100, 200].map(Duration::from_millis));
    let consumer = Consumer::of(queue.as_str()).retry(retry).handler(handler);
    let (service, facts) = serve(broker.url(), consumer).await;
    let other = Other::at(broker.url()).await;
    other.publish(&queue, 1, 1).await;
    other.until_ready(&format!("{queue}.dead"), 1).await;
    assert_eq!(book.lines(), [1, 2, 3].map(|attempt| format!("#{attempt} Some(\"k0\")")));
    let report = service.shutdown(Instant::now() + Duration::from_secs(10)).await;
    assert!(report.is_clean(), "{report:?} {facts:?}");
    assert_eq!(other.ready(&queue).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_is_handled_once_and_in_order() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    for order in [None, Some(OrderBy::header("key"))] {
        let (queue, handled) = (name("load"), Handled::default());
        let builder = Consumer::of(queue.as_str()).workers(32).prefetch(300);
        let is_ordered = order.is_some();
        let builder = order.into_iter().fold(builder, |builder, order| builder.order_by(order));
        let consumer = builder.handler(handled.after(Duration::ZERO));
        let (service, facts) = serve(broker.url(), consumer).await;
        let other = Other::at(broker.url()).await;
        other.publish(&queue, 5000, 50).await;
        handled.until_all(5000).await;
        until("all settled", async || service.stats()[0].1.done == 5000).await;
        let stats = service.stats()[0].1;
        // An ack that came twice would have ended the channel and brought messages again.
        assert_eq!((stats.received, stats.stale, handled.counts().0), (5000, 0, 5000));
        if is_ordered {
            handled.check_order(100);
        }
        assert!(service.shutdown(Instant::now() + Duration::from_secs(10)).await.is_clean());
        assert_eq!(other.ready(&queue).await, Some(0));
        assert_eq!(facts.lines().len(), 2, "{facts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_broker_refuses_is_an_error_at_the_start() {
    let Some(broker) = lend(Kind::RabbitMq) else { return };
    let url = broker.url().replace("guest:guest", "guest:wrong");
    let address = AmqpAddress::parse(&url).expect("an address");
    let started = Service::builder().declared(address, Declarations::new()).start().await;
    let Err(StartError::Open(error)) = started else { panic!("{started:?}") };
    assert!(!error.to_string().contains("wrong:"), "{error}");
}
