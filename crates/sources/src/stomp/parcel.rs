//! A message as the broker sent it, and the frames that end it.
//!
//! What the broker does not carry, or does not tell, is in headers of our own. Their names are what
//! JMS allows for properties, so that other clients can read and select by them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use sluicegate_dispatch::{Envelope, Malformed, Publication};

use super::codec::MAX_BODY;
use super::frame::{Command, Frame, Headers};

/// The application's id of a message.
const ID: &str = "sluicegateId";
/// What it stays in order with: the broker keeps its own header of that to itself.
const GROUP: &str = "sluicegateGroup";
/// How many attempts were made.
const ATTEMPTS: &str = "sluicegateAttempts";
/// The broker's id of the message that this one is a copy of, or a copy of a copy.
const FIRST: &str = "sluicegateFirst";
/// When its delay ends, in milliseconds since 1970.
pub(crate) const DUE: &str = "sluicegateDue";
/// What the broker adds to a message that its scheduler has kept.
const SCHEDULED: &str = "scheduledJobId";
const DELAY: &str = "AMQ_SCHEDULED_DELAY";
/// The broker's own header of groups, by which it sticks a group to one consumer.
const BROKER_GROUP: &str = "JMSXGroupID";

/// What belongs to one delivery, to the protocol or to the scheduler, and not to a copy.
const NOT_COPIED: [&str; 19] = [
    "destination",
    "message-id",
    "ack",
    "subscription",
    "timestamp",
    "redelivered",
    "content-length",
    "persistent",
    "receipt",
    "transaction",
    SCHEDULED,
    DELAY,
    "AMQ_SCHEDULED_PERIOD",
    "AMQ_SCHEDULED_REPEAT",
    "AMQ_SCHEDULED_CRON",
    ATTEMPTS,
    FIRST,
    DUE,
    BROKER_GROUP,
];

/// What a handler is not shown, because it is the protocol's.
const NOT_SHOWN: [&str; 4] = ["ack", "subscription", "content-length", "destination"];

/// A message that is here.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// What it is acknowledged by.
    pub(crate) ack: Box<str>,
    pub(crate) message_id: Arc<str>,
    /// The same at every delivery, also of a copy.
    pub(crate) broker_id: Arc<str>,
    /// As the broker carries them.
    pub(crate) attempts: u32,
    /// When its delay ends.
    pub(crate) due: Option<u64>,
    /// Whether the broker's scheduler has kept it.
    pub(crate) was_scheduled: bool,
    pub(crate) redelivered: bool,
    /// Whether all of it is here, so that it can be copied.
    pub(crate) is_whole: bool,
    headers: Headers,
    pub(crate) body: Bytes,
}

impl Parcel {
    /// `None` for a frame that could not be settled.
    pub(crate) fn new(frame: Frame) -> Option<Self> {
        let ack = frame.header("ack")?.into();
        let message_id: Arc<str> = frame.header("message-id")?.into();
        let broker_id = frame.header(FIRST).map_or_else(|| Arc::clone(&message_id), Into::into);
        let attempts = frame.header(ATTEMPTS).and_then(|text| text.parse().ok()).unwrap_or(0);
        Some(Self {
            ack,
            message_id,
            broker_id,
            attempts,
            due: frame.header(DUE).and_then(|text| text.parse().ok()),
            was_scheduled: frame.header(SCHEDULED).is_some(),
            redelivered: frame.header("redelivered") == Some("true"),
            is_whole: !frame.is_cut,
            headers: frame.headers,
            body: frame.body,
        })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }

    /// Whether it is a copy of a message that was here before.
    pub(crate) fn is_copy(&self) -> bool {
        self.header(FIRST).is_some()
    }

    /// The application's id, if it is known without reading the body.
    pub(crate) fn id(&self) -> Option<Arc<str>> {
        self.header(ID).map(|id| decode(id).into())
    }

    pub(crate) fn group(&self) -> Option<Arc<str>> {
        self.header(GROUP).or_else(|| self.header(BROKER_GROUP)).map(|group| decode(group).into())
    }

    /// Whether its group is known without reading its body.
    pub(crate) fn has_group(&self) -> bool {
        self.header(GROUP).is_some()
    }

    /// What is read by those who only want the body.
    pub(crate) fn bare_envelope(&self) -> Envelope {
        Envelope { body: self.body.clone(), ..Envelope::default() }
    }

    pub(crate) fn envelope(&self, queue: &Arc<str>) -> Envelope {
        let is_shown = |(name, _): &&(Box<str>, Box<str>)| !NOT_SHOWN.contains(&&**name);
        Envelope {
            body: self.body.clone(),
            id: self.id(),
            event_type: self.header("type").map(Into::into),
            routing_key: Some(Arc::clone(queue)),
            group: self.group(),
            headers: self.headers.iter().filter(is_shown).cloned().collect(),
            redelivered: self.redelivered,
        }
    }

    /// What is wrong with a message of which not all is here.
    pub(crate) fn malformed(&self) -> Malformed {
        let size = self.header("content-length").unwrap_or("an unknown number of");
        let why = format!("it is too large: {size} bytes, of which at most {MAX_BODY} are read");
        Malformed { why, raw: String::from_utf8_lossy(&self.body).into_owned() }
    }

    pub(crate) fn acknowledged(&self) -> Frame {
        Frame::new(Command::Ack).with("id", self.ack.clone())
    }

    pub(crate) fn refused(&self) -> Frame {
        Frame::new(Command::Nack).with("id", self.ack.clone())
    }

