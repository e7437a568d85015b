//! How many attempts were made, kept in a stream beside the queue's own.
//!
//! JetStream counts deliveries, and a message that was only handed back was delivered without an
//! attempt. So the number is written down before a message goes back: one small entry for each
//! message that was tried and is not done, removed when it is. The stream is made when the first
//! entry is; without the right to make it, the number lasts as long as the source is open.
//!
//! The time before which the message may not come stands there too: the server writes its own note
//! of a delay a tenth of a second later, and forgets it if it crashes before.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::{Config, StorageType, Stream};
use futures_util::future::join_all;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::connect::ANSWER;
use super::settings::NatsSettings;

/// An entry of which nothing is heard for so long is forgotten. The longest delay is 12 hours.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many entries there are at most; the oldest go first.
const MOST: i64 = 1_000_000;

/// What was written down of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) attempts: u32,
    /// Not before this, since 1970.
    pub(super) not_before: Duration,
    /// The entry's own place.
    pub(super) at: u64,
}

/// The entries of one consumer.
#[derive(Debug)]
pub(super) struct Tally {
    context: Context,
    config: Config,
    prefix: String,
    stream: OnceCell<Option<Stream>>,
    /// Only messages up to this one may have entries that were written in an earlier life.
    last: u64,
}

impl Tally {
    /// Looks whether there are entries.
    pub(super) async fn open(context: &Context, settings: &NatsSettings, last: u64) -> Self {
        let NatsSettings { stream, consumer, .. } = settings;
        let prefix = format!("sluicegate.attempts.{stream}.{consumer}");
        let config = Config {
            name: format!("{stream}-{consumer}-attempts"),
            subjects: vec![format!("{prefix}.*")],
            max_messages_per_subject: 1,
            max_messages: MOST,
            max_age: KEPT,
            storage: StorageType::File,
            num_replicas: settings.replicas as usize,
            allow_direct: true,
            ..Config::default()
        };
        let found = context.get_stream(&config.name).await.ok();
        let is_empty = found.as_ref().is_none_or(|found| found.cached_info().state.messages == 0);
        let last = match (settings.shared, is_empty) {
            (true, _) => u64::MAX,
            (false, true) => 0,
            (false, false) => last,
        };
        let stream =
            found.map_or_else(OnceCell::new, |found| OnceCell::new_with(Some(Some(found))));
        Self { context: context.clone(), config, prefix, stream, last }
    }

    fn subject(&self, seq: u64, published: i128) -> String {
        format!("{}.{seq}-{published}", self.prefix)
    }

    async fn stream(&self) -> Option<&Stream> {
        let make = || async { self.context.create_stream(self.config.clone()).await.ok() };
        self.stream.get_or_init(make).await.as_ref()
    }

    /// Whether a message may have an entry.
    pub(super) const fn may_know(&self, seq: u64) -> bool {
        seq <= self.last
    }

    /// Writes down, durably, how often a message was tried and when it may come again. `None` where
    /// that cannot be done.
    pub(super) async fn write(
        &self,
        seq: u64,
        published: i128,
        attempts: u32,
        not_before: Duration,
    ) -> Option<Entry> {
        self.stream().await?;
        let body = format!("{attempts} {}", not_before.as_millis()).into();
        let sent = self.context.publish(self.subject(seq, published), body).await.ok()?;
        let at = timeout(ANSWER, sent.into_future()).await.ok()?.ok()?.sequence;
        Some(Entry { attempts, not_before, at })
    }

    /// What was written down of messages, where something was.
    pub(super) async fn read(&self, keys: &[(u64, i128)]) -> Vec<Option<Entry>> {
        let Some(Some(stream)) = self.stream.get() else { return vec![None; keys.len()] };
        let read = keys.iter().map(|&(seq, published)| async move {
            let message = stream.direct_get_last_for_subject(self.subject(seq, published));
            let message = timeout(ANSWER, message).await.ok()?.ok()?;
            parse(&message.payload, message.sequence)
        });
        join_all(read).await
    }

    /// Removes an entry, without waiting until it is. One that stays is forgotten in time.
    pub(super) async fn remove(&self, client: &Client, entry: Entry) {
        let subject = format!("$JS.API.STREAM.MSG.DELETE.{}", self.config.name);
        let body = format!(r#"{{"seq":{},"no_erase":true}}"#, entry.at);
        client.publish_with_reply(subject, client.new_inbox(), body.into()).await.ok();
    }
}

fn parse(body: &[u8], at: u64) -> Option<Entry> {
    let (attempts, not_before) = std::str::from_utf8(body).ok()?.split_once(' ')?;
    let not_before = Duration::from_millis(not_before.parse().ok()?);
    Some(Entry { attempts: attempts.parse().ok()?, not_before, at })
}
