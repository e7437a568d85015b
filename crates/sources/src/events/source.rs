//! The source.

use std::fmt;
use std::future::pending;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Discarded, Finds, Found, FoundState, KeepsOrder, Message,
    Order, Profile, PublishError, PutBack, Receipt, Rest, Settle, Settled, Source, SourceError,
};
use sluicegate_event_store::{Engine, Event, Position};
use sluicegate_tasks::TaskGroup;
use tokio::time::{Instant, sleep_until};

use super::content::{About, OfEvent};
use super::keeper;
use super::kept::Kept;
use super::settings::EventsSettings;
use super::shared::{Look, PAGE, Shared};
use super::shelf::{Shelf, Standing, Taken};
use crate::{OpenError, wire};

/// How long a receive waits for the first event.
const WAIT: Duration = Duration::from_secs(1);
/// How many deliveries one call may settle.
const SETTLE_BATCH: usize = 1_000;

/// The events of a store that match, as a queue.
pub struct EventsSource<M> {
    shared: Arc<Shared>,
    visibility: Duration,
    /// How many events match beyond what was read, by how far that was and by the head.
    beyond: Mutex<Option<((u64, u64), u64)>>,
    /// Ends the keeper when the source goes.
    _tasks: TaskGroup,
    content: PhantomData<fn() -> M>,
}

impl<M: OfEvent> EventsSource<M> {
    /// Opens the queue of that name: its cursor is kept with the events, and begins before the first of them. Whoever
    /// has it open already, in this process or in another, hands out nothing more as soon as it hears of it.
    ///
    /// # Errors
    /// The store does not work or keeps no cursors, the stored cursor is not understood, or the address lacks something.
    pub async fn open(
        engine: Arc<dyn Engine>,
        queue: &str,
        settings: EventsSettings,
    ) -> Result<Self, OpenError> {
        if M::NEEDS_TARGET {
            settings.check_target()?;
        }
        let read = settings.read()?;
        let keeps = "this store keeps no cursors";
        let cursors = engine.cursors().ok_or_else(|| OpenError::Refused(keeps.to_owned()))?;
        let cursor = cursors.take(queue).await;
        let cursor = cursor.map_err(|error| OpenError::Unreachable(error.to_string()))?;
        let kept = cursor.state.as_deref().map(Kept::of_text).transpose();
        let kept = kept.map_err(|error| OpenError::Refused(error.to_string()))?;
        let EventsSettings { key, pool, target, visibility, held, .. } = settings;
        let (turn, kept) = (cursor.turn, kept.unwrap_or_default());
        let shelf = Shelf::new(Arc::clone(&pool), visibility, turn, kept);
        let about = About { queue: queue.into(), key, pool, target };
        let shared = Arc::new(Shared::new(engine, about, read, held, turn, shelf));
        let tasks = TaskGroup::new(format!("events {queue}"), 1);
        let tasks = tasks.map_err(|invalid| OpenError::Address(invalid.to_string()))?;
        let kept = Arc::clone(&shared);
        let task = tasks.submit_detached("cursor", |cx| keeper::run(kept, cx)).await;
        // It runs until the source goes; nobody waits for its end.
        drop(task.expect("there is only this task in its group"));
        let (beyond, content) = (Mutex::default(), PhantomData);
        Ok(Self { shared, visibility, beyond, _tasks: tasks, content })
    }

    async fn receive_within(
        &self,
        demand: Demand,
        wait: Duration,
    ) -> Result<Vec<Delivery<M>>, SourceError> {
        let (shared, give_up) = (&*self.shared, Instant::now() + wait);
        let mut has_read = false;
        loop {
            let (called, ending) = (shared.changed.notified(), shared.ending.notified());
            let told = demand.openings().map(|openings| openings.told());
            tokio::pin!(called, ending, told);
            // From here on nothing that happens is missed, though nobody waits yet.
            called.as_mut().enable();
            ending.as_mut().enable();
            let read = match shared.look(&demand, has_read)? {
                // What it takes it answers at once: there is no await at which it could be dropped.
                Look::Taken(taken) => return Ok(self.deliveries(taken)),
                Look::Stopped => return Ok(Vec::new()),
                Look::Again(positions) => self.read(Some(positions)),
                Look::On => {
                    has_read = true;
                    self.read(None)
                }
                Look::Wait(_) if Instant::now() >= give_up => return Ok(Vec::new()),
                Look::Wait(next) => {
                    let until = next.map_or(give_up, |next| next.min(give_up));
                    let told = async {
                        match told.as_pin_mut() {
                            Some(told) => told.await,
                            None => pending().await,
                        }
                    };
                    tokio::select! {
                        () = called => {}
                        () = told => {}
                        () = shared.grows() => {}
                        () = sleep_until(until) => {}
                    }
                    continue;
                }
            };
            tokio::select! {
                read = read => read?,
                () = ending => {}
            }
        }
    }

