//! A broker as others see it: its own clients put messages in and count them. Nothing of ours is asked.

mod activemq;
mod nats;
mod rabbitmq;
mod sqs;

use sluicegate_testkit::brokers::{Broker, Kind};

/// What a daemon or a consumer finds in its environment.
pub(crate) const VARIABLES: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "test"),
    ("AWS_SECRET_ACCESS_KEY", "test"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

/// A queue at a broker, made and looked at by the broker's own client.
pub(crate) struct OutsideQueue {
    /// Where Sluicegate finds it.
    pub(crate) uri: String,
    client: Client,
}

/// How many messages of a queue are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Anybody may have them.
    pub(crate) visible: usize,
    /// Somebody has them and has not acknowledged them; `None` where the broker does not say.
    pub(crate) hidden: Option<usize>,
}

enum Client {
    RabbitMq(rabbitmq::Client),
    Nats(nats::Client),
    Sqs(sqs::Client),
    ActiveMq(activemq::Client),
}

impl OutsideQueue {
    /// Makes it.
    pub(crate) async fn make(broker: &Broker, name: &str) -> Self {
        let url = broker.url().trim_end_matches('/');
        let (uri, client) = match broker.kind() {
            Kind::RabbitMq => {
                let client = rabbitmq::Client::make(url, name).await;
                (format!("{url}?queue={name}"), Client::RabbitMq(client))
            }
            Kind::Nats => {
                let client = nats::Client::make(url, name).await;
                (format!("{url}?stream={name}&consumer=router"), Client::Nats(client))
            }
            Kind::Sqs => {
                let client = sqs::Client::make(url, name).await;
                let uri = format!("sqs+{url}/000000000000/{name}?region=us-east-1&wait=1");
                (uri, Client::Sqs(client))
            }
            Kind::ActiveMq => {
                let uri = format!("{}/{name}", url.replacen("stomp://", "activemq://", 1));
                let client = activemq::Client { address: broker.address(), queue: name.to_owned() };
                (uri, Client::ActiveMq(client))
            }
            Kind::Postgres => panic!("its tables are ours: there is no other client"),
        };
        Self { uri, client }
    }

    /// Puts these in, as they are: without an id, a group or anything else beside the body. They are
    /// there when this returns.
    pub(crate) async fn publish(&self, bodies: &[String]) {
        match &self.client {
            Client::RabbitMq(client) => client.publish(bodies).await,
            Client::Nats(client) => client.publish(bodies).await,
            Client::Sqs(client) => client.publish(bodies).await,
            Client::ActiveMq(client) => client.publish(bodies).await,
        }
    }

    /// Counts them, while somebody has some of them. ActiveMQ counts for nobody: there another client takes
    /// what it is given, up to a few hundred messages, and leaves it.
    pub(crate) async fn counts(&self) -> Counts {
        match &self.client {
            Client::RabbitMq(client) => Counts { visible: client.ready().await, hidden: None },
            Client::Nats(client) => client.counts().await,
            Client::Sqs(client) => client.counts().await,
            Client::ActiveMq(client) => Counts { visible: client.given().await, hidden: None },
        }
    }

    /// How many another client gets at once, while nobody else is there. JetStream counts what was handed
    /// back as hidden until it is delivered again, so there it is delivered.
    pub(crate) async fn available(&self) -> usize {
        match &self.client {
            Client::Nats(client) => client.given().await,
            _ => self.counts().await.visible,
        }
    }

    /// Its address with one more parameter.
    pub(crate) fn uri_with(&self, parameter: &str) -> String {
        let before = if self.uri.contains('?') { '&' } else { '?' };
        format!("{}{before}{parameter}", self.uri)
    }
}
