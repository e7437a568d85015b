//! One message as it came over the wire: what is read out of it, what it is known by, and how it
//! is written down to come again.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use sluicegate_dispatch::{Envelope, Publication, Reason};

use super::delay_queues::WAITING;
use super::names::Identity;

/// What our own headers begin with.
const OWN: &str = "x-sluicegate-";
const ATTEMPTS: &str = "x-sluicegate-attempts";
const REASON: &str = "x-sluicegate-reason";
const ID: &str = "x-sluicegate-id";
const NAME: &str = "x-sluicegate-name";
const GROUP: &str = "x-sluicegate-group";
const EXCHANGE: &str = "x-sluicegate-exchange";
const ROUTING_KEY: &str = "x-sluicegate-routing-key";
/// What the broker writes into headers at each dead-lettering or redelivery.
const BROKERS: [&str; 8] = [
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
    "x-delivery-count",
];

/// A message of a queue.
#[derive(Debug)]
pub(crate) struct Incoming {
    body: Bytes,
    properties: BasicProperties,
    exchange: ShortString,
    routing_key: ShortString,
    is_redelivered: bool,
}

impl Incoming {
    pub(crate) fn new(delivery: lapin::message::Delivery) -> Self {
        Self {
            body: delivery.data.into(),
            properties: delivery.properties,
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            is_redelivered: delivery.redelivered,
        }
    }

    pub(crate) fn body(&self) -> Bytes {
        self.body.clone()
    }

    fn header(&self, name: &str) -> Option<&AMQPValue> {
        self.properties.headers().as_ref()?.inner().get(name)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.header(name).and_then(scalar)
    }

    /// Whether a header is one in which the broker notes that a message died in a delay queue.
    fn tells_of_waiting(&self, name: &str) -> bool {
        let mut notes = ["x-first-death-", "x-last-death-"].into_iter();
        let Some(note) = notes.find(|note| name.starts_with(note)) else { return false };
        let queue = self.text(&format!("{note}queue"));
        queue.is_some_and(|queue| queue.starts_with(WAITING))
    }

    /// Whether it is a copy of ours that comes back.
    pub(crate) fn is_copy(&self) -> bool {
        self.header(ATTEMPTS).is_some() || self.has_waited()
    }

    /// Whether it comes out of a delay queue.
    fn has_waited(&self) -> bool {
        let queue = self.text("x-first-death-queue");
        queue.is_some_and(|queue| queue.starts_with(WAITING))
    }

    /// How many attempts were made before.
    pub(crate) fn attempts(&self) -> u32 {
        let attempts = self.text(ATTEMPTS).and_then(|text| text.parse().ok());
        attempts.unwrap_or(0)
    }

    /// What it is known by: the sender's id, and for a message without one what it says. Equal
    /// messages without an id have the same; whoever uses it tells them apart.
    pub(crate) fn identity(&self) -> Identity {
        let given = self.text(NAME).map(Arc::from).or_else(|| self.sender_id());
        let is_given = given.is_some();
        let id = given.unwrap_or_else(|| self.fingerprint());
        Identity {
            id,
            is_given,
            is_redelivered: self.is_redelivered,
            is_copy: self.header(ATTEMPTS).is_some(),
        }
    }

    fn fingerprint(&self) -> Arc<str> {
        let mut hasher = DefaultHasher::new();
        self.body.hash(&mut hasher);
        self.exchange.as_str().hash(&mut hasher);
        self.routing_key.as_str().hash(&mut hasher);
        let properties = &self.properties;
        for property in [properties.correlation_id(), properties.kind(), properties.app_id()] {
            property.as_ref().map(ShortString::as_str).hash(&mut hasher);
        }
        properties.timestamp().hash(&mut hasher);
        for (name, value) in properties.headers().iter().flat_map(|table| table.inner()) {
            if !is_ours_or_brokers(name.as_str()) {
                name.as_str().hash(&mut hasher);
                scalar(value).hash(&mut hasher);
            }
        }
        format!("~{:016x}", hasher.finish()).into()
    }

