//! A source that makes its messages when they are asked for, and keeps none of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Profile, Receipt, Settle, Settled, Source, SourceError,
};

use super::sample;

/// A URL of 60 bytes.
const URL: &str = "http://hooks.example.com/v1/orders/created?source=shop-00001";

/// So many messages in so many groups.
pub(crate) struct Spring {
    pub(crate) count: u64,
    pub(crate) groups: u64,
    next: AtomicU64,
}

impl Spring {
    pub(crate) const fn new(count: u64, groups: u64) -> Self {
        Self { count, groups, next: AtomicU64::new(0) }
    }

    fn delivery(&self, number: u64) -> Delivery {
        Delivery {
            broker_id: format!("{number:020}").into(),
            receipt: Receipt { tag: number, ..Receipt::default() },
            attempts: 0,
            message: Ok(sample::message(number, number % self.groups, URL)),
        }
    }
}

impl Source for Spring {
    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(36_000), 1024)
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        let first = self.next.fetch_add(demand.most() as u64, Ordering::Relaxed).min(self.count);
        let last = (first + demand.most() as u64).min(self.count);
        Box::pin(async move {
            if first == last {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok((first..last).map(|number| self.delivery(number)).collect())
        })
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { Ok(vec![Settled::Done; settle.len()]) })
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { Ok(vec![Settled::Done; receipts.len()]) })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(async { Ok(Depth::default()) })
    }

    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
