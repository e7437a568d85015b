//! What an endpoint replies: a bounded body, and the few words in it that matter.

use std::fmt;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A body as far as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// All of it.
    Whole(Bytes),
    /// It was longer than the limit; the rest was not read.
    TooLong,
}

/// What a reply says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) ack: Option<bool>,
    pub(crate) delay_seconds: Option<i64>,
    pub(crate) message: Option<String>,
}

/// Reads a body to its end, or until it is longer than `limit`.
///
/// # Cancel safety
/// Dropped, the rest is not read and the connection is not used again.
pub(crate) async fn read<B>(mut body: B, limit: usize) -> Result<Text, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return Ok(Text::Whole(Bytes::new()));
    }
    // Most replies are one piece, which is not copied.
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if first.len().max(all.len()) + data.len() > limit {
            return Ok(Text::TooLong);
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(Text::Whole(if all.is_empty() { first } else { all.freeze() }))
}

impl Reply {
    /// Reads a reply; whatever is no JSON object says nothing.
    pub(crate) fn parse(text: &Text) -> Self {
        match text {
            Text::Whole(body) if !body.is_empty() => {
                serde_json::from_slice(body).unwrap_or_default()
            }
            _ => Self::default(),
        }
    }
}

impl<'de> Deserialize<'de> for Reply {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReplyVisitor)
    }
}

struct ReplyVisitor;

impl<'de> Visitor<'de> for ReplyVisitor {
    type Value = Reply;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a reply")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reply, A::Error> {
        let mut reply = Reply::default();
        while let Some(name) = map.next_key()? {
            match name {
                Name::Ack => reply.ack = map.next_value::<Scalar>()?.truth(),
                Name::DelaySeconds => reply.delay_seconds = map.next_value::<Scalar>()?.number(),
                Name::Message => reply.message = map.next_value::<Scalar>()?.text(),
                Name::Other => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(reply)
    }
}

/// The names that matter.
#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Name {
    Ack,
    DelaySeconds,
    Message,
    #[serde(other)]
    Other,
}

/// Any JSON value, of which only these kinds matter.
enum Scalar {
    Truth(bool),
    Number(i64),
    Text(String),
    Other,
}

impl Scalar {
    const fn truth(&self) -> Option<bool> {
        if let Self::Truth(truth) = self { Some(*truth) } else { None }
    }

    const fn number(&self) -> Option<i64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    fn text(self) -> Option<String> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Scalar, E> {
        Ok(Scalar::Truth(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(i64::try_from(number).unwrap_or(i64::MAX)))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}
