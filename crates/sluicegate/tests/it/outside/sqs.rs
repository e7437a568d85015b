//! SQS by the AWS SDK.

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use futures_util::future::try_join_all;

use super::Counts;

/// The most that one call takes.
const BATCH: usize = 10;
/// How many calls are under way at once.
const CALLS: usize = 8;

pub(super) struct Client {
    client: aws_sdk_sqs::Client,
    queue_url: String,
}

impl Client {
    pub(super) async fn make(url: &str, name: &str) -> Self {
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(url)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .build();
        let client = aws_sdk_sqs::Client::from_conf(config);
        let made = client.create_queue().queue_name(name).send().await.expect("the queue is made");
        let queue_url = made.queue_url().expect("its address").to_owned();
        Self { client, queue_url }
    }

    pub(super) async fn publish(&self, bodies: &[String]) {
        for lot in bodies.chunks(BATCH * CALLS) {
            let calls = lot.chunks(BATCH).map(|batch| {
                let entries = batch.iter().enumerate().map(|(number, body)| {
                    let entry = SendMessageBatchRequestEntry::builder().id(format!("e{number}"));
                    entry.message_body(body).build().expect("an id and a body")
                });
                let call = self.client.send_message_batch().queue_url(&self.queue_url);
                call.set_entries(Some(entries.collect())).send()
            });
            for answer in try_join_all(calls).await.expect("it answers") {
                assert!(answer.failed().is_empty(), "{:?}", answer.failed());
            }
        }
    }

    pub(super) async fn counts(&self) -> Counts {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let call = self.client.get_queue_attributes().queue_url(&self.queue_url);
        let answer = call.set_attribute_names(Some(names.to_vec())).send().await;
        let answer = answer.expect("it answers");
        let [visible, hidden] = names.map(|name| {
            let counted = answer.attributes().and_then(|attributes| attributes.get(&name));
            counted.expect("a count").parse().expect("a number")
        });
        Counts { visible, hidden: Some(hidden) }
    }
}