    /// The same message once more, to be delivered after a delay.
    pub(crate) fn copied(
        &self,
        destination: &str,
        after: Duration,
        attempts: u32,
        group: Option<&str>,
    ) -> Frame {
        let mut frame = Frame::new(Command::Send)
            .with("destination", destination)
            .with("persistent", "true")
            .with(FIRST, &*self.broker_id)
            .with(ATTEMPTS, attempts.to_string());
        if let Some(group) = self.header(GROUP).map(Into::into).or_else(|| group.map(encode)) {
            frame = frame.with(BROKER_GROUP, group);
        }
        // A text stays a text for other clients: what has a length is bytes, unless it says so.
        if self.header("content-length").is_none() && self.header("amq-msg-type").is_none() {
            frame = frame.with("amq-msg-type", "text");
        }
        for (name, value) in &self.headers {
            let is_unset = &**name == "expires" && &**value == "0";
            if !NOT_COPIED.contains(&&**name) && !is_unset {
                frame = frame.with(name, value.clone());
            }
        }
        delayed(frame, after).with_body(self.body.clone())
    }
}

/// A message that is sent for the first time.
pub(crate) fn published(destination: &str, publication: Publication) -> Frame {
    let Publication { message, body, delay } = publication;
    let mut frame = Frame::new(Command::Send)
        .with("destination", destination)
        .with("persistent", "true")
        .with("content-type", "application/json")
        .with(ID, encode(&message.id));
    if let Some(group) = &message.group {
        frame = frame.with(GROUP, encode(group)).with(BROKER_GROUP, encode(group));
    }
    delayed(frame, delay).with_body(Bytes::from(String::from(body)))
}

fn delayed(frame: Frame, after: Duration) -> Frame {
    if after.is_zero() {
        return frame;
    }
    // Up to the next millisecond: never too early.
    let millis = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    let due = unix_millis().saturating_add(millis);
    frame.with(DELAY, millis.to_string()).with(DUE, due.to_string())
}

/// Milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Ids and groups are any text, and headers are not: a NUL ends the frame, spaces at an end may be
/// trimmed, and the broker spoils what takes two of Java's characters. The rest stays as it is, so that
/// a group is the same to the broker whoever sends it.
fn encode(text: &str) -> Box<str> {
    let mut encoded = String::with_capacity(text.len());
    let inner = text.trim_matches(' ');
    let spaces = |count: usize| "%20".repeat(count);
    let before = text.len() - text.trim_start_matches(' ').len();
    encoded.push_str(&spaces(before));
    for letter in inner.chars() {
        match letter {
            '\0'..'\x20' | '%' | '\x7f' | '\u{10000}'.. => {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    encoded.push_str(&format!("%{byte:02X}"));
                }
            }
            _ => encoded.push(letter),
        }
    }
    encoded.push_str(&spaces(text.len() - before - inner.len()));
    encoded.into()
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame::new(Command::Message)
            .with("ack", "a:1")
            .with("message-id", "m:1")
            .with("destination", "/queue/q")
            .with("expires", "0")
            .with("timestamp", "17")
            .with("x", "y")
            .with_body(Bytes::from_static(b"body"))
    }

    #[test]
    fn a_copy_of_a_copy_is_still_the_first_one() {
        let first = Parcel::new(frame()).expect("it can be settled");
        let mut copy = first.copied("/queue/q", Duration::from_micros(1_500_100), 3, Some("g 1 "));
        assert_eq!(copy.header("AMQ_SCHEDULED_DELAY"), Some("1501"));
        assert_eq!(copy.header("JMSXGroupID"), Some("g 1%20"));
        assert_eq!((copy.header("x"), copy.header("expires")), (Some("y"), None));
        assert_eq!((copy.header("timestamp"), copy.header("ack")), (None, None));
        copy = copy.with("ack", "a:2").with("message-id", "m:2");
        let second = Parcel::new(copy).expect("it can be settled");
        assert_eq!((&*second.message_id, &*second.broker_id), ("m:2", "m:1"));
        assert_eq!((second.attempts, &second.body[..]), (3, &b"body"[..]));
        let due = second.due.expect("it was delayed");
        assert!(due.abs_diff(unix_millis() + 1_501) < 5_000, "{due}");
        let third = second.copied("/queue/q", Duration::ZERO, 4, None);
        assert_eq!(third.header(FIRST), Some("m:1"));
        let (delay, due) = (third.header("AMQ_SCHEDULED_DELAY"), third.header(DUE));
        assert_eq!((delay, due), (None, None));
        assert_eq!(third.headers.iter().filter(|(name, _)| &**name == ATTEMPTS).count(), 1);
    }

    #[test]
    fn any_text_goes_through_a_header() {
        for text in
            ["", " ", "a", "  a b ", "100%", "%00", "\0", "tab\tline\n", "日本語 🔑", "%zz%"]
        {
            let encoded = encode(text);
            assert!(!encoded.contains(['\0', '\n', '🔑']), "{encoded}");
            assert_eq!(encoded.trim(), &*encoded);
            assert_eq!(decode(&encoded), text);
        }
        // What others wrote is read as it is where it is no code.
        for text in ["50% off", "a%", "%é9"] {
            assert_eq!(decode(text), text);
        }
    }

    #[test]
    fn without_its_ids_it_cannot_be_settled() {
        let without = |gone: &str| {
            let mut frame = frame();
            frame.headers.retain(|(name, _)| &**name != gone);
            Parcel::new(frame).is_none()
        };
        assert!(without("ack") && without("message-id") && !without("x"));
    }
}
