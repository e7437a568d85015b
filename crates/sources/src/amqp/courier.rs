//! Publishing: one task that sends what has gathered, waits until the broker has confirmed it all,
//! and then sends what gathered meanwhile.
//!
//! 1. It has a connection of its own. A broker short of memory or disk stops reading from those who
//!    publish; acks must not be stuck behind that.
//! 2. One lot at a time is on its way, so a message that comes back as unroutable belongs to it.
//! 3. Every message is answered once, whatever happens: whoever waits for a copy before an ack is
//!    told, not left.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Confirmation};
use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::address::AmqpAddress;
use super::dial::dial;
use super::ladder::{RENEW, Rung};
use super::topology::short;

/// How many messages go in one lot.
const LOT: usize = 512;
/// How long the broker may take to confirm a lot.
const CONFIRM: Duration = Duration::from_secs(15);
/// How often it tries to have waiting queues made.
const TRIES: u32 = 4;
/// How long it waits after it could not connect.
const PAUSE: Duration = Duration::from_millis(200);

/// A message on its way out.
pub(crate) struct Outgoing {
    pub(crate) to: Destination,
    pub(crate) body: Bytes,
    pub(crate) properties: BasicProperties,
    /// Told once, with what became of it.
    pub(crate) answer: Answer,
}

pub(crate) type Answer = Box<dyn FnOnce(Result<(), SourceError>) + Send + Sync>;

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Destination {
    /// Into a queue.
    Queue(Arc<str>),
    /// Into a queue, after a delay.
    Later(Arc<str>, Rung),
    /// To an exchange.
    Exchange(Arc<str>, Arc<str>),
}

impl Destination {
    fn route(&self) -> (ShortString, ShortString) {
        match self {
            Self::Queue(queue) => ("".into(), short(queue)),
            Self::Later(queue, rung) => ("".into(), rung.queue(queue)),
            Self::Exchange(exchange, key) => (short(exchange), short(key)),
        }
    }
}

/// What is to be published, and by whom it is known which waiting queues there are.
#[derive(Default)]
pub(crate) struct Courier {
    /// As long as those who wait for an answer have put in.
    waiting: Mutex<VecDeque<Outgoing>>,
    wake: Notify,
    is_closed: AtomicBool,
    /// The waiting queues that were declared, and when that was.
    declared: Mutex<HashMap<(Arc<str>, Rung), Instant>>,
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Courier").field("waiting", &self.waiting.lock().len()).finish()
    }
}

struct Line {
    connection: lapin::Connection,
    channel: lapin::Channel,
}

impl Courier {
    pub(crate) fn send(&self, messages: impl IntoIterator<Item = Outgoing>) {
        self.waiting.lock().extend(messages);
        self.wake.notify_one();
        // Closed before they were in line, nobody else would answer them.
        if self.is_closed.load(Ordering::SeqCst) {
            self.abandon();
        }
    }

    /// The delays for which this queue has waiting queues, as far as they were declared here.
    pub(crate) fn rungs(&self, queue: &str) -> Vec<Rung> {
        let declared = self.declared.lock();
        declared.keys().filter(|(of, _)| **of == *queue).map(|(_, rung)| *rung).collect()
    }

