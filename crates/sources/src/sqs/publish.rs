//! Taking messages in.
//!
//! SQS takes up to ten messages in a call and may refuse some of them, so "all or none" cannot be
//! kept: an error says how many were stored. In a FIFO queue a call holds one message of each group
//! at most, so that a refused one is never overtaken by a later one of its group.

use std::time::{Duration, SystemTime};

use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use sha2::{Digest, Sha256};
use sluicegate_dispatch::{Publication, PublishError, Published, SourceError};
use tokio::time::Instant;

use super::batches::BATCH;
use super::books::Copied;
use super::client::whole;
use super::incoming::{GROUP, ID, NOT_BEFORE, is_sendable, milliseconds};
use super::settings::seconds_up;
use super::source::Inner;
use super::trouble::Trouble;
use crate::Content;
use crate::network::pause::Pauses;

/// The most that one call, and so one message, may hold.
const LONGEST: usize = 1_048_576;
/// The longest delay that a standard queue keeps by itself. FIFO queues keep none for a message.
const LONGEST_DELAY: Duration = Duration::from_secs(900);
/// The longest group or deduplication id.
const LONGEST_TOKEN: usize = 128;
const ROUNDS: u32 = 4;

/// A message as it is sent.
#[derive(Debug)]
struct Outgoing {
    entry: SendMessageBatchRequestEntry,
    group: Option<String>,
    size: usize,
    /// When it may be handed over, if the queue itself does not know.
    due: Option<Instant>,
}

impl<M: Content> Inner<M> {
    /// # Cancel safety
    /// Dropped, some of them may have been stored.
    pub(super) async fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> Result<Published, PublishError> {
        let accepted = messages.len() as u64;
        let is_fifo = self.link.settings.is_fifo();
        let outgoing: Result<Vec<_>, _> =
            messages.into_iter().map(|message| outgoing(message, is_fifo)).collect();
        let mut outgoing = outgoing.map_err(PublishError::Source)?.into_iter().peekable();
        let mut stored = 0;
        let mut batch: Vec<Outgoing> = Vec::new();
        while let Some(next) = outgoing.next() {
            batch.push(next);
            if outgoing.peek().is_none_or(|next| !fits(&batch, next)) {
                let lot = std::mem::take(&mut batch);
                self.send(lot, &mut stored).await.map_err(|trouble| {
                    let why = format!("{trouble}; {stored} of {accepted} were stored");
                    PublishError::Source(SourceError::new(why))
                })?;
            }
        }
        Ok(Published { accepted, duplicates: 0 })
    }

    /// Sends one batch, and again what was refused for now.
    async fn send(&self, mut batch: Vec<Outgoing>, stored: &mut u64) -> Result<(), Trouble> {
        let mut pauses = Pauses::default();
        let mut failed = None;
        for round in 0..ROUNDS {
            if round > 0 {
                tokio::time::sleep(pauses.next()).await;
            }
            let entries = batch.iter().enumerate().map(|(index, outgoing)| {
                let mut entry = outgoing.entry.clone();
                entry.id = index.to_string();
                entry
            });
            let call = self.link.client.send_message_batch().queue_url(&self.link.queue_url);
            let answer = call.set_entries(Some(entries.collect())).send().await;
            let answer = answer.map_err(|error| Trouble::of("publishing", &error))?;
            *stored += answer.successful.len() as u64;
            let mut books = self.books.lock();
            for sent in &answer.successful {
                let due = sent.id().parse().ok().and_then(|index: usize| batch.get(index)?.due);
                if let Some(due) = due {
                    books.scheduled(sent.message_id().into(), due);
                }
            }
            drop(books);
            let Some(first) = answer.failed.first() else { return Ok(()) };
            let text = format!("publishing: {}: {}", first.code(), first.message().unwrap_or(""));
            if answer.failed.iter().any(|failed| failed.sender_fault()) {
                return Err(Trouble::Refused(text));
            }
            failed = Some(Trouble::Passing(text));
            let again: Vec<usize> =
                answer.failed.iter().filter_map(|failed| failed.id().parse().ok()).collect();
            let mut index = 0;
            batch.retain(|_| {
                index += 1;
                again.contains(&(index - 1))
            });
        }
        failed.map_or(Ok(()), Err)
    }

