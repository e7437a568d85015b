//! What the load goes through: a broker of one kind, and a queue in it.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::json;
use sluicegate::dispatch::{Message, Source};
use sluicegate::server::fetch::{Ask, Fetch};
use sluicegate::sources::amqp::{AmqpSettings, AmqpSource, Queue, Topology};
use sluicegate::sources::nats::{NatsSettings, NatsSource};
use sluicegate::sources::postgres::{PostgresSettings, PostgresSource};
use sluicegate::sources::sqs::{SqsSettings, SqsSource};
use sluicegate::sources::stomp::{StompSettings, StompSource};
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};

/// A broker that may be broken.
pub(super) struct Ground {
    broker: Broker,
    pub(super) uri: String,
    /// What the daemon finds in its environment.
    pub(super) variables: Vec<(&'static str, &'static str)>,
}

impl Ground {
    pub(super) async fn start(kind: Kind) -> Option<Self> {
        let broker = start_or_skip(kind)?;
        let url = broker.url().trim_end_matches('/');
        let mut variables = Vec::new();
        let uri = match kind {
            Kind::RabbitMq => format!("{url}?queue=soak"),
            Kind::Nats => format!("{url}?stream=SOAK&consumer=router&subject=soak"),
            Kind::ActiveMq => format!("{}/soak", url.replacen("stomp://", "activemq://", 1)),
            Kind::Postgres => format!("{url}?queue=soak"),
            Kind::Sqs => {
                variables = vec![
                    ("AWS_ACCESS_KEY_ID", "test"),
                    ("AWS_SECRET_ACCESS_KEY", "test"),
                    ("AWS_EC2_METADATA_DISABLED", "true"),
                ];
                create_fifo_queue(url).await;
                format!("sqs+{url}/000000000000/soak.fifo?region=us-east-1")
            }
        };
        Some(Self { broker, uri, variables })
    }

    /// The queue, to publish into.
    pub(super) async fn source(&self) -> Arc<dyn Source> {
        let uri = &self.uri[..];
        match self.broker.kind() {
            Kind::RabbitMq => {
                let topology = Topology::default().with_queue(Queue::new("soak"));
                let settings = AmqpSettings::parse(uri).expect("an address");
                let opened = AmqpSource::<Message>::open(settings.with_topology(topology)).await;
                Arc::new(opened.expect("it opens"))
            }
            Kind::Nats => {
                let settings = NatsSettings::parse(uri).expect("an address");
                Arc::new(NatsSource::<Message>::open(settings).await.expect("it opens"))
            }
            Kind::ActiveMq => {
                let settings = StompSettings::parse(uri).expect("an address");
                Arc::new(StompSource::<Message>::open(settings).await.expect("it opens"))
            }
            Kind::Postgres => {
                let settings = PostgresSettings::parse(uri).expect("an address");
                Arc::new(PostgresSource::<Message>::open(settings).await.expect("it opens"))
            }
            Kind::Sqs => {
                let settings = SqsSettings::parse(uri).expect("an address");
                let settings = settings.with_credentials("test", "test", None);
                Arc::new(SqsSource::<Message>::open(settings).await.expect("it opens"))
            }
        }
    }

    /// Restarts the broker: as after a power cut, except where its state is in memory alone.
    pub(super) fn restart(&mut self) {
        let restarted = tokio::task::block_in_place(|| match self.broker.kind() {
            Kind::Sqs => self.broker.bounce(),
            _ => self.broker.restart(),
        });
        restarted.unwrap_or_else(|error| panic!("{error}"));
    }
}

async fn create_fifo_queue(url: &str) {
    let body = json!({
        "Action": "CreateQueue", "QueueName": "soak.fifo", "Attributes": {"FifoQueue": "true"},
    });
    let ask = Ask {
        method: Method::POST,
        token: None,
        body: Some(body.to_string().into()),
        timeout: Duration::from_secs(20),
        most_bytes: 1 << 16,
    };
    let query =
        "Action=CreateQueue&QueueName=soak.fifo&Attribute.1.Name=FifoQueue&Attribute.1.Value=true";
    let answer = Fetch::new().ask(&format!("{url}/?{query}"), ask).await.expect("it answers");
    assert_eq!(answer.status, 200, "{:?}", answer.body);
}
