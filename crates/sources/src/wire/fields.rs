//! The fields of a message by their types, and what to say when one has another.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A text that is borrowed from the body unless something in it is escaped.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// What is read of a message, and the names of what is not.
#[derive(Default)]
pub(super) struct Body<'a> {
    pub(super) id: Option<Text<'a>>,
    pub(super) pool_code: Option<Text<'a>>,
    pub(super) auth_token: Option<Text<'a>>,
    pub(super) mediation_type: Option<Text<'a>>,
    pub(super) mediation_target: Option<Text<'a>>,
    pub(super) message_group_id: Option<Text<'a>>,
    pub(super) high_priority: Option<bool>,
    pub(super) payload: Option<&'a RawValue>,
    pub(super) tenant: Option<Text<'a>>,
    pub(super) delay_seconds: Option<u64>,
    pub(super) traceparent: Option<Text<'a>>,
    /// Some of them, cut to a length.
    pub(super) unknown: Vec<Box<str>>,
}

/// The names of all fields that a message may have.
pub const FIELDS: [&str; 11] = [
    "id",
    "poolCode",
    "authToken",
    "mediationType",
    "mediationTarget",
    "messageGroupId",
    "highPriority",
    "payload",
    "tenant",
    "delaySeconds",
    "traceparent",
];

/// How many unknown fields of a message are kept, and how much of their names.
const MOST_UNKNOWN: usize = 16;
const LONGEST_UNKNOWN: usize = 64;

impl<'de> Deserialize<'de> for Body<'de> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(Reading)
    }
}

/// Written out, where a derived one would forget the names of unknown fields.
struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Body<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Body<'de>, A::Error> {
        let mut body = Body::default();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            match &*name {
                "id" => once(&mut body.id, "id", &mut map)?,
                "poolCode" => once(&mut body.pool_code, "poolCode", &mut map)?,
                "authToken" => once(&mut body.auth_token, "authToken", &mut map)?,
                "mediationType" => once(&mut body.mediation_type, "mediationType", &mut map)?,
                "mediationTarget" => once(&mut body.mediation_target, "mediationTarget", &mut map)?,
                "messageGroupId" => once(&mut body.message_group_id, "messageGroupId", &mut map)?,
                "highPriority" => once(&mut body.high_priority, "highPriority", &mut map)?,
                "payload" => once(&mut body.payload, "payload", &mut map)?,
                "tenant" => once(&mut body.tenant, "tenant", &mut map)?,
                "delaySeconds" => once(&mut body.delay_seconds, "delaySeconds", &mut map)?,
                "traceparent" => once(&mut body.traceparent, "traceparent", &mut map)?,
                unknown => {
                    map.next_value::<IgnoredAny>()?;
                    if body.unknown.len() < MOST_UNKNOWN {
                        let end = unknown.floor_char_boundary(LONGEST_UNKNOWN);
                        body.unknown.push(unknown[..end].into());
                    }
                }
            }
        }
        Ok(body)
    }
}

/// Reads a field that may come once.
fn once<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    field: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if field.is_some() {
        return Err(Error::duplicate_field(name));
    }
    *field = map.next_value()?;
    Ok(())
}

/// The same fields, whatever they hold.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Untyped<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    pool_code: Option<&'a RawValue>,
    #[serde(borrow)]
    auth_token: Option<&'a RawValue>,
    #[serde(borrow)]
    mediation_type: Option<&'a RawValue>,
    #[serde(borrow)]
    mediation_target: Option<&'a RawValue>,
    #[serde(borrow)]
    message_group_id: Option<&'a RawValue>,
    #[serde(borrow)]
    high_priority: Option<&'a RawValue>,
    #[serde(borrow)]
    tenant: Option<&'a RawValue>,
    #[serde(borrow)]
    delay_seconds: Option<&'a RawValue>,
    #[serde(borrow)]
    traceparent: Option<&'a RawValue>,
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Says why a body is no [`Body`]. The parser's own words are used for broken syntax only: of a wrong
/// type it would show the value, which may be a secret.
pub(super) fn explain(text: &str, error: &serde_json::Error) -> String {
    if !error.is_data() {
        return format!("the message is not JSON: {error}");
    }
    if !text.trim_start().starts_with('{') {
        return format!("the message must be a JSON object, not {}", kind(text.trim_start()));
    }
    let fields: Untyped<'_> = match serde_json::from_str(text) {
        Ok(fields) => fields,
        // A field that comes twice is all that is left.
        Err(error) => return format!("the message is wrong: {error}"),
    };
    let texts = [
        ("id", fields.id),
        ("poolCode", fields.pool_code),
        ("authToken", fields.auth_token),
        ("mediationType", fields.mediation_type),
        ("mediationTarget", fields.mediation_target),
        ("messageGroupId", fields.message_group_id),
        ("tenant", fields.tenant),
        ("traceparent", fields.traceparent),
    ];
    for (name, value) in texts {
        if let Some(why) = value.and_then(|value| wrong::<Text<'_>>(name, value.get(), "a string"))
        {
            return why;
        }
    }
    let of_flag = |value: &RawValue| wrong::<bool>("highPriority", value.get(), "true or false");
    let of_delay =
        |value: &RawValue| wrong::<u64>("delaySeconds", value.get(), "a whole number of seconds");
    (fields.high_priority.and_then(of_flag))
        .or_else(|| fields.delay_seconds.and_then(of_delay))
        .unwrap_or_else(|| "the message has a field of a wrong type".to_owned())
}

fn wrong<'a, T: Deserialize<'a>>(name: &str, value: &'a str, right: &str) -> Option<String> {
    match serde_json::from_str::<T>(value) {
        Ok(_) => None,
        Err(_) => Some(format!("{name} must be {right}, not {}", kind(value))),
    }
}

/// What a JSON text is, by its first byte.
fn kind(value: &str) -> &'static str {
    match value.as_bytes().first() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(b'-') => "a negative number",
        _ if value.contains(['.', 'e', 'E']) => "a fraction",
        _ => "a number",
    }
}
