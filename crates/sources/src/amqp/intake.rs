//! What a source's tasks share, and the two tasks themselves: one takes deliveries in from the
//! broker on a channel that it opens again whenever it ends; the other tells the broker what became
//! of them.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    BasicRejectOptions, QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer, ErrorKind};
use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::delayed::Delayed;
use super::dial::classify;
use super::incoming::Incoming;
use super::link::{Link, Up};

use super::settings::AmqpConsume;
use super::topology::short;
use super::unacked::{Frames, Hold, Unacked};
use crate::OpenError;
use crate::network::pause::Pauses;

/// How long a channel stands that was no failed attempt.
const STOOD: Duration = Duration::from_secs(5);
/// How long the broker may take to answer one question.
const ANSWER: Duration = Duration::from_secs(10);
/// How many deliveries are taken in under one lock.
const BATCH: usize = 128;

/// What a consumer's stream says next.
type Next = Option<lapin::Result<lapin::message::Delivery>>;

/// What a source and its tasks share.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) consume: AmqpConsume,
    pub(crate) link: Arc<Link>,
    pub(crate) unacked: Mutex<Unacked>,
    /// Something arrived, or will not any more.
    pub(crate) arrived: Notify,
    /// There is something to tell.
    pub(crate) settled: Notify,
    pub(crate) is_stopping: AtomicBool,
    stop: Notify,
    /// Whether anybody has ever wanted to receive. Who only publishes must not take messages away
    /// from those who do receive.
    is_wanted: AtomicBool,
    wanted: Notify,
    /// The consumer is cancelled, and what was never handed out is handed back.
    is_stopped: AtomicBool,
    stopped: Notify,
    state: Mutex<Standing>,
    /// What this process has sent to come later.
    pub(crate) delayed: Mutex<Delayed>,
    /// Held while frames are put together and written: theirs is one order.
    telling: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Standing {
    channel: Option<Arc<Channel>>,
    cause: Option<String>,
}

/// Channels are numbered over the life of the process, from where no earlier one has counted: a
/// receipt of an earlier life is not valid by chance.
fn next_generation() -> u64 {
    static NEXT: OnceLock<AtomicU64> = OnceLock::new();
    let begun = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        AtomicU64::new(u64::try_from(since.as_micros()).unwrap_or(0).max(1))
    };
    NEXT.get_or_init(begun).fetch_add(1, Ordering::Relaxed)
}

impl Intake {
    pub(crate) fn new(consume: AmqpConsume, link: Arc<Link>) -> Self {
        Self {
            consume,
            link,
            unacked: Mutex::default(),
            arrived: Notify::new(),
            settled: Notify::new(),
            is_stopping: AtomicBool::new(false),
            stop: Notify::new(),
            is_wanted: AtomicBool::new(false),
            wanted: Notify::new(),
            is_stopped: AtomicBool::new(false),
            stopped: Notify::new(),
            state: Mutex::default(),
            delayed: Mutex::default(),
            telling: tokio::sync::Mutex::default(),
        }
    }

    /// Whether it consumes.
    pub(crate) fn health(&self) -> Result<(), SourceError> {
        self.link.up()?;
        match self.is_wanted.load(Ordering::Acquire) {
            true => self.channel().map(drop),
            false => Ok(()),
        }
    }

    /// Begins to consume, at the first call.
    pub(crate) fn want(&self) {
        if !self.is_wanted.load(Ordering::Acquire) {
            self.is_wanted.store(true, Ordering::Release);
            self.wanted.notify_waiters();
        }
    }

    async fn is_wanted(&self) {
        loop {
            let mut wanted = pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.is_wanted.load(Ordering::Acquire) {
                return;
            }
            wanted.await;
        }
    }

    /// The channel it consumes on.
    pub(crate) fn channel(&self) -> Result<Arc<Channel>, SourceError> {
        let state = self.state.lock();
        match (&state.channel, &state.cause) {
            (Some(channel), _) => Ok(Arc::clone(channel)),
            (None, Some(cause)) => Err(SourceError::new(cause)),
            (None, None) => Err(SourceError::new("it has not begun to consume yet")),
        }
    }

    /// The end of a window that begins now.
    pub(crate) fn window_end(&self, now: Instant) -> Option<Instant> {
        self.consume.visibility.map(|window| now + window)
    }

    /// Hears whether a message that is to come later is with the broker.
    pub(crate) fn noted(&self, key: &Arc<str>, delay: Option<Duration>, is_sent: bool) {
        let Some(delay) = delay else { return };
        let mut delayed = self.delayed.lock();
        match is_sent {
            true => delayed.begin(key, Instant::now() + delay),
            false => delayed.remove(key),
        }
    }

    fn hold(&self) -> Hold {
        let age = self.consume.hold;
        match age.is_zero() || self.is_stopping.load(Ordering::Acquire) {
            true => Hold::NONE,
            // Held back, they keep the broker from sending more.
            false => Hold { age, most: usize::from(self.consume.prefetch / 2).max(1) },
        }
    }

