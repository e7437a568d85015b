//! The connection that is published on.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{ConfirmSelectOptions, QueueDeclareOptions};
use sluicegate_dispatch::SourceError;
use tokio::time::{Instant, sleep};

use crate::amqp::address::AmqpAddress;
use crate::amqp::delay_queues::{DelayStep, register};
use crate::amqp::dial::{Dialled, dial};

/// How long the broker may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(15);
/// How often time is looked at while an answer is awaited.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How often it tries to have a delay queue made.
const TRIES: u32 = 3;
/// How long it waits between tries.
const PAUSE: Duration = Duration::from_millis(200);

/// A connection to publish on.
#[derive(Clone, Debug)]
pub(super) struct Line(Arc<Dialled>);

impl Line {
    pub(super) async fn open(address: &AmqpAddress) -> Result<Self, SourceError> {
        Ok(Self(Arc::new(dial(address, "sluicegate publisher").await?)))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.0.status().connected()
    }

    /// Whether the broker takes no messages: it is short of memory or disk.
    pub(super) fn is_blocked(&self) -> bool {
        self.0.status().blocked()
    }

    /// Ends it without a word, as nobody answers any more.
    pub(super) fn cut(&self) {
        self.0.cut();
    }

    /// A channel on which the broker confirms what it takes.
    pub(super) async fn confirming(&self) -> lapin::Result<lapin::Channel> {
        let opening = async {
            let channel = self.0.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        };
        self.within(opening).await?
    }

    /// Has a delay queue made. A broker with much to do may fail to make one; nothing was published by then,
    /// so it is asked again.
    pub(super) async fn make(&self, queue: &str, step: DelayStep) -> Result<(), SourceError> {
        let mut tries = 1;
        loop {
            let making = async {
                let channel = self.0.create_channel().await?;
                let options = QueueDeclareOptions { durable: true, ..Default::default() };
                channel.queue_declare(step.queue(queue), options, step.arguments(queue)).await?;
                // Without the right to note it, it is only not counted by others.
                match register(&channel, step.queue(queue)).await {
                    Ok(()) => channel.close(200, "done".into()).await,
                    Err(_) => Ok(()),
                }
            };
            match self.within(making).await.map_err(SourceError::new)? {
                Ok(()) => return Ok(()),
                Err(error) if tries == TRIES => return Err(SourceError::new(error)),
                Err(_) => tries += 1,
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits for an answer. Time in which the broker takes nothing does not count.
    async fn within<T>(&self, work: impl Future<Output = T>) -> lapin::Result<T> {
        let mut work = std::pin::pin!(work);
        let mut since = Instant::now();
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = sleep(TICK) => {}
            }
            if self.is_blocked() {
                since = Instant::now();
            } else if since.elapsed() > ANSWER {
                let late = io::Error::new(io::ErrorKind::TimedOut, "the broker does not answer");
                return Err(late.into());
            }
        }
    }
}
