//! What the tests are written in.

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate_dispatch::{
    Delivery, Demand, Message, Reason, Receipt, Settle, Settled, Settlement, Source, SourceError,
};
use sluicegate_sources::stomp::{StompSettings, StompSource};
use sluicegate_testkit::conformance::source::publication;
use tokio::time::{Instant, sleep, timeout};

/// How long something that must happen may take, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Queue = StompSource<Message>;

pub(crate) async fn open(settings: StompSettings) -> Queue {
    within(StompSource::open(settings)).await.unwrap()
}

/// It ends in time.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it ends in time")
}

/// It becomes true in time.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn publish(source: &Queue, ids: impl IntoIterator<Item = String>) {
    let messages = ids.into_iter().map(|id| publication(&id)).collect();
    within(source.publish(messages)).await.unwrap();
}

pub(crate) fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("m{n:03}")).collect()
}

/// So many deliveries, however many calls it takes, and whatever fails meanwhile.
pub(crate) async fn receive<M: 'static>(source: &dyn Source<M>, count: usize) -> Vec<Delivery<M>> {
    let end = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < count {
        assert!(Instant::now() < end, "{} of {count} came: {:?}", all.len(), source.health());
        if let Ok(some) = within(source.receive(Demand::any(count - all.len()))).await {
            all.extend(some);
        }
    }
    all
}

/// Nothing comes for so long.
pub(crate) async fn expect_nothing(source: &Queue, pause: Duration) {
    let end = Instant::now() + pause;
    while Instant::now() < end {
        let some = within(source.receive(Demand::any(10))).await.unwrap();
        assert!(some.is_empty(), "{:?} came", ids(&some));
    }
}

pub(crate) fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(id).collect()
}

pub(crate) fn id(delivery: &Delivery) -> String {
    match &delivery.message {
        Ok(message) => message.id.to_string(),
        Err(malformed) => format!("malformed: {}", malformed.why),
    }
}

pub(crate) const fn again(after: Duration, attempts: u32) -> Settlement {
    Settlement::Retry { after, attempts, reason: Reason::Failed }
}

pub(crate) async fn settle_all<M: 'static>(
    source: &dyn Source<M>,
    receipts: impl IntoIterator<Item = Receipt>,
    settlement: Settlement,
) -> Result<Vec<Settled>, SourceError> {
    let settle = receipts.into_iter().map(|receipt| Settle { receipt, settlement }).collect();
    within(source.settle(settle)).await
}

pub(crate) async fn settle<M: 'static>(
    source: &dyn Source<M>,
    delivery: &Delivery<M>,
    settlement: Settlement,
) -> Settled {
    settle_all(source, [delivery.receipt.clone()], settlement).await.unwrap().remove(0)
}

pub(crate) fn receipts<M>(deliveries: &[Delivery<M>]) -> Vec<Receipt> {
    deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
}

/// How often each came.
pub(crate) type Seen = BTreeMap<String, usize>;

/// Settles what comes until all these have come.
pub(crate) async fn drain_until_seen(source: &Queue, wanted: &[String], seen: &mut Seen) {
    let end = Instant::now() + PATIENCE;
    loop {
        let missing: Vec<_> = wanted.iter().filter(|id| !seen.contains_key(*id)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{missing:?} are lost; {:?}", source.health());
        drain_some(source, seen).await;
    }
}

/// Settles what comes until nothing has come for a while.
pub(crate) async fn drain(source: &Queue, quiet: Duration) -> Seen {
    let mut seen = Seen::new();
    let mut last = Instant::now();
    while last.elapsed() < quiet {
        if drain_some(source, &mut seen).await {
            last = Instant::now();
        }
    }
    seen
}

/// Whether something came, or could not for want of a connection.
async fn drain_some(source: &Queue, seen: &mut Seen) -> bool {
    let Ok(some) = within(source.receive(Demand::any(100))).await else { return true };
    if some.is_empty() {
        return false;
    }
    settle_all(source, receipts(&some), Settlement::Ack).await.unwrap();
    for delivery in &some {
        *seen.entry(id(delivery)).or_default() += 1;
    }
    true
}
