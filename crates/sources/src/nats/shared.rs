//! What the source and its one task have in common.
//!
//! Lock order: the link's lock and the front's are never held together, and none of them across an
//! await.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Event, Message};
use parking_lot::Mutex;
use sluicegate_dispatch::{DEFAULT_GROUP, Order, Ordered, SourceError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::attach::{Attached, attach};
use super::connect::connect;
use super::front::{Front, Kept};
use super::message::{group, since_1970};
use super::settings::NatsSettings;
use crate::{OpenError, wire};

/// How long a question may be under way when the source is stopped.
const LAST_ANSWER: Duration = Duration::from_secs(3);

/// How long the library may try to get a connection back before a new one is made.
const LOST_FOR_GOOD: Duration = Duration::from_secs(10);
/// How long looking for stream and consumer may take.
const ATTACH: Duration = Duration::from_secs(10);

pub(super) struct Shared {
    pub(super) settings: NatsSettings,
    pub(super) front: Mutex<Front<Message>>,
    link: Mutex<Option<Link>>,
    epochs: AtomicU64,
    /// What keeps it from working.
    trouble: Mutex<Option<String>>,
    /// Something can be handed out, or it is over.
    pub(super) changed: Notify,
    /// The task has something to look at.
    pub(super) woken: Notify,
    /// A lost connection is back: no need to wait any longer.
    pub(super) connected: Notify,
    /// The server was told that some message is worked on.
    pub(super) extended: Notify,
    is_stopped: AtomicBool,
    is_given_back: AtomicBool,
    /// Whether bodies are the router's messages, of which pool and group are known.
    reads_messages: bool,
    /// What stays in order; nobody has said yet if there is none.
    order: Mutex<Option<Arc<Order>>>,
    /// The last consumer that was attached to.
    last: Mutex<Option<Arc<Attached>>>,
}

/// A connection and a consumer that can be used.
pub(super) struct Line {
    /// Which of the connections it is.
    pub(super) epoch: u64,
    pub(super) client: Client,
    pub(super) attached: Arc<Attached>,
}

/// One connection.
struct Link {
    epoch: u64,
    client: Client,
    attached: Option<Arc<Attached>>,
    lost: Option<Instant>,
}

impl Shared {
    pub(super) fn new<M: 'static>(settings: NatsSettings) -> Arc<Self> {
        // Behind the generations of every earlier life, unless it has handed out more than one
        // message in each microsecond since.
        let generation = u64::try_from(since_1970().as_micros()).unwrap_or(u64::MAX / 2);
        Arc::new(Self {
            front: Mutex::new(Front::new(settings.visibility, generation)),
            settings,
            link: Mutex::new(None),
            epochs: AtomicU64::new(0),
            trouble: Mutex::new(None),
            changed: Notify::new(),
            woken: Notify::new(),
            connected: Notify::new(),
            extended: Notify::new(),
            is_stopped: AtomicBool::new(false),
            is_given_back: AtomicBool::new(false),
            reads_messages: TypeId::of::<M>() == TypeId::of::<sluicegate_dispatch::Message>(),
            order: Mutex::new(None),
            last: Mutex::new(None),
        })
    }

    /// The connection and the consumer, if both can be used.
    pub(super) fn line(&self) -> Option<Line> {
        let link = self.link.lock();
        let Link { epoch, client, attached, .. } = link.as_ref()?;
        let (client, attached) = (client.clone(), Arc::clone(attached.as_ref()?));
        let is_connected = client.connection_state() == State::Connected;
        is_connected.then_some(Line { epoch: *epoch, client, attached })
    }

    /// The same for a caller. While there is no connection nothing is asked: it would wait in the
    /// library and reach the server when nobody means it any more.
    pub(super) fn usable(&self) -> Result<Line, SourceError> {
        self.line().ok_or_else(|| self.why_unusable())
    }

    fn why_unusable(&self) -> SourceError {
        let trouble = self.trouble.lock().clone();
        let not_yet = || format!("not connected to {}", self.settings.place());
        SourceError::new(trouble.unwrap_or_else(not_yet))
    }

    /// What keeps it from working.
    pub(super) fn trouble(&self) -> Option<SourceError> {
        self.trouble.lock().as_ref().map(SourceError::new)
    }

    pub(super) fn fails(&self, why: impl Into<String>) {
        *self.trouble.lock() = Some(why.into());
    }

    pub(super) fn works(&self) {
        *self.trouble.lock() = None;
    }

    /// Looks for the consumer anew before it is used again.
    pub(super) fn detach(&self) {
        if let Some(link) = &mut *self.link.lock() {
            link.attached = None;
        }
        self.woken.notify_one();
    }

    /// Hears what becomes of a connection.
    pub(super) fn hear(&self, event: &Event, epoch: u64) {
        {
            let mut link = self.link.lock();
            let Some(current) = link.as_mut().filter(|link| link.epoch == epoch) else { return };
            match event {
                Event::Connected => current.lost = None,
                Event::Disconnected => {
                    current.lost = Some(Instant::now());
                    // The consumer may be another one when the connection is back.
                    current.attached = None;
                }
                Event::Closed | Event::ClientError(async_nats::ClientError::MaxReconnects) => {
                    *link = None;
                }
                _ => {}
            }
        }
        match event {
            Event::Connected => self.connected.notify_one(),
            Event::Disconnected => {
                self.fails(format!("the connection to {} was lost", self.settings.place()));
            }
            Event::ServerError(error) => {
                self.fails(format!("{} says: {error}", self.settings.place()));
            }
            _ => {}
        }
        self.woken.notify_one();
    }

    /// Takes one step towards a connection with a consumer; the library may be the one to take it.
    pub(super) async fn link_up(self: &Arc<Self>) -> Result<(), OpenError> {
        let client = {
            let mut link = self.link.lock();
            match &mut *link {
                Some(Link { client, .. }) if client.connection_state() == State::Connected => {
                    Some(client.clone())
                }
                Some(Link { lost, .. }) => {
                    if lost.get_or_insert_with(Instant::now).elapsed() < LOST_FOR_GOOD {
                        return Err(OpenError::Unreachable(self.why_unusable().cause));
                    }
                    *link = None;
                    None
                }
                None => None,
            }
        };
        let client = match client {
            Some(client) => client,
            None => self.connect().await?,
        };
        let place = self.settings.place();
        let late = |_| OpenError::Unreachable(format!("{place}: JetStream does not answer"));
        let attached = timeout(ATTACH, attach(client, &self.settings)).await.map_err(late)??;
        self.take_up(Arc::new(attached));
        Ok(())
    }

    async fn connect(self: &Arc<Self>) -> Result<Client, OpenError> {
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        let client = connect(&self.settings, Arc::downgrade(self), epoch).await?;
        let link = Link { epoch, client: client.clone(), attached: None, lost: None };
        *self.link.lock() = Some(link);
        Ok(client)
    }

    fn take_up(&self, attached: Arc<Attached>) {
        let before = self.last.lock().replace(Arc::clone(&attached));
        {
            let mut front = self.front.lock();
            front.set_window(attached.window());
            let info = attached.consumer.cached_info();
            match before {
                // What was delivered before the connection was lost is ours as it was.
                Some(before) if before.is_same(info) => {}
                before => {
                    if before.is_some() {
                        front.reset();
                    }
                    if !self.settings.shared {
                        front.count_from(info.delivered.consumer_sequence);
                        front.hold(self.needs_order().then(|| attached.hold()).flatten());
                    }
                }
            }
        }
        if let Some(link) = &mut *self.link.lock() {
            link.attached = Some(attached);
        }
        self.works();
        self.changed.notify_waiters();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.changed.notify_waiters();
        self.woken.notify_one();
    }

    /// Nothing that was asked for is under way any more, and what had come is given back.
    pub(super) fn has_given_back(&self) {
        self.is_given_back.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Waits for that, as long as an answer may take.
    pub(super) async fn gives_back(&self) {
        let given_back = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                if self.is_given_back.load(Ordering::Acquire) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(LAST_ANSWER, given_back).await.ok();
    }

    /// What stays in order from now on.
    pub(super) fn keep_order(&self, order: &Arc<Order>) {
        let before = self.order.lock().replace(Arc::clone(order));
        if before.as_ref() == Some(order) {
            return;
        }
        let left = self.last.lock().as_ref().and_then(|attached| attached.hold());
        let mut front = self.front.lock();
        if order.is_nothing() {
            front.release_hold();
        } else {
            let was_nothing = before.is_some_and(|before| before.is_nothing());
            if was_nothing && front.is_fresh() && !self.settings.shared {
                front.hold(left);
            }
            let (of, reads_messages) = (Arc::clone(order), self.reads_messages);
            let keeps = Box::new(move |message: &Message| is_kept(&of, message, reads_messages));
            let all = order.others() == Ordered::All && order.pools().next().is_none();
            front.keep_order(Kept { keeps, all });
        }
        drop(front);
        self.changed.notify_waiters();
        self.woken.notify_one();
    }

    /// Whether somebody needs order, or may.
    fn needs_order(&self) -> bool {
        self.order.lock().as_ref().is_none_or(|order| !order.is_nothing())
    }
}

/// Whether a message stays in order: a router's by its pool and group, any other by its group.
fn is_kept(order: &Order, message: &Message, reads_messages: bool) -> bool {
    if !reads_messages {
        let group = group(message);
        return order.keeps("", group.as_deref().unwrap_or(DEFAULT_GROUP));
    }
    // What cannot be read stays in order with nothing.
    let Ok(incoming) = wire::parse(&message.payload) else { return false };
    let group = incoming.message.group.as_deref().unwrap_or(DEFAULT_GROUP);
    order.keeps(&incoming.message.pool, group)
}
