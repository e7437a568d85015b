//! A shop's service: three consumers at RabbitMQ, each with a size of its own.
//!
//! ```text
//! cargo run -p order-service                          a private broker, 300 of each, and an end
//! cargo run -p order-service -- amqp://HOST:PORT/%2f  that broker, until Ctrl-C
//! ```
//!
//! | consumer | workers | why |
//! |---|---|---|
//! | `order-processor` | as many as this machine can use | each order waits for others: database, mail |
//! | `account-sequencer` | 1 | an account's events must be seen in their order |
//! | `batch-importer` | 100, prefetch 500 | each row waits long and costs nothing |

mod shop;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_consumers::amqp::{AmqpAddress, Exchange, ExchangeKind, Queue};
use sluicegate_consumers::{Class, Consumer, Context, Declarations, Metadata, Retry, Service};
use sluicegate_testkit::brokers::{Kind, start};
use tokio::time::{Instant, sleep};

use shop::{AccountEvent, Order, Row, Shop, ShopError};

/// How long handlers may take to finish when the service ends.
const DRAIN: Duration = Duration::from_secs(20);
/// How many messages of each kind the private broker gets.
const EACH: u32 = 300;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_target(false).init();
    let shop = Arc::new(Shop::default());
    match std::env::args().nth(1) {
        Some(url) => {
            let service = serve(&url, &shop).await?;
            tokio::signal::ctrl_c().await?;
            println!("{:?}", service.shutdown(Instant::now() + DRAIN).await);
        }
        None => {
            let broker = start(Kind::RabbitMq)?;
            let service = serve(broker.url(), &shop).await?;
            shop::send_some(broker.url(), EACH).await?;
            while shop.handled() < 3 * EACH {
                sleep(Duration::from_millis(20)).await;
            }
            let report = service.shutdown(Instant::now() + DRAIN).await;
            println!("{}\n{report:?}", shop.summary());
            assert!(report.is_clean() && shop.is_in_order());
        }
    }
    Ok(())
}

async fn serve(url: &str, shop: &Arc<Shop>) -> Result<Service, Box<dyn Error>> {
    let service = Service::builder().declared(AmqpAddress::parse(url)?, declarations(shop));
    Ok(service.start().await?)
}

/// All that the service needs at its broker. It is checked as a whole before anything connects, and
/// declared again at every reconnect.
fn declarations(shop: &Arc<Shop>) -> Declarations {
    let mut declared = Declarations::new();
    declared.exchange(Exchange::new("shop", ExchangeKind::Topic));
    declared.queue_with_dead_letters(Queue::new("orders"));
    declared.queue(Queue::new("account.events"));
    declared.queue(Queue::new("batch.processing"));
    declared.bind("orders", "shop", "order.*");
    declared.bind("account.events", "shop", "account.*");
    declared.bind("batch.processing", "shop", "batch.*");
    declared.consumer(processor(shop));
    declared.consumer(sequencer(shop));
    declared.consumer(importer(shop));
    declared
}

/// Workers by default: four times the CPUs. What fails is tried twice more; what can never work goes
/// to the queue `orders.dead` at once.
fn processor(shop: &Arc<Shop>) -> Consumer {
    let shop = Arc::clone(shop);
    Consumer::of("orders")
        .named("order-processor")
        .event_type("order.created")
        .retry(Retry::after([Duration::from_millis(200), Duration::from_secs(1)]))
        .classify(|error: &ShopError| match error {
            ShopError::NoStock => Class::Dead,
            ShopError::Busy => Class::Retry,
        })
        .handle(move |order: Order, about: Metadata, _: Context| {
            let shop = Arc::clone(&shop);
            async move { shop.process(&order, about.attempt()).await }
        })
}

fn sequencer(shop: &Arc<Shop>) -> Consumer {
    let shop = Arc::clone(shop);
    Consumer::of("account.events")
        .named("account-sequencer")
        .event_type("account.updated")
        .workers(1)
        .handle(move |event: AccountEvent, _: Metadata, _: Context| {
            let shop = Arc::clone(&shop);
            async move { shop.update(&event).await }
        })
}

fn importer(shop: &Arc<Shop>) -> Consumer {
    let shop = Arc::clone(shop);
    Consumer::of("batch.processing")
        .named("batch-importer")
        .event_type("batch.import")
        .workers(100)
        .prefetch(500)
        .handle(move |row: Row, _: Metadata, _: Context| {
            let shop = Arc::clone(&shop);
            async move { shop.import(&row).await }
        })
}
