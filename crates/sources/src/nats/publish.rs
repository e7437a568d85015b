//! Publishing: many at once, each confirmed by the stream.

use async_nats::jetstream::message::PublishMessage;
use futures_util::future::join_all;
use sluicegate_dispatch::{Publication, PublishError, Published, SourceError};

use super::message::headers;
use super::shared::{Line, Shared};

/// How many are under way to the stream at once.
const PART: usize = 256;
/// What a header line needs beside its name and value, with something to spare.
const FRAME: usize = 64;

/// Takes messages in, in their order. JetStream has no transactions: should some of them fail, others
/// are stored, and are not stored again when the caller repeats them within the stream's
/// `duplicate_window`.
pub(super) async fn publish(
    shared: &Shared,
    messages: Vec<Publication>,
) -> Result<Published, PublishError> {
    let failed = |why: String| PublishError::Source(SourceError::new(why));
    let Line { client, attached, .. } = shared.usable().map_err(PublishError::Source)?;
    let Some(subject) = attached.publish.clone() else { return Err(PublishError::NotPublishable) };
    let most = client.max_payload().saturating_sub(FRAME);
    let mut ready = Vec::with_capacity(messages.len());
    for publication in messages {
        let headers = headers(&publication);
        let length = |(name, values): (&async_nats::HeaderName, &Vec<async_nats::HeaderValue>)| {
            let name: &str = name.as_ref();
            values.iter().map(|value| name.len() + value.as_str().len() + 4).sum::<usize>()
        };
        let size = publication.body.len() + headers.iter().map(length).sum::<usize>();
        if size > most {
            let id = &publication.message.id;
            return Err(failed(format!("message `{id}` is longer than the server's max_payload")));
        }
        let body = String::from(publication.body).into();
        ready.push(PublishMessage::build().payload(body).headers(headers));
    }
    let mut published = Published::default();
    let mut ready = ready.into_iter().peekable();
    while ready.peek().is_some() {
        let mut sent = Vec::with_capacity(PART);
        for message in ready.by_ref().take(PART) {
            let acked = attached.context.send_publish(subject.clone(), message).await;
            sent.push(acked.map_err(|error| failed(error.to_string()))?.into_future());
        }
        for acked in join_all(sent).await {
            let acked = acked.map_err(|error| failed(error.to_string()))?;
            published.accepted += 1;
            published.duplicates += u64::from(acked.duplicate);
        }
    }
    Ok(published)
}
