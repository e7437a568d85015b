//! One queue of a broker, as a source.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Finds, Found, Message, Order, Profile, Publication,
    PublishError, Published, Reason, Receipt, Settle, Settled, Settlement, Source, SourceError,
};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::time::{Instant, sleep_until, timeout};

use super::answers::Call;
use super::connection::{Connection, Heard, failed};
use super::delay_queues::DelayStep;
use super::delayed::Waiting;
use super::depth::Counting;
use super::dial::GIVE_UP;
use super::incoming::{Incoming, properties_of};
use super::intake::{Intake, ensure_queue, is_there};
use super::link::Link;
use super::publisher::{Destination, Outgoing};
use super::settings::{AmqpConsume, AmqpSettings, Delays};
use super::unacked::{Copying, End, Handed};
use crate::{Content, OpenError};

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);
/// How many deliveries one call may settle.
const SETTLE_BATCH: usize = 1024;
/// The window that a source without one names.
const NO_WINDOW: Duration = Duration::from_secs(365 * 24 * 3600);

/// A queue of a broker.
///
/// 1. It has a channel of its own, from its first [`receive`](Source::receive) on: a source that only
///    publishes takes nothing out of the queue. When the broker closes the channel, it opens another
///    one, and what was out comes again.
///    [`Receipt::generation`] is the channel: it changes exactly when messages may come again that were not
///    handed back, those whose acks were lost among them, in the order of the queue. Within a generation
///    only what was handed back comes again.
/// 2. An answer [`Settled::Done`] to [`Settlement::Ack`] says that the ack is on the wire: the protocol
///    has no confirmation of acks. Where it is lost there, the message comes again.
/// 3. What comes back after a delay is published as a copy and confirmed before the first one is
///    acked; in between a crash leaves both.
#[derive(Debug)]
pub struct AmqpSource<M: Content = Message> {
    intake: Arc<Intake>,
    connection: Connection,
    counting: Counting,
    queue: Arc<str>,
    delays: Delays,
    owns_connection: bool,
    /// Whether messages must stay in order.
    is_ordered: AtomicBool,
    /// Ends the tasks when the source goes.
    _group: TaskGroup,
    reads: PhantomData<fn() -> M>,
}

impl<M: Content> AmqpSource<M> {
    /// Opens a queue over a connection of its own. A broker that is not reached is no error: the
    /// source comes up in the background, and [`Source::health`] says why it has not.
    ///
    /// # Errors
    /// [`OpenError::Refused`] where the broker refuses user, vhost, declarations or queue.
    pub async fn open(settings: AmqpSettings) -> Result<Self, OpenError> {
        settings.consume.check()?;
        let connection = Connection::open(settings.address, settings.topology).await?;
        let mut source = Self::on(&connection, settings.consume).await?;
        source.owns_connection = true;
        Ok(source)
    }

