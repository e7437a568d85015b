//! A connection that several sources share.

use std::sync::Arc;

use sluicegate_dispatch::{Envelope, Settled, SourceError};
use sluicegate_tasks::TaskGroup;

use super::address::AmqpAddress;
use super::answers::Call;
use super::incoming::properties_of_envelope;
use super::link::Link;
use super::publisher::{Destination, Outgoing, Publisher};
use super::topology::Topology;
use crate::OpenError;

/// A connection to a broker, kept up in the background: lost, it is made again after a pause that
/// grows from 100 ms to 10 s, and its topology is declared anew before anything is consumed.
///
/// Clones are the same connection. It ends when the last clone and the last source on it are gone.
///
/// ```no_run
/// # async fn example() -> Result<(), sluicegate_sources::OpenError> {
/// use sluicegate_dispatch::Envelope;
/// use sluicegate_sources::amqp::{AmqpAddress, AmqpConsume, AmqpSource, Connection, Queue, Topology};
///
/// let address = AmqpAddress::parse("amqp://guest:guest@localhost/")?;
/// let topology = Topology::new().with_queue(Queue::new("orders").dead_letter("", "orders.dead"));
/// let connection = Connection::open(address, topology).await?;
/// let orders = AmqpSource::<Envelope>::on(&connection, AmqpConsume::new("orders")).await?;
/// # drop(orders);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Connection {
    shared: Arc<Shared>,
}

/// Told what became of a message before whoever sent it is.
pub(crate) type Heard = Box<dyn FnOnce(&Result<(), SourceError>) + Send + Sync>;

/// A message to send.
type ToSend = (Destination, bytes::Bytes, lapin::BasicProperties, Option<Heard>);

#[derive(Debug)]
struct Shared {
    link: Arc<Link>,
    publisher: Arc<Publisher>,
    /// Ends the tasks when the last handle goes.
    _group: TaskGroup,
}

impl Connection {
    /// Connects and declares the topology. A broker that is not reached is no error: the connection
    /// comes about in the background, and [`health`](Self::health) says why there is none.
    ///
    /// # Errors
    /// [`OpenError::Refused`] where the broker refuses the user, the vhost, or a declaration.
    pub async fn open(address: AmqpAddress, topology: Topology) -> Result<Self, OpenError> {
        let link = Arc::new(Link::new(address, topology));
        let up = match link.connect().await {
            Ok(up) => Some(up),
            Err(OpenError::Unreachable(_)) => None,
            Err(error) => return Err(error),
        };
        let group = TaskGroup::new("amqp", 2).map_err(|error| failed(&error))?;
        let publisher = Arc::new(Publisher::default());
        let (kept, publishing) = (Arc::clone(&link), Arc::clone(&publisher));
        let address = link.address.clone();
        // Both end with the group, and so with the last handle: they need no other sign.
        let keep_up = |cx: sluicegate_tasks::Context| async move {
            cx.until_interrupted(kept.keep_up(up)).await.ok();
        };
        let publish = |cx: sluicegate_tasks::Context| async move {
            cx.until_interrupted(publishing.run(address)).await.ok();
        };
        let started = group.submit_detached("keep up", keep_up).await.is_ok();
        if !started || group.submit_detached("publish", publish).await.is_err() {
            return Err(failed(&"its tasks were not let in"));
        }
        let shared = Shared { link, publisher, _group: group };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Whether it stands.
    ///
    /// # Errors
    /// Why it does not.
    pub fn health(&self) -> Result<(), SourceError> {
        self.shared.link.up().map(drop)
    }

    /// Which connection stands, counted from one; `None` while there is none.
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        self.shared.link.up().ok().map(|up| up.generation)
    }

    /// What is declared at every connect.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.shared.link.topology
    }

    /// Publishes to an exchange by a routing key, durably: it answers when the broker has confirmed
    /// all of them. While the broker is short of memory or disk it takes none, and this waits.
    ///
    /// # Cancel safety
    /// Dropped, what was not sent by then is not sent.
    ///
    /// # Errors
    /// Where one was not confirmed, or no queue takes it. Then some may have been stored.
    pub async fn publish(
        &self,
        exchange: &str,
        routing_key: &str,
        envelopes: Vec<Envelope>,
    ) -> Result<(), SourceError> {
        let to = Destination::Exchange(exchange.into(), routing_key.into());
        let outgoing = |envelope: Envelope| {
            let properties = properties_of_envelope(&envelope);
            (to.clone(), envelope.body, properties, None)
        };
        self.send(envelopes.into_iter().map(outgoing).collect()).await
    }

    /// Sends messages and waits until all are confirmed. Who does not wait any more takes along what was not
    /// sent by then.
    pub(crate) async fn send(&self, messages: Vec<ToSend>) -> Result<(), SourceError> {
        let call = Call::new();
        let count = messages.len();
        let outgoing = |(number, (to, body, properties, heard)): (usize, ToSend)| {
            let part = call.part(number);
            let answer = move |sent: Result<(), SourceError>| {
                if let Some(heard) = heard {
                    heard(&sent);
                }
                part.answer(sent.map_or_else(Settled::Failed, |()| Settled::Done));
            };
            Outgoing::new(to, body, properties, answer)
        };
        let messages: Vec<Outgoing> = messages.into_iter().enumerate().map(outgoing).collect();
        let _places = self.shared.publisher.send(messages);
        let mut answers = vec![Settled::Done; count];
        call.answers(&mut answers).await;
        let failed = answers.into_iter().find_map(|answer| match answer {
            Settled::Done => None,
            Settled::Failed(error) => Some(error),
            Settled::Stale => Some(SourceError::new("publishing was broken off")),
        });
        failed.map_or(Ok(()), Err)
    }

    /// Ends it for good, with whatever runs on it. Sources on it have nothing more to hand out.
    pub async fn close(&self) {
        self.shared.publisher.close();
        self.shared.link.close().await;
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.shared.link
    }

    pub(crate) fn publisher(&self) -> &Arc<Publisher> {
        &self.shared.publisher
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.publisher.close();
    }
}

pub(crate) fn failed(why: &dyn std::fmt::Display) -> OpenError {
    OpenError::Unreachable(format!("it could not be started: {why}"))
}
