//! Counting what a queue holds: ready at the broker, here, and in its delay queues.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lapin::options::{
    BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel, ErrorKind};
use sluicegate_dispatch::{Depth, SourceError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::delay_queues::{DelayStep, KNOWN, declare_known, unregister};
use super::dial::dial;
use super::intake::{Intake, is_missing};
use super::publisher::Publisher;
use super::topology::short;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How often delay queues are looked for that others, or an earlier life, have made.
const LOOK: Duration = Duration::from_secs(600);
/// The same after it did not work.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How long looking may take.
const LOOKING: Duration = Duration::from_secs(3);

/// Which delay queues are known.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    /// Held while counting: whoever else counts waits for the answer of the broker anyway.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    steps: BTreeSet<DelayStep>,
    next_look: Option<Instant>,
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
        if known.next_look.is_none_or(|next| next <= Instant::now()) {
            let looked = timeout(LOOKING, look(intake, queue)).await;
            let pause = if matches!(looked, Ok(Ok(_))) { LOOK } else { LOOK_AGAIN };
            known.next_look = Some(Instant::now() + pause);
            // Where it cannot be known, what was known counts.
            if let Ok(Ok(steps)) = looked {
                known.steps = steps;
            }
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
                Err(error) if is_missing(&error) => {
                    known.steps.remove(&step);
                    publisher.forget(queue, step);
                    let connection = intake.link.up()?.connection;
                    let channel = connection.create_channel().await.map_err(SourceError::new)?;
                    let gone = unregister(&channel, step.queue(queue)).await;
                    known.channel = gone.is_ok().then_some(channel);
                }
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

/// The delay queues there are. To ask for a queue that is missing costs a channel, and a line in the broker's
/// log; so what is asked is by which of their names the exchange of known ones leads anywhere. That is publishing,
/// which a broker short of memory stops: it is done on a connection of its own.
async fn look(intake: &Intake, queue: &Arc<str>) -> Result<BTreeSet<DelayStep>, SourceError> {
    let connection = dial(&intake.link.address, "sluicegate count").await?;
    let steps = || DelayStep::all(false).chain(DelayStep::all(true));
    let looking = async {
        let channel = connection.create_channel().await?;
        declare_known(&channel).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let mut asked = Vec::new();
        for step in steps() {
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let (exchange, key) = (KNOWN.into(), step.queue(queue));
            let properties = BasicProperties::default();
            asked.push(channel.basic_publish(exchange, key, options, &[], properties).await?);
        }
        let mut missing = HashSet::new();
        for answer in asked {
            // The library hands them over with any of the answers.
            if let Some(back) = answer.await?.take_message() {
                missing.insert(back.delivery.routing_key.as_str().to_owned());
            }
        }
        Ok::<_, lapin::Error>(missing)
    };
    let looked = looking.await;
    let found = looked.map(|missing| {
        steps().filter(|step| !missing.contains(step.queue(queue).as_str())).collect()
    });
    drop(connection.close(200, "done".into()).await);
    match found {
        // Who may not publish there counts what this process has sent.
        Err(error) if is_refused(&error) => Ok(BTreeSet::new()),
        found => found.map_err(SourceError::new),
    }
}

fn is_refused(error: &lapin::Error) -> bool {
    let refused = AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED);
    matches!(error.kind(), ErrorKind::ProtocolError(said) if *said.kind() == refused)
}