    /// Opens a queue on a connection that others may use too.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn on(connection: &Connection, consume: AmqpConsume) -> Result<Self, OpenError> {
        consume.check()?;
        if let Ok(up) = connection.link().up() {
            let look = ensure_queue(connection.link(), &up, &consume);
            // Whatever else it is, consuming meets it too, and tries again.
            if let Ok(Err(error @ OpenError::Refused(_))) = timeout(GIVE_UP, look).await {
                return Err(error);
            }
        }
        let queue: Arc<str> = consume.queue.as_str().into();
        let declared = connection.topology().queue(&queue);
        let delays =
            consume.delays.unwrap_or(match declared.is_some_and(super::Queue::is_quorum) {
                true => Delays::Quorum,
                false => Delays::Classic,
            });
        let intake = Arc::new(Intake::new(consume, Arc::clone(connection.link())));
        let group = TaskGroup::new("amqp source", 2).map_err(|error| failed(&error))?;
        let (taking, telling) = (Arc::clone(&intake), Arc::clone(&intake));
        let take_in = |cx: Context| async move {
            cx.until_interrupted(taking.take_in()).await.ok();
        };
        let tell = |cx: Context| async move {
            cx.until_interrupted(telling.tell()).await.ok();
        };
        let started = group.submit_detached("take in", take_in).await.is_ok();
        if !started || group.submit_detached("tell", tell).await.is_err() {
            return Err(failed(&"its tasks were not let in"));
        }
        Ok(Self {
            intake,
            connection: connection.clone(),
            counting: Counting::default(),
            queue,
            delays,
            owns_connection: false,
            is_ordered: AtomicBool::new(false),
            _group: group,
            reads: PhantomData,
        })
    }

    /// The connection it is on.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The queue's name.
    #[must_use]
    pub const fn queue(&self) -> &Arc<str> {
        &self.queue
    }

    /// For how long the oldest delivery is here unsettled. The broker ends a channel on which this
    /// exceeds its consumer timeout, by default 30 minutes; all that is out comes again then.
    #[must_use]
    pub fn oldest_out(&self) -> Option<Duration> {
        self.intake.unacked.lock().oldest().map(|since| since.elapsed())
    }

    /// Ends it: [`Source::stop`], then the channel, and the connection where it is its own. What is
    /// still out comes again.
    pub async fn close(&self) {
        self.stop().await;
        if let Ok(channel) = self.intake.channel() {
            // Acks that wait for others are told before the channel ends.
            timeout(GIVE_UP, self.intake.tell_once()).await.ok();
            let close = channel.close(200, "bye".into());
            drop(timeout(GIVE_UP, close).await);
        }
        if self.owns_connection {
            self.connection.close().await;
        }
    }

    fn delivery(handed: Handed) -> Delivery<M> {
        Delivery {
            broker_id: handed.name,
            receipt: handed.receipt,
            attempts: handed.incoming.attempts(),
            message: M::read(handed.incoming.envelope()),
        }
    }

    async fn receive_within(
        &self,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<M>>, SourceError> {
        self.intake.want();
        let give_up = Instant::now() + wait;
        loop {
            let mut arrived = pin!(self.intake.arrived.notified());
            arrived.as_mut().enable();
            if max == 0 || self.intake.is_stopping.load(Ordering::Acquire) {
                return Ok(Vec::new());
            }
            let now = Instant::now();
            let handed =
                self.intake.unacked.lock().hand_out(max, now, self.intake.consume.visibility);
            if !handed.is_empty() {
                // No await from here on, at which it could be dropped with what it took.
                self.intake.settled.notify_one();
                return Ok(handed.into_iter().map(Self::delivery).collect());
            }
            if now >= give_up {
                // Nobody hears of it sooner than after the wait, so it is no busy loop.
                return self.intake.health().map(|()| Vec::new());
            }
            tokio::select! {
                () = arrived => {}
                () = sleep_until(give_up) => {}
            }
        }
    }

    async fn settle_all(&self, settle: Vec<Settle>) -> Vec<Settled> {
        let call = Call::new();
        // Whatever becomes of this call, the names of what it settled are given back with it.
        let _names = Answering { intake: &self.intake, call: &call };
        let mut copies = Vec::new();
        let mut answers = Vec::with_capacity(settle.len());
        {
            let mut unacked = self.intake.unacked.lock();
            for (number, Settle { receipt, settlement }) in settle.into_iter().enumerate() {
                let part = call.part(number);
                let end = match settlement {
                    Settlement::Ack => End::Ack,
                    Settlement::Park => End::Reject,
                    Settlement::Retry { after, attempts, reason } => {
                        let known = unacked.incoming(&receipt).map(|known| known.attempts());
                        let is_other = known.is_some_and(|known| known != attempts);
                        // In order it goes back to its place, though its attempts are forgotten then.
                        if !after.is_zero() || is_other && !self.is_ordered.load(Ordering::Relaxed)
                        {
                            if let Some(copying) = unacked.copy(&receipt, part) {
                                copies.push((receipt, copying, after, attempts, reason));
                            }
                            answers.push(Settled::Done);
                            continue;
                        }
                        End::Return
                    }
                };
                unacked.settle(&receipt, end, part);
                answers.push(Settled::Done);
            }
        }
        // From here on all of it happens, though nobody may wait for the answer. Acks first.
        self.intake.settled.notify_one();
        for (receipt, copying, after, attempts, reason) in copies {
            self.send_copy(receipt, copying, after, attempts, reason);
        }
        call.answers(&mut answers).await;
        answers
    }

    /// Puts a copy in line, and notes it for those who look for it.
    fn send_copy(
        &self,
        receipt: Receipt,
        copying: Copying,
        after: Duration,
        attempts: u32,
        reason: Reason,
    ) {
        let Copying { name: key, incoming, arrived } = copying;
        let properties = incoming.again(&key, attempts, reason);
        let mut due = None;
        let to = self.destination(after);
        if let Destination::Later(_, step) = &to {
            due = Some(step.delay());
            if let Some(id) = application_id::<M>(&incoming) {
                let now = Instant::now();
                let (body, due) = (incoming.body(), now + step.delay());
                let waiting =
                    Waiting { id, body, attempts, reason, since: arrived, due, number: 0 };
                self.intake.delayed.lock().insert(&key, waiting, now);
            }
        }
        let (intake, of) = (Arc::downgrade(&self.intake), receipt.clone());
        let answer = move |copied: Result<(), SourceError>| {
            let Some(intake) = intake.upgrade() else { return };
            intake.noted(&key, due, copied.is_ok());
            // When it is confirmed, the first one is acked.
            let end = intake.window_end(Instant::now());
            intake.unacked.lock().copied(&of, copied, end);
            intake.settled.notify_one();
        };
        let message = Outgoing::new(to, incoming.body(), properties, answer);
        for queued in self.connection.publisher().send([message]) {
            let unneeded = self.intake.unacked.lock().queued(&receipt, queued);
            // Outside of the lock.
            drop(unneeded);
        }
    }

    fn destination(&self, after: Duration) -> Destination {
        match after.is_zero() {
            true => Destination::Queue(Arc::clone(&self.queue)),
            false => Destination::Later(
                Arc::clone(&self.queue),
                DelayStep::of(after, self.delays == Delays::Quorum),
            ),
        }
    }

    async fn publish_all(&self, messages: Vec<Publication>) -> Result<Published, PublishError> {
        let accepted = messages.len() as u64;
        let mut outgoing = Vec::with_capacity(messages.len());
        for publication in messages {
            let properties = properties_of(&publication);
            let to = self.destination(publication.delay);
            let body = bytes::Bytes::from(String::from(publication.body));
            let id = publication.message.id;
            let mut due = None;
            if let Destination::Later(_, step) = &to {
                let (now, delay) = (Instant::now(), step.delay());
                due = Some(delay);
                let waiting = Waiting {
                    id: Arc::clone(&id),
                    body: body.clone(),
                    attempts: 0,
                    reason: Reason::Scheduled,
                    since: now,
                    due: now + delay,
                    number: 0,
                };
                self.intake.delayed.lock().insert(&id, waiting, now);
            }
            let intake = Arc::downgrade(&self.intake);
            let heard = move |sent: &Result<(), SourceError>| {
                if let Some(intake) = due.and_then(|_| intake.upgrade()) {
                    intake.noted(&id, due, sent.is_ok());
                }
            };
            outgoing.push((to, body, properties, Some(Box::new(heard) as Heard)));
        }
        self.connection.send(outgoing).await.map_err(PublishError::Source)?;
        Ok(Published { accepted, duplicates: 0 })
    }

    fn find_here(&self, id: &str) -> Option<Found> {
        let here = self.intake.unacked.lock().here();
        let is_it =
            |incoming: &Incoming| application_id::<M>(incoming).is_some_and(|known| *known == *id);
        let found = here.into_iter().find(|(incoming, ..)| is_it(incoming));
        let now = Instant::now();
        match found {
            Some((incoming, arrived, state)) => Some(Found {
                body: String::from_utf8_lossy(&incoming.body()).into(),
                state,
                attempts: incoming.attempts(),
                age: now.saturating_duration_since(arrived),
            }),
            None => self.intake.delayed.lock().find(id, now),
        }
    }
}

