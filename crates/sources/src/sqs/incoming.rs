//! A received message as an envelope, and the attributes that carry what SQS has no place for.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName as System};
use bytes::Bytes;
use sluicegate_dispatch::Envelope;

use super::books::Copied;

/// The sender's id of the message.
pub(super) const ID: &str = "sluicegate-id";
/// Its group, as the sender wrote it.
pub(super) const GROUP: &str = "sluicegate-group";
/// Not to be handed over before, in milliseconds since 1970.
pub(super) const NOT_BEFORE: &str = "sluicegate-not-before";
const OWN: &str = "sluicegate-";
/// Under which names senders say what kind of event it is.
const EVENT_TYPES: [&str; 3] = ["event-type", "event_type", "type"];

/// A received message.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) broker_id: Arc<str>,
    pub(super) handle: String,
    /// The group as the service knows it.
    pub(super) group: Option<Arc<str>>,
    /// How long it is to wait still.
    pub(super) rest: Duration,
    pub(super) envelope: Envelope,
    attributes: HashMap<String, MessageAttributeValue>,
}

impl Incoming {
    /// `None` if it has no id or no receipt handle, so that nobody could settle it.
    pub(super) fn read(message: Message, queue: &Arc<str>) -> Option<Self> {
        let broker_id: Arc<str> = message.message_id?.into();
        let handle = message.receipt_handle?;
        let mut system = message.attributes.unwrap_or_default();
        let attributes = message.message_attributes.unwrap_or_default();
        let text = |name: &str| attributes.get(name).and_then(|value| value.string_value());
        let group: Option<Arc<str>> = system.remove(&System::MessageGroupId).map(Into::into);
        let sent_by_us = text(ID).is_some();
        let own_group = text(GROUP).map(Arc::from);
        let deduplication = system.remove(&System::MessageDeduplicationId);
        let received = system.get(&System::ApproximateReceiveCount);
        let received = received.and_then(|count| count.parse::<u32>().ok()).unwrap_or(1);
        let trace = system.remove(&System::AwsTraceHeader);
        let trace = trace.map(|trace| ("X-Amzn-Trace-Id".into(), trace.into()));
        let headers = attributes.iter().filter(|(name, _)| !name.starts_with(OWN));
        let headers = headers
            .filter_map(|(name, value)| Some((name.as_str().into(), value.string_value()?.into())));
        let envelope = Envelope {
            body: Bytes::from(message.body.unwrap_or_default()),
            id: text(ID).map(Arc::from).or_else(|| deduplication.map(Into::into)),
            event_type: EVENT_TYPES.iter().find_map(|name| text(name)).map(Arc::from),
            routing_key: Some(Arc::clone(queue)),
            // The group of a message that was sent without one says nothing.
            group: own_group.or_else(|| group.clone().filter(|_| !sent_by_us)),
            headers: headers.chain(trace).collect(),
            redelivered: received > 1,
        };
        let rest = text(NOT_BEFORE)
            .and_then(|time| time.parse().ok())
            .map_or(0, |time: u64| time.saturating_sub(milliseconds(SystemTime::now())));
        let rest = Duration::from_millis(rest);
        Some(Self { broker_id, handle, group, rest, envelope, attributes })
    }

    /// The message as it has to be written elsewhere.
    pub(super) fn copied(&mut self) -> Copied {
        Copied {
            body: self.envelope.body.clone(),
            group: self.group.clone(),
            attributes: std::mem::take(&mut self.attributes),
        }
    }
}

/// Since 1970.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Whether SQS takes this text as the value of an attribute or as a body.
pub(super) fn is_sendable(text: &str) -> bool {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    !text.is_empty() && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> MessageAttributeValue {
        let value = MessageAttributeValue::builder().data_type("String").string_value(value);
        value.build().unwrap()
    }

    fn message() -> aws_sdk_sqs::types::builders::MessageBuilder {
        Message::builder().message_id("b1").receipt_handle("r1").body("hello")
    }

    #[test]
    fn an_envelope_has_what_the_service_carries() {
        let message = message()
            .attributes(System::MessageGroupId, "g")
            .attributes(System::MessageDeduplicationId, "d")
            .attributes(System::ApproximateReceiveCount, "2")
            .attributes(System::AwsTraceHeader, "Root=1")
            .message_attributes("event-type", text("order.paid"));
        let incoming = Incoming::read(message.build(), &"orders".into()).unwrap();
        assert_eq!((&*incoming.broker_id, &*incoming.handle), ("b1", "r1"));
        let envelope = incoming.envelope;
        assert_eq!(&envelope.body[..], b"hello");
        assert_eq!((envelope.id.as_deref(), envelope.group.as_deref()), (Some("d"), Some("g")));
        assert_eq!(envelope.event_type.as_deref(), Some("order.paid"));
        assert_eq!(envelope.routing_key.as_deref(), Some("orders"));
        assert_eq!(envelope.header("event-type"), Some("order.paid"));
        assert_eq!(envelope.header("X-Amzn-Trace-Id"), Some("Root=1"));
        assert!(envelope.redelivered);
        assert_eq!(incoming.rest, Duration::ZERO);
    }

    #[test]
    fn what_was_sent_without_a_group_has_none() {
        let message = message()
            .attributes(System::MessageGroupId, "made up")
            .attributes(System::ApproximateReceiveCount, "1")
            .message_attributes(ID, text("m1"));
        let incoming = Incoming::read(message.build(), &"orders".into()).unwrap();
        assert_eq!(incoming.group.as_deref(), Some("made up"));
        let envelope = incoming.envelope;
        assert_eq!((envelope.id.as_deref(), envelope.group), (Some("m1"), None));
        assert_eq!((envelope.headers.len(), envelope.redelivered), (0, false));
    }

    #[test]
    fn some_text_cannot_be_sent() {
        for (sent, can) in
            [("a", true), ("", false), ("日\n🔑", true), ("\0", false), ("\u{fffe}", false)]
        {
            assert_eq!(is_sendable(sent), can, "{sent:?}");
        }
    }
}
