//! Bodies and headers: what a delivery carries, and what a publication is written as.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream;
use async_nats::{HeaderMap, HeaderValue, Message};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use sluicegate_dispatch::{Envelope, Publication};
use tokio::time::Instant;

use super::front::Arrived;
use super::settings::percent_decode;

/// Not before this, in milliseconds since 1970: the server knows no delay of a first delivery.
const NOT_BEFORE: &str = "Sluicegate-Not-Before";
/// What a message stays in order with, percent-encoded.
const GROUP: &str = "Sluicegate-Group";
/// The id, percent-encoded, where it has characters that no header may have.
const ENCODED_ID: &str = "Sluicegate-Id";
/// What no header may have, and what stands for it.
const FOREIGN: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
/// The type of an event, as CloudEvents writes it.
const EVENT_TYPE: &str = "ce-type";

/// A delivery, and what its sender wants it to wait yet. `None` if it is none of JetStream's.
pub(super) fn arrived(message: jetstream::Message) -> Option<(Arrived<Message>, Duration)> {
    let info = message.info().ok()?;
    let (seq, published) = (info.stream_sequence, info.published.unix_timestamp_nanos());
    let count = info.consumer_sequence;
    let body = Message::from(message);
    let reply = body.reply.clone()?;
    let rest = rest(body.headers.as_ref());
    Some((Arrived { seq, count, published, reply, at: Instant::now(), body }, rest))
}

fn rest(headers: Option<&HeaderMap>) -> Duration {
    let time = headers.and_then(|headers| headers.get(NOT_BEFORE));
    let time = time.and_then(|time| time.as_str().parse().ok());
    let time = time.map(Duration::from_millis).unwrap_or_default();
    time.saturating_sub(since_1970())
}

pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The message's name for good.
pub(super) fn broker_id(seq: u64, published: i128) -> Arc<str> {
    format!("{seq}@{published}").into()
}

/// A message with what the server says of it.
pub(super) fn envelope(message: Message) -> Envelope {
    let Message { subject, payload, headers, reply, .. } = message;
    let headers = headers.unwrap_or_default();
    let text = |value: Option<&HeaderValue>| value.map(|value| Arc::from(value.as_str()));
    let decoded = |name: &str| {
        let value = headers.get(name)?;
        percent_decode(value.as_str()).map(Arc::from)
    };
    Envelope {
        body: payload,
        id: decoded(ENCODED_ID).or_else(|| text(headers.get(NATS_MESSAGE_ID))),
        event_type: text(headers.get(EVENT_TYPE)),
        routing_key: Some(subject.as_str().into()),
        group: decoded(GROUP),
        headers: pairs(&headers),
        redelivered: reply.is_some_and(|reply| delivered(&reply) > 1),
    }
}

/// What a message stays in order with, if it says so.
pub(super) fn group(message: &Message) -> Option<String> {
    percent_decode(message.headers.as_ref()?.get(GROUP)?.as_str())
}

fn pairs(headers: &HeaderMap) -> Vec<(Box<str>, Box<str>)> {
    let named = headers.iter().flat_map(|(name, values)| {
        let name: &str = name.as_ref();
        values.iter().map(move |value| (name.into(), value.as_str().into()))
    });
    let mut pairs: Vec<(Box<str>, Box<str>)> = named.collect();
    // The library keeps no order between names.
    pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
    pairs
}

/// How often a message was delivered, by where it is acknowledged:
/// `$JS.ACK.[DOMAIN.HASH.]STREAM.CONSUMER.DELIVERED.…`.
pub(super) fn delivered(reply: &str) -> u64 {
    let tokens: Vec<&str> = reply.split('.').collect();
    let at = if tokens.len() >= 11 { 6 } else { 4 };
    tokens.get(at).and_then(|token| token.parse().ok()).unwrap_or(1)
}

/// The headers of a publication. The server recognises an id it has seen by `Nats-Msg-Id`.
pub(super) fn headers(publication: &Publication) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let id = percent_encode(&publication.message.id);
    if id != *publication.message.id {
        headers.insert(ENCODED_ID, id.as_str());
    }
    headers.insert(NATS_MESSAGE_ID, id.as_str());
    if let Some(group) = &publication.message.group {
        headers.insert(GROUP, percent_encode(group).as_str());
    }
    if !publication.delay.is_zero() {
        let time = since_1970() + publication.delay;
        // Never too early: the rest of a millisecond counts as one.
        headers.insert(NOT_BEFORE, (time.as_millis() + 1).to_string().as_str());
    }
    headers
}

/// Printable ASCII as it is, without blanks and `%`; all else as `%XX`.
fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, FOREIGN).to_string()
}

/// The headers of a message that is buried: its own, where it came from, and an id by which the
/// stream of dead messages takes it in once.
pub(super) fn dead_headers(mut headers: HeaderMap, stream: &str, broker_id: &str) -> HeaderMap {
    if let Some(id) = headers.get(NATS_MESSAGE_ID).cloned() {
        headers.insert("Sluicegate-Original-Msg-Id", id);
    }
    headers.insert("Sluicegate-Dead-From", stream);
    headers.insert(NATS_MESSAGE_ID, format!("{stream}/{broker_id}").as_str());
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_a_header() {
        for text in ["plain", "日本語", "a%41", " b\r\n\u{0}", "%"] {
            let encoded = percent_encode(text);
            assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()), "{encoded}");
            assert_eq!(percent_decode(&encoded).as_deref(), Some(text));
        }
    }

    #[test]
    fn deliveries_are_counted_in_both_forms_of_a_reply() {
        assert_eq!(delivered("$JS.ACK.S.C.3.17.20.1700000000000000000.4"), 3);
        assert_eq!(delivered("$JS.ACK._.HASH.S.C.5.17.20.1700000000000000000.4.x"), 5);
        assert_eq!(delivered("nonsense"), 1);
    }
}
