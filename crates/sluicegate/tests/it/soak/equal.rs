//! Equal messages without ids are different messages: each of them is handled.
//!
//! The broker's own client puts in many messages that are the same to the byte, with no id beside them.
//! A consumer, a process of its own, calls an endpoint for each. What is checked is how many were put
//! in, how many calls came and what the broker has left. Only brokers: the tables take no message without
//! an id.
//!
//! 1. Undisturbed, a part of the calls fails: as many succeed as messages were put in, exactly.
//! 2. While the broker is restarted and the consumer is killed, at least as many; and after the last kill
//!    exactly as many as the broker then has.
//! 3. At the end the broker has none.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use sluicegate::dispatch::Envelope;
use sluicegate::server::fetch::{Ask, Fetch};
use sluicegate::sources::amqp::{AmqpSettings, AmqpSource};
use sluicegate::sources::nats::{NatsSettings, NatsSource};
use sluicegate::sources::sqs::{SqsSettings, SqsSource};
use sluicegate::sources::stomp::{StompSettings, StompSource};
use sluicegate_consumers::{Consumer, Failure, Handler, Retry, Service};
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::messages;
use crate::outside::{OutsideQueue, VARIABLES};
use crate::stage::PATIENCE;

/// What the process of a consumer is told.
const QUEUE: &str = "SLUICEGATE_TEST_EQUAL_QUEUE";
const TARGET: &str = "SLUICEGATE_TEST_EQUAL_TARGET";
/// How long a broker waits for what somebody has who is gone.
const VISIBILITY: Duration = Duration::from_secs(3);
/// Where nothing was called for so long, nothing is on its way.
const QUIET: Duration = Duration::from_secs(1);
/// How many are put in at once, and how many may wait: with many thousands brokers and emulators become slow.
const LOT: usize = 1_000;
const AHEAD: usize = 5_000;
/// Every so many calls one fails.
const FAILING: usize = 50;
/// What happens when this part of a hundred has been called.
const FAULTS: [(usize, Fault); 4] = [
    (15, Fault::BrokerRestarted),
    (35, Fault::ConsumerKilled),
    (55, Fault::BrokerRestarted),
    (75, Fault::ConsumerKilled),
];

