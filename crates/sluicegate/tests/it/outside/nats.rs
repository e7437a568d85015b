//! NATS JetStream by async-nats.

use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;

use super::Counts;

/// Who is given nothing for so long is given nothing.
const QUIET: Duration = Duration::from_secs(1);
/// How many are on their way at once.
const AT_ONCE: usize = 250;

pub(super) struct Client {
    context: Context,
    stream: String,
}

impl Client {
    pub(super) async fn make(url: &str, stream: &str) -> Self {
        let context = jetstream::new(async_nats::connect(url).await.expect("the server answers"));
        let config = Config {
            name: stream.to_owned(),
            subjects: vec![format!("{stream}.in")],
            retention: RetentionPolicy::WorkQueue,
            ..Default::default()
        };
        context.create_stream(config).await.expect("the stream is made");
        Self { context, stream: stream.to_owned() }
    }

    pub(super) async fn publish(&self, bodies: &[String]) {
        for lot in bodies.chunks(AT_ONCE) {
            let mut sent = Vec::with_capacity(lot.len());
            for body in lot {
                let one = self.context.publish(format!("{}.in", self.stream), body.clone().into());
                sent.push(one.await.expect("it is sent"));
            }
            for one in sent {
                one.await.expect("it is stored");
            }
        }
    }

    pub(super) async fn counts(&self) -> Counts {
        let stream = self.context.get_stream(&self.stream).await.expect("the stream is there");
        let all = stream.cached_info().state.messages as usize;
        // Whoever consumes makes it.
        let Ok(consumer) = stream.get_consumer("router").await else {
            return Counts { visible: all, hidden: Some(0) };
        };
        let consumer: PullConsumer = consumer;
        let info = consumer.cached_info();
        let (visible, hidden) = (info.num_pending as usize, info.num_ack_pending);
        // A server that was killed may still wait for the acknowledgement of what its stream has removed for that.
        let removed = (visible + hidden).saturating_sub(all);
        Counts { visible, hidden: Some(hidden.saturating_sub(removed)) }
    }

    /// How many another client is given, which hands them back.
    pub(super) async fn given(&self) -> usize {
        let stream = self.context.get_stream(&self.stream).await.expect("the stream is there");
        let consumer = stream.get_consumer("router").await;
        let consumer: PullConsumer = consumer.expect("somebody has consumed");
        let mut all = Vec::new();
        loop {
            let some = consumer.fetch().max_messages(AT_ONCE).expires(QUIET).messages().await;
            let some: Vec<_> = some.expect("it answers").collect().await;
            if some.is_empty() {
                break;
            }
            all.extend(some.into_iter().map(|one| one.expect("a message")));
        }
        for one in &all {
            one.ack_with(AckKind::Nak(None)).await.expect("it is handed back");
        }
        all.len()
    }
}
