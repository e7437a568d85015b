//! What the tests share: a queue in memory, a book of what happened, and a service over both.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_consumers::{
    Consumer, ConsumerStats, Envelope, Fact, MemorySource, Service, ShutdownReport,
};
use tokio::time::Instant;

/// What happened, in words and in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book(Arc<Mutex<Vec<String>>>);

impl Book {
    pub(crate) fn write(&self, what: impl Into<String>) {
        self.0.lock().push(what.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

/// A service with one consumer.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) source: Arc<MemorySource>,
    pub(crate) facts: Book,
    pub(crate) service: Service,
    pub(crate) began: Instant,
}

impl Stage {
    /// Starts it.
    pub(crate) async fn set(source: MemorySource, consumer: Consumer) -> Self {
        let (source, facts) = (Arc::new(source), Book::default());
        let book = facts.clone();
        let service = Service::builder()
            .consume(Arc::clone(&source), consumer)
            .observe(move |fact| book.write(words(fact)))
            .start()
            .await
            .expect("a consumer that can start");
        Self { source, facts, service, began: Instant::now() }
    }

    pub(crate) fn stats(&self) -> ConsumerStats {
        self.service.stats()[0].1
    }

    /// Waits until the queue is empty, which must not take more than a day.
    pub(crate) async fn emptied(&self) {
        let day = Duration::from_secs(24 * 60 * 60);
        let emptied = tokio::time::timeout(day, self.source.emptied()).await;
        assert!(emptied.is_ok(), "stuck: {:?}, {:?}", self.stats(), self.facts);
        self.settled().await;
    }

    /// Waits until the consumer has heard of all that its source has done.
    pub(crate) async fn settled(&self) {
        while self.stats().in_hand > 0 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn end(self, patience: Duration) -> ShutdownReport {
        self.service.shutdown(Instant::now() + patience).await
    }
}

/// A message with a text as its body.
pub(crate) fn letter(body: &str) -> Envelope {
    Envelope { body: body.to_owned().into(), ..Envelope::default() }
}

/// The same with a routing key.
pub(crate) fn keyed(key: &str, body: &str) -> Envelope {
    Envelope { routing_key: Some(key.into()), ..letter(body) }
}

pub(crate) fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

pub(crate) fn words(fact: &Fact<'_>) -> String {
    match fact {
        Fact::Started { workers, prefetch, .. } => format!("started {workers} {prefetch}"),
        Fact::Capped { what, asked, given, .. } => format!("capped {what} {asked} {given}"),
        Fact::Retrying { id, attempt, after, why, .. } => {
            format!("{id} retrying #{attempt} {}s {why}", after.as_secs())
        }
        Fact::Dead { id, why, poison, kept, .. } => {
            let how = if *poison { "poison" } else { "dead" };
            format!("{id} {how} {} {why}", if *kept { "kept" } else { "dropped" })
        }
        Fact::Stale { count, .. } => format!("stale {count}"),
        Fact::SourceFailed { doing, cause, .. } => format!("failed {doing} {cause}"),
        Fact::Overdue { id, age, .. } => format!("{id} overdue {}s", age.as_secs()),
        Fact::Stopped { .. } => "stopped".to_owned(),
        _ => "something new".to_owned(),
    }
}
