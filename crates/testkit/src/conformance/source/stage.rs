//! What the checks are written in: publishing, receiving and settling, with their expectations.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluicegate_dispatch::{
    Delivery, Demand, Message, Order, Publication, Reason, Receipt, Rest, Settle, Settled,
    Settlement, Source, Target,
};
use tokio::time::{Instant, timeout};

use super::{Abilities, Subject};

/// How long something that must happen may take, beyond three windows.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which part of a window before its time nobody asks for a message, so as not to take it just at
/// that: on a busy machine a receive that is given up may have waited for so long.
const TICKS: u32 = 40;

/// A queue under test.
pub(super) struct Stage {
    subject: Box<dyn Subject>,
    /// `None` while it is down.
    source: Option<Arc<dyn Source>>,
    pub(super) abilities: Abilities,
}

/// A message with this id, in a pool without order and without a group.
#[must_use]
pub fn publication(id: &str) -> Publication {
    publication_in(id, "POOL", None, false)
}

/// A message with this id, pool and group.
#[must_use]
pub fn publication_in(id: &str, pool: &str, group: Option<&str>, high: bool) -> Publication {
    let target = "http://localhost/in";
    let body = json!({
        "id": id,
        "poolCode": pool,
        "mediationType": "HTTP",
        "mediationTarget": target,
        "messageGroupId": group,
        "highPriority": high,
    });
    let message = Message {
        id: id.into(),
        pool: pool.into(),
        group: group.map(Into::into),
        tenant: None,
        high_priority: high,
        target: Target::parse(target).expect("it is a URL"),
        auth_token: None,
        payload: None,
        traceparent: None,
        unknown_fields: Box::default(),
    };
    Publication { message, body: body.to_string().into(), delay: Duration::ZERO }
}

/// A message with this id, pool and tenant.
#[must_use]
pub fn publication_of(id: &str, pool: &str, tenant: &str) -> Publication {
    of_tenant(publication_in(id, pool, None, false), tenant)
}

/// The same message of a tenant.
#[must_use]
pub fn of_tenant(publication: Publication, tenant: &str) -> Publication {
    let Publication { mut message, body, delay } = publication;
    message.tenant = Some(tenant.into());
    let open = body.strip_suffix('}').expect("it is an object");
    let body = format!("{open},\"tenant\":{}}}", json!(tenant));
    Publication { message, body: body.into(), delay }
}

/// A message of the pool that keeps order.
pub(super) fn strict(id: &str, group: &str) -> Publication {
    publication_in(id, "STRICT", Some(group), false)
}

/// The same, of high priority.
pub(super) fn strict_high(id: &str, group: &str) -> Publication {
    publication_in(id, "STRICT", Some(group), true)
}

/// The ids of deliveries, in their order.
pub(super) fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(id).collect()
}

pub(super) fn id(delivery: &Delivery) -> String {
    match &delivery.message {
        Ok(message) => message.id.to_string(),
        Err(malformed) => format!("malformed: {}", malformed.why),
    }
}

/// A settlement that brings the message back.
pub(super) const fn again(after: Duration) -> Settlement {
    Settlement::Retry { after, attempts: 0, reason: Reason::Failed }
}

impl Stage {
    pub(super) fn new(subject: Box<dyn Subject>, abilities: Abilities) -> Self {
        let source = Some(subject.source());
        Self { subject, source, abilities }
    }

    pub(super) fn source(&self) -> &dyn Source {
        &**self.source.as_ref().expect("it is not down")
    }

    pub(super) const fn window(&self) -> Duration {
        self.abilities.window
    }

    pub(super) async fn publish(&self, messages: Vec<Publication>) -> (u64, u64) {
        let published = self.subject.publish(messages).await.expect("it takes messages in");
        (published.accepted, published.duplicates)
    }

    pub(super) async fn publish_ids(&self, ids: &[&str]) {
        self.publish(ids.iter().map(|id| publication(id)).collect()).await;
    }

    pub(super) async fn publish_raw(&self, body: &str) {
        self.subject.publish_raw(body).await;
    }

    pub(super) async fn crash(&mut self) {
        // Whoever holds the old source is gone too.
        self.source = None;
        self.subject.crash().await;
        self.source = Some(self.subject.source());
    }

    /// Order is kept for the pool `STRICT`.
    pub(super) fn keep_order(&self) {
        self.source().keep_order(&std::sync::Arc::new(Order::of_pools(["STRICT"])));
    }

