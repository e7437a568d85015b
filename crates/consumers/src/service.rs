//! A service: several consumers that start, are looked at, and end together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_dispatch::{Envelope, Message, Source};
use sluicegate_sources::OpenError;
use sluicegate_sources::amqp::{AmqpAddress, AmqpConsume, AmqpSource, Connection};
use sluicegate_tasks::Invalid;
use tokio::time::{Instant, timeout_at};

use crate::problem::{Place, Problem, Problems, check_each, duplicates};
use crate::run::{Bound, Running};
use crate::{Consumer, ConsumerStats, Declarations, Envelopes, Fact, Observer};

/// How long closing the connection may take, after everything else is over.
const GOODBYE: Duration = Duration::from_secs(5);

/// Consumers that run. Dropped without a [shutdown](Service::shutdown) it ends at once, and what was
/// not settled comes again.
pub struct Service {
    consumers: Vec<Running>,
    broker: Option<Broker>,
}

/// What a service has open at its broker.
struct Broker {
    connection: Connection,
    sources: Vec<Arc<AmqpSource<Envelope>>>,
}

/// Consumers that are to run.
#[derive(Default)]
#[must_use = "start() makes the service"]
pub struct ServiceBuilder {
    pairs: Vec<Pair>,
    declared: Option<(AmqpAddress, Declarations, Place)>,
    /// Declarations for other brokers than the first.
    elsewhere: Vec<Problem>,
    observer: Option<Observer>,
}

struct Pair {
    consumer: Consumer,
    source: Arc<dyn Source<Envelope>>,
    bound: Bound,
    at: Place,
}

/// Why a service did not start. None of its consumers did.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// What was declared cannot work.
    Declared(Problems),
    /// The broker refuses.
    Open(OpenError),
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
    /// use tokio::time::{Instant, timeout_at};
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
        if let Some(Broker { connection, sources }) = &self.broker {
            // Everything is settled; what is not is the broker's again without the connection.
            let by = deadline.max(Instant::now() + GOODBYE);
            timeout_at(by, async {
                join_all(sources.iter().map(|source| source.close())).await;
                connection.close().await;
            })
            .await
            .ok();
        }
        ShutdownReport { consumers }
    }

    /// The connection to the broker whose queues were declared, for publishing.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        self.broker.as_ref().map(|broker| &broker.connection)
    }
}

impl ServiceBuilder {
    /// Has a consumer take its messages from a source.
    #[track_caller]
    pub fn consume(self, source: Arc<impl Source<Envelope>>, consumer: Consumer) -> Self {
        self.pair(source, consumer, Bound::Here)
    }

    /// Has a consumer take its messages from a source of the router: the payload is the body, and
    /// the pool's code is the event type.
    #[track_caller]
    pub fn consume_messages(self, source: Arc<dyn Source<Message>>, consumer: Consumer) -> Self {
        self.pair(Arc::new(Envelopes::of(source)), consumer, Bound::Here)
    }

    /// Has the declared consumers take their messages from RabbitMQ: over one connection, each on a
    /// channel of its own. What is declared is declared again at every reconnect. Several calls for one broker
    /// add up; one service has one broker.
    #[track_caller]
    pub fn declared(mut self, address: AmqpAddress, declarations: Declarations) -> Self {
        let at = std::panic::Location::caller();
        self.declared = Some(match self.declared.take() {
            None => (address, declarations, at),
            Some((known, first, first_at)) if known == address => {
                (known, first.and(declarations), first_at)
            }
            Some(known) => {
                let first = (known.0.host(), known.2);
                let second = (address.host(), at);
                self.elsewhere.push(Problem::TwoBrokers { first, second });
                known
            }
        });
        self
    }

    /// Tells somebody of everything that happens, beside the log.
    pub fn observe(mut self, observer: impl Fn(&Fact<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    #[track_caller]
    fn pair(mut self, source: Arc<dyn Source<Envelope>>, consumer: Consumer, bound: Bound) -> Self {
        let at = std::panic::Location::caller();
        self.pairs.push(Pair { consumer, source, bound, at });
        self
    }

    /// Checks everything, then connects, then starts all consumers. A broker that is not reached is no
    /// error: the consumers begin when it is.
    ///
    /// # Errors
    /// Names everything that cannot work, or what the broker refuses; then nothing was started.
    pub async fn start(mut self) -> Result<Service, StartError> {
        Problems::refuse(self.problems()).map_err(StartError::Declared)?;
        let broker = match self.declared.take() {
            Some((address, declarations, _)) => Some(self.connect(address, declarations).await?),
            None => None,
        };
        let mut consumers = Vec::with_capacity(self.pairs.len());
        for Pair { consumer, source, bound, .. } in self.pairs {
            let observer = self.observer.clone();
            let running = Running::start(consumer, source, bound, observer).await;
            consumers.push(running.map_err(StartError::Invalid)?);
        }
        Ok(Service { consumers, broker })
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = self.elsewhere.clone();
        let mut names: Vec<(&str, Place)> = Vec::new();
        if let Some((_, declarations, _)) = &self.declared {
            problems.extend(declarations.problems());
            names.extend(declarations.consumer_names());
        }
        for Pair { consumer, at, .. } in &self.pairs {
            problems.extend(check_each(consumer, at));
            names.push((consumer.name(), at));
        }
        problems.extend(duplicates("consumer", names));
        problems
    }

    async fn connect(
        &mut self,
        address: AmqpAddress,
        declarations: Declarations,
    ) -> Result<Broker, StartError> {
        let standing = declarations.standing_queues();
        let (topology, consumers) = declarations.into_parts();
        let connection = Connection::open(address, topology).await.map_err(StartError::Open)?;
        let mut sources = Vec::with_capacity(consumers.len());
        for (consumer, at) in consumers {
            let prefetch = u16::try_from(consumer.size().prefetch).unwrap_or(u16::MAX);
            let mut consume = AmqpConsume::new(consumer.queue())
                .with_tag(consumer.name())
                .with_prefetch(prefetch)
                .without_visibility();
            if standing.contains(consumer.queue()) {
                consume = consume.with_standing_queue();
            }
            let source = AmqpSource::on(&connection, consume).await.map_err(StartError::Open)?;
            let (source, bound) = (Arc::new(source), Bound::AtSource);
            sources.push(Arc::clone(&source));
            self.pairs.push(Pair { consumer, source, bound, at });
        }
        Ok(Broker { connection, sources })
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
            Self::Open(error) => error.fmt(f),
            Self::Invalid(invalid) => invalid.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}
