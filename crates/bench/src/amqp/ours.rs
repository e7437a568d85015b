//! Ours: a service with one consumer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sluicegate_consumers::amqp::AmqpAddress;
use sluicegate_consumers::{
    Consumer, ConsumerBuilder, Declarations, Failure, Handler, OrderBy, Service,
};
use tokio::sync::Notify;

use super::PREFETCH;

/// Counts messages until there were enough.
struct Count {
    left: AtomicUsize,
    begun: OnceLock<Instant>,
    over: Notify,
}

impl Count {
    fn of(count: usize) -> Arc<Self> {
        let (left, begun) = (AtomicUsize::new(count), OnceLock::new());
        Arc::new(Self { left, begun, over: Notify::new() })
    }

    fn begin(&self) {
        self.begun.get_or_init(Instant::now);
    }

    fn one(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.over.notify_one();
        }
    }
}

/// A handler that does nothing, with the automatic number of workers.
pub(super) async fn consume(
    url: &str,
    queue: &str,
    count: usize,
    ordered: bool,
) -> Result<Duration, String> {
    let counted = Count::of(count);
    let seen = Arc::clone(&counted);
    let handler = Handler::bytes(move |_body, _about, _cx| {
        seen.begin();
        seen.one();
        std::future::ready(Ok::<(), Failure>(()))
    });
    let builder = Consumer::of(queue).prefetch(u32::from(PREFETCH));
    let builder = if ordered { builder.order_by(OrderBy::header("key")) } else { builder };
    run(url, builder, handler, &counted, count).await
}

/// A handler that waits 100 ms.
pub(super) async fn wait(
    url: &str,
    queue: &str,
    count: usize,
    workers: u32,
) -> Result<Duration, String> {
    let counted = Count::of(count);
    let seen = Arc::clone(&counted);
    let handler = Handler::bytes(move |_body, _about, _cx| {
        let seen = Arc::clone(&seen);
        async move {
            seen.begin();
            tokio::time::sleep(Duration::from_millis(100)).await;
            seen.one();
            Ok::<_, Failure>(())
        }
    });
    let builder = Consumer::of(queue).workers(workers).prefetch(u32::from(PREFETCH));
    run(url, builder, handler, &counted, count).await
}

async fn run(
    url: &str,
    builder: ConsumerBuilder,
    handler: Handler,
    counted: &Count,
    count: usize,
) -> Result<Duration, String> {
    let mut declared = Declarations::new();
    let consumer = builder.handler(handler);
    declared.standing_queue(consumer.queue());
    declared.consumer(consumer);
    let address = AmqpAddress::parse(url).map_err(|error| error.to_string())?;
    let starting = Service::builder().declared(address, declared).start();
    let service = starting.await.map_err(|error| error.to_string())?;
    counted.over.notified().await;
    let took = counted.begun.get().map_or(Duration::ZERO, |begun| begun.elapsed());
    let report = service.shutdown(tokio::time::Instant::now() + Duration::from_secs(10)).await;
    if !report.is_clean() || count == 0 {
        return Err(format!("not a clean end: {report:?}"));
    }
    Ok(took)
}
