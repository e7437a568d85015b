//! What messages stay in order with.

use std::fmt;
use std::sync::Arc;

use sluicegate_dispatch::{Envelope, Ordered};

type KeyOf = dyn Fn(&Envelope) -> Option<Arc<str>> + Send + Sync;

/// What tells which messages stay in order with each other: those with the same key run one at a
/// time and as they came, different keys run beside each other. A message without a key is in order
/// with nothing.
#[derive(Clone)]
pub struct OrderBy(By);

#[derive(Clone)]
enum By {
    Header(Arc<str>),
    RoutingKey,
    Group,
    All(Arc<str>),
    Function(Arc<KeyOf>),
}

impl OrderBy {
    /// By the value of a header.
    #[must_use]
    pub fn header(name: impl Into<Arc<str>>) -> Self {
        Self(By::Header(name.into()))
    }

    /// By what the message was sent by.
    #[must_use]
    pub const fn routing_key() -> Self {
        Self(By::RoutingKey)
    }

    /// By the message group, where the broker knows one.
    #[must_use]
    pub const fn group() -> Self {
        Self(By::Group)
    }

    /// All messages of the queue are in order with each other, whatever the number of workers.
    #[must_use]
    pub fn everything() -> Self {
        Self(By::All("".into()))
    }

    /// By what a function reads out of the message. It runs once for each delivery and must be quick.
    ///
    /// ```
    /// use sluicegate_consumers::OrderBy;
    ///
    /// let by_customer = OrderBy::function(|envelope| {
    ///     let (customer, _) = envelope.routing_key.as_deref()?.split_once('.')?;
    ///     Some(customer.into())
    /// });
    /// # drop(by_customer);
    /// ```
    pub fn function(key: impl Fn(&Envelope) -> Option<Arc<str>> + Send + Sync + 'static) -> Self {
        Self(By::Function(Arc::new(key)))
    }

    /// What of it the source can see to: it knows groups, and nothing of headers and functions.
    pub(crate) const fn at_source(&self) -> Ordered {
        match self.0 {
            By::Group => Ordered::Groups,
            By::All(_) => Ordered::All,
            By::Header(_) | By::RoutingKey | By::Function(_) => Ordered::Groups,
        }
    }

    /// Whether a source that keeps order keeps all of this one: it does so by group.
    pub(crate) const fn is_known_to_source(&self) -> bool {
        matches!(self.0, By::Group)
    }

    pub(crate) fn key(&self, envelope: &Envelope) -> Option<Arc<str>> {
        match &self.0 {
            By::Header(name) => envelope.header(name).map(Arc::from),
            By::RoutingKey => envelope.routing_key.clone(),
            By::Group => envelope.group.clone(),
            By::All(key) => Some(Arc::clone(key)),
            By::Function(key) => key(envelope),
        }
    }
}

impl fmt::Debug for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            By::Header(name) => write!(f, "OrderBy(header {name:?})"),
            By::RoutingKey => f.write_str("OrderBy(routing key)"),
            By::Group => f.write_str("OrderBy(group)"),
            By::All(_) => f.write_str("OrderBy(everything)"),
            By::Function(_) => f.write_str("OrderBy(function)"),
        }
    }
}
