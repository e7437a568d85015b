//! What one writes by hand: a loop over the client's stream.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};

use super::PREFETCH;
use super::load::connect;

/// Consumes so many messages and acknowledges them so many at a time.
pub(super) async fn consume(
    url: &str,
    queue: &str,
    count: usize,
    together: usize,
) -> Result<Duration, String> {
    let (connection, channel) = connect(url).await?;
    let taken = take(&channel, queue, count, together).await;
    let took = taken.map_err(|error| error.to_string())?;
    connection.close(200, "done".into()).await.map_err(|error| error.to_string())?;
    Ok(took)
}

async fn take(
    channel: &Channel,
    queue: &str,
    count: usize,
    together: usize,
) -> lapin::Result<Duration> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let consuming =
        channel.basic_consume(queue.into(), "bare".into(), options, FieldTable::default());
    let mut consumer: Consumer = consuming.await?;
    let (mut begun, mut taken) = (None, 0);
    let ack = BasicAckOptions { multiple: together > 1 };
    while let Some(delivery) = consumer.next().await {
        let tag = delivery?.delivery_tag;
        begun.get_or_insert_with(Instant::now);
        taken += 1;
        if taken % together == 0 || taken == count {
            channel.basic_ack(tag, ack).await?;
        }
        if taken == count {
            break;
        }
    }
    Ok(begun.map_or(Duration::ZERO, |begun| begun.elapsed()))
}
