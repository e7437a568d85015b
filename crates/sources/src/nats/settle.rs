//! Telling the server what became of deliveries, and hearing that it knows.

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

/// Deliveries that are being settled. Dropped, those that the server was not told of are out as before.
struct Settling<'a> {
    shared: &'a Shared,
    receipts: Vec<Receipt>,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut front = self.shared.front.lock();
        for receipt in &self.receipts {
            front.end_settling(receipt);
        }
    }
}

/// A message of which the server is being told that it is worked on.
pub(super) struct Extending<'a> {
    pub(super) shared: &'a Shared,
    pub(super) seq: u64,
}

impl Drop for Extending<'_> {
    fn drop(&mut self) {
        self.shared.front.lock().end_extending(self.seq);
        self.shared.extended.notify_waiters();
    }
}

/// Whom settlements are told to, and who keeps books of them.
#[derive(Clone, Copy)]
struct Teller<'a> {
    shared: &'a Shared,
    client: &'a Client,
    attached: &'a Attached,
}

/// Why a delivery was not settled.
enum Failure {
    /// What had to be done first did not work.
    Before(SourceError),
    /// The server was not told.
    Telling(SourceError),
}

/// Settles each delivery as it is to end. All are under way at once, and none waits for another.
///
/// # Cancel safety
/// Dropped, the server may know of all, some or none of them. Those of which its answer was not heard
/// can be settled again.
pub(super) async fn settle(
    shared: &Shared,
    ends: Vec<Settle>,
) -> Result<Vec<Settled>, SourceError> {
    if ends.is_empty() {
        return Ok(Vec::new());
    }
    let Line { client, attached, .. } = shared.usable()?;
    let begun = Instant::now();
    let mut settling = Settling { shared, receipts: Vec::new() };
    let worths: Vec<Worth> = {
        let mut front = shared.front.lock();
        let worth = |Settle { receipt, settlement }: &Settle| {
            let worth = match settlement {
                Settlement::Park => front.begin_copying(receipt, begun),
                Settlement::Ack | Settlement::Retry { .. } => front.begin_settling(receipt, begun),
            };
            if matches!(worth, Worth::Tell(_)) {
                settling.receipts.push(receipt.clone());
            }
            worth
        };
        ends.iter().map(worth).collect()
    };
    let teller = Teller { shared, client: &client, attached: &attached };
    let told = ends.iter().zip(worths).map(|(Settle { receipt, settlement }, worth)| async move {
        let Worth::Tell(word) = worth else { return Ok(Settled::Stale) };
        match *settlement {
            Settlement::Ack => teller.end(receipt, word, AckKind::Ack).await,
            Settlement::Park => teller.park(receipt, word).await,
            Settlement::Retry { after, attempts, .. } => {
                teller.bring_back(receipt, word, (after, attempts, begun)).await
            }
        }
    });
    let told: Vec<Result<Settled, Failure>> = join_all(told).await;
    let is_untold = |told: &Result<Settled, Failure>| matches!(told, Err(Failure::Telling(_)));
    let is_told = |told: &Result<Settled, Failure>| matches!(told, Ok(Settled::Done));
    if told.iter().any(is_untold) && !told.iter().any(is_told) {
        // The consumer may be gone.
        shared.detach();
    }
    let answer = |told: Result<Settled, Failure>| match told {
        Ok(answer) => answer,
        Err(Failure::Before(error) | Failure::Telling(error)) => Settled::Failed(error),
    };
    Ok(told.into_iter().map(answer).collect())
}

impl Teller<'_> {
    /// Tells the server that a message is done with: it was handled, or is not to come again.
    async fn end(self, receipt: &Receipt, word: Word, kind: AckKind) -> Result<Settled, Failure> {
        tell(self.client, word.reply, kind).await.map_err(Failure::Telling)?;
        self.shared.front.lock().gone(receipt);
        if let (Some(tally), Some(entry)) = (&self.attached.tally, word.tallied) {
            tally.remove(self.client, entry).await;
        }
        Ok(Settled::Done)
    }

    /// Puts a message where dead ones are kept, if anywhere, and then tells the server that it is done with.
    async fn park(self, receipt: &Receipt, word: Word) -> Result<Settled, Failure> {
        let Self { shared, attached, .. } = self;
        let Some(dead) = &shared.settings.dead_subject else {
            shared.front.lock().copied(receipt);
            return self.end(receipt, word, AckKind::Term).await;
        };
        keep_dead(shared, attached, receipt.tag, dead).await.map_err(Failure::Before)?;
        if !shared.front.lock().copied(receipt) {
            return Ok(Settled::Stale);
        }
        self.end(receipt, word, AckKind::Ack).await
    }

    /// Hands a message back, not before a delay has passed.
    async fn bring_back(
        self,
        receipt: &Receipt,
        word: Word,
        (after, attempts, begun): (Duration, u32, Instant),
    ) -> Result<Settled, Failure> {
        let Word { reply, published, tallied } = word;
        // Before it goes back: a crash in between costs nothing.
        let message = (receipt.tag, published);
        let tallied = tally(self.attached, message, tallied, attempts, after).await;
        not_extending(self.shared, receipt.tag).await;
        let not_before = if after.is_zero() { Instant::now() } else { begun + after };
        tell(self.client, reply, again(after)).await.map_err(Failure::Telling)?;
        self.shared.front.lock().again(receipt, not_before, attempts, tallied);
        Ok(Settled::Done)
    }
}

/// Waits until the server is not being told that a message is worked on: what it hears after a delay
/// would overwrite that. Nobody begins to tell it while the message is being settled.
async fn not_extending(shared: &Shared, seq: u64) {
    loop {
        let mut extended = std::pin::pin!(shared.extended.notified());
        extended.as_mut().enable();
        if !shared.front.lock().is_extending(seq) {
            return;
        }
        extended.await;
    }
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

/// Begins the windows of deliveries anew. Of those that are being settled there is nothing to extend, and
/// nothing has expired.
pub(super) async fn extend(
    shared: &Shared,
    receipts: Vec<Receipt>,
) -> Result<Vec<Settled>, SourceError> {
    if receipts.is_empty() {
        return Ok(Vec::new());
    }
    let client = shared.usable()?.client;
    let begun = Instant::now();
    let worths: Vec<(&Receipt, Worth, Option<Extending<'_>>)> = {
        let mut front = shared.front.lock();
        let worth = |receipt| {
            let worth = front.begin_extending(receipt, begun);
            let seq = receipt.tag;
            let extending = matches!(worth, Worth::Tell(_)).then(|| Extending { shared, seq });
            (receipt, worth, extending)
        };
        receipts.iter().map(worth).collect()
    };
    let client = &client;
    let told = worths.into_iter().map(|(receipt, worth, extending)| async move {
        let word = match worth {
            Worth::Stale => return Settled::Stale,
            Worth::Settling => return Settled::Done,
            Worth::Tell(word) => word,
        };
        let told = tell(client, word.reply, AckKind::Progress).await;
        if told.is_ok() {
            shared.front.lock().extended(receipt, begun);
        }
        drop(extending);
        told.map_or_else(Settled::Failed, |()| Settled::Done)
    });
    Ok(join_all(told).await)
}