    /// Order is kept, and these wait in it: two of one group and one of another.
    pub(super) async fn publish_in_order(&self) {
        self.keep_order();
        self.publish(vec![strict("a1", "a"), strict("a2", "a"), strict("b1", "b")]).await;
    }

    /// Exactly `count` deliveries, however many calls it takes.
    pub(super) async fn receive(&self, count: usize) -> Vec<Delivery> {
        let end = Instant::now() + PATIENCE + self.window() * 3;
        let mut received = Vec::new();
        while received.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            let more =
                timeout(left, self.source().receive(Demand::any(count - received.len()))).await;
            let Ok(more) = more else {
                panic!("{} of {count} came: {:?}", received.len(), ids(&received))
            };
            received.extend(more.expect("it hands out"));
            assert!(!left.is_zero(), "{} of {count} came: {:?}", received.len(), ids(&received));
        }
        received
    }

    pub(super) async fn receive_one(&self) -> Delivery {
        self.receive(1).await.remove(0)
    }

    /// The next message, which does not come before `time`.
    pub(super) async fn receive_not_before(&self, time: Instant) -> Delivery {
        self.expect_nothing_until(time).await;
        let delivery = self.receive_one().await;
        let early = time.saturating_duration_since(Instant::now());
        assert!(early.is_zero(), "{} came {early:?} too early", id(&delivery));
        delivery
    }

    /// The ids of the next messages, which are not settled.
    pub(super) async fn next_ids(&self, count: usize) -> Vec<String> {
        ids(&self.receive(count).await)
    }

    /// The next messages are these, each once the one before it is settled.
    pub(super) async fn expect_one_by_one(&self, expected: &[&str]) {
        for &expected in expected {
            let next = self.receive_one().await;
            assert_eq!(id(&next), expected);
            self.done(&next).await;
        }
    }

    /// Nothing comes before `end`, as far as can be told without taking what comes then.
    pub(super) async fn expect_nothing_until(&self, end: Instant) {
        let end = end - self.window() / TICKS;
        while Instant::now() < end {
            let left = end - Instant::now();
            if let Ok(received) = timeout(left, self.source().receive(Demand::any(10))).await {
                let received = received.expect("it hands out");
                // On a busy machine it may have come in time, and been seen too late.
                let is_late = Instant::now() >= end;
                assert!(received.is_empty() || is_late, "too early: {:?}", ids(&received));
            }
        }
    }

    /// Nothing comes for a while that is long beside what a delivery takes.
    pub(super) async fn expect_nothing_now(&self) {
        self.expect_nothing_until(Instant::now() + self.window() / 4).await;
    }

    pub(super) async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Settled {
        let settle = vec![Settle { receipt: receipt.clone(), settlement }];
        let mut settled = self.source().settle(settle).await.expect("it settles");
        assert_eq!(settled.len(), 1);
        settled.remove(0)
    }

    pub(super) async fn done(&self, delivery: &Delivery) {
        assert_eq!(self.settle(&delivery.receipt, Settlement::Ack).await, Settled::Done);
    }

    /// Settles all of them, as many at once as may be.
    pub(super) async fn all_done(&self, deliveries: &[Delivery]) {
        for batch in deliveries.chunks(self.source().profile().settle_batch) {
            let gone = |delivery: &Delivery| {
                let receipt = delivery.receipt.clone();
                Settle { receipt, settlement: Settlement::Ack }
            };
            let settled = self.source().settle(batch.iter().map(gone).collect()).await;
            assert_eq!(settled.expect("it settles"), vec![Settled::Done; batch.len()]);
        }
    }

    pub(super) async fn bring_back(&self, delivery: &Delivery, after: Duration) {
        assert_eq!(self.settle(&delivery.receipt, again(after)).await, Settled::Done);
    }

    /// A delivery that failed rests with whoever has it.
    pub(super) async fn rest(
        &self,
        delivery: &Delivery,
        after: Duration,
        attempts: u32,
    ) -> Settled {
        let (receipt, reason) = (delivery.receipt.clone(), Reason::Failed);
        let rests = vec![Rest { receipt, after, attempts, reason }];
        let mut answers = self.source().rest(rests).await.expect("it notes");
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    pub(super) async fn extend(&self, receipt: &Receipt) -> Settled {
        let mut settled = self.source().extend(vec![receipt.clone()]).await.expect("it extends");
        assert_eq!(settled.len(), 1);
        settled.remove(0)
    }
}
