//! A part of what a source holds: so many messages, and then nothing more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Order, Profile, Receipt, Settle, Settled, Source,
    SourceError,
};

pub(crate) struct Portion<S> {
    source: S,
    left: AtomicUsize,
}

impl<S: Source> Portion<S> {
    pub(crate) const fn of(source: S, count: usize) -> Self {
        Self { source, left: AtomicUsize::new(count) }
    }

    async fn receive_some(&self, demand: Demand) -> Result<Vec<Delivery>, SourceError> {
        // One receives at a time.
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            return Ok(Vec::new());
        }
        let received = self.source.receive(demand.at_most(left)).await?;
        self.left.store(left - received.len(), Ordering::Relaxed);
        Ok(received)
    }
}

impl<S: Source> Source for Portion<S> {
    fn profile(&self) -> Profile {
        self.source.profile()
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(self.receive_some(demand))
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

    fn keep_order(&self, order: &Arc<Order>) {
        self.source.keep_order(order);
    }
}
