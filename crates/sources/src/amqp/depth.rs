//! Counting what a queue holds: ready at the broker, here, and in its waiting queues.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lapin::Channel;
use lapin::options::{BasicQosOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use sluicegate_dispatch::{Depth, SourceError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::delay_queues::DelayStep;
use super::dial::dial;
use super::intake::{Intake, is_missing};
use super::publisher::Publisher;
use super::topology::short;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How often waiting queues are looked for that others, or an earlier life, have made.
const LOOK: Duration = Duration::from_secs(600);

/// Which waiting queues are known.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    /// Held while counting: whoever else counts waits for the answer of the broker anyway.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    steps: BTreeSet<DelayStep>,
    looked: Option<Instant>,
    channel: Option<Channel>,
}

impl Counting {
    pub(crate) async fn count(
        &self,
        intake: &Intake,
        publisher: &Publisher,
        queue: &Arc<str>,
    ) -> Result<Depth, SourceError> {
        let counting = async {
            let waiting = waiting(intake, queue).await?;
            let delayed = self.delayed(intake, publisher, queue).await?;
            let (fresh, out) = intake.unacked.lock().counts();
            Ok(Depth { waiting: waiting + fresh as u64, delayed, out: out as u64 })
        };
        match timeout(ANSWER, counting).await {
            Ok(depth) => depth,
            Err(_) => Err(SourceError::new("the broker did not say how much it holds")),
        }
    }

    async fn delayed(
        &self,
        intake: &Intake,
        publisher: &Publisher,
        queue: &Arc<str>,
    ) -> Result<u64, SourceError> {
        let mut known = self.known.lock().await;
        if known.looked.is_none_or(|looked| looked.elapsed() > LOOK) {
            known.steps = look(intake, queue).await?;
            known.looked = Some(Instant::now());
        }
        known.steps.extend(publisher.delay_steps(queue));
        let mut delayed = 0;
        for step in known.steps.clone() {
            let channel = known.channel.take().filter(|channel| channel.status().connected());
            let channel = match channel {
                Some(channel) => channel,
                None => {
                    let connection = intake.link.up()?.connection;
                    connection.create_channel().await.map_err(SourceError::new)?
                }
            };
            match ready(&channel, step.queue(queue)).await {
                Ok(count) => {
                    delayed += count;
                    known.channel = Some(channel);
                }
                // It went because nobody used it, and so it holds nothing.
                Err(error) if is_missing(&error) => drop(known.steps.remove(&step)),
                Err(error) => return Err(SourceError::new(error)),
            }
        }
        Ok(delayed)
    }
}

/// How many are ready at the broker.
async fn waiting(intake: &Intake, queue: &Arc<str>) -> Result<u64, SourceError> {
    let Ok(channel) = intake.channel() else {
        // Nobody receives, so nothing of it is here.
        let channel = intake.link.up()?.connection.create_channel().await;
        let channel = channel.map_err(SourceError::new)?;
        let count = ready(&channel, short(queue)).await.map_err(SourceError::new)?;
        drop(channel.close(200, "done".into()).await);
        return Ok(count);
    };
    let count = ready(&channel, short(queue)).await.map_err(SourceError::new)?;
    // What the queue sent on before it counted is in the channel's line by now, behind the answer.
    // So it is here, or in line, when the next answer is.
    let prefetch = intake.consume.prefetch;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await.map_err(SourceError::new)?;
    tokio::task::yield_now().await;
    Ok(count)
}

async fn ready(channel: &Channel, queue: ShortString) -> Result<u64, lapin::Error> {
    let options = QueueDeclareOptions { passive: true, ..Default::default() };
    let declared = channel.queue_declare(queue, options, FieldTable::default()).await?;
    Ok(declared.message_count().into())
}

/// The waiting queues there are. Asking for one that is missing costs its channel, and the library
/// never uses the number of such a channel again; so this is done on a connection that ends with it.
async fn look(intake: &Intake, queue: &Arc<str>) -> Result<BTreeSet<DelayStep>, SourceError> {
    let connection = dial(&intake.link.address, "sluicegate count").await?;
    let mut found = BTreeSet::new();
    let mut channel: Option<Channel> = None;
    for step in DelayStep::all(false).chain(DelayStep::all(true)) {
        let open = match channel.take() {
            Some(open) => open,
            None => connection.create_channel().await.map_err(SourceError::new)?,
        };
        match ready(&open, step.queue(queue)).await {
            Ok(_) => {
                found.insert(step);
                channel = Some(open);
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(SourceError::new(error)),
        }
    }
    Ok(found)
}