#[derive(Clone, Copy, Debug)]
enum Fault {
    BrokerRestarted,
    ConsumerKilled,
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_messages_through_rabbitmq() {
    soak(Kind::RabbitMq).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_messages_through_nats() {
    soak(Kind::Nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_messages_through_sqs() {
    soak(Kind::Sqs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_messages_through_activemq() {
    soak(Kind::ActiveMq).await;
}

async fn soak(kind: Kind) {
    let count = messages(2_000) / 2;
    let Some(mut broker) = start_or_skip(kind) else { return };
    let queue = OutsideQueue::make(&broker, "equal").await;
    let endpoint = Endpoint::start().await;
    let limit = Duration::from_secs(60) + Duration::from_millis(10) * count as u32;
    let begun = Instant::now();
    let undisturbed = timeout(limit, undisturbed(&queue, &endpoint, count)).await;
    assert!(undisturbed.is_ok(), "{} calls for {count} within {limit:?}", endpoint.count());
    println!("{count} undisturbed: {:?}", begun.elapsed());
    let (before, begun) = (endpoint.count(), Instant::now());
    let disturbed = timeout(limit, disturbed(&mut broker, &queue, &endpoint, count)).await;
    let calls = endpoint.count() - before;
    assert!(disturbed.is_ok(), "{calls} calls for {count} within {limit:?}");
    println!("{count} disturbed: {:?}, {calls} calls", begun.elapsed());
}

/// All are handled once. A call that fails is made again.
async fn undisturbed(queue: &OutsideQueue, endpoint: &Endpoint, count: usize) {
    let fails = |number: &usize| number % FAILING == 7;
    endpoint.then((0..count).map(|number| match fails(&number) {
        true => Answer::status(503),
        false => Answer::ok(),
    }));
    let failing = (0..count).filter(fails).count();
    let mut feed = Feed::new(queue, endpoint, count);
    feed.put_in().await;
    let consumer = ConsumerProcess::start(queue, endpoint);
    feed.until_called(count + failing).await;
    quiet(endpoint).await;
    consumer.ended().await;
    assert_eq!(endpoint.count(), count + failing, "{failing} calls failed");
    assert_eq!(queue.available().await, 0);
}

async fn disturbed(broker: &mut Broker, queue: &OutsideQueue, endpoint: &Endpoint, count: usize) {
    let before = endpoint.count();
    let mut feed = Feed::new(queue, endpoint, count);
    feed.put_in().await;
    let mut consumer = ConsumerProcess::start(queue, endpoint);
    let mut last = None;
    for (part, fault) in FAULTS {
        feed.until_called(count * part / 100).await;
        println!("{:?}: {fault:?}", Instant::now());
        match fault {
            Fault::BrokerRestarted => restart(broker),
            Fault::ConsumerKilled => {
                consumer.killed().await;
                // What it had said by then has arrived by now.
                sleep(QUIET).await;
                let left = left(broker.kind(), queue).await;
                last = left.map(|left| (left + count - feed.put, endpoint.count()));
                consumer = ConsumerProcess::start(queue, endpoint);
            }
        }
    }
    feed.until_called(count).await;
    loop {
        quiet(endpoint).await;
        if left(broker.kind(), queue).await.is_none_or(|left| left == 0) {
            break;
        }
    }
    consumer.ended().await;
    assert_eq!(queue.available().await, 0);
    let calls = endpoint.count();
    assert!(calls >= before + count, "{} calls for {count}", calls - before);
    if let Some((left, by_then)) = last {
        println!("{left} were left after the last kill");
        assert_eq!(calls - by_then, left, "calls for what was left after the last kill");
    }
}

/// Puts in messages that are the same to the byte, not too many at once.
struct Feed<'a> {
    queue: &'a OutsideQueue,
    endpoint: &'a Endpoint,
    /// How many calls there were before.
    before: usize,
    count: usize,
    /// How many were put in.
    put: usize,
}

impl<'a> Feed<'a> {
    fn new(queue: &'a OutsideQueue, endpoint: &'a Endpoint, count: usize) -> Self {
        Self { queue, endpoint, before: endpoint.count(), count, put: 0 }
    }

    fn calls(&self) -> usize {
        self.endpoint.count() - self.before
    }

    /// Puts in as many as may wait.
    async fn put_in(&mut self) {
        while self.put < self.count && self.put < self.calls() + AHEAD {
            let lot = LOT.min(self.count - self.put);
            self.queue.publish(&vec![r#"{"amount":1}"#.to_owned(); lot]).await;
            self.put += lot;
        }
    }

    /// Goes on until so many calls have come; at the end all have been put in.
    async fn until_called(&mut self, calls: usize) {
        while self.calls() < calls || (calls >= self.count && self.put < self.count) {
            self.put_in().await;
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn restart(broker: &mut Broker) {
    let restarted = tokio::task::block_in_place(|| match broker.kind() {
        // Its state is in memory alone.
        Kind::Sqs => broker.bounce(),
        _ => broker.restart(),
    });
    restarted.unwrap_or_else(|error| panic!("{error}"));
}

/// How many messages the broker has, whoever holds them. Where it hides some without saying how many, nobody may
/// hold any. ActiveMQ does not say.
async fn left(kind: Kind, queue: &OutsideQueue) -> Option<usize> {
    if kind == Kind::ActiveMq {
        return None;
    }
    let counts = queue.counts().await;
    Some(counts.visible + counts.hidden.unwrap_or(0))
}

/// Waits until no calls come.
async fn quiet(endpoint: &Endpoint) {
    let mut before = usize::MAX;
    while endpoint.count() != before {
        before = endpoint.count();
        sleep(QUIET).await;
    }
}

/// A consumer that calls the endpoint for each message. It is killed when it is dropped.
struct ConsumerProcess {
    child: Child,
}

impl ConsumerProcess {
    fn start(queue: &OutsideQueue, endpoint: &Endpoint) -> Self {
        let this = std::env::current_exe().expect("this program");
        let child = Command::new(this)
            .args(["--exact", "soak::equal::consumer_process", "--nocapture"])
            .env(QUEUE, &queue.uri)
            .env(TARGET, endpoint.url("/"))
            .envs(VARIABLES)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        Self { child: child.expect("this program again") }
    }

    async fn killed(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Ends it as a service ends.
    async fn ended(mut self) {
        drop(self.child.stdin.take());
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends in time");
        assert!(status.expect("it is our child").success());
    }
}

/// The process of a consumer, which the soaks start. For anybody else there is nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn consumer_process() {
    let (Ok(uri), Ok(target)) = (std::env::var(QUEUE), std::env::var(TARGET)) else { return };
    let fetch = Fetch::new();
    let handler = Handler::bytes(move |body: Bytes, _, _| {
        let (fetch, target) = (fetch.clone(), target.clone());
        async move { call(&fetch, &target, body).await }
    });
    let consumer = Consumer::of("equal")
        .workers(16)
        .retry(Retry::after([Duration::from_millis(100); 9]))
        .handler(handler);
    let service = consume(&uri, consumer).await;
    let mut input = Vec::new();
    tokio::io::stdin().read_to_end(&mut input).await.expect("it ends");
    let report = service.shutdown(Instant::now() + Duration::from_secs(20)).await;
    assert!(report.is_clean(), "{report:?}");
}

async fn consume(uri: &str, consumer: Consumer) -> Service {
    let (scheme, _) = uri.split_once(':').expect("a scheme");
    let service = Service::builder();
    let service = match scheme {
        "amqp" => {
            let settings = AmqpSettings::parse(uri).expect("an address");
            let source = AmqpSource::<Envelope>::open(settings).await;
            service.consume(Arc::new(source.expect("it opens")), consumer)
        }
        "nats" => {
            let settings = NatsSettings::parse(uri).expect("an address");
            let source = NatsSource::<Envelope>::open(settings.with_visibility(VISIBILITY)).await;
            service.consume(Arc::new(source.expect("it opens")), consumer)
        }
        "activemq" => {
            let settings = StompSettings::parse(uri).expect("an address");
            let source = StompSource::<Envelope>::open(settings).await;
            service.consume(Arc::new(source.expect("it opens")), consumer)
        }
        _ => {
            let settings = SqsSettings::parse(uri).expect("an address");
            let source = SqsSource::<Envelope>::open(settings.with_visibility(VISIBILITY)).await;
            service.consume(Arc::new(source.expect("it opens")), consumer)
        }
    };
    service.start().await.expect("it starts")
}

async fn call(fetch: &Fetch, target: &str, body: Bytes) -> Result<(), Failure> {
    let ask = Ask {
        method: Method::POST,
        token: None,
        body: Some(body),
        timeout: PATIENCE,
        most_bytes: 1 << 16,
    };
    let answer = fetch.ask(target, ask).await.map_err(|error| Failure::retry(error.to_string()))?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(Failure::retry(answer.status.to_string())),
    }
}
