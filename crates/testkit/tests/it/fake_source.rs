//! The source in memory: it keeps the contract, and its faults do what they say.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    BoxFuture, Demand, Publication, PublishError, Published, Settle, Settled, Settlement, Source,
};
use sluicegate_testkit::conformance::source::{Abilities, Rig, Subject, publication, run};
use sluicegate_testkit::{FakeSource, Fault};

struct Fakes;

impl Rig for Fakes {
    fn abilities(&self) -> Abilities {
        Abilities::all(Duration::from_secs(10)).selecting()
    }

    fn queue(&self, visibility: Duration) -> BoxFuture<'_, Box<dyn Subject>> {
        Box::pin(async move { Box::new(Fake(FakeSource::new(visibility))) as _ })
    }
}

struct Fake(FakeSource);

impl Subject for Fake {
    fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.0.clone())
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        self.0.publish(messages)
    }

    fn publish_raw(&self, body: &str) -> BoxFuture<'_, ()> {
        self.0.push_malformed("it is no message", body);
        Box::pin(async {})
    }

    fn crash(&mut self) -> BoxFuture<'_, ()> {
        self.0 = self.0.restarted();
        Box::pin(async {})
    }
}

#[tokio::test(start_paused = true)]
async fn it_keeps_the_contract() {
    let count = run(&Fakes).await;
    assert!(count > 40, "{count} checks");
}

async fn one_out() -> (FakeSource, Vec<Settle>) {
    let source = FakeSource::new(Duration::from_secs(10));
    source.push([publication("m1")]);
    let received = source.receive(Demand::any(1)).await.unwrap();
    let gone = Settle { receipt: received[0].receipt.clone(), settlement: Settlement::Ack };
    (source, vec![gone])
}

#[tokio::test(start_paused = true)]
async fn calls_fail_as_often_as_told() {
    let (source, gone) = one_out().await;
    source.push([publication("m2")]);
    source.fail_next(Fault::Receive, 2);
    assert!(source.receive(Demand::any(1)).await.is_err());
    assert!(source.health().is_err());
    assert!(source.receive(Demand::any(1)).await.is_err());
    assert_eq!(source.receive(Demand::any(1)).await.unwrap().len(), 1);
    assert!(source.health().is_ok());
    source.fail_next(Fault::Extend, 1);
    let receipts = || vec![gone[0].receipt.clone()];
    assert!(source.extend(receipts()).await.is_err());
    assert_eq!(source.extend(receipts()).await.unwrap(), [Settled::Done]);
    source.fail_next(Fault::Publish, 1);
    assert!(source.publish(vec![publication("m3")]).await.is_err());
    source.fail_next(Fault::Settle, 1);
    assert!(source.settle(gone.clone()).await.is_err());
    assert_eq!(source.len(), 2);
    assert_eq!(source.settle(gone).await.unwrap(), [Settled::Done]);
    assert_eq!(source.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_settlement_comes_back_and_a_lost_answer_does_not() {
    let (source, gone) = one_out().await;
    source.fail_next(Fault::LoseSettle, 1);
    assert_eq!(source.settle(gone).await.unwrap(), [Settled::Done]);
    assert_eq!(source.len(), 1);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let received = source.receive(Demand::any(1)).await.unwrap();
    source.fail_next(Fault::LoseAnswer, 1);
    let gone = Settle { receipt: received[0].receipt.clone(), settlement: Settlement::Ack };
    assert!(source.settle(vec![gone]).await.is_err());
    assert!(source.is_empty());
}

#[tokio::test(start_paused = true)]
async fn receipts_expire_with_or_without_a_new_delivery() {
    let (source, gone) = one_out().await;
    source.expire_receipts();
    assert_eq!(source.settle(gone).await.unwrap(), [Settled::Stale]);
    assert_eq!(source.receive(Demand::any(1)).await.unwrap(), []);
    let (source, gone) = one_out().await;
    source.redeliver_now();
    assert_eq!(source.receive(Demand::any(1)).await.unwrap().len(), 1);
    assert_eq!(source.settle(gone).await.unwrap(), [Settled::Stale]);
}

#[tokio::test(start_paused = true)]
async fn ids_are_forgotten_after_five_minutes() {
    let source = FakeSource::new(Duration::from_secs(10));
    let publish = || async { source.publish(vec![publication("m1")]).await.unwrap().duplicates };
    assert_eq!(publish().await, 0);
    tokio::time::advance(Duration::from_millis(299_999)).await;
    assert_eq!(publish().await, 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(publish().await, 0);
    assert_eq!(source.len(), 2);
}