    /// Writes a message into another queue, as it came.
    pub(super) async fn send_copy(
        &self,
        target: &str,
        broker_id: &str,
        copy: &Copied,
    ) -> Result<(), Trouble> {
        let body = String::from_utf8_lossy(&copy.body).into_owned();
        let mut call = self.link.client.send_message().queue_url(target).message_body(body);
        if !copy.attributes.is_empty() {
            call = call.set_message_attributes(Some(copy.attributes.clone()));
        }
        if self.link.settings.is_fifo() {
            let group = copy.group.as_deref().unwrap_or(broker_id);
            call = call.message_group_id(group).message_deduplication_id(broker_id);
        }
        let sent = call.send().await.map_err(|error| Trouble::of("burying", &error));
        sent.map(drop)
    }
}

fn fits(batch: &[Outgoing], next: &Outgoing) -> bool {
    let size: usize = batch.iter().map(|outgoing| outgoing.size).sum();
    let is_alone = next.group.is_none() || batch.iter().all(|other| other.group != next.group);
    batch.len() < BATCH && size + next.size <= LONGEST && is_alone
}

fn outgoing(publication: Publication, is_fifo: bool) -> Result<Outgoing, SourceError> {
    let Publication { message, body, delay } = publication;
    let wrong = |why: &str| SourceError::new(format!("publishing: {}: {why}", message.id));
    if !is_sendable(&body) {
        return Err(wrong("body: it is empty, or holds a character that SQS does not take"));
    }
    let mut size = body.len();
    let mut entry = SendMessageBatchRequestEntry::builder().id("0").message_body(body);
    let mut attribute = |name: &str, text: &str, entry| {
        size += name.len() + text.len() + "String".len();
        with_text(entry, name, text)
    };
    if is_sendable(&message.id) {
        entry = attribute(ID, &message.id, entry);
    }
    if let Some(group) = message.group.as_deref().filter(|group| is_sendable(group)) {
        entry = attribute(GROUP, group, entry);
    }
    let is_kept_by_queue = !is_fifo && delay <= LONGEST_DELAY;
    if !delay.is_zero() && !is_kept_by_queue {
        let time = milliseconds(SystemTime::now() + delay).to_string();
        entry = attribute(NOT_BEFORE, &time, entry);
    }
    let mut group = None;
    if is_fifo {
        let of_own = || format!("ungrouped-{}", digest(&message.id));
        let name = message.group.as_deref().map_or_else(of_own, token);
        group = Some(name.clone());
        entry = entry.message_group_id(name).message_deduplication_id(token(&message.id));
    } else if !delay.is_zero() {
        entry = entry.delay_seconds(whole(seconds_up(delay.min(LONGEST_DELAY))));
    }
    if size > LONGEST {
        return Err(wrong("body: it is over 1 MiB with its attributes"));
    }
    let due = (is_fifo && !delay.is_zero()).then(|| Instant::now() + delay);
    let entry = entry.build().map_err(|error| wrong(&error.to_string()))?;
    Ok(Outgoing { entry, group, size, due })
}

fn with_text(
    entry: aws_sdk_sqs::types::builders::SendMessageBatchRequestEntryBuilder,
    name: &str,
    text: &str,
) -> aws_sdk_sqs::types::builders::SendMessageBatchRequestEntryBuilder {
    let value = MessageAttributeValue::builder().data_type("String").string_value(text).build();
    entry.message_attributes(name, value.expect("it has a type"))
}

/// A text as SQS takes it for a group or a deduplication: itself where it may be, else its digest.
fn token(text: &str) -> String {
    let is_short = !text.is_empty() && text.len() <= LONGEST_TOKEN;
    if is_short && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    format!("sha256-{}", digest(text))
}

fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_token() {
        let long = "x".repeat(129);
        for (text, is_itself) in
            [("order-7", true), ("a b", false), ("", false), ("ключ", false), (&*long, false)]
        {
            let made = token(text);
            assert_eq!(made == text, is_itself, "{text}");
            assert!(
                made.len() <= LONGEST_TOKEN && made.bytes().all(|byte| byte.is_ascii_graphic())
            );
        }
        assert_ne!(token("a b"), token("a  b"));
    }
}
