//! Telling the server what became of deliveries, and hearing that it knows.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::RawMessageErrorKind;
use async_nats::{Client, Request, Subject};
use futures_util::future::join_all;
use sluicegate_dispatch::{Receipt, Settle, Settled, Settlement, SourceError};
use tokio::time::{Instant, timeout};

use super::attach::Attached;
use super::connect::ANSWER;
use super::front::{Word, Worth};
use super::message::{broker_id, dead_headers, since_1970};
use super::pull::again;
use super::shared::{Line, Shared};
use super::tally;

/// Tells the server one word about a delivery; it answers when it has taken it in.
pub(super) async fn tell(
    client: &Client,
    reply: Subject,
    kind: AckKind,
) -> Result<(), SourceError> {
    let request = Request::new().payload(kind.into());
    match timeout(ANSWER, client.send_request(reply, request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(SourceError::new(format!("the server was not told: {error}"))),
        Err(_) => Err(SourceError::new("the server was not told: it does not answer")),
    }
}

/// Deliveries that are being settled. Dropped, they are out as before.
struct Settling<'a> {
    shared: &'a Shared,
    receipts: Vec<Receipt>,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut front = self.shared.front.lock();
        // What was told has left this stage by now.
        for receipt in &self.receipts {
            front.not_told(receipt);
        }
    }
}

/// Settles each delivery as it is to end.
pub(super) async fn settle(
    shared: &Shared,
    ends: Vec<Settle>,
) -> Result<Vec<Settled>, SourceError> {
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let Line { client, attached, .. } = shared.usable()?;
    let _beside_others = shared.words.read().await;
    let begun = Instant::now();
    let mut settling = Settling { shared, receipts: Vec::new() };
    let worths: Vec<Worth> = {
        let mut front = shared.front.lock();
        let worth = |Settle { receipt, .. }: &Settle| {
            let worth = front.begin_settling(receipt, begun);
            if matches!(worth, Worth::Tell(_)) {
                settling.receipts.push(receipt.clone());
            }
            worth
        };
        ends.iter().map(worth).collect()
    };
    let (client, attached) = (&client, &attached);
    let told = ends.iter().zip(worths).map(|(Settle { receipt, settlement }, worth)| async move {
        match (worth, *settlement) {
            (Worth::Stale, _) => Ok(Told::Stale),
            (Worth::Told, _) => Ok(Told::Before),
            (Worth::Tell(word), settlement) => {
                end_at_server(shared, client, attached, receipt, word, settlement)
                    .await
                    .map(Told::Now)
            }
        }
    });
    let told: Vec<Result<Told, SourceError>> = join_all(told).await;
    let failure = told.iter().find_map(|told| told.as_ref().err().cloned());
    let mut front = shared.front.lock();
    for (Settle { receipt, settlement }, told) in ends.iter().zip(&told) {
        if let Ok(Told::Now(tallied)) = told {
            conclude(&mut front, receipt, *settlement, *tallied, begun, failure.is_none());
        }
    }
    drop(front);
    if let Some(failure) = failure {
        // The consumer may be gone.
        shared.detach();
        return Err(failure);
    }
    let answer = |told: &Result<Told, SourceError>| match told {
        Ok(Told::Now(_) | Told::Before) => Settled::Done,
        _ => Settled::Stale,
    };
    Ok(told.iter().map(answer).collect())
}

/// What became of one of them at the server.
enum Told {
    Stale,
    Before,
    /// With what is written down of the message from now on.
    Now(Option<tally::Entry>),
}

