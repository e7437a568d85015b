//! The JSON that a message is written in.
//!
//! A body is read once, here, and is then a [`Message`] that cannot be wrong, or [`Malformed`] with
//! the field's name and what would be right. Of unknown fields only the names are kept. Of an optional
//! field, `null` is the same as its absence.

mod fields;
mod many;
mod recent;
mod redact;
mod render;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{AuthToken, DEFAULT_POOL, Malformed, Message, Publication};

use fields::Body;
pub use fields::FIELDS;
pub use many::{BadMessage, JsonLine, JsonLines, NotAList, parse_many};
pub use redact::redacted;
pub use render::{render, shown};

/// How long a message's body may be, in bytes.
pub const MAX_BODY: usize = 1024 * 1024;
/// How long the first delivery of a message may wait, in seconds: ten years.
pub const MAX_DELAY: u64 = 10 * 365 * 24 * 60 * 60;
/// How long an id, a group, a tenant or a pool's code may be, in bytes.
pub const MAX_NAME: usize = 512;

/// A message as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The message.
    pub message: Message,
    /// How long its first delivery waits.
    pub delay: Duration,
}

/// Reads one message.
///
/// ```
/// use sluicegate_sources::wire;
///
/// let body = br#"{"id": "m1", "mediationTarget": "http://localhost/in", "payload": [1.50]}"#;
/// let incoming = wire::parse(body).unwrap();
/// assert_eq!(&*incoming.message.pool, "DEFAULT-POOL");
/// assert_eq!(incoming.message.payload.as_deref(), Some("[1.50]"));
///
/// let malformed = wire::parse(br#"{"id": 7, "mediationTarget": "http://localhost/in"}"#).unwrap_err();
/// assert_eq!(malformed.why, "id must be a string, not a number");
/// ```
///
/// # Errors
/// Says which field is wrong and what would be right, and keeps the body.
pub fn parse(body: &[u8]) -> Result<Incoming, Malformed> {
    read(body).map_err(|why| Malformed { why, raw: raw(body) })
}

/// Reads a message that was taken in before: it may have become longer since, by what goes without saying and is
/// written where it is kept.
///
/// # Errors
/// As [`parse`], but for its length.
pub fn parse_stored(body: &str) -> Result<Incoming, Malformed> {
    read_text(body).map_err(|why| Malformed { why, raw: raw(body.as_bytes()) })
}

/// Reads one message to publish it as it is written.
///
/// # Errors
/// As [`parse`].
pub fn publication(body: &str) -> Result<Publication, Malformed> {
    let read = check_body(body.len()).and_then(|()| read_new(body));
    let Incoming { message, delay } =
        read.map_err(|why| Malformed { why, raw: raw(body.as_bytes()) })?;
    Ok(Publication { message, body: body.into(), delay })
}

fn check_body(length: usize) -> Result<(), String> {
    if length > MAX_BODY {
        return Err(format!("the message has {length} bytes; at most {MAX_BODY} are right"));
    }
    Ok(())
}

fn read(body: &[u8]) -> Result<Incoming, String> {
    check_body(body.len())?;
    let text = std::str::from_utf8(body)
        .map_err(|error| format!("the message is not UTF-8 from byte {}", error.valid_up_to()))?;
    read_new(text)
}

/// Reads what was not taken in before: its delay must be one that ends.
fn read_new(text: &str) -> Result<Incoming, String> {
    let incoming = read_text(text)?;
    let delay = incoming.delay.as_secs();
    if delay > MAX_DELAY {
        return Err(format!("delaySeconds is {delay}; at most {MAX_DELAY} are right"));
    }
    Ok(incoming)
}

fn read_text(text: &str) -> Result<Incoming, String> {
    let body: Body<'_> =
        serde_json::from_str(text).map_err(|error| fields::explain(text, &error))?;
    checked(body)
}

/// Of what has the right types, what has the right content.
fn checked(body: Body<'_>) -> Result<Incoming, String> {
    let id = body.id.ok_or("id is missing; it must be a string of 1 to 512 bytes")?;
    if id.is_empty() {
        return Err("id is empty; it must have 1 to 512 bytes".to_owned());
    }
    let target = body.mediation_target.ok_or("mediationTarget is missing; it must be a URL")?;
    let target = recent::target(&target).map_err(|bad| format!("mediationTarget {bad}"))?;
    if let Some(kind) = body.mediation_type
        && *kind != *"HTTP"
    {
        return Err("mediationType must be \"HTTP\"".to_owned());
    }
    let pool = body.pool_code.as_deref().filter(|pool| !pool.trim().is_empty());
    let pool = pool.unwrap_or(DEFAULT_POOL);
    check_length("poolCode", pool)?;
    let message = Message {
        id: within("id", &id)?,
        pool: recent::pool(pool),
        group: named("messageGroupId", body.message_group_id.filter(|id| !id.trim().is_empty()))?,
        tenant: named("tenant", body.tenant.filter(|tenant| !tenant.trim().is_empty()))?,
        high_priority: body.high_priority.unwrap_or(false),
        target,
        auth_token: token(body.auth_token.as_deref())?,
        payload: body.payload.map(|payload| payload.get().into()),
        traceparent: body
            .traceparent
            .as_deref()
            .filter(|text| is_traceparent(text))
            .map(Into::into),
        unknown_fields: body.unknown.into(),
    };
    Ok(Incoming { message, delay: Duration::from_secs(body.delay_seconds.unwrap_or(0)) })
}

fn named(field: &str, name: Option<fields::Text<'_>>) -> Result<Option<Arc<str>>, String> {
    name.map(|name| within(field, &name)).transpose()
}

fn within(field: &str, name: &str) -> Result<Arc<str>, String> {
    check_length(field, name)?;
    Ok(name.into())
}

fn check_length(field: &str, name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME {
        return Err(format!("{field} has {} bytes; at most {MAX_NAME} are right", name.len()));
    }
    Ok(())
}

/// A token goes into a header, where control characters would be another header or none.
fn token(token: Option<&str>) -> Result<Option<AuthToken>, String> {
    match token {
        None | Some("") => Ok(None),
        Some(token) if token.chars().any(char::is_control) => {
            Err("authToken must not have control characters".to_owned())
        }
        Some(token) => Ok(Some(recent::token(token))),
    }
}

/// Whether a text is a W3C `traceparent`. What is none is ignored, as its standard wants it.
fn is_traceparent(text: &str) -> bool {
    let hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let [version, trace, parent, flags, ..] = parts[..] else { return false };
    hex(version, 2)
        && version != "ff"
        && (version != "00" || parts.len() == 4)
        && hex(trace, 32)
        && !zero(trace)
        && hex(parent, 16)
        && !zero(parent)
        && hex(flags, 2)
        && text.is_ascii()
        && !text.contains(|c: char| c.is_control())
}

/// The body as text, cut to the longest that is kept.
fn raw(body: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(&body[..body.len().min(MAX_BODY)]).into_owned();
    // Replaced bytes are longer than they were.
    let mut end = text.len().min(MAX_BODY);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
