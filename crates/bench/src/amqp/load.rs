//! Messages to consume: persistent, of 200 bytes, each with an id and a key.

use std::sync::atomic::{AtomicU64, Ordering};

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

/// How many may be unconfirmed.
const AHEAD: usize = 1000;
const SIZE: usize = 200;

pub(super) async fn connect(url: &str) -> Result<(Connection, Channel), String> {
    let connecting = Connection::connect(url, ConnectionProperties::default());
    let connection = connecting.await.map_err(|error| error.to_string())?;
    let channel = connection.create_channel().await.map_err(|error| error.to_string())?;
    Ok((connection, channel))
}

/// A new queue with so many messages, all confirmed.
pub(super) async fn publish(url: &str, count: usize, keys: usize) -> Result<String, String> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let queue = format!("load-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let (connection, channel) = connect(url).await?;
    fill(&channel, &queue, count, keys).await.map_err(|error| error.to_string())?;
    connection.close(200, "done".into()).await.map_err(|error| error.to_string())?;
    Ok(queue)
}

async fn fill(channel: &Channel, queue: &str, count: usize, keys: usize) -> lapin::Result<()> {
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(queue.into(), durable, FieldTable::default()).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let body = [b'x'; SIZE];
    let mut confirms = Vec::with_capacity(AHEAD);
    for number in 0..count {
        let mut headers = FieldTable::default();
        let key = format!("key-{}", number % keys);
        headers.insert("key".into(), AMQPValue::LongString(key.into()));
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_message_id(format!("message-{number}").into())
            .with_headers(headers);
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish("".into(), queue.into(), options, &body, properties);
        confirms.push(sent.await?);
        if confirms.len() == AHEAD {
            for confirm in confirms.drain(..) {
                confirm.await?;
            }
        }
    }
    for confirm in confirms {
        confirm.await?;
    }
    Ok(())
}

pub(super) async fn delete(url: &str, queue: &str) -> Result<(), String> {
    let (connection, channel) = connect(url).await?;
    let deleting = channel.queue_delete(queue.into(), QueueDeleteOptions::default());
    let left = deleting.await.map_err(|error| error.to_string())?;
    connection.close(200, "done".into()).await.map_err(|error| error.to_string())?;
    if left > 0 {
        return Err(format!("{left} messages were left in {queue}"));
    }
    Ok(())
}
