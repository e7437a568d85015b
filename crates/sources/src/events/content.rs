//! An event as what is delivered.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use sluicegate_dispatch::{Envelope, Malformed, Message, Target};
use sluicegate_event_store::Event;

/// What a queue says of each of its events.
#[derive(Debug)]
pub struct About {
    pub(crate) queue: Arc<str>,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) pool: Arc<str>,
    pub(crate) target: Option<Target>,
}

/// What can be made of an event: the router's [`Message`]s, or [`Envelope`]s for handlers written in Rust.
pub trait OfEvent: Sized + Send + Sync + 'static {
    /// Whether it can only be made with a target.
    const NEEDS_TARGET: bool;

    /// Makes it; `again` says whether it was handed out before.
    ///
    /// # Errors
    /// Says what is wrong, and keeps the data.
    fn of_event(event: &Event, about: &About, again: bool) -> Result<Self, Malformed>;
}

impl About {
    /// What a message is called, at every attempt.
    pub(crate) fn id(&self, position: u64) -> Arc<str> {
        format!("{}:{position}", self.queue).into()
    }

    /// The position of the message that is called so.
    pub(crate) fn position(&self, id: &str) -> Option<u64> {
        let digits = id.strip_prefix(&*self.queue)?.strip_prefix(':')?;
        let position: u64 = digits.parse().ok()?;
        // Not `q:07`, nor `q:+7`: a message has one name.
        (position > 0 && *self.id(position) == *id).then_some(position)
    }

    /// What an event stays in order with.
    pub(crate) fn group(&self, event: &Event) -> Option<Arc<str>> {
        let value = event.tag(self.key.as_deref()?)?;
        (!value.trim().is_empty()).then(|| value.into())
    }
}

#[derive(Serialize)]
struct Payload<'a> {
    position: u64,
    #[serde(rename = "type")]
    event_type: &'a str,
    tags: Vec<&'a str>,
    data: &'a RawValue,
    time: String,
}

fn time(event: &Event) -> String {
    Timestamp::from_millisecond(event.time_ms()).unwrap_or_default().to_string()
}

impl OfEvent for Message {
    const NEEDS_TARGET: bool = true;

    fn of_event(event: &Event, about: &About, _again: bool) -> Result<Self, Malformed> {
        let malformed = |why: String| Malformed { why, raw: event.data().to_owned() };
        let data = serde_json::from_str(event.data())
            .map_err(|error| malformed(format!("data is not JSON: {error}")))?;
        let position = event.position().get();
        let (event_type, tags) = (event.event_type(), event.tags().collect());
        let payload = Payload { position, event_type, tags, data, time: time(event) };
        let payload =
            serde_json::to_string(&payload).map_err(|error| malformed(error.to_string()))?;
        let target = about.target.clone();
        Ok(Self {
            id: about.id(position),
            pool: Arc::clone(&about.pool),
            group: about.group(event),
            tenant: None,
            high_priority: false,
            target: target.ok_or_else(|| malformed("target: there is none".to_owned()))?,
            auth_token: None,
            payload: Some(payload.into()),
            traceparent: None,
            unknown_fields: Box::default(),
        })
    }
}

/// The body is the event's data. Position, time and tags are headers, a header `tag` for each tag.
impl OfEvent for Envelope {
    const NEEDS_TARGET: bool = false;

    fn of_event(event: &Event, about: &About, again: bool) -> Result<Self, Malformed> {
        let position = event.position().get();
        let mut headers: Vec<(Box<str>, Box<str>)> = vec![
            ("position".into(), position.to_string().into()),
            ("time".into(), time(event).into()),
        ];
        headers.extend(event.tags().map(|tag| ("tag".into(), tag.into())));
        Ok(Self {
            body: Bytes::copy_from_slice(event.data().as_bytes()),
            id: Some(about.id(position)),
            event_type: Some(event.event_type().into()),
            routing_key: Some(Arc::clone(&about.queue)),
            group: about.group(event),
            headers,
            redelivered: again,
        })
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_event_store::Position;

    use super::*;

    fn about() -> About {
        let target = Some(Target::parse("http://h/in").unwrap());
        About { queue: "paid: 1".into(), key: Some("order".into()), pool: "P".into(), target }
    }

    #[test]
    fn an_event_is_a_message_with_all_that_it_has() {
        let tags = ["order:7", "order:8", "who:\u{fc}"];
        let event = Event::new(Position::new(12), 1_500, "Paid", tags, r#"{"sum": 1.50}"#);
        let message = Message::of_event(&event, &about(), false).unwrap();
        assert_eq!((&*message.id, &*message.pool), ("paid: 1:12", "P"));
        assert_eq!(message.group.as_deref(), Some("7"));
        let expected = "{\"position\":12,\"type\":\"Paid\",\"tags\":[\"order:7\",\"order:8\",\"who:\u{fc}\"],\
                        \"data\":{\"sum\": 1.50},\"time\":\"1970-01-01T00:00:01.5Z\"}";
        assert_eq!(message.payload.as_deref(), Some(expected));
        let envelope = Envelope::of_event(&event, &about(), false).unwrap();
        assert_eq!(&envelope.body[..], br#"{"sum": 1.50}"#);
        assert_eq!(envelope.event_type.as_deref(), Some("Paid"));
        assert_eq!(
            (envelope.header("position"), envelope.header("tag")),
            (Some("12"), Some("order:7"))
        );
    }

    #[test]
    fn an_event_without_the_tag_has_no_group() {
        for tags in [&["other:7"][..], &["order:"], &["order: "], &[]] {
            let event = Event::new(Position::new(1), 0, "Paid", tags.iter().copied(), "1");
            assert_eq!(about().group(&event), None, "{tags:?}");
        }
    }

    #[test]
    fn a_message_has_one_name() {
        let about = about();
        assert_eq!(about.position(&about.id(12)), Some(12));
        for other in ["paid: 1:012", "paid: 1:+12", "paid: 1:0", "paid: 1:", "paid: 12", "x:12", ""]
        {
            assert_eq!(about.position(other), None, "{other}");
        }
    }
}
