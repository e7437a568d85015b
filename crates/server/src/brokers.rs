//! The one place that knows every kind of broker: from an address to a source.

use std::sync::Arc;

use sluicegate_dispatch::{Envelope, Message, Source};
use sluicegate_event_store::Engine;
use sluicegate_sources::OpenError;
use sluicegate_sources::amqp::{self, AmqpSettings, AmqpSource};
use sluicegate_sources::events::{EventsSettings, EventsSource};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_sources::postgres::{self, PostgresSettings, PostgresSource};
use sluicegate_sources::sqs::{SqsSettings, SqsSource};
use sluicegate_sources::stomp::{StompSettings, StompSource};

use crate::settings::{BrokerUri, QueueSettings, QueueUri};

/// How many messages a broker sends ahead beyond the window, for what runs and what is about to be settled: at least
/// so many, for pools may come later.
const BEYOND_WINDOW: u32 = 500;

/// A broker's queue, with everything that its address says.
enum Place {
    Amqp(AmqpSettings),
    Nats(NatsSettings),
    Sqs(SqsSettings),
    Stomp(StompSettings),
    Postgres(PostgresSettings),
}

/// What is wrong with an address, if anything; queues of the state file have none that could be.
pub(crate) fn fault(uri: &QueueUri) -> Option<String> {
    let place = match uri {
        QueueUri::Events(uri) => return events(uri).err().as_ref().map(why),
        other => place(other)?,
    };
    place.err().as_ref().map(why)
}

fn why(error: &OpenError) -> String {
    match error {
        OpenError::Address(why) => why.clone(),
        other => other.to_string(),
    }
}

/// Opens a broker's queue, while pools run so many messages at most; `None` where the address is not a broker's.
///
/// # Errors
/// When only a person can help. A broker that is not there yet is waited for by the source itself.
pub(crate) async fn open(
    settings: &QueueSettings,
    running: u32,
) -> Option<Result<Arc<dyn Source>, OpenError>> {
    let place = match place(&settings.uri)? {
        Ok(place) => place,
        Err(error) => return Some(Err(error)),
    };
    Some(place.open(settings, running).await)
}

/// Opens a queue of events, on the store that they are in.
///
/// # Errors
/// The store does not work, or the stored cursor is not understood.
pub(crate) async fn open_events(
    queue: &QueueSettings,
    uri: &BrokerUri,
    engine: Arc<dyn Engine>,
) -> Result<Arc<dyn Source>, OpenError> {
    let settings = events(uri)?.with_visibility(queue.visibility_timeout);
    Ok(Arc::new(EventsSource::open(engine, &queue.name, settings).await?))
}

/// What an address of events says, with all that the router needs.
fn events(uri: &BrokerUri) -> Result<EventsSettings, OpenError> {
    let settings = EventsSettings::parse(uri.expose())?;
    settings.check_target().map(|()| settings)
}

/// How many messages a broker sends ahead that hides them from others: what the window holds, and what runs beside it.
/// With fewer, what waits for one pool would hide what another could run, or a pool would run less than it may.
fn ahead(window: u32, running: u32) -> u32 {
    window.saturating_add(running.max(BEYOND_WINDOW))
}

/// Asks a broker whether a queue could be used; queues of the state file always can.
///
/// # Errors
/// [`OpenError::Unreachable`] if nobody can tell now, and everything else if it cannot.
pub async fn probe(uri: &QueueUri) -> Result<(), OpenError> {
    match place(uri).transpose()? {
        None => Ok(()),
        Some(Place::Amqp(settings)) => amqp::probe(&settings).await,
        Some(Place::Nats(settings)) => NatsSource::<Envelope>::probe(&settings).await,
        Some(Place::Sqs(settings)) => SqsSource::<Message>::probe(&settings).await,
        Some(Place::Stomp(settings)) => StompSource::<Message>::probe(&settings).await,
        Some(Place::Postgres(settings)) => postgres::probe(&settings).await,
    }
}

fn place(uri: &QueueUri) -> Option<Result<Place, OpenError>> {
    Some(match uri {
        QueueUri::Amqp(uri) => AmqpSettings::parse(uri.expose()).map(Place::Amqp),
        QueueUri::Nats(uri) => NatsSettings::parse(uri.expose()).map(Place::Nats),
        QueueUri::Sqs(uri) => SqsSettings::parse(uri.expose()).map(Place::Sqs),
        QueueUri::ActiveMq(uri) => StompSettings::parse(uri.expose()).map(Place::Stomp),
        QueueUri::Postgres(uri) => PostgresSettings::parse(uri.expose()).map(Place::Postgres),
        QueueUri::Sqlite { .. } | QueueUri::Events(_) => return None,
    })
}

impl Place {
    async fn open(self, queue: &QueueSettings, running: u32) -> Result<Arc<dyn Source>, OpenError> {
        let visibility = queue.visibility_timeout;
        let ahead = ahead(queue.window, running);
        Ok(match self {
            Self::Amqp(settings) => {
                let settings = settings.with_usual_prefetch(ahead);
                Arc::new(AmqpSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Nats(settings) => {
                Arc::new(NatsSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Sqs(settings) => {
                Arc::new(SqsSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Stomp(settings) => {
                let settings = settings.with_usual_prefetch(ahead);
                Arc::new(StompSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Postgres(settings) => {
                Arc::new(PostgresSource::open(settings.with_visibility(visibility)).await?)
            }
        })
    }
}