    async fn read(&self, positions: Option<Vec<u64>>) -> Result<(), SourceError> {
        match positions {
            Some(positions) => self.shared.read_again(&positions).await,
            None => self.shared.read_on().await,
        }
    }

    fn deliveries(&self, taken: Vec<Taken>) -> Vec<Delivery<M>> {
        let about = &self.shared.about;
        let delivery = |Taken { receipt, event, attempts, again }| {
            let broker_id = about.id(Event::position(&event).get());
            let message = M::of_event(&event, about, again);
            Delivery { broker_id, receipt, attempts, message }
        };
        taken.into_iter().map(delivery).collect()
    }

    async fn settle_all(&self, settle: Vec<Settle>) -> Result<Vec<Settled>, SourceError> {
        let shared = &self.shared;
        let (answers, stored) = shared
            .change(|shelf| {
                let now = Instant::now();
                settle.iter().map(|settle| shelf.settle(settle, now)).collect::<Vec<_>>()
            })
            .await;
        Ok(self.durably(answers, stored))
    }

    async fn rest_all(&self, rests: Vec<Rest>) -> Result<Vec<Settled>, SourceError> {
        let shared = &self.shared;
        let (answers, stored) = shared
            .change(|shelf| {
                let now = Instant::now();
                rests.iter().map(|rest| shelf.rest(rest, now)).collect::<Vec<_>>()
            })
            .await;
        Ok(self.durably(answers, stored))
    }

    fn durably(&self, answers: Vec<Settled>, stored: Result<(), SourceError>) -> Vec<Settled> {
        match stored {
            Ok(()) => answers,
            Err(error) => answers.into_iter().map(self.shared.not_stored(&error)).collect(),
        }
    }

    /// How many are held, and about how many match beyond: at most so many.
    async fn depth_now(&self) -> Result<Depth, SourceError> {
        let head = self.shared.engine.head().await.map_err(SourceError::new)?.get();
        let (mut depth, read_to) = {
            let mut shelf = self.shared.shelf.lock();
            (shelf.depth(Shared::clock()), shelf.read_to())
        };
        depth.waiting += self.beyond(read_to, head).await?;
        Ok(depth)
    }

    /// How many events match after a position. Of many it is only known how many they can be.
    async fn beyond(&self, read_to: u64, head: u64) -> Result<u64, SourceError> {
        let all = head.saturating_sub(read_to);
        if all == 0 {
            return Ok(0);
        }
        let known = *self.beyond.lock();
        if let Some((_, count)) = known.filter(|(of, _)| *of == (read_to, head)) {
            return Ok(count);
        }
        let mut read = self.shared.read.clone();
        (read.after, read.limit) = (Position::new(read_to), PAGE);
        read.up_to = Some(Position::new(head));
        let page = self.shared.engine.read(read).await.map_err(SourceError::new)?;
        let rest = page.next.map_or(0, |next| head.saturating_sub(next.get()));
        let count = page.events.len() as u64 + rest;
        *self.beyond.lock() = Some(((read_to, head), count));
        Ok(count)
    }

