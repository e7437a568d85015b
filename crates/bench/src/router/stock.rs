//! A source in memory that does no more than a source must: it keeps what is not settled.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Depth, Ending, Message, Profile, Receipt, Settle, Settled, Source,
    SourceError,
};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Stock {
    shelf: Mutex<Shelf>,
    changed: Notify,
}

#[derive(Default)]
struct Shelf {
    ready: VecDeque<Message>,
    out: HashMap<u64, Message, RandomState>,
    last: u64,
    is_stopped: bool,
}

impl Stock {
    /// Puts messages in, all at once.
    pub(crate) fn put(&self, messages: Vec<Message>) {
        self.shelf.lock().ready.extend(messages);
        self.changed.notify_waiters();
    }

    async fn receive_some(&self, max: usize) -> Vec<Delivery> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(taken) = self.shelf.lock().look(max) {
                return taken;
            }
            if timeout(WAIT, changed).await.is_err() {
                return Vec::new();
            }
        }
    }
}

impl Shelf {
    fn look(&mut self, max: usize) -> Option<Vec<Delivery>> {
        (!self.ready.is_empty() || self.is_stopped).then(|| self.take(max))
    }

    fn take(&mut self, max: usize) -> Vec<Delivery> {
        let count = max.min(self.ready.len());
        let mut taken = Vec::with_capacity(count);
        for message in self.ready.drain(..count) {
            self.last += 1;
            self.out.insert(self.last, message.clone());
            taken.push(Delivery {
                broker_id: self.last.to_string().into(),
                receipt: Receipt { tag: self.last, ..Receipt::default() },
                attempts: 0,
                message: Ok(message),
            });
        }
        taken
    }

    fn settle(&mut self, settle: &Settle) -> Settled {
        match (self.out.remove(&settle.receipt.tag), settle.ending) {
            (None, _) => Settled::Stale,
            (Some(_), Ending::Gone) => Settled::Done,
            (Some(message), Ending::Again { .. }) => {
                self.ready.push_front(message);
                Settled::Done
            }
        }
    }
}

impl Source for Stock {
    fn profile(&self) -> Profile {
        Profile { visibility: Duration::from_secs(3600), settle_batch: 1024 }
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(async move { Ok(self.receive_some(max).await) })
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let mut shelf = self.shelf.lock();
        let settled = settle.iter().map(|settle| shelf.settle(settle)).collect();
        Box::pin(async { Ok(settled) })
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { Ok(vec![Settled::Done; receipts.len()]) })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        let shelf = self.shelf.lock();
        let (waiting, out) = (shelf.ready.len() as u64, shelf.out.len() as u64);
        Box::pin(async move { Ok(Depth { waiting, delayed: 0, out }) })
    }

    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.shelf.lock().is_stopped = true;
        self.changed.notify_waiters();
        Box::pin(async {})
    }
}