/// The application's id of a message, which is the sender's where there is no other.
fn application_id<M: Content>(incoming: &Incoming) -> Option<Arc<str>> {
    let envelope = incoming.envelope();
    let sent = envelope.id.clone();
    M::read(envelope).ok().and_then(|content| content.id().cloned()).or(sent)
}

/// Gives back the names of what a call has settled, when whoever called has the answer or has gone.
struct Answering<'a> {
    intake: &'a Intake,
    call: &'a Call,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let names = self.call.release_names();
        if !names.is_empty() {
            self.intake.unacked.lock().rest(names, Instant::now());
        }
    }
}

/// Connects, authenticates and looks at the queue, as a check before anything is started. A queue
/// that is missing would be made, and is no error.
///
/// # Errors
/// [`OpenError::Refused`] and [`OpenError::Unreachable`], apart.
pub async fn probe(settings: &AmqpSettings) -> Result<(), OpenError> {
    settings.consume.check()?;
    let link = Link::new(settings.address.clone(), super::Topology::default());
    let up = link.connect().await?;
    let looked = timeout(GIVE_UP, is_there(&link, &up, settings.queue())).await;
    link.close().await;
    match looked {
        Ok(looked) => looked.map(drop),
        Err(_) => {
            let host = settings.address.host();
            Err(OpenError::Unreachable(format!("{host} did not answer within {GIVE_UP:?}")))
        }
    }
}

impl<M: Content> Source<M> for AmqpSource<M> {
    fn profile(&self) -> Profile {
        let visibility = self.intake.consume.visibility.unwrap_or(NO_WINDOW);
        let declared = self.connection.topology().queue(&self.queue);
        let keeps_dead_letters = declared.is_some_and(super::Queue::has_dead_letter);
        let finds = Finds::Some;
        Profile { keeps_dead_letters, finds, ..Profile::new(visibility, SETTLE_BATCH) }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>> {
        Box::pin(self.receive_within(demand.most(), WAIT))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async { Ok(self.settle_all(settle).await) })
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let end = self.intake.window_end(Instant::now());
        let mut unacked = self.intake.unacked.lock();
        let extend = |receipt: &Receipt| match unacked.extend(receipt, end) {
            true => Settled::Done,
            false => Settled::Stale,
        };
        let answers = receipts.iter().map(extend).collect();
        Box::pin(async { Ok(answers) })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(self.counting.count(&self.intake, self.connection.publisher(), &self.queue))
    }

    fn health(&self) -> Result<(), SourceError> {
        self.intake.health()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.intake.stop())
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.is_ordered.store(!order.is_nothing(), Ordering::Relaxed);
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(self.publish_all(messages))
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Found>, SourceError>> {
        Box::pin(async { Ok(self.find_here(id)) })
    }
}
