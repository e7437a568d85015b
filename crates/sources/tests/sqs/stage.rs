//! What the tests of SQS are written in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluicegate_dispatch::{
    Delivery, Demand, Reason, Settle, Settled, Settlement, Source, SourceError,
};
use sluicegate_sources::sqs::{SqsSettings, SqsSource};
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};
use tokio::time::{Instant, sleep, timeout};

/// Everything that must happen happens within this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

static QUEUES: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn broker() -> Option<Broker> {
    start_or_skip(Kind::Sqs)
}

/// A name that no other test has.
pub(crate) fn fresh(suffix: &str) -> String {
    format!("q{}{suffix}", QUEUES.fetch_add(1, Ordering::Relaxed))
}

/// A queue at this server.
pub(crate) fn settings(url: &str, name: &str) -> SqsSettings {
    let uri = format!("sqs+{url}/000000000000/{name}?region=us-east-1");
    SqsSettings::parse(&uri)
        .unwrap()
        .with_credentials("test", "test", None)
        .with_visibility(Duration::from_secs(4))
        .with_wait(Duration::from_secs(2))
}

pub(crate) async fn open(settings: SqsSettings) -> Arc<SqsSource> {
    Arc::new(SqsSource::open(settings).await.unwrap())
}

/// Asks until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let end = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < end, "it did not come to be: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Exactly so many deliveries, however many calls it takes and whatever fails meanwhile.
pub(crate) async fn take(source: &dyn Source, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    let all = async {
        while taken.len() < count {
            match source.receive(Demand::any(count - taken.len())).await {
                Ok(some) => taken.extend(some),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let in_time = timeout(PATIENCE, all).await.is_ok();
    assert!(in_time, "{} of {count} came: {:?}", taken.len(), ids(&taken));
    taken
}

/// Nothing comes for so long.
pub(crate) async fn nothing_for(source: &dyn Source, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if let Ok(some) = timeout(end - Instant::now(), source.receive(Demand::any(10))).await {
            let some = some.unwrap();
            assert!(some.is_empty(), "these came: {:?}", ids(&some));
        }
    }
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<String> {
    let id = |delivery: &Delivery| match &delivery.message {
        Ok(message) => message.id.to_string(),
        Err(malformed) => format!("malformed: {}", malformed.why),
    };
    deliveries.iter().map(id).collect()
}

pub(crate) fn again(after: Duration, attempts: u32) -> Settlement {
    Settlement::Retry { after, attempts, reason: Reason::Failed }
}

pub(crate) async fn settle(
    source: &dyn Source,
    delivery: &Delivery,
    settlement: Settlement,
) -> Settled {
    let settle = Settle { receipt: delivery.receipt.clone(), settlement };
    source.settle(vec![settle]).await.unwrap().remove(0)
}

/// Whether one settlement, or extension, did not work.
pub(crate) fn is_failed(answer: Result<Vec<Settled>, SourceError>) -> bool {
    matches!(answer.as_deref(), Err(_) | Ok([Settled::Failed(_)]))
}

pub(crate) async fn all_done(source: &dyn Source, deliveries: &[Delivery]) {
    let gone = |delivery: &Delivery| Settle {
        receipt: delivery.receipt.clone(),
        settlement: Settlement::Ack,
    };
    let settled = source.settle(deliveries.iter().map(gone).collect()).await.unwrap();
    assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
}
