//! Where the answers to all questions of one connection arrive.
//!
//! It outlives a question that was given up, and the library subscribes it again after a cut. So what the
//! server answers late is late and not lost: a delivery to an address where nobody listens any more would
//! be hidden until its window ends.

use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::BatchConfig;
use async_nats::jetstream::{self, Context};
use async_nats::{Message, StatusCode, Subscriber};
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::front::Arrived;
use super::message::arrived;
use super::shared::Line;

/// After this a question that was given up is over at the server too.
const LATEST: Duration = Duration::from_secs(10);

pub(super) struct Mailbox {
    epoch: u64,
    context: Context,
    address: String,
    letters: Subscriber,
    /// How many questions were asked.
    questions: u64,
    /// When the last question was asked, or the first one since one was given up that may be answered yet.
    asked: Instant,
    /// Whether a question was given up, and none has ended since.
    is_late: bool,
}

/// A delivery, and what its sender wants it to wait yet.
pub(super) type Parcel = (Arrived<Message>, Duration);

/// Why nothing more comes for the last question.
pub(super) enum End {
    /// That was all.
    Over,
    /// The server does not do what it was asked.
    Refused(String),
    /// The connection is given up.
    Closed,
}

impl Mailbox {
    /// The one of a connection: the same as before, or a new one.
    pub(super) async fn at<'a>(
        line: &Line,
        place: &'a mut Option<Self>,
    ) -> Result<&'a mut Self, String> {
        let mailbox = match place.take().filter(|mailbox| mailbox.epoch == line.epoch) {
            Some(mailbox) => mailbox,
            None => Self::open(line).await?,
        };
        Ok(place.insert(mailbox))
    }

    async fn open(line: &Line) -> Result<Self, String> {
        let address = line.client.new_inbox();
        let letters = line.client.subscribe(format!("{address}.*")).await;
        Ok(Self {
            epoch: line.epoch,
            context: line.attached.context.clone(),
            address,
            letters: letters.map_err(|error| error.to_string())?,
            questions: 0,
            asked: Instant::now(),
            is_late: false,
        })
    }

    /// Asks for at most so many messages: for what is there, else for the first one to come within a time.
    pub(super) async fn ask(
        &mut self,
        consumer: &PullConsumer,
        most: usize,
        open: Duration,
    ) -> Result<(), String> {
        if !self.is_late || self.asked.elapsed() > LATEST {
            self.asked = Instant::now();
            self.is_late = false;
        }
        self.questions += 1;
        let question = BatchConfig {
            batch: most,
            expires: Some(open),
            no_wait: true,
            ..BatchConfig::default()
        };
        let asked = consumer.request_batch(question, self.last_question().into()).await;
        asked.map_err(|error| error.to_string())
    }

    /// Waits no longer for the answer to the last question; it may come yet.
    pub(super) const fn give_up(&mut self) {
        self.is_late = true;
    }

    /// What arrives was asked for then, or later.
    pub(super) const fn asked(&self) -> Instant {
        self.asked
    }

    fn last_question(&self) -> String {
        format!("{}.{}", self.address, self.questions)
    }

    /// Cancelled, it has taken nothing out.
    pub(super) async fn next(&mut self) -> Result<Parcel, End> {
        loop {
            let message = self.letters.next().await.ok_or(End::Closed)?;
            if let Some(letter) = self.read(message) {
                return letter;
            }
        }
    }

    /// What has arrived already, if anything has.
    pub(super) fn next_now(&mut self) -> Option<Result<Parcel, End>> {
        self.next().now_or_never()
    }

    /// The end of an earlier question, and what is none of JetStream's, say nothing.
    fn read(&mut self, message: Message) -> Option<Result<Parcel, End>> {
        let status = message.status.unwrap_or(StatusCode::OK);
        if status == StatusCode::OK {
            let context = self.context.clone();
            return arrived(jetstream::Message { message, context }).map(Ok);
        }
        if status == StatusCode::IDLE_HEARTBEAT || *message.subject != *self.last_question() {
            return None;
        }
        self.is_late = false;
        Some(Err(match status {
            StatusCode::TIMEOUT | StatusCode::NOT_FOUND => End::Over,
            status => {
                let words = message.description.unwrap_or_default();
                End::Refused(format!("the server hands out nothing: {status} {words}"))
            }
        }))
    }
}
