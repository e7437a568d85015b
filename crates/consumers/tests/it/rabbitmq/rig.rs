//! What the tests at a broker share: names of their own, someone who publishes and counts, patience.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use parking_lot::Mutex;
use sluicegate_consumers::amqp::{AmqpAddress, Connection, Queue, Topology};
use sluicegate_consumers::{Consumer, Declarations, Envelope, Failure, Handler, Service};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{Book, text, words};

/// How long anything that must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A name that no other test uses, in this process or another.
pub(crate) fn name(what: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn address(url: &str) -> AmqpAddress {
    AmqpAddress::parse(url).expect("the address of a broker")
}

/// A service over one queue with dead letters, and what happens in it.
pub(crate) async fn serve(url: &str, consumer: Consumer) -> (Service, Book) {
    let mut declared = Declarations::new();
    declared.queue_with_dead_letters(Queue::new(consumer.queue()));
    declared.consumer(consumer);
    let facts = Book::default();
    let book = facts.clone();
    let service = Service::builder()
        .declared(address(url), declared)
        .observe(move |fact| book.write(words(fact)))
        .start()
        .await
        .expect("a service that can start");
    (service, facts)
}

/// Someone else at the broker.
pub(crate) struct Other {
    connection: Connection,
    counting: lapin::Connection,
}

impl Other {
    pub(crate) async fn at(url: &str) -> Self {
        let end = Instant::now() + PATIENCE;
        loop {
            let properties = lapin::ConnectionProperties::default();
            if let Ok(counting) = lapin::Connection::connect(url, properties).await {
                let connection = Connection::open(address(url), Topology::new()).await;
                return Self { connection: connection.expect("a broker"), counting };
            }
            assert!(Instant::now() < end, "nobody answers at {url}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Publishes bodies to a queue, each with an id and a key for its order.
    pub(crate) async fn publish(&self, queue: &str, count: usize, keys: usize) {
        let envelope = |number: usize| Envelope {
            body: format!("{}", number / keys).into(),
            id: Some(format!("m{number}").into()),
            headers: vec![("key".into(), format!("k{}", number % keys).into())],
            ..Envelope::default()
        };
        let all = (0..count).map(envelope).collect();
        self.send(queue, all).await;
    }

    pub(crate) async fn send(&self, queue: &str, all: Vec<Envelope>) {
        let published = timeout(PATIENCE, self.connection.publish("", queue, all)).await;
        published.expect("in time").expect("published");
    }

    /// How many messages of a queue nobody holds.
    pub(crate) async fn ready(&self, queue: &str) -> Option<u32> {
        let channel = self.counting.create_channel().await.expect("a channel");
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let declared = channel.queue_declare(queue.into(), options, FieldTable::default()).await;
        declared.ok().map(|queue| queue.message_count())
    }

    pub(crate) async fn until_ready(&self, queue: &str, count: u32) {
        until(&format!("{count} in {queue}"), async || self.ready(queue).await == Some(count))
            .await;
    }
}

pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// What was handled, by key and in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handled(Arc<Mutex<BTreeMap<String, Vec<usize>>>>);

impl Handled {
    /// A handler that takes its time and then writes down what it handled.
    pub(crate) fn after(&self, time: Duration) -> Handler {
        self.after_each(move |_| time)
    }

    /// The same, with a time for each number.
    pub(crate) fn after_each(
        &self,
        time: impl Fn(usize) -> Duration + Clone + Send + Sync + 'static,
    ) -> Handler {
        let handled = self.clone();
        Handler::bytes(move |body, about, _cx| {
            let (handled, time) = (handled.clone(), time.clone());
            async move {
                let number = text(&body).parse()?;
                let time = time(number);
                if !time.is_zero() {
                    sleep(time).await;
                }
                let key = about.header("key").unwrap_or("-");
                handled.0.lock().entry(key.to_owned()).or_default().push(number);
                Ok::<_, Failure>(())
            }
        })
    }

    /// How many messages were handled, and how many different ones.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let handled = self.0.lock();
        let different = |all: &Vec<usize>| {
            let mut all = all.clone();
            all.sort_unstable();
            all.dedup();
            all.len()
        };
        (handled.values().map(Vec::len).sum(), handled.values().map(different).sum())
    }

    pub(crate) async fn until_all(&self, count: usize) {
        let end = Instant::now() + PATIENCE;
        while self.counts().1 < count {
            assert!(Instant::now() < end, "{:?} of {count}", self.counts());
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Of each key the next one follows, or some of the last ones come again in order: never is one
    /// left out, and the last one handled is the last one there is.
    pub(crate) fn check_order(&self, each: usize) {
        for (key, all) in &*self.0.lock() {
            let follows = |pair: &[usize]| pair[1] <= pair[0] + 1;
            assert!(all.first() == Some(&0) && all.windows(2).all(follows), "{key}: {all:?}");
            assert_eq!(all.last(), Some(&(each - 1)), "{key}: {all:?}");
        }
    }
}