    fn begin(&self, channel: Channel) {
        let channel = Arc::new(channel);
        let mut unacked = self.unacked.lock();
        unacked.begin(next_generation());
        // Both change under one lock, so that a tag never meets another channel.
        *self.state.lock() = Standing { channel: Some(channel), cause: None };
        drop(unacked);
        self.arrived.notify_waiters();
    }

    fn end(&self, cause: String) {
        let mut unacked = self.unacked.lock();
        unacked.end();
        let old = std::mem::replace(
            &mut *self.state.lock(),
            Standing { channel: None, cause: Some(cause) },
        );
        drop(unacked);
        drop(old);
        self.arrived.notify_waiters();
        self.settled.notify_one();
    }

    /// Consumes from when it is wanted until it is stopped or dropped.
    pub(crate) async fn take_in(self: Arc<Self>) {
        self.unless_stopped(self.is_wanted()).await;
        let mut pauses = Pauses::default();
        let mut generation = 0;
        while !self.is_stopping.load(Ordering::Acquire) {
            let Some(up) = self.unless_stopped(self.link.stands()).await else { break };
            // The link has declared everything when it connected, but since then a queue may have
            // gone, and that may be why we are here.
            let is_again = generation == up.generation;
            generation = up.generation;
            match self.begin_consuming(&up, is_again).await {
                Ok((channel, consumer)) => {
                    let begun = Instant::now();
                    self.begin(channel);
                    let cause = self.drain(consumer).await;
                    if self.is_stopping.load(Ordering::Acquire) {
                        break;
                    }
                    self.end(cause);
                    // One that stood for a while was no failed attempt.
                    if begun.elapsed() > STOOD {
                        pauses.reset();
                    }
                }
                Err(error) => self.end(error),
            }
            self.unless_stopped(sleep(pauses.next())).await;
        }
        self.is_stopped.store(true, Ordering::Release);
        self.stopped.notify_waiters();
        self.arrived.notify_waiters();
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stop = pin!(self.stop.notified());
        stop.as_mut().enable();
        if self.is_stopping.load(Ordering::Acquire) {
            return None;
        }
        tokio::select! {
            done = work => Some(done),
            () = stop => None,
        }
    }

    async fn begin_consuming(
        &self,
        up: &Up,
        is_again: bool,
    ) -> Result<(Channel, Consumer), String> {
        let beginning = async {
            if is_again {
                self.link.declare(&up.connection).await.map_err(|error| error.to_string())?;
            }
            ensure_queue(&self.link, up, &self.consume).await.map_err(|error| error.to_string())?;
            let channel = match up.connection.create_channel().await {
                Ok(channel) => channel,
                Err(error) => {
                    // The library never uses a channel's number again that the broker has closed,
                    // and in the end has none left.
                    self.link.give_up(up.generation);
                    return Err(error.to_string());
                }
            };
            let consumer = self.consume_on(&channel).await;
            let consumer = consumer.map_err(|error| classify(&self.link.address, &error));
            Ok((channel, consumer.map_err(|error| error.to_string())?))
        };
        match timeout(ANSWER, beginning).await {
            Ok(begun) => begun,
            Err(_) => Err(format!("the broker did not answer within {ANSWER:?}")),
        }
    }

    async fn consume_on(&self, channel: &Channel) -> Result<Consumer, lapin::Error> {
        channel.basic_qos(self.consume.prefetch, BasicQosOptions::default()).await?;
        let options =
            BasicConsumeOptions { exclusive: self.consume.is_exclusive, ..Default::default() };
        let (queue, tag) = (short(&self.consume.queue), short(&self.consume.tag));
        channel.basic_consume(queue, tag, options, FieldTable::default()).await
    }

    /// Takes in whatever comes, and answers why nothing more does.
    async fn drain(&self, mut consumer: Consumer) -> String {
        loop {
            let Some(next) = self.unless_stopped(consumer.next()).await else {
                self.cancel(&mut consumer).await;
                return String::from("stopped");
            };
            if let Err(cause) = self.arrive(next, &mut consumer) {
                return cause;
            }
        }
    }

    /// Takes in what came, and all else that is here already.
    fn arrive(&self, first: Next, consumer: &mut Consumer) -> Result<(), String> {
        let mut batch = Vec::new();
        let mut next = Some(first);
        let mut end = None;
        while let Some(came) = next.take() {
            match came {
                Some(Ok(delivery)) => {
                    let tag = delivery.delivery_tag;
                    let incoming = Incoming::new(delivery);
                    batch.push((tag, incoming.identity(), incoming));
                }
                Some(Err(error)) => end = Some(error.to_string()),
                None => {
                    let queue = &self.consume.queue;
                    end = Some(format!("the broker ended the consumer of queue {queue}"));
                }
            }
            if end.is_none() && batch.len() < BATCH {
                next = consumer.next().now_or_never();
            }
        }
        let now = Instant::now();
        for (_, _, incoming) in batch.iter().filter(|(_, _, incoming)| incoming.is_copy()) {
            self.delayed.lock().came(incoming);
        }
        let mut unacked = self.unacked.lock();
        let all = batch
            .into_iter()
            .all(|(tag, identity, incoming)| unacked.arrive(tag, identity, incoming, now));
        drop(unacked);
        self.arrived.notify_waiters();
        match end {
            Some(end) => Err(end),
            None if all => Ok(()),
            None => Err(String::from("the broker's delivery tags do not count up")),
        }
    }

