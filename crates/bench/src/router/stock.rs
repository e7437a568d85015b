//! A source in memory that does no more than a source must: it keeps what is not settled.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Message, Profile, Receipt, Settle, Settled, Settlement,
    Source, SourceError,
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
    /// From the eldest that is not settled on.
    places: VecDeque<Place>,
    /// The number of the first place.
    first: u64,
    /// The number of the first place that was not handed out yet.
    next: u64,
    is_stopped: bool,
}

struct Place {
    /// `None` once it is settled.
    message: Option<Message>,
    is_out: bool,
}

impl Stock {
    /// Puts messages in, all at once.
    pub(crate) fn put(&self, messages: Vec<Message>) {
        self.shelf.lock().places.extend(messages.into_iter().map(Place::new));
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
        let is_empty = self.next == self.first + self.places.len() as u64;
        (!is_empty || self.is_stopped).then(|| self.take(max))
    }

    fn take(&mut self, max: usize) -> Vec<Delivery> {
        let begin = (self.next - self.first) as usize;
        let mut taken = Vec::with_capacity(max.min(self.places.len() - begin));
        for place in self.places.range_mut(begin..) {
            if taken.len() == max {
                break;
            }
            let tag = self.next;
            self.next += 1;
            let Some(message) = place.message.as_ref().filter(|_| !place.is_out) else { continue };
            taken.push(Delivery {
                broker_id: tag.to_string().into(),
                receipt: Receipt { tag, ..Receipt::default() },
                attempts: 0,
                message: Ok(message.clone()),
            });
            place.is_out = true;
        }
        taken
    }

    fn settle(&mut self, settle: &Settle) -> Settled {
        let tag = settle.receipt.tag;
        let place = tag.checked_sub(self.first).and_then(|at| self.places.get_mut(at as usize));
        let Some(place) = place.filter(|place| place.is_out) else { return Settled::Stale };
        place.is_out = false;
        match settle.settlement {
            Settlement::Ack | Settlement::Park => place.message = None,
            Settlement::Retry { .. } => self.next = self.next.min(tag),
        }
        while self.places.front().is_some_and(|place| place.message.is_none()) {
            self.places.pop_front();
            self.first += 1;
        }
        self.next = self.next.max(self.first);
        Settled::Done
    }
}

impl Place {
    const fn new(message: Message) -> Self {
        Self { message: Some(message), is_out: false }
    }
}

impl Source for Stock {
    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(3600), 1024)
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(async move { Ok(self.receive_some(demand.most()).await) })
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
        let out = shelf.places.iter().filter(|place| place.is_out).count() as u64;
        let left = shelf.places.iter().filter(|place| place.message.is_some()).count() as u64;
        let waiting = left - out;
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