/// Answers what is written down of the message from now on.
async fn end_at_server(
    shared: &Shared,
    client: &Client,
    attached: &Arc<Attached>,
    receipt: &Receipt,
    word: Word,
    settlement: Settlement,
) -> Result<Option<tally::Entry>, SourceError> {
    let Word { reply, published, tallied } = word;
    let kind = match settlement {
        Settlement::Ack => AckKind::Ack,
        Settlement::Retry { after, attempts, .. } => {
            // Before it goes back: a crash in between costs nothing.
            let key = (receipt.tag, published);
            let tallied = tally(attached, key, tallied, attempts, after).await;
            return tell(client, reply, again(after)).await.map(|()| tallied);
        }
        Settlement::Park => match &shared.settings.dead_subject {
            None => AckKind::Term,
            Some(dead) => {
                keep_dead(shared, attached, receipt.tag, dead).await?;
                AckKind::Ack
            }
        },
    };
    tell(client, reply, kind).await?;
    if let (Some(tally), Some(entry)) = (&attached.tally, tallied) {
        tally.remove(entry).await;
    }
    Ok(None)
}

/// Writes the number of attempts down if it is another than before.
async fn tally(
    attached: &Attached,
    (seq, published): (u64, i128),
    tallied: Option<tally::Entry>,
    attempts: u32,
    after: Duration,
) -> Option<tally::Entry> {
    let tally = attached.tally.as_ref()?;
    if tallied.map_or(0, |entry| entry.attempts) == attempts {
        return tallied;
    }
    tally.write(seq, published, attempts, since_1970() + after).await
}

/// What is told and could not be answered is answered when it is asked for again.
fn conclude(
    front: &mut super::front::Front<async_nats::Message>,
    receipt: &Receipt,
    settlement: Settlement,
    tallied: Option<tally::Entry>,
    begun: Instant,
    is_answered: bool,
) {
    match settlement {
        Settlement::Retry { after, attempts, .. } => {
            let not_before = (!after.is_zero()).then(|| begun + after);
            front.again(receipt, not_before, attempts, tallied, is_answered);
        }
        Settlement::Ack | Settlement::Park => front.gone(receipt, is_answered),
    }
}

/// Copies a message to where dead ones are kept, durably. Its body is read from the stream: it was
/// not kept here.
async fn keep_dead(
    shared: &Shared,
    attached: &Attached,
    seq: u64,
    dead: &str,
) -> Result<(), SourceError> {
    let failed = |why: String| SourceError::new(format!("message {seq} was not buried: {why}"));
    let message = match attached.stream.get_raw_message(seq).await {
        Ok(message) => message,
        // Its stream's limits, or somebody, removed it: there is nothing left to keep.
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(()),
        Err(error) => return Err(failed(error.to_string())),
    };
    let broker_id = broker_id(seq, message.time.unix_timestamp_nanos());
    let headers = dead_headers(message.headers, &shared.settings.stream, &broker_id);
    let publish = PublishMessage::build().payload(message.payload).headers(headers);
    let sent = attached.context.send_publish(dead.to_owned(), publish).await;
    let ack = sent.map_err(|error| failed(error.to_string()))?.await;
    ack.map(drop).map_err(|error| failed(error.to_string()))
}

/// Begins the windows of deliveries anew.
pub(super) async fn extend(
    shared: &Shared,
    receipts: Vec<Receipt>,
) -> Result<Vec<Settled>, SourceError> {
    if receipts.is_empty() {
        return Ok(Vec::new());
    }
    let client = shared.usable()?.client;
    let _alone = shared.words.write().await;
    let begun = Instant::now();
    let worths: Vec<Worth> = {
        let mut front = shared.front.lock();
        receipts.iter().map(|receipt| front.begin_extending(receipt, begun)).collect()
    };
    let client = &client;
    let told = worths.into_iter().map(|worth| async move {
        match worth {
            Worth::Stale => Ok(Settled::Stale),
            Worth::Told => Ok(Settled::Done),
            Worth::Tell(word) => {
                tell(client, word.reply, AckKind::Progress).await.map(|()| Settled::Done)
            }
        }
    });
    let told = join_all(told).await;
    let mut front = shared.front.lock();
    for (receipt, told) in receipts.iter().zip(&told) {
        if let Ok(Settled::Done) = told {
            front.extended(receipt, begun);
        }
    }
    told.into_iter().collect()
}
