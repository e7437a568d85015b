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
    /// It was longer than the limit: its beginning. The rest was not read.
    TooLong(Bytes),
}

/// How much is kept of a body that is too long.
const START: usize = 16 * 1024;

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
            let before = if all.is_empty() { &first[..] } else { &all[..] };
            return Ok(Text::TooLong(start(before, &data)));
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
        // Where that is known, the end is not asked for.
        if body.is_end_stream() {
            break;
        }
    }
    Ok(Text::Whole(if all.is_empty() { first } else { all.freeze() }))
}

/// The beginning of two pieces, in memory of its own.
fn start(first: &[u8], second: &[u8]) -> Bytes {
    first.iter().chain(second).take(START).copied().collect()
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::{Reply, Text, read};

    /// What a reply says, read off the whole document.
    fn by_the_book(text: &str) -> Reply {
        let Ok(Value::Object(object)) = serde_json::from_str(text) else {
            return Reply::default();
        };
        let delay = object.get("delaySeconds");
        let large = delay.and_then(Value::as_u64).map(|delay| delay.min(i64::MAX as u64) as i64);
        Reply {
            ack: object.get("ack").and_then(Value::as_bool),
            delay_seconds: large.or_else(|| delay.and_then(Value::as_i64)),
            message: object.get("message").and_then(Value::as_str).map(ToOwned::to_owned),
        }
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("true".to_owned()),
            Just("false".to_owned()),
            Just("null".to_owned()),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<u64>().prop_map(|number| number.to_string()),
            (-1e300..1e300f64).prop_map(|number| format!("{number:e}")),
            any::<String>().prop_map(|text| Value::String(text).to_string()),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let member = (names(), inner.clone());
            prop_oneof![
                prop::collection::vec(inner, 0..4)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                prop::collection::vec(member, 0..4).prop_map(|members| object(&members)),
            ]
        })
    }

    fn names() -> impl Strategy<Value = String> {
        let known = prop::sample::select(vec!["ack", "delaySeconds", "message", "a\\u0063k"]);
        prop_oneof![3 => known.prop_map(ToOwned::to_owned), 1 => "[a-z]{0,4}"]
    }

    fn object(members: &[(String, String)]) -> String {
        let members: Vec<_> =
            members.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
        format!("{{{}}}", members.join(" ,\n"))
    }

    fn parse(text: &str) -> Reply {
        Reply::parse(&Text::Whole(Bytes::copy_from_slice(text.as_bytes())))
    }

    proptest! {
        #[test]
        fn a_body_is_read_whole_or_not_at_all(
            pieces in prop::collection::vec("[a-z]{0,4}", 0..6),
            limit in 0..20usize,
        ) {
            let frames = pieces.iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece.clone().into())));
            let body = StreamBody::new(futures_util::stream::iter(frames));
            let read = read(body, limit).now_or_never();
            let all = pieces.concat();
            match read {
                Some(Ok(Text::TooLong(start))) => {
                    prop_assert!(all.len() > limit && start.len() > limit);
                    prop_assert!(all.as_bytes().starts_with(&start));
                }
                read => {
                    prop_assert!(all.len() <= limit);
                    prop_assert_eq!(read, Some(Ok(Text::Whole(all.into()))));
                }
            }
        }

        #[test]
        fn a_reply_says_what_the_whole_document_says(
            members in prop::collection::vec((names(), values()), 0..5),
            cut in any::<prop::sample::Index>(),
        ) {
            let text = object(&members);
            prop_assert_eq!(parse(&text), by_the_book(&text), "{}", text);
            let cut: String = text.chars().take(cut.index(text.chars().count())).collect();
            prop_assert_eq!(parse(&cut), Reply::default());
        }

        #[test]
        fn whatever_comes_is_read(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            drop(Reply::parse(&Text::Whole(bytes.into())));
        }
    }

    #[test]
    fn what_is_too_long_says_nothing() {
        assert_eq!(Reply::parse(&Text::TooLong(Bytes::new())), Reply::default());
    }
}
