//! Batches of a source that keeps no order are admitted one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering as Memory};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::*;
use sluicegate_testkit::scripted::rig::{Rig, pool};
use sluicegate_testkit::scripted::*;

/// A broker that hands out m1, then m2; the answer with m1 is under way for longer.
#[derive(Default)]
struct TwoConnections {
    next: Mutex<VecDeque<(Duration, Delivery)>>,
    changed: tokio::sync::Notify,
    asked: AtomicU32,
}

impl Source for TwoConnections {
    fn profile(&self) -> Profile {
        Profile::new(Duration::from_secs(3600), 10)
    }
    fn receive(&self, _: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Memory::SeqCst);
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                changed.as_mut().enable();
                let next = self.next.lock().pop_front();
                if let Some((takes, one)) = next {
                    tokio::time::sleep(takes).await;
                    return Ok(vec![one]);
                }
                changed.await;
            }
        })
    }
    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { Ok(vec![Settled::Done; settle.len()]) })
    }
    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(async move { Ok(vec![Settled::Done; receipts.len()]) })
    }
    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(async { Ok(Depth::default()) })
    }
    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }
    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// docs/rules.md#strict-5: "A batch is asked for and admitted before the next one is asked for, whatever the number of
/// connections". Those who asked before the first strict pool came have no turn.
#[tokio::test(start_paused = true)]
async fn batches_are_admitted_one_after_the_other_also_just_after_the_first_strict_pool_came() {
    let rig = Rig::new([PoolSettings::new("A", 1)]).await;
    let source = Arc::<TwoConnections>::default();
    let two = QueueSettings::new(2, 10);
    assert!(rig.router.add_queue("two", two, source.clone()).await.expect("a queue"));
    rig.settle_down().await;
    assert_eq!(source.asked.load(Memory::SeqCst), 2);
    rig.router.set_pool(pool("S", 4, Ordering::Strict)).expect("sound");
    rig.pass(10).await;
    // Ten seconds later the first two messages of the group are published.
    let ms = Duration::from_millis;
    source.next.lock().extend([(ms(50), of("m1", "g", 0)), (ms(0), of("m2", "g", 0))]);
    source.changed.notify_waiters();
    rig.pass(10).await;
    assert_eq!(rig.executor.started(), ["m1#1", "m2#1"]);
}

fn of(id: &str, group: &str, generation: u64) -> Delivery {
    let mut one = delivery(grouped(id, "S", group));
    one.receipt.generation = generation;
    one
}
