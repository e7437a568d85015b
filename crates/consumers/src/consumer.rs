//! A consumer: which queue, which handlers, how many at once, in which order, and what if it fails.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use sluicegate_tasks::Context;

use crate::failure::Classes;
use crate::{Class, Failure, Handler, Metadata, OrderBy, Retry, Size, Unmatched, available_cpus};

/// How long a broker waits for a settlement, unless told otherwise: RabbitMQ's `consumer_timeout`.
pub const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A consumer of one queue.
#[derive(Clone, Debug)]
pub struct Consumer {
    pub(crate) settings: ConsumerBuilder,
    /// At least one; `None` handles every event type.
    pub(crate) handlers: Vec<(Option<Arc<str>>, Handler)>,
}

/// The settings of a [`Consumer`] that has no handler yet.
#[derive(Clone, Debug)]
#[must_use = "handle() makes the consumer"]
pub struct ConsumerBuilder {
    pub(crate) queue: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) event_type: Option<Arc<str>>,
    pub(crate) workers: u32,
    pub(crate) prefetch: u32,
    pub(crate) order_by: Option<OrderBy>,
    pub(crate) retry: Retry,
    pub(crate) classes: Classes,
    pub(crate) unmatched: Unmatched,
    pub(crate) timeout: Duration,
}

impl Consumer {
    /// A consumer of this queue. Its name is the queue's unless it gets one.
    ///
    /// ```
    /// use serde::Deserialize;
    /// use sluicegate_consumers::{Consumer, Context, Failure, Metadata, OrderBy};
    ///
    /// #[derive(Deserialize)]
    /// struct Order { number: u32 }
    ///
    /// let consumer = Consumer::of("orders")
    ///     .named("mailer")
    ///     .event_type("order.created")
    ///     .order_by(OrderBy::header("customer"))
    ///     .handle(|order: Order, _about: Metadata, _cx: Context| async move {
    ///         println!("order {}", order.number);
    ///         Ok::<_, Failure>(())
    ///     });
    /// assert_eq!(consumer.name(), "mailer");
    /// ```
    pub fn of(queue: impl Into<Arc<str>>) -> ConsumerBuilder {
        let queue = queue.into();
        ConsumerBuilder {
            name: Arc::clone(&queue),
            queue,
            event_type: None,
            workers: 0,
            prefetch: 0,
            order_by: None,
            retry: Retry::default(),
            classes: Classes::default(),
            unmatched: Unmatched::default(),
            timeout: CONSUMER_TIMEOUT,
        }
    }

    /// Has messages of one more event type handled, by a handler of their own: a queue may carry
    /// several.
    ///
    /// ```
    /// use sluicegate_consumers::{Consumer, Failure, Handler};
    ///
    /// let handler = || Handler::bytes(|_body, _about, _cx| async { Ok::<_, Failure>(()) });
    /// let consumer = Consumer::of("orders")
    ///     .event_type("order.created")
    ///     .handler(handler())
    ///     .on("order.paid", handler());
    /// # drop(consumer);
    /// ```
    #[must_use]
    pub fn on(mut self, event_type: impl Into<Arc<str>>, handler: Handler) -> Self {
        self.handlers.push((Some(event_type.into()), handler));
        self
    }

    /// The queue it consumes from.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.settings.queue
    }

    /// Its name, which is its tag at the broker.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Its workers and its prefetch, on this machine.
    #[must_use]
    pub fn size(&self) -> Size {
        Size::of(self.settings.workers, self.settings.prefetch, available_cpus())
    }

    /// The handler of a message of this event type, if there is one. A message whose sender named
    /// none goes to the handler of all, or to the only one.
    pub(crate) fn handler(&self, event_type: Option<&str>) -> Option<&Handler> {
        let of = |wanted: Option<&str>| {
            let mut all = self.handlers.iter();
            all.find(|(known, _)| known.as_deref() == wanted).map(|(_, handler)| handler)
        };
        match (event_type, &*self.handlers) {
            (Some(_), _) => of(event_type).or_else(|| of(None)),
            (None, [(_, only)]) => Some(only),
            (None, _) => of(None),
        }
    }

    /// What its messages stay in order with: what it was told, and with one worker each other.
    pub(crate) fn order(&self) -> Option<OrderBy> {
        let alone = || (self.settings.workers == 1).then(OrderBy::everything);
        self.settings.order_by.clone().or_else(alone)
    }
}

impl ConsumerBuilder {
    /// Its name, which is its tag at the broker and stands in logs.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// The event type that its handler is for; without one it is for all.
    pub fn event_type(mut self, event_type: impl Into<Arc<str>>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// How many handlers run at once; 0, as without it, for four times the CPUs. At most 200. One
    /// worker keeps the order of the queue.
    pub const fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// How many messages are here at once; 0, as without it, for ten times the workers up to 500. At
    /// most 1000.
    pub const fn prefetch(mut self, prefetch: u32) -> Self {
        self.prefetch = prefetch;
        self
    }

    /// Keeps the order of messages with the same key, at full concurrency. A failed message then
    /// waits here for its next attempt, and those behind it wait with it.
    pub fn order_by(mut self, order_by: OrderBy) -> Self {
        self.order_by = Some(order_by);
        self
    }

    /// How often a message is tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// What class the errors of a type are of, wherever in the chain of causes one is. What is not
    /// told is retried.
    ///
    /// ```
    /// use sluicegate_consumers::{Class, Consumer};
    /// use std::io::{Error, ErrorKind};
    ///
    /// let builder = Consumer::of("orders").classify(|error: &Error| match error.kind() {
    ///     ErrorKind::InvalidData => Class::Dead,
    ///     _ => Class::Retry,
    /// });
    /// # drop(builder);
    /// ```
    pub fn classify<E: std::error::Error + 'static>(
        mut self,
        class: impl Fn(&E) -> Class + Send + Sync + 'static,
    ) -> Self {
        self.classes.add(class);
        self
    }

    /// What becomes of messages of an event type that has no handler.
    pub const fn unmatched(mut self, unmatched: Unmatched) -> Self {
        self.unmatched = unmatched;
        self
    }

    /// How long the broker waits for a settlement, where that is not the usual half hour: a message
    /// that is here for four fifths of it is warned of.
    pub const fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The consumer, with a handler of JSON: short for [`handler`](Self::handler) of a
    /// [`Handler::json`].
    pub fn handle<T, E, F, Fut>(self, function: F) -> Consumer
    where
        T: DeserializeOwned + Send + 'static,
        E: Into<Failure> + 'static,
        F: Fn(T, Metadata, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
    {
        self.handler(Handler::json(function))
    }

    /// The consumer, with a handler.
    pub fn handler(self, handler: Handler) -> Consumer {
        let handlers = vec![(self.event_type.clone(), handler)];
        Consumer { settings: self, handlers }
    }
}
