//! Where messages are published to: an embedded queue, or a server.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use sluicegate::dispatch::Publication;
use sluicegate::sources::sqlite::Publisher;
use tokio::time::sleep;

use super::parser::Place;
use crate::client::{Client, Problem, escaped};
use crate::exit::Failure;

/// Messages that are sound as far as can be seen from here, in order.
pub(super) type Batch = Vec<(Place, Publication)>;

/// Takes messages.
pub(super) enum Sink {
    /// The file of an embedded queue.
    Embedded { publisher: Publisher, queue: String },
    /// A server.
    Server { client: Box<Client>, queue: Option<String> },
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) accepted: u64,
    /// Those of them that were seen shortly before, where that is known.
    pub(super) duplicates: u64,
    /// Those that were refused, and why.
    pub(super) refused: Vec<(Place, String)>,
}

/// How often a server is asked that is too busy, and how long to wait before it is asked again.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

impl Sink {
    /// Publishes a batch: all of it but what is refused.
    pub(super) async fn take(&self, batch: Batch) -> Result<Taken, Failure> {
        match self {
            Self::Embedded { publisher, queue } => {
                let messages = batch.into_iter().map(|(_, message)| message).collect();
                let published = publisher.publish(queue, messages).await;
                let published = published.map_err(Failure::failed)?;
                let (accepted, duplicates) = (published.accepted, published.duplicates);
                Ok(Taken { accepted, duplicates, refused: Vec::new() })
            }
            Self::Server { client, queue } => {
                let path = match queue {
                    Some(queue) => format!("/api/v1/messages?queue={}", escaped(queue)),
                    None => "/api/v1/messages".to_owned(),
                };
                let mut taken = Taken::default();
                // Sent in order: a part that is too large goes in two halves, the first one first.
                let mut parts = vec![batch];
                while let Some(part) = parts.pop() {
                    parts.extend(send(client, &path, part, &mut taken).await?);
                }
                Ok(taken)
            }
        }
    }
}

/// Sends some messages, and gives back what is to be sent instead, last first.
async fn send(
    client: &Client,
    path: &str,
    mut batch: Batch,
    taken: &mut Taken,
) -> Result<Vec<Batch>, Failure> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut tries = 1;
    let problem = loop {
        let fetched = client.ask(Method::POST, path, Some(body(&batch))).await?;
        if fetched.status.is_success() {
            let answer: serde_json::Value =
                serde_json::from_slice(&fetched.body).map_err(|_| client.stranger())?;
            taken.accepted += answer["accepted"].as_u64().ok_or_else(|| client.stranger())?;
            taken.duplicates += answer["duplicates"].as_u64().unwrap_or_default();
            return Ok(Vec::new());
        }
        let problem = Problem::of(&fetched);
        if !is_passing(&problem) || tries == TRIES {
            break problem;
        }
        tries += 1;
        // Whatever was taken after all is taken once: ids are remembered.
        sleep(PAUSE).await;
    };
    let named = refused(&problem);
    if !named.is_empty() {
        let mut left = Batch::with_capacity(batch.len());
        for (index, (place, message)) in batch.into_iter().enumerate() {
            match named.get(&index) {
                Some(why) => taken.refused.push((place, why.clone())),
                None => left.push((place, message)),
            }
        }
        return Ok(vec![left]);
    }
    match problem.status {
        StatusCode::PAYLOAD_TOO_LARGE if batch.len() > 1 => {
            let second = batch.split_off(batch.len() / 2);
            Ok(vec![second, batch])
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            taken.refused.extend(batch.into_iter().map(|(place, _)| (place, problem.words())));
            Ok(Vec::new())
        }
        // The queue's name was given, like a message.
        StatusCode::NOT_FOUND if problem.code.is_some() => Err(Failure::bad_input(problem.words())),
        _ => Err(problem.failure()),
    }
}

/// Whether a server may take the same a moment later.
fn is_passing(problem: &Problem) -> bool {
    let codes = ["overloaded", "timed_out", "storage_failed"];
    problem.status == StatusCode::SERVICE_UNAVAILABLE
        && problem.code.as_deref().is_some_and(|code| codes.contains(&code))
}

/// The messages that a server names as wrong, by their places in the batch.
fn refused(problem: &Problem) -> HashMap<usize, String> {
    let errors = problem.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = errors.iter().filter_map(|error| {
        let index = usize::try_from(error["index"].as_u64()?).ok()?;
        let words = error["message"].as_str().unwrap_or(&problem.detail);
        Some((index, words.to_owned()))
    });
    named.collect()
}

/// The messages as an array, each as it was written.
fn body(batch: &Batch) -> Bytes {
    let length: usize = batch.iter().map(|(_, message)| message.body.len() + 1).sum();
    let mut text = String::with_capacity(length + 1);
    text.push('[');
    for (place, (_, message)) in batch.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push_str(&message.body);
    }
    text.push(']');
    text.into()
}
