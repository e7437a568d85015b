//! One queue of a broker, as a source.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Message, Profile, Publication, PublishError, Published,
    Receipt, Settle, Settled, Settlement, Source, SourceError,
};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::time::{Instant, sleep_until, timeout};

use super::connection::{Connection, failed};
use super::courier::{Answer, Destination, Outgoing};
use super::depth::Counting;
use super::dial::GIVE_UP;
use super::intake::{Intake, ensure_queue, is_there};
use super::ladder::Rung;
use super::letter::properties_of;
use super::link::Link;
use super::ring::{End, Handed};
use super::settings::{AmqpConsume, AmqpSettings, Delays};
use super::ticket::Ticket;
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
            let look = ensure_queue(connection.link(), &up, &consume.queue);
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
        self.intake.ring.lock().oldest().map(|since| since.elapsed())
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
            attempts: handed.letter.attempts(),
            message: M::read(handed.letter.envelope()),
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
            let handed = self.intake.ring.lock().hand_out(max, now, self.intake.consume.visibility);
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

    async fn settle_all(&self, settle: Vec<Settle>) -> Result<Vec<Settled>, SourceError> {
        let ticket = Arc::new(Ticket::default());
        let mut copies = Vec::new();
        let mut answers = Vec::with_capacity(settle.len());
        {
            let mut ring = self.intake.ring.lock();
            for Settle { receipt, settlement } in settle {
                let is_valid = match settlement {
                    Settlement::Ack => ring.settle(&receipt, End::Ack, &ticket),
                    Settlement::Park => ring.settle(&receipt, End::Reject, &ticket),
                    Settlement::Retry { after, attempts, reason } => {
                        let known = ring.letter(&receipt).map(|letter| letter.attempts());
                        if after.is_zero() && known.is_none_or(|known| known == attempts) {
                            ring.settle(&receipt, End::Return, &ticket)
                        } else if let Some((name, letter)) = ring.copy(&receipt, &ticket) {
                            let to = self.destination(after);
                            let properties = letter.again(&name, attempts, reason);
                            let answer = self.answer(receipt);
                            copies.push(Outgoing { to, body: letter.body(), properties, answer });
                            true
                        } else {
                            false
                        }
                    }
                };
                answers.push(if is_valid { Settled::Done } else { Settled::Stale });
            }
        }
        // From here on all of it happens, though nobody may wait for the answer.
        if !copies.is_empty() {
            self.connection.courier().send(copies);
        }
        self.intake.settled.notify_one();
        self.answered(&ticket, answers).await
    }

    async fn answered(
        &self,
        ticket: &Ticket,
        mut answers: Vec<Settled>,
    ) -> Result<Vec<Settled>, SourceError> {
        if !ticket.wait().await? {
            answers.fill(Settled::Stale);
        }
        Ok(answers)
    }

    fn destination(&self, after: Duration) -> Destination {
        match after.is_zero() {
            true => Destination::Queue(Arc::clone(&self.queue)),
            false => Destination::Later(
                Arc::clone(&self.queue),
                Rung::of(after, self.delays == Delays::Quorum),
            ),
        }
    }

    /// What happens when a copy is confirmed: the first one is acked.
    fn answer(&self, receipt: Receipt) -> Answer {
        let intake = Arc::clone(&self.intake);
        Box::new(move |copied| {
            let now = Instant::now();
            let end = intake.window_end(now);
            intake.ring.lock().copied(receipt.generation, receipt.tag, copied, end, now);
            intake.settled.notify_one();
        })
    }

    async fn publish_all(&self, messages: Vec<Publication>) -> Result<Published, PublishError> {
        let accepted = messages.len() as u64;
        let outgoing = messages.into_iter().map(|publication| {
            let properties = properties_of(&publication);
            let to = self.destination(publication.delay);
            (to, String::from(publication.body).into(), properties)
        });
        self.connection.send(outgoing).await.map_err(PublishError::Source)?;
        Ok(Published { accepted, duplicates: 0 })
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
        Profile { keeps_dead_letters, ..Profile::new(visibility, SETTLE_BATCH) }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>> {
        Box::pin(self.receive_within(demand.most(), WAIT))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.settle_all(settle))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        let end = self.intake.window_end(Instant::now());
        let mut ring = self.intake.ring.lock();
        let extend = |receipt: &Receipt| match ring.extend(receipt, end) {
            true => Settled::Done,
            false => Settled::Stale,
        };
        let answers = receipts.iter().map(extend).collect();
        Box::pin(async { Ok(answers) })
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(self.counting.count(&self.intake, self.connection.courier(), &self.queue))
    }

    fn health(&self) -> Result<(), SourceError> {
        self.intake.health()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.intake.stop())
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(self.publish_all(messages))
    }
}
