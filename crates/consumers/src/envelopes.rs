//! A source of messages of the router, as a source of envelopes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Discarded, Envelope, Found, Message, Order, Profile,
    Publication, PublishError, Published, Receipt, Settle, Settled, Source, SourceError,
};

/// Hands out the messages of another source as [`Envelope`]s, so that the same handler consumes from
/// every source: the payload is the body, the pool's code the event type, the group the group.
///
/// Tenant and trace context come as the headers `tenant` and `traceparent`. A token that a message
/// carries for its target is nobody's business here and is left out.
#[derive(Clone)]
pub struct Envelopes {
    source: Arc<dyn Source<Message>>,
}

impl Envelopes {
    /// The envelopes of this source.
    #[must_use]
    pub fn of(source: Arc<dyn Source<Message>>) -> Self {
        Self { source }
    }
}

impl Source<Envelope> for Envelopes {
    fn profile(&self) -> Profile {
        self.source.profile()
    }

    fn receive(
        &self,
        demand: Demand,
    ) -> BoxFuture<'_, Result<Vec<Delivery<Envelope>>, SourceError>> {
        let batch = self.source.receive(demand);
        Box::pin(async { Ok(batch.await?.into_iter().map(envelope_of).collect()) })
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        self.source.settle(settle)
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        self.source.extend(receipts)
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        self.source.depth()
    }

    fn health(&self) -> Result<(), SourceError> {
        self.source.health()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.source.stop()
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        self.source.publish(messages)
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        self.source.find(id)
    }

    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discarded, SourceError>> {
        self.source.discard(id)
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.source.keep_order(order);
    }
}

impl fmt::Debug for Envelopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Envelopes")
    }
}

fn envelope_of(delivery: Delivery<Message>) -> Delivery<Envelope> {
    let Delivery { broker_id, receipt, attempts, message } = delivery;
    let message = message.map(|message| {
        let Message { id, pool, group, tenant, payload, traceparent, .. } = message;
        let tenant = tenant.map(|tenant| ("tenant".into(), Box::from(&*tenant)));
        let traceparent = traceparent.map(|trace| ("traceparent".into(), trace));
        Envelope {
            body: payload.map(shared).unwrap_or_default(),
            id: Some(id),
            event_type: Some(Arc::clone(&pool)),
            routing_key: Some(pool),
            group,
            headers: tenant.into_iter().chain(traceparent).collect(),
            redelivered: attempts > 0,
        }
    });
    Delivery { broker_id, receipt, attempts, message }
}

/// The payload as it is, without a copy.
fn shared(payload: Arc<str>) -> Bytes {
    Bytes::from_owner(Arc::<[u8]>::from(payload))
}
