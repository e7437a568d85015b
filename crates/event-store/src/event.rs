//! Events: as they are appended, and as they are read.

use std::fmt;
use std::num::TryFromIntError;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Where an event stands in the log. Positions grow from 1 in the order in which events can be seen; gaps mean nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// The position with that number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Its number as databases have it. What is beyond that is beyond every event.
    #[must_use]
    pub fn as_i64(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl TryFrom<i64> for Position {
    type Error = TryFromIntError;

    fn try_from(number: i64) -> Result<Self, Self::Error> {
        u64::try_from(number).map(Self)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An event that is to be appended: a type, tags that say what it is about, and data in JSON.
///
/// What may not be is said when it is appended, by an error that names the field.
///
/// ```
/// use sluicegate_event_store::NewEvent;
///
/// let event = NewEvent::of("StudentSubscribed")
///     .tag("course", "c1")
///     .tag("student", "s7")
///     .json(&serde_json::json!({ "paid": 120 }));
/// assert_eq!(event.tags(), ["course:c1", "student:s7"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    event_type: String,
    tags: Vec<String>,
    /// `Err` says why it could not be written as JSON.
    data: Result<String, String>,
}

impl NewEvent {
    /// An event of a type, without tags, whose data is `{}`.
    #[must_use]
    pub fn of(event_type: impl Into<String>) -> Self {
        Self { event_type: event_type.into(), tags: Vec::new(), data: Ok("{}".to_owned()) }
    }

    /// It is about this too: the tag `key:value`.
    #[must_use]
    pub fn tag(mut self, key: impl fmt::Display, value: impl fmt::Display) -> Self {
        self.tags.push(format!("{key}:{value}"));
        self
    }

    /// With tags that are written `key:value`.
    #[must_use]
    pub fn with_tags(mut self, tags: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.tags.extend(tags.into_iter().map(Into::into));
        self
    }

    /// With data, as it is written in JSON.
    #[must_use]
    pub fn json(mut self, data: &impl Serialize) -> Self {
        self.data = serde_json::to_string(data).map_err(|error| error.to_string());
        self
    }

    /// With data that is JSON already.
    #[must_use]
    pub fn raw_json(mut self, data: impl Into<String>) -> Self {
        self.data = Ok(data.into());
        self
    }

    /// Its type.
    #[must_use]
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// Its tags. Once it is checked, each stands there once, in order.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// Its data.
    ///
    /// # Errors
    /// Why it could not be written as JSON.
    pub fn data(&self) -> Result<&str, &str> {
        self.data.as_deref().map_err(String::as_str)
    }

    pub(crate) fn sort_tags(&mut self) {
        self.tags.sort_unstable();
        self.tags.dedup();
    }

    /// How long it is, type, tags and data together.
    pub(crate) fn bytes(&self) -> usize {
        let tags = self.tags.iter().map(String::len).sum::<usize>();
        self.event_type.len() + tags + self.data.as_ref().map_or(0, String::len)
    }
}

/// What separates the tags of an event: no tag has it.
pub(crate) const SEPARATOR: char = '\0';

/// An event as it was appended.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    position: Position,
    /// In milliseconds since 1970.
    time: i64,
    /// Type, tags and data, one after the other: an event is one allocation.
    text: Box<str>,
    tags_at: usize,
    data_at: usize,
}

impl Event {
    /// An event as an engine has read it; `time` is in milliseconds since 1970.
    pub fn new<'a>(
        position: Position,
        time: i64,
        event_type: &str,
        tags: impl IntoIterator<Item = &'a str>,
        data: &str,
    ) -> Self {
        let mut text = String::with_capacity(event_type.len() + data.len() + 64);
        text.push_str(event_type);
        let tags_at = text.len();
        for tag in tags {
            if text.len() > tags_at {
                text.push(SEPARATOR);
            }
            text.push_str(tag);
        }
        let data_at = text.len();
        text.push_str(data);
        Self { position, time, text: text.into_boxed_str(), tags_at, data_at }
    }

    /// An event whose tags are in one text already, with the separator between them.
    #[cfg(feature = "sqlite")]
    pub(crate) fn stored(
        position: Position,
        time: i64,
        event_type: &str,
        tags: &str,
        data: &str,
    ) -> Self {
        let tags_at = event_type.len();
        let data_at = tags_at + tags.len();
        let mut text = String::with_capacity(data_at + data.len());
        text.push_str(event_type);
        text.push_str(tags);
        text.push_str(data);
        Self { position, time, text: text.into_boxed_str(), tags_at, data_at }
    }

    /// Where it stands.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Its type.
    #[must_use]
    pub fn event_type(&self) -> &str {
        &self.text[..self.tags_at]
    }

    /// Its tags, each written `key:value`, in order.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        let tags = &self.text[self.tags_at..self.data_at];
        tags.split(SEPARATOR).filter(|tag| !tag.is_empty())
    }

    /// The value of its first tag with that key.
    #[must_use]
    pub fn tag(&self, key: &str) -> Option<&str> {
        self.tags().find_map(|tag| tag.strip_prefix(key)?.strip_prefix(':'))
    }

    /// Its data: JSON, as it was appended.
    #[must_use]
    pub fn data(&self) -> &str {
        &self.text[self.data_at..]
    }

    /// Its data, read.
    ///
    /// # Errors
    /// It is not what is asked for.
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.data())
    }

    /// When it was appended, by the clock of its store.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        let since = Duration::from_millis(self.time.unsigned_abs());
        let time = match self.time {
            0.. => SystemTime::UNIX_EPOCH.checked_add(since),
            _ => SystemTime::UNIX_EPOCH.checked_sub(since),
        };
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// The same in milliseconds since 1970.
    #[must_use]
    pub fn time_ms(&self) -> i64 {
        self.time
    }

    /// How much memory it takes, give or take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("position", &self.position.get())
            .field("event_type", &self.event_type())
            .field("tags", &self.tags().collect::<Vec<_>>())
            .field("data", &self.data())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_what_it_was_made_of() {
        let event = Event::new(Position::new(7), 1_500, "A", ["k:v", "k:w", "z:ü"], "[1]");
        assert_eq!((event.event_type(), event.data(), event.position().get()), ("A", "[1]", 7));
        assert_eq!(event.tags().collect::<Vec<_>>(), ["k:v", "k:w", "z:ü"]);
        assert_eq!((event.tag("k"), event.tag("z"), event.tag("")), (Some("v"), Some("ü"), None));
        assert_eq!(event.time(), SystemTime::UNIX_EPOCH + Duration::from_millis(1_500));
        assert_eq!(event.json::<Vec<u8>>().unwrap(), [1]);
    }

    #[test]
    fn data_that_is_no_json_is_known() {
        let unwritable = std::collections::HashMap::from([(vec![1], 2)]);
        assert!(NewEvent::of("A").json(&unwritable).data().is_err());
    }
}