    async fn find_one(&self, id: &str) -> Result<Option<Found>, SourceError> {
        let shared = &self.shared;
        let Some(position) = shared.about.position(id) else { return Ok(None) };
        let (standing, is_read) = {
            let mut shelf = shared.shelf.lock();
            (shelf.standing(position, Shared::clock()), position <= shelf.read_to())
        };
        if standing.is_none() && is_read {
            return Ok(None);
        }
        let event = shared.events_at(&[position]).await?.pop();
        let event = event.filter(|event| is_read || shared.read.query().matches(event));
        Ok(event.map(|event| {
            let (standing, attempts) = standing.unwrap_or((Standing::Ready, 0));
            let state = match standing {
                Standing::Ready => FoundState::Ready,
                Standing::Behind(head) => FoundState::Behind(shared.about.id(head)),
                Standing::Delayed(rest, reason) => FoundState::Delayed { rest, reason },
                Standing::Out => FoundState::Out,
            };
            let age = SystemTime::now().duration_since(event.time()).unwrap_or_default();
            Found { body: self.body(&event), state, attempts, age }
        }))
    }

    /// An event as it would be published to another queue; what it cannot be is its data.
    fn body(&self, event: &Event) -> Box<str> {
        let message = Message::of_event(event, &self.shared.about, false);
        message.map_or_else(
            |_| event.data().into(),
            |message| wire::render(&message, Duration::ZERO).into(),
        )
    }

    async fn discard_one(&self, id: &str) -> Result<Discarded, SourceError> {
        let shared = &self.shared;
        let Some(position) = shared.about.position(id) else { return Ok(Discarded::NotFound) };
        // Only what was read can be taken out.
        while shared.is_before(position) {
            shared.read_on().await?;
        }
        let (discarded, stored) =
            shared.change(|shelf| shelf.discard(position, Instant::now())).await;
        stored?;
        let is_read = position <= shared.shelf.lock().read_to();
        Ok(match discarded {
            Some(discarded) => discarded,
            None if is_read => Discarded::NotFound,
            None => Discarded::NotPossible,
        })
    }

    async fn put_back_all(&self, messages: Vec<PutBack>) -> Result<(), SourceError> {
        let shared = &self.shared;
        let position = |message: &PutBack| {
            let none = || SourceError::new(format!("{}: no event is called so", message.broker_id));
            shared.about.position(&message.broker_id).ok_or_else(none)
        };
        let mut positions: Vec<u64> =
            messages.iter().map(position).collect::<Result<_, SourceError>>()?;
        positions.sort_unstable();
        positions.dedup();
        let found = shared.events_at(&positions).await?;
        if found.len() != positions.len() {
            return Err(SourceError::new("some of these events are not in the store"));
        }
        let (_, stored) = shared
            .change(|shelf| positions.iter().map(|position| shelf.put_back(*position)).count())
            .await;
        stored
    }
}

impl Shared {
    /// Whether an event was not read yet, and there is room to.
    fn is_before(&self, position: u64) -> bool {
        let is_behind = self.is_behind.load(Ordering::Acquire);
        self.shelf.lock().read_to() < position && is_behind && self.room() > 0
    }

    /// Waits until there may be more events, while there is room for them.
    async fn grows(&self) {
        if self.room() == 0 {
            return pending().await;
        }
        let read_to = self.shelf.lock().read_to();
        self.engine.changed(Position::new(read_to)).await;
        self.is_behind.store(true, Ordering::Release);
    }
}

impl<M: OfEvent> Source<M> for EventsSource<M> {
    fn profile(&self) -> Profile {
        Profile {
            keeps_order: KeepsOrder::OneByOne,
            keeps_rests: true,
            selects: true,
            finds: Finds::All,
            ..Profile::new(self.visibility, SETTLE_BATCH)
        }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>> {
        Box::pin(self.receive_within(demand, WAIT))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.settle_all(settle))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let mut shelf = self.shared.shelf.lock();
        let now = Instant::now();
        let answers = receipts.iter().map(|receipt| shelf.extend(receipt, now)).collect();
        Box::pin(async { Ok(answers) })
    }

    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.rest_all(rests))
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(self.depth_now())
    }

    fn health(&self) -> Result<(), SourceError> {
        self.shared.health()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.shared.stop();
        Box::pin(async {})
    }

    fn put_back(&self, messages: Vec<PutBack>) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async { self.put_back_all(messages).await.map_err(PublishError::Source) })
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        Box::pin(self.find_one(id))
    }

    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discarded, SourceError>> {
        Box::pin(self.discard_one(id))
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.shared.keep_order(order);
    }
}

impl<M> fmt::Debug for EventsSource<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventsSource").field("shared", &self.shared).finish_non_exhaustive()
    }
}