    fn sender_id(&self) -> Option<Arc<str>> {
        let own = self.text(ID).map(Arc::from);
        let sent = || self.properties.message_id().as_ref().map(|id| Arc::from(id.as_str()));
        own.or_else(sent)
    }

    /// What is read of it.
    pub(crate) fn envelope(&self) -> Envelope {
        let came_back = self.header(ROUTING_KEY);
        let routing_key = came_back.and_then(scalar).map(Arc::from);
        let group = self.text(GROUP).or_else(|| self.text("JMSXGroupID"));
        let id = self.properties.message_id().as_ref().map(|id| Arc::from(id.as_str()));
        // An id of our own making is none of the sender's.
        let long = || self.text(ID).filter(|id| !id.starts_with('~')).map(Arc::from);
        Envelope {
            body: self.body(),
            id: id.or_else(long),
            event_type: self.properties.kind().as_ref().map(|kind| kind.as_str().into()),
            routing_key: routing_key.or_else(|| Some(self.routing_key.as_str().into())),
            group: group.map(Arc::from),
            headers: self.headers(),
            redelivered: self.is_redelivered || came_back.is_some(),
        }
    }

    /// The sender's headers, and then those properties that are none of the envelope's fields.
    fn headers(&self) -> Vec<(Box<str>, Box<str>)> {
        let properties = &self.properties;
        let mut headers = Vec::new();
        for (name, value) in properties.headers().iter().flat_map(|table| table.inner()) {
            let is_ours = name.as_str().starts_with(OWN) || self.tells_of_waiting(name.as_str());
            if let Some(value) = scalar(value).filter(|_| !is_ours) {
                headers.push((name.as_str().into(), value.into()));
            }
        }
        let properties = [
            ("content-type", properties.content_type()),
            ("content-encoding", properties.content_encoding()),
            ("correlation-id", properties.correlation_id()),
            ("reply-to", properties.reply_to()),
            ("app-id", properties.app_id()),
        ];
        for (name, value) in properties {
            if let Some(value) = value {
                headers.push((name.into(), value.as_str().into()));
            }
        }
        headers
    }

    /// Its properties for the copy that comes again.
    ///
    /// The copy is published by us, so what binds a message to its publishing is left out: another
    /// user's id, which the broker would refuse; further routing keys, by which it would be copied;
    /// and an expiration, with which it would come before its time.
    pub(crate) fn again(&self, name: &str, attempts: u32, reason: Reason) -> BasicProperties {
        let old = &self.properties;
        let mut headers = FieldTable::default();
        for (name, value) in old.headers().iter().flat_map(|table| table.inner()) {
            match name.as_str() {
                "CC" | "BCC" | "x-delivery-count" => {}
                ours if self.tells_of_waiting(ours) => {}
                "x-death" => {
                    if let Some(deaths) = other_deaths(value) {
                        headers.insert(name.clone(), deaths);
                    }
                }
                _ => {
                    headers.insert(name.clone(), value.clone());
                }
            }
        }
        let mut keep_first = |name: &str, value: &str| {
            if !headers.contains_key(name) {
                headers.insert(name.into(), AMQPValue::LongString(value.into()));
            }
        };
        keep_first(EXCHANGE, self.exchange.as_str());
        keep_first(ROUTING_KEY, self.routing_key.as_str());
        keep_first(REASON, word(reason));
        // The copy has the name of the first one, also where that is not its id: otherwise it could be
        // taken for another message of the same id while the first one is still being settled.
        if self.sender_id().as_deref() != Some(name) {
            headers.insert(NAME.into(), AMQPValue::LongString(name.into()));
        }
        headers.insert(ATTEMPTS.into(), AMQPValue::LongLongInt(attempts.into()));
        let mut new =
            BasicProperties::default().with_headers(headers).with_delivery_mode(PERSISTENT);
        let texts: [(&Option<ShortString>, With); 7] = [
            (old.content_type(), BasicProperties::with_content_type),
            (old.content_encoding(), BasicProperties::with_content_encoding),
            (old.correlation_id(), BasicProperties::with_correlation_id),
            (old.reply_to(), BasicProperties::with_reply_to),
            (old.message_id(), BasicProperties::with_message_id),
            (old.kind(), BasicProperties::with_type),
            (old.app_id(), BasicProperties::with_app_id),
        ];
        for (value, with) in texts {
            if let Some(value) = value {
                new = with(new, value.clone());
            }
        }
        if let Some(priority) = old.priority() {
            new = new.with_priority(*priority);
        }
        if let Some(timestamp) = old.timestamp() {
            new = new.with_timestamp(*timestamp);
        }
        new
    }
}

