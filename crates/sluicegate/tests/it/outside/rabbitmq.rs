//! RabbitMQ by lapin.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

pub(super) struct Client {
    url: String,
    queue: String,
}

impl Client {
    pub(super) async fn make(url: &str, queue: &str) -> Self {
        let client = Self { url: url.to_owned(), queue: queue.to_owned() };
        let (_connection, channel) = client.connect().await;
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        let made = channel.queue_declare(queue.into(), options, FieldTable::default()).await;
        made.expect("the queue is made");
        client
    }

    /// A new connection each time: the broker may have been restarted.
    async fn connect(&self) -> (Connection, Channel) {
        let connected = Connection::connect(&self.url, ConnectionProperties::default()).await;
        let connection = connected.expect("the broker answers");
        let channel = connection.create_channel().await.expect("a channel");
        (connection, channel)
    }

    pub(super) async fn publish(&self, bodies: &[String]) {
        let (_connection, channel) = self.connect().await;
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirmations");
        let persistent = BasicProperties::default().with_delivery_mode(2);
        let mut sent = Vec::with_capacity(bodies.len());
        for body in bodies {
            let (options, properties) = (BasicPublishOptions::default(), persistent.clone());
            let queue = self.queue.as_str().into();
            let one = channel.basic_publish("".into(), queue, options, body.as_bytes(), properties);
            sent.push(one.await.expect("it is sent"));
        }
        for one in sent {
            assert!(one.await.expect("an answer").is_ack());
        }
    }

    /// How many nobody holds.
    pub(super) async fn ready(&self) -> usize {
        let (_connection, channel) = self.connect().await;
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let queue = self.queue.as_str().into();
        let declared = channel.queue_declare(queue, options, FieldTable::default()).await;
        declared.expect("the queue is there").message_count() as usize
    }
}
