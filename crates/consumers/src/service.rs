//! A service: several consumers that start, are looked at, and end together.

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use sluicegate_dispatch::{Envelope, Message, Source};
use sluicegate_tasks::Invalid;
use tokio::time::Instant;

use crate::problem::{Problems, check_consumers};
use crate::run::{Intake, Running};
use crate::{Consumer, ConsumerStats, Envelopes, Fact, Observer};

/// Consumers that run. Dropped without a [shutdown](Service::shutdown) it ends at once, and what was
/// not settled comes again.
pub struct Service {
    consumers: Vec<Running>,
}

/// Consumers that are to run.
#[derive(Default)]
#[must_use = "start() makes the service"]
pub struct ServiceBuilder {
    pairs: Vec<Pair>,
    observer: Option<Observer>,
}

struct Pair {
    consumer: Consumer,
    source: Arc<dyn Source<Envelope>>,
    intake: Intake,
    at: &'static std::panic::Location<'static>,
}

/// Why a service did not start. None of its consumers did.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// What was declared cannot work.
    Declared(Problems),
    /// A setting cannot work.
    Invalid(Invalid),
}

/// What became of everything when a service was shut down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the report says what was aborted"]
pub struct ShutdownReport {
    /// Of each consumer.
    pub consumers: Vec<ConsumerReport>,
}

/// What became of one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerReport {
    /// Its name.
    pub name: Arc<str>,
    /// How many messages that waited went back to their source.
    pub handed_back: u64,
    /// How many handlers that ran came to their end.
    pub finished: u64,
    /// How many handlers were cut off at the deadline: their messages went back too.
    pub aborted: u64,
    /// How many messages could not be settled: they come again by themselves.
    pub unsettled: u64,
}

impl Service {
    /// A service without any consumers yet.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_consumers::{Consumer, Context, Failure, MemorySource, Metadata, Service};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    ///
    /// let source = Arc::new(MemorySource::new());
    /// source.push_json("order.created", &serde_json::json!({ "number": 1 }));
    /// let consumer = Consumer::of("orders")
    ///     .event_type("order.created")
    ///     .handle(|order: serde_json::Value, _: Metadata, _: Context| async move {
    ///         assert_eq!(order["number"], 1);
    ///         Ok::<_, Failure>(())
    ///     });
    /// let service = Service::builder().consume(Arc::clone(&source), consumer).start().await?;
    /// source.emptied().await;
    /// let report = service.shutdown(Instant::now() + Duration::from_secs(5)).await;
    /// assert!(report.is_clean());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> ServiceBuilder {
        ServiceBuilder::default()
    }

    /// What each consumer has counted, by its name.
    #[must_use]
    pub fn stats(&self) -> Vec<(Arc<str>, ConsumerStats)> {
        self.consumers.iter().map(|one| (Arc::clone(one.name()), one.stats())).collect()
    }

    /// What one consumer has counted.
    #[must_use]
    pub fn stats_of(&self, name: &str) -> Option<ConsumerStats> {
        self.consumers.iter().find(|one| **one.name() == *name).map(Running::stats)
    }

    /// Ends it: nothing more is received, what waits goes back to its source, handlers finish under
    /// the deadline on a context that is not cancelled before it, and everything is settled.
    pub async fn shutdown(self, deadline: Instant) -> ShutdownReport {
        let consumers = join_all(self.consumers.iter().map(|one| one.shutdown(deadline))).await;
        ShutdownReport { consumers }
    }
}

impl ServiceBuilder {
    /// Has a consumer take its messages from a source.
    #[track_caller]
    pub fn consume(self, source: Arc<impl Source<Envelope>>, consumer: Consumer) -> Self {
        self.pair(source, consumer, Intake::BoundedHere)
    }

    /// Has a consumer take its messages from a source of the router: the payload is the body, and
    /// the pool's code is the event type.
    #[track_caller]
    pub fn consume_messages(self, source: Arc<dyn Source<Message>>, consumer: Consumer) -> Self {
        self.pair(Arc::new(Envelopes::of(source)), consumer, Intake::BoundedHere)
    }

    /// Tells somebody of everything that happens, beside the log.
    pub fn observe(mut self, observer: impl Fn(&Fact<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    #[track_caller]
    fn pair(
        mut self,
        source: Arc<dyn Source<Envelope>>,
        consumer: Consumer,
        intake: Intake,
    ) -> Self {
        let at = std::panic::Location::caller();
        self.pairs.push(Pair { consumer, source, intake, at });
        self
    }

    /// Checks all consumers, then starts all of them.
    ///
    /// # Errors
    /// Names everything that cannot work; then nothing was started.
    pub async fn start(self) -> Result<Service, StartError> {
        let declared = self.pairs.iter().map(|pair| (&pair.consumer, pair.at));
        Problems::refuse(check_consumers(declared)).map_err(StartError::Declared)?;
        let mut consumers = Vec::with_capacity(self.pairs.len());
        for Pair { consumer, source, intake, .. } in self.pairs {
            let observer = self.observer.clone();
            let running = Running::start(consumer, source, intake, observer).await;
            consumers.push(running.map_err(StartError::Invalid)?);
        }
        Ok(Service { consumers })
    }
}

impl ShutdownReport {
    /// Whether every handler came to its end and everything was settled.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.consumers.iter().all(|one| one.aborted == 0 && one.unsettled == 0)
    }
}

impl ConsumerReport {
    pub(crate) fn fact(&self) -> Fact<'_> {
        let Self { name, handed_back, finished, aborted, unsettled } = self;
        Fact::Stopped {
            consumer: name,
            handed_back: *handed_back,
            finished: *finished,
            aborted: *aborted,
            unsettled: *unsettled,
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.consumers.iter().map(Running::name);
        f.debug_tuple("Service").field(&names.collect::<Vec<_>>()).finish()
    }
}

impl fmt::Debug for ServiceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.pairs.iter().map(|pair| pair.consumer.name());
        f.debug_tuple("ServiceBuilder").field(&names.collect::<Vec<_>>()).finish()
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared(problems) => problems.fmt(f),
            Self::Invalid(invalid) => invalid.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}