    /// Publishes until it is closed or dropped.
    pub(crate) async fn run(self: Arc<Self>, address: AmqpAddress) {
        let mut line = None;
        while !self.is_closed.load(Ordering::SeqCst) {
            let lot: Vec<Outgoing> = {
                let mut waiting = self.waiting.lock();
                let count = waiting.len().min(LOT);
                waiting.drain(..count).collect()
            };
            if lot.is_empty() {
                self.wake.notified().await;
                continue;
            }
            let lot = Lot::new(lot);
            match self.ready(line.take(), &address, &lot).await {
                Ok(ready) => {
                    let delivered = timeout(CONFIRM, self.deliver(&ready.channel, &lot)).await;
                    let outcome = delivered.unwrap_or_else(|_| Err(late(&ready)));
                    // After an error nobody knows what the channel will still say.
                    line = outcome.is_ok().then_some(ready);
                    lot.conclude(outcome);
                }
                Err(error) => {
                    lot.conclude(Err(error));
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// A line, and the waiting queues that a lot needs. A broker with much to do may fail to make
    /// one; nothing was published by then, so it is asked again.
    async fn ready(
        &self,
        mut line: Option<Line>,
        address: &AmqpAddress,
        lot: &Lot,
    ) -> Result<Line, SourceError> {
        let mut tries = 1;
        loop {
            let ready = self.line(line.take(), address).await?;
            let error = match timeout(CONFIRM, self.declare_all(&ready.channel, lot)).await {
                Ok(Ok(())) => return Ok(ready),
                Ok(Err(error)) => SourceError::new(error),
                Err(_) => late(&ready),
            };
            if tries == TRIES {
                return Err(error);
            }
            tries += 1;
            sleep(PAUSE).await;
        }
    }

    async fn declare_all(&self, channel: &lapin::Channel, lot: &Lot) -> Result<(), lapin::Error> {
        for message in &lot.0 {
            if let Destination::Later(queue, rung) = &message.to {
                self.declare(channel, queue, *rung).await?;
            }
        }
        Ok(())
    }

    async fn line(&self, line: Option<Line>, address: &AmqpAddress) -> Result<Line, SourceError> {
        if let Some(line) = line
            && line.connection.status().connected()
            && line.channel.status().connected()
        {
            return Ok(line);
        }
        let connection = dial(address, "sluicegate publisher").await?;
        let opening = async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, lapin::Error>(channel)
        };
        let channel = match timeout(CONFIRM, opening).await {
            Ok(channel) => channel.map_err(SourceError::new)?,
            Err(_) => return Err(SourceError::new("the broker does not answer")),
        };
        Ok(Line { connection, channel })
    }

    /// Sends a lot and waits for all confirmations; answers the routes that led nowhere.
    async fn deliver(
        &self,
        channel: &lapin::Channel,
        lot: &Lot,
    ) -> Result<Vec<(ShortString, ShortString)>, SourceError> {
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let publish = |message: &Outgoing| {
            let (exchange, key) = message.to.route();
            let (body, properties) = (message.body.clone(), message.properties.clone());
            let channel = channel.clone();
            Box::pin(async move {
                let sent = channel.basic_publish(exchange, key, options, &body, properties).await?;
                sent.await
            })
        };
        // Polled in their order, so that they go out in it.
        let mut sending = Vec::with_capacity(lot.0.len());
        let mut confirmed = Vec::with_capacity(lot.0.len());
        for message in &lot.0 {
            let mut sent = publish(message);
            match futures_util::poll!(sent.as_mut()) {
                std::task::Poll::Ready(answer) => confirmed.push(answer),
                std::task::Poll::Pending => sending.push(sent),
            }
        }
        for sent in sending {
            confirmed.push(sent.await);
        }
        let mut astray = Vec::new();
        for confirmed in confirmed {
            match confirmed.map_err(SourceError::new)? {
                Confirmation::Ack(None) => {}
                Confirmation::Ack(Some(back)) | Confirmation::Nack(Some(back)) => {
                    astray.push((back.delivery.exchange, back.delivery.routing_key));
                }
                Confirmation::Nack(None) | Confirmation::NotRequested => {
                    return Err(SourceError::new("the broker did not take a message"));
                }
            }
        }
        self.forget(lot, &astray);
        Ok(astray)
    }

    /// A waiting queue that is gone is declared anew by the next message that needs it.
    fn forget(&self, lot: &Lot, astray: &[(ShortString, ShortString)]) {
        for message in &lot.0 {
            if let Destination::Later(queue, rung) = &message.to
                && astray.contains(&message.to.route())
            {
                self.declared.lock().remove(&(Arc::clone(queue), *rung));
            }
        }
    }

    /// Publishes nothing more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.wake.notify_one();
        self.abandon();
    }

    /// Answers whoever waits.
    fn abandon(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        drop(Lot::new(waiting.into()));
    }

    async fn declare(
        &self,
        channel: &lapin::Channel,
        queue: &Arc<str>,
        rung: Rung,
    ) -> Result<(), lapin::Error> {
        let known = (Arc::clone(queue), rung);
        if self.declared.lock().get(&known).is_some_and(|at| at.elapsed() < RENEW) {
            return Ok(());
        }
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(rung.queue(queue), options, rung.arguments(queue)).await?;
        self.declared.lock().insert(known, Instant::now());
        Ok(())
    }
}

fn late(line: &Line) -> SourceError {
    match line.connection.status().blocked() {
        true => SourceError::new(
            "the broker takes no messages now: it is short of memory or disk (see its alarms)",
        ),
        false => SourceError::new(format!("the broker did not confirm within {CONFIRM:?}")),
    }
}

/// Messages that are answered also when nobody comes to it.
struct Lot(Vec<Outgoing>);

impl Lot {
    const fn new(messages: Vec<Outgoing>) -> Self {
        Self(messages)
    }

    fn conclude(mut self, outcome: Result<Vec<(ShortString, ShortString)>, SourceError>) {
        for message in std::mem::take(&mut self.0) {
            let answer = match &outcome {
                Ok(astray) if astray.contains(&message.to.route()) => {
                    let (exchange, key) = message.to.route();
                    Err(SourceError::new(format!(
                        "no queue takes what goes to exchange {exchange:?} by {key:?}"
                    )))
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error.clone()),
            };
            (message.answer)(answer);
        }
    }
}

impl Drop for Lot {
    fn drop(&mut self) {
        for message in std::mem::take(&mut self.0) {
            (message.answer)(Err(SourceError::new("publishing was broken off")));
        }
    }
}