type With = fn(BasicProperties, ShortString) -> BasicProperties;

/// The broker keeps it on disk.
const PERSISTENT: u8 = 2;

/// The properties of a message of the router's.
pub(crate) fn properties_of(publication: &Publication) -> BasicProperties {
    let mut headers = FieldTable::default();
    let message = &publication.message;
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_content_type("application/json".into());
    match ShortString::try_new(&*message.id) {
        Ok(id) => properties = properties.with_message_id(id),
        Err(_) => {
            headers.insert(ID.into(), AMQPValue::LongString(message.id.as_bytes().into()));
        }
    }
    if let Some(group) = &message.group {
        headers.insert(GROUP.into(), AMQPValue::LongString(group.as_bytes().into()));
    }
    properties.with_headers(headers)
}

/// The properties of an envelope that goes out.
pub(crate) fn properties_of_envelope(envelope: &Envelope) -> BasicProperties {
    let mut headers = FieldTable::default();
    let mut properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    for (name, value) in envelope.headers.iter().rev() {
        if name.len() <= 255 {
            headers.insert((**name).into(), AMQPValue::LongString(value.as_bytes().into()));
        }
    }
    if let Some(group) = &envelope.group {
        headers.insert(GROUP.into(), AMQPValue::LongString(group.as_bytes().into()));
    }
    if let Some(id) = &envelope.id {
        match ShortString::try_new(&**id) {
            Ok(id) => properties = properties.with_message_id(id),
            Err(_) => {
                headers.insert(ID.into(), AMQPValue::LongString(id.as_bytes().into()));
            }
        }
    }
    let event_type = envelope.event_type.as_ref().map(|kind| ShortString::try_new(&**kind));
    if let Some(Ok(event_type)) = event_type {
        properties = properties.with_type(event_type);
    }
    properties.with_headers(headers)
}

fn is_ours_or_brokers(name: &str) -> bool {
    name.starts_with(OWN) || BROKERS.contains(&name)
}

/// The deaths of a message without those in our delay queues.
fn other_deaths(value: &AMQPValue) -> Option<AMQPValue> {
    let AMQPValue::FieldArray(deaths) = value else { return Some(value.clone()) };
    let is_other = |death: &&AMQPValue| match death {
        AMQPValue::FieldTable(death) => {
            let queue = death.inner().get("queue").and_then(scalar);
            queue.is_none_or(|queue| !queue.starts_with(WAITING))
        }
        _ => true,
    };
    let deaths: Vec<AMQPValue> = deaths.as_slice().iter().filter(is_other).cloned().collect();
    (!deaths.is_empty()).then(|| AMQPValue::FieldArray(FieldArray::from(deaths)))
}

/// A value as text, where it is a single one.
fn scalar(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        AMQPValue::ShortString(value) => value.to_string(),
        AMQPValue::LongString(value) => value.to_string(),
        _ => return None,
    })
}

const fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Scheduled => "scheduled",
        Reason::Failed => "failed",
        Reason::Throttled => "throttled",
        Reason::BreakerOpen => "breaker_open",
        Reason::Cascade => "cascade",
        Reason::PoolFull => "pool_full",
        Reason::Draining => "draining",
        _ => "other",
    }
}
