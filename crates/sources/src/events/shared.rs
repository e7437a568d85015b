//! The shelf, the store it is filled from, and those who wait for either.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use sluicegate_dispatch::{Demand, Order, Settled, SourceError};
use sluicegate_event_store::{Engine, Read};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use super::content::About;
use super::shelf::{Clock, Next, Shelf, Taken};

/// How long one who settles waits for the cursor to be stored.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many events are read at once, at most.
pub(crate) const PAGE: usize = 500;

pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) about: About,
    pub(crate) read: Read,
    /// How many events may be held.
    most: usize,
    pub(crate) turn: u64,
    pub(crate) shelf: Mutex<Shelf>,
    /// Something may be ready that was not, or the end has come.
    pub(crate) changed: Notify,
    pub(crate) ending: Notify,
    is_stopped: AtomicBool,
    /// There may be events that were not read.
    pub(crate) is_behind: AtomicBool,
    /// The pool had no room.
    was_refused: AtomicBool,
    /// There is something to store.
    pub(crate) touched: Notify,
    pub(crate) stored: watch::Sender<Stored>,
    /// Why the last read failed.
    pub(crate) unread: Mutex<Option<String>>,
    /// One reads at a time.
    pub(crate) reading: tokio::sync::Mutex<()>,
}

/// How far the cursor is stored.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    /// The version of the shelf.
    pub(crate) version: u64,
    /// Why it is not stored further.
    pub(crate) failure: Option<String>,
    /// Somebody else has taken the queue over.
    pub(crate) is_lost: bool,
}

/// What a receiver is to do.
pub(crate) enum Look {
    Taken(Vec<Taken>),
    Stopped,
    /// Read what these are, again.
    Again(Vec<u64>),
    /// Read on.
    On,
    /// Wait, until then at most.
    Wait(Option<Instant>),
}

impl Shared {
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        about: About,
        read: Read,
        most: usize,
        turn: u64,
        shelf: Shelf,
    ) -> Self {
        Self {
            engine,
            about,
            read,
            most,
            turn,
            shelf: Mutex::new(shelf),
            changed: Notify::new(),
            ending: Notify::new(),
            is_stopped: AtomicBool::new(false),
            is_behind: AtomicBool::new(true),
            was_refused: AtomicBool::new(false),
            touched: Notify::new(),
            stored: watch::Sender::default(),
            unread: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn clock() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        Clock { now: Instant::now(), unix }
    }

    /// What there is to do for a demand, while so much was read for it already.
    pub(crate) fn look(&self, demand: &Demand, has_read: bool) -> Result<Look, SourceError> {
        if self.is_stopped.load(Ordering::Acquire) || demand.most() == 0 {
            return Ok(Look::Stopped);
        }
        if self.stored.borrow().is_lost {
            return Err(lost());
        }
        let mut shelf = self.shelf.lock();
        shelf.advance(Instant::now());
        let unread = shelf.unread(PAGE);
        if !unread.is_empty() {
            return Ok(Look::Again(unread));
        }
        let is_behind = self.is_behind.load(Ordering::Acquire) && shelf.held() < self.most;
        let is_short = shelf.ready() < demand.most() && !has_read || shelf.ready() == 0;
        if self.is_refused(demand) {
            return Ok(Look::Wait(None));
        }
        if is_behind && is_short {
            return Ok(Look::On);
        }
        let next = shelf.take(Instant::now(), demand.most(), || demand.take(&self.about.pool));
        let ends = shelf.next_end();
        Ok(match next {
            Next::Taken(taken) => Look::Taken(taken),
            Next::Bodies(positions) => Look::Again(positions),
            Next::Nothing => Look::Wait(ends),
            Next::NoRoom => {
                self.was_refused.store(demand.openings().is_some(), Ordering::Release);
                Look::Wait(None)
            }
        })
    }

    /// Whether the pool had no room, and has not said since that it has.
    fn is_refused(&self, demand: &Demand) -> bool {
        let Some(openings) = demand.openings() else { return false };
        let opened = openings.opened();
        if opened.all || opened.pools.contains(&self.about.pool) {
            self.was_refused.store(false, Ordering::Release);
        }
        self.was_refused.load(Ordering::Acquire)
    }

    /// How many events may be read on.
    pub(crate) fn room(&self) -> usize {
        self.most.saturating_sub(self.shelf.lock().held())
    }

    /// Changes what is held, and waits until that is stored, if it is to be.
    pub(crate) async fn change<T>(
        &self,
        change: impl FnOnce(&mut Shelf) -> T,
    ) -> (T, Result<(), SourceError>) {
        let (answer, version, is_touched) = {
            let mut shelf = self.shelf.lock();
            let before = shelf.version();
            let answer = change(&mut shelf);
            (answer, shelf.version(), shelf.version() != before)
        };
        self.changed.notify_waiters();
        if !is_touched {
            return (answer, Ok(()));
        }
        self.touched.notify_one();
        (answer, self.stored_to(version).await)
    }

    async fn stored_to(&self, version: u64) -> Result<(), SourceError> {
        let mut stored = self.stored.subscribe();
        let is_over = |stored: &Stored| stored.version >= version || stored.is_lost;
        let over = timeout(PATIENCE, stored.wait_for(is_over)).await;
        let failure = || {
            let why = self.stored.borrow().failure.clone();
            SourceError::new(why.unwrap_or_else(|| "the cursor was not stored in time".to_owned()))
        };
        match over {
            Ok(Ok(stored)) if stored.version >= version => Ok(()),
            Ok(_) => Err(lost()),
            Err(_) => Err(failure()),
        }
    }

    /// Answers of which none is durable: who took the queue over has these again.
    pub(crate) fn not_stored(&self, error: &SourceError) -> impl Fn(Settled) -> Settled {
        let not_done = match self.stored.borrow().is_lost {
            true => Settled::Stale,
            false => Settled::Failed(error.clone()),
        };
        move |settled| if settled == Settled::Done { not_done.clone() } else { settled }
    }

    pub(crate) fn keep_order(&self, order: &Arc<Order>) {
        self.shelf.lock().keep_order(order);
        self.changed.notify_waiters();
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.changed.notify_waiters();
        self.ending.notify_waiters();
    }

    /// What keeps it from working.
    pub(crate) fn health(&self) -> Result<(), SourceError> {
        let Stored { failure, is_lost, .. } = self.stored.borrow().clone();
        if is_lost {
            return Err(lost());
        }
        if let Some(why) = self.unread.lock().clone().or(failure) {
            return Err(SourceError::new(why));
        }
        if self.room() == 0 && self.is_behind.load(Ordering::Acquire) {
            let why = format!(
                "{} events wait behind others that are delayed or not settled; no more are read until some are",
                self.most
            );
            return Err(SourceError::new(why));
        }
        Ok(())
    }
}

/// Why nothing is handed out any more.
pub(crate) fn lost() -> SourceError {
    SourceError::new(
        "another reader has opened this queue of events and goes on from its cursor; a queue has one reader at a time",
    )
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("about", &self.about).finish_non_exhaustive()
    }
}
