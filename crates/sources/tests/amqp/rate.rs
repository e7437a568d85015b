//! How fast a queue is emptied, beside a bare loop of the library. To be run by hand, optimised:
//! `cargo test --release --all-features --test amqp rate -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use sluicegate_dispatch::{Envelope, Settled, Source};
use sluicegate_sources::amqp::{AmqpAddress, AmqpConsume, AmqpSource, Connection, Topology};

use crate::stage::{Other, gone, name, shared};

const COUNT: usize = 50_000;

/// How long processors have worked for this process, in seconds. On a machine that others use too it
/// says more than the clock.
fn worked() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = |at: usize| stat.split(' ').nth(at).unwrap().parse::<f64>().unwrap();
    (ticks(13) + ticks(14)) / 100.0
}

async fn fill(connection: &Connection, queue: &str) {
    let envelope = Envelope { body: vec![b'x'; 200].into(), ..Envelope::default() };
    for _ in 0..COUNT / 5_000 {
        connection.publish("", queue, vec![envelope.clone(); 5_000]).await.unwrap();
    }
}

/// The library alone: one ack for each hundred.
async fn bare(url: &str, queue: &str) -> f64 {
    let other = Other::at(url).await;
    other.channel.basic_qos(500, BasicQosOptions::default()).await.unwrap();
    let begun = Instant::now();
    let options = BasicConsumeOptions::default();
    let consumer =
        other.channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
    let mut consumer = consumer.await.unwrap();
    for n in 1..=COUNT {
        let delivery = consumer.next().await.unwrap().unwrap();
        if n % 100 == 0 {
            delivery.ack(BasicAckOptions { multiple: true }).await.unwrap();
        }
    }
    COUNT as f64 / begun.elapsed().as_secs_f64()
}

/// A batch at a time, each settled whole.
async fn batches(connection: &Connection, queue: &str) -> f64 {
    let begun = Instant::now();
    let source = AmqpSource::<Envelope>::on(connection, AmqpConsume::new(queue)).await.unwrap();
    let mut done = 0;
    while done < COUNT {
        let received = source.receive(100).await.unwrap();
        done += received.len();
        let lot = received.iter().map(|delivery| gone(&delivery.receipt)).collect();
        assert!(source.settle(lot).await.unwrap().iter().all(|one| *one == Settled::Done));
    }
    COUNT as f64 / begun.elapsed().as_secs_f64()
}

/// Handlers side by side, each settling its own.
async fn handlers(connection: &Connection, queue: &str, hold: Duration) -> f64 {
    let begun = Instant::now();
    let consume = AmqpConsume::new(queue).with_hold(hold);
    let source = AmqpSource::<Envelope>::on(connection, consume).await.unwrap();
    let deliveries = stream::repeat_with(|| source.receive(100))
        .then(|received| async { stream::iter(received.await.unwrap()) })
        .flatten()
        .take(COUNT);
    let settle = |delivery: sluicegate_dispatch::Delivery<Envelope>| {
        let source = &source;
        async move { source.settle(vec![gone(&delivery.receipt)]).await.unwrap() }
    };
    deliveries.map(settle).buffer_unordered(256).count().await;
    COUNT as f64 / begun.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures; run it by hand"]
async fn rate() {
    let Some(url) = shared() else { return };
    let address = AmqpAddress::parse(url).unwrap();
    let connection = Connection::open(address, Topology::new()).await.unwrap();
    for round in 0..3 {
        for way in ["bare", "batches", "handlers, held 5 ms", "handlers, not held"] {
            let queue = name("rate");
            let other = Other::at(url).await;
            let options = lapin::options::QueueDeclareOptions::durable();
            let declare =
                other.channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
            declare.await.unwrap();
            fill(&connection, &queue).await;
            let before = worked();
            let rate = match way {
                "bare" => bare(url, &queue).await,
                "batches" => batches(&connection, &queue).await,
                "handlers, held 5 ms" => {
                    handlers(&connection, &queue, Duration::from_millis(5)).await
                }
                _ => handlers(&connection, &queue, Duration::ZERO).await,
            };
            let work = (worked() - before) / COUNT as f64 * 1e6;
            println!(
                "round {round}: {way}: {rate:.0} messages a second, {work:.1} µs of work each"
            );
            other.delete(&queue).await;
        }
    }
}