    /// Ends the consumer at the broker, and hands back what was never handed out.
    async fn cancel(&self, consumer: &mut Consumer) {
        if let Ok(channel) = self.channel() {
            let cancel = channel.basic_cancel(consumer.tag(), BasicCancelOptions::default());
            drop(timeout(ANSWER, cancel).await);
        }
        while let Some(next) = consumer.next().now_or_never() {
            if self.arrive(next, consumer).is_err() {
                break;
            }
        }
        self.unacked.lock().return_fresh();
        timeout(ANSWER, self.tell_once()).await.ok();
        self.settled.notify_one();
    }

    /// Stops consuming, and waits until that is done.
    pub(crate) async fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.stop.notify_waiters();
        self.arrived.notify_waiters();
        loop {
            let mut stopped = pin!(self.stopped.notified());
            stopped.as_mut().enable();
            if self.is_stopped.load(Ordering::Acquire) {
                return;
            }
            stopped.await;
        }
    }

    /// Tells the broker what became of deliveries, until it is dropped.
    pub(crate) async fn tell(self: Arc<Self>) {
        let mut next: Option<Instant> = None;
        loop {
            let due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.settled.notified() => {}
                () = due => {}
            }
            next = self.tell_once().await;
        }
    }

    /// Tells what is to be told now; answers when there is more.
    pub(crate) async fn tell_once(&self) -> Option<Instant> {
        let _telling = self.telling.lock().await;
        let (mut frames, channel) = {
            let mut unacked = self.unacked.lock();
            let frames = unacked.frames(Instant::now(), self.hold());
            (frames, self.state.lock().channel.clone())
        };
        let next = frames.next;
        if frames.is_empty() {
            return next;
        }
        let told = match channel {
            Some(channel) => send(&channel, &frames).await,
            None => false,
        };
        self.unacked.lock().told(&mut frames, Instant::now());
        frames.answer(told);
        next
    }
}

/// Writes frames in their order; `false` where the channel ended first.
async fn send(channel: &Channel, frames: &Frames) -> bool {
    type Sending<'a> = std::pin::Pin<Box<dyn Future<Output = lapin::Result<()>> + Send + 'a>>;
    let mut all: Vec<Sending<'_>> = Vec::new();
    let back = BasicNackOptions { multiple: false, requeue: true };
    for tag in &frames.returns {
        all.push(Box::pin(channel.basic_nack(*tag, back)));
    }
    for tag in &frames.rejects {
        all.push(Box::pin(channel.basic_reject(*tag, BasicRejectOptions { requeue: false })));
    }
    if let Some(tag) = frames.up_to {
        all.push(Box::pin(channel.basic_ack(tag, BasicAckOptions { multiple: true })));
    }
    for tag in &frames.singles {
        all.push(Box::pin(channel.basic_ack(*tag, BasicAckOptions { multiple: false })));
    }
    // Each is put in line when it is first polled; so all are, in order, before any is awaited.
    let mut is_sent = true;
    let mut waiting = Vec::new();
    for mut sending in all {
        match futures_util::poll!(sending.as_mut()) {
            std::task::Poll::Ready(sent) => is_sent &= sent.is_ok(),
            std::task::Poll::Pending => waiting.push(sending),
        }
    }
    for sending in waiting {
        is_sent &= sending.await.is_ok();
    }
    is_sent
}

/// A queue that is missing is made, durable, unless it is somebody else's; one that is there is used as
/// it is.
pub(crate) async fn ensure_queue(
    link: &Link,
    up: &Up,
    consume: &AmqpConsume,
) -> Result<(), OpenError> {
    let queue = &consume.queue;
    if link.topology.queue(queue).is_some() || is_there(link, up, queue).await? {
        return Ok(());
    }
    if consume.is_standing {
        let why = format!("the queue {queue}, which somebody else declares, is not there");
        return Err(OpenError::Unreachable(why));
    }
    let making = async {
        let channel = up.connection.create_channel().await?;
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare(short(queue), options, FieldTable::default()).await?;
        channel.close(200, "done".into()).await
    };
    making.await.map_err(|error| classify(&link.address, &error))
}

/// Whether a queue is there.
pub(crate) async fn is_there(link: &Link, up: &Up, queue: &str) -> Result<bool, OpenError> {
    let looking = async {
        let channel = up.connection.create_channel().await?;
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        channel.queue_declare(short(queue), options, FieldTable::default()).await?;
        channel.close(200, "done".into()).await
    };
    match looking.await {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(classify(&link.address, &error)),
    }
}

pub(crate) fn is_missing(error: &lapin::Error) -> bool {
    let missing = AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND);
    matches!(error.kind(), ErrorKind::ProtocolError(said) if *said.kind() == missing)
}
