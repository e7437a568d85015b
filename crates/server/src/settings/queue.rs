//! `[[queue]]`: where messages come from.

use std::collections::HashMap;
use std::time::Duration;

use super::reader::{Section, Seen, Value};
use super::router::mask_credentials;
use super::uri::QueueUri;

/// `[[queue]]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueSettings {
    /// What it is called here; no two have the same.
    pub name: String,
    /// Where it is.
    pub uri: QueueUri,
    /// How many receive from it side by side; at least one.
    pub connections: u32,
    /// How many messages one receive may bring; at least one.
    pub max_messages: u32,
    /// How long a received message stays ours without a heartbeat; at least a second.
    pub visibility_timeout: Duration,
    /// How many messages are read ahead of pools without room; 0 for none.
    pub window: u32,
}

/// The most connections to one queue.
pub(super) const MOST_CONNECTIONS: u32 = 100;

impl QueueSettings {
    /// A queue with the defaults for everything but its name and place.
    #[must_use]
    pub fn new(name: impl Into<String>, uri: QueueUri) -> Self {
        Self {
            name: name.into(),
            uri,
            connections: 1,
            max_messages: 10,
            visibility_timeout: Duration::from_secs(30),
            window: 2_000,
        }
    }

    /// The queue that there is when nobody names one.
    pub(super) fn embedded() -> Self {
        Self::new("default", QueueUri::Sqlite { queue: "default".to_owned() })
    }

    /// All queues of the file.
    pub(super) fn read_all(top: &mut Section<'_>) -> Vec<Self> {
        let (mut names, mut uris) = (HashMap::new(), HashMap::new());
        top.tables("queue", |section| Self::read(section, &mut names, &mut uris))
    }

    fn read(section: &mut Section<'_>, names: &mut Seen, uris: &mut Seen) -> Option<Self> {
        const MOST_MESSAGES: u32 = 10_000;
        const LARGEST_WINDOW: u32 = 100_000;
        const VISIBLE: [Duration; 2] = [Duration::from_secs(1), Duration::from_hours(12)];
        let name = section.required("name", Value::name);
        let uri = section.required("uri", |value| {
            let text = mask_credentials(value).text()?;
            QueueUri::parse(&text)
                .map_or_else(|why| value.wrong_so(why.to_string(), why.help()), Some)
        });
        if let Some(name) = &name {
            section.unique("name", name, names);
        }
        if let Some(uri) = &uri {
            // Two consumers of one queue would each keep their own order.
            section.unique("uri", &uri.exposed(), uris);
        }
        let default = Self::embedded();
        let [least, most] = VISIBLE;
        let connections = section
            .read("connections", default.connections, |value| value.integer(1..=MOST_CONNECTIONS));
        let max_messages = section
            .read("max_messages", default.max_messages, |value| value.integer(1..=MOST_MESSAGES));
        let visibility_timeout =
            section.read("visibility_timeout", default.visibility_timeout, |value| {
                value.duration(least..=most)
            });
        let window =
            section.read("window", default.window, |value| value.integer(0..=LARGEST_WINDOW));
        Some(Self { name: name?, uri: uri?, connections, max_messages, visibility_timeout, window })
    }
}
