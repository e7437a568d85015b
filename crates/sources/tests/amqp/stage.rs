//! A broker that all tests share, or one of a test's own, and what the tests say to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, ConnectionProperties};
use sluicegate_dispatch::{Delivery, Demand, Reason, Receipt, Settle, Settled, Settlement, Source};
use sluicegate_sources::Content;
use sluicegate_sources::amqp::{AmqpSettings, AmqpSource};
use sluicegate_tasks::{Context, TaskGroup};
use sluicegate_testkit::brokers::{Broker, Kind, lend, start_or_skip};
use tokio::time::{Instant, sleep, timeout};

/// How long anything that must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The address of the broker that all tests share; `None` where there is none.
///
/// The kernel ends a broker with the thread that started it, so one thread stays for it.
pub(crate) fn shared() -> Option<&'static str> {
    static URL: OnceLock<Option<String>> = OnceLock::new();
    static KEEPER: OnceLock<(tokio::runtime::Runtime, TaskGroup)> = OnceLock::new();
    let start = || {
        let (runtime, group) = KEEPER.get_or_init(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
            (runtime.unwrap(), TaskGroup::new("broker", 1).unwrap())
        });
        let (tell, told) = mpsc::sync_channel(1);
        let keep = move |cx: Context| {
            let broker = lend(Kind::RabbitMq);
            tell.send(broker.as_ref().map(|broker| broker.url().to_owned())).unwrap();
            while broker.is_some() && cx.check().is_ok() {
                std::thread::sleep(Duration::from_secs(1));
            }
        };
        let _inside = runtime.enter();
        let task =
            futures_util::FutureExt::now_or_never(group.submit_blocking(Context::new(), keep));
        assert!(task.is_some_and(|task| task.is_ok()));
        told.recv().unwrap()
    };
    // Several threads may ask at once; the first one starts it.
    std::thread::scope(|_| URL.get_or_init(start).as_deref())
}

/// A broker of this test's own, to break.
pub(crate) fn own() -> Option<Broker> {
    start_or_skip(Kind::RabbitMq)
}

/// A name that no other test uses.
pub(crate) fn name(what: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn settings(url: &str, queue: &str) -> AmqpSettings {
    AmqpSettings::parse(&format!("{url}?queue={queue}")).unwrap()
}

/// Someone else at the broker.
pub(crate) struct Other {
    pub(crate) connection: lapin::Connection,
    pub(crate) channel: lapin::Channel,
}

impl Other {
    pub(crate) async fn at(url: &str) -> Self {
        let end = Instant::now() + PATIENCE;
        loop {
            let connected = lapin::Connection::connect(url, ConnectionProperties::default()).await;
            if let Ok(connection) = connected
                && let Ok(channel) = connection.create_channel().await
            {
                return Self { connection, channel };
            }
            assert!(Instant::now() < end, "nobody answers at {url}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn publish(&self, queue: &str, body: &[u8], properties: BasicProperties) {
        let options = BasicPublishOptions::default();
        let sent = self.channel.basic_publish("".into(), queue.into(), options, body, properties);
        sent.await.unwrap().await.unwrap();
    }

    pub(crate) async fn delete(&self, queue: &str) {
        let options = QueueDeleteOptions::default();
        self.channel.queue_delete(queue.into(), options).await.unwrap();
    }

    /// How many messages of a queue nobody holds; `None` where there is no such queue.
    pub(crate) async fn ready(&self, queue: &str) -> Option<u32> {
        let channel = self.connection.create_channel().await.unwrap();
        let options = QueueDeclareOptions { passive: true, ..Default::default() };
        let declared = channel.queue_declare(queue.into(), options, FieldTable::default()).await;
        declared.ok().map(|queue| queue.message_count())
    }

    /// Waits until a queue has so many messages that nobody holds.
    pub(crate) async fn wait_ready(&self, queue: &str, count: u32) {
        eventually(&format!("{count} ready in {queue}"), async || {
            self.ready(queue).await == Some(count)
        })
        .await;
    }
}

/// Waits until something holds.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Begins to consume. Until a source does, receiving fails once its wait is over, which a slow machine may
/// need to begin.
pub(crate) async fn consuming<M: Content>(source: &AmqpSource<M>) {
    eventually("it consumes", async || {
        source.receive(Demand::any(0)).await.is_ok() && source.health().is_ok()
    })
    .await;
}

/// Exactly `count` deliveries, however many calls and failures it takes.
pub(crate) async fn receive<M: Content + std::fmt::Debug>(
    source: &AmqpSource<M>,
    count: usize,
) -> Vec<Delivery<M>> {
    let mut received = Vec::new();
    let end = Instant::now() + PATIENCE;
    while received.len() < count {
        let some = timeout(PATIENCE, source.receive(Demand::any(count - received.len()))).await;
        received.extend(some.expect("it answers in time").unwrap_or_default());
        assert!(Instant::now() < end, "{} of {count} came: {received:?}", received.len());
    }
    received
}

pub(crate) fn gone(receipt: &Receipt) -> Settle {
    Settle { receipt: receipt.clone(), settlement: Settlement::Ack }
}

pub(crate) fn again(receipt: &Receipt, after: Duration, attempts: u32) -> Settle {
    let settlement = Settlement::Retry { after, attempts, reason: Reason::Failed };
    Settle { receipt: receipt.clone(), settlement }
}

/// Settles one delivery, within reason.
pub(crate) async fn settle<M: Content>(source: &AmqpSource<M>, settle: Settle) -> Settled {
    let settled = timeout(PATIENCE, source.settle(vec![settle])).await;
    settled.expect("it answers in time").expect("it settles").remove(0)
}
