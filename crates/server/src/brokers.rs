//! The one place that knows every kind of broker: from an address to a source.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Envelope, Message, Source};
use sluicegate_sources::OpenError;
use sluicegate_sources::amqp::{self, AmqpSettings, AmqpSource};
use sluicegate_sources::nats::{NatsSettings, NatsSource};
use sluicegate_sources::postgres::{self, PostgresSettings, PostgresSource};
use sluicegate_sources::sqs::{SqsSettings, SqsSource};
use sluicegate_sources::stomp::{StompSettings, StompSource};

use crate::settings::QueueUri;

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
    match place(uri)? {
        Err(OpenError::Address(why)) => Some(why),
        Err(other) => Some(other.to_string()),
        Ok(_) => None,
    }
}

/// Opens a broker's queue; `None` where the address is not a broker's.
///
/// # Errors
/// When only a person can help. A broker that is not there yet is waited for by the source itself.
pub(crate) async fn open(
    uri: &QueueUri,
    visibility: Duration,
) -> Option<Result<Arc<dyn Source>, OpenError>> {
    let place = match place(uri)? {
        Ok(place) => place,
        Err(error) => return Some(Err(error)),
    };
    Some(place.open(visibility).await)
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
    async fn open(self, visibility: Duration) -> Result<Arc<dyn Source>, OpenError> {
        Ok(match self {
            Self::Amqp(settings) => {
                Arc::new(AmqpSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Nats(settings) => {
                Arc::new(NatsSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Sqs(settings) => {
                Arc::new(SqsSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Stomp(settings) => {
                Arc::new(StompSource::open(settings.with_visibility(visibility)).await?)
            }
            Self::Postgres(settings) => {
                Arc::new(PostgresSource::open(settings.with_visibility(visibility)).await?)
            }
        })
    }
}
