//! A source behind a network: calls take time, fail, hang, and go wrong in every way that a receipt
//! can. What a dead router sent may still arrive; what it would hear, it does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};

use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, KeepsOrder, Order, Profile, Receipt, Rest, Settle, Settled,
    Source, SourceError,
};
use sluicegate_testkit::{FakeSource, Fault};
use tokio::sync::Notify;

use super::plan::QueuePlan;
use super::world::{Life, World};
use crate::oracles::router::{Effect, Fact, Handed};

/// A way to a source, for one life of the router.
pub(super) struct Wire {
    world: Arc<World>,
    life: Arc<Life>,
    queue: usize,
    opening: u64,
    number: u64,
    plan: QueuePlan,
    source: FakeSource,
    is_stopped: AtomicBool,
    stopped: Notify,
}

impl Wire {
    pub(super) fn new(
        world: &Arc<World>,
        life: &Arc<Life>,
        queue: usize,
        (opening, number): (u64, u64),
        plan: &QueuePlan,
        source: &FakeSource,
    ) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            life: Arc::clone(life),
            queue,
            opening,
            number,
            plan: plan.clone(),
            source: source.clone(),
            is_stopped: AtomicBool::new(false),
            stopped: Notify::new(),
        })
    }

    /// A call goes out, if anybody lives who can make one and the source is there to hear it.
    async fn begin(&self) {
        self.world.called();
        let troubles = self.world.troubles(self.queue);
        self.life.live(self.world.delay(troubles.slow)).await;
        self.life.live(self.world.hang(self.queue, self.number)).await;
    }

    async fn receive_some(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        self.begin().await;
        if self.world.now() < self.world.troubles(self.queue).receive {
            return Err(SourceError::new("cannot receive"));
        }
        let batch = self.life.live(self.receive_or_stop(max)).await?;
        if !batch.is_empty() {
            let taken = self.world.now();
            // Dropped meanwhile, what was taken comes back when its window ends.
            self.life.live(self.world.delay(self.world.troubles(self.queue).slow)).await;
            let handed = batch.iter().map(|delivery| Handed {
                number: delivery.receipt.tag,
                generation: delivery.receipt.generation,
                attempts: delivery.attempts,
            });
            let (queue, opening, batch) = (self.queue, self.opening, handed.collect());
            self.world.see(Fact::HandedOver { queue, opening, taken, batch });
        }
        Ok(batch)
    }

    async fn receive_or_stop(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut stopped = std::pin::pin!(self.stopped.notified());
        stopped.as_mut().enable();
        if self.is_stopped.load(Memory::Relaxed) {
            return Ok(Vec::new());
        }
        tokio::select! {
            biased;
            () = stopped => Ok(Vec::new()),
            batch = self.source.receive(Demand::any(max)) => batch,
        }
    }

    async fn settle_lot(&self, lot: Vec<Settle>) -> Result<Vec<Settled>, SourceError> {
        self.world.called();
        // Whether it arrives if the router dies meanwhile.
        let arrives = self.world.draw(|rng| rng.percent(50));
        let troubles = self.world.troubles(self.queue);
        self.world.delay(troubles.slow).await;
        self.world.hang(self.queue, self.number).await;
        if self.life.is_over() && !arrives {
            std::future::pending::<()>().await;
        }
        let (now, troubles) = (self.world.now(), self.world.troubles(self.queue));
        if now < troubles.settle {
            return self.life.live(async { Err(SourceError::new("cannot settle")) }).await;
        }
        let is_lost = now < troubles.lose_settle;
        if is_lost {
            self.world.see(Fact::Disturbed { queue: self.queue, until: now });
            self.source.fail_next(Fault::LoseSettle, 1);
        }
        let answers = self.source.settle(lot.clone()).await?;
        for (settle, answer) in lot.iter().zip(&answers) {
            let effect = match answer {
                Settled::Done if is_lost => Effect::Lost,
                Settled::Done => Effect::Done,
                Settled::Stale | Settled::Failed(_) => Effect::Stale,
            };
            self.world.see(Fact::Told {
                queue: self.queue,
                number: settle.receipt.tag,
                generation: settle.receipt.generation,
                settlement: settle.settlement,
                effect,
            });
        }
        self.life.live(self.world.delay(troubles.slow)).await;
        if now < troubles.lose_answer {
            return Err(SourceError::new("the answer was lost"));
        }
        for (settle, answer) in lot.iter().zip(&answers) {
            self.world.see(Fact::Answered {
                queue: self.queue,
                number: settle.receipt.tag,
                generation: settle.receipt.generation,
                settled: answer.clone(),
            });
        }
        Ok(answers)
    }

    async fn rest_lot(&self, lot: Vec<Rest>) -> Result<Vec<Settled>, SourceError> {
        self.begin().await;
        let (now, troubles) = (self.world.now(), self.world.troubles(self.queue));
        if now < troubles.settle {
            return Err(SourceError::new("cannot note"));
        }
        let answers = self.source.rest(lot.clone()).await?;
        for (rest, answer) in lot.iter().zip(&answers) {
            if *answer == Settled::Done {
                let (queue, number, attempts) = (self.queue, rest.receipt.tag, rest.attempts);
                self.world.see(Fact::Rested { queue, number, attempts });
            }
        }
        self.life.live(self.world.delay(troubles.slow)).await;
        Ok(answers)
    }

    async fn extend_lot(&self, lot: Vec<Receipt>) -> Result<Vec<Settled>, SourceError> {
        self.begin().await;
        let (now, troubles) = (self.world.now(), self.world.troubles(self.queue));
        if now < troubles.extend {
            self.world.see(Fact::Disturbed { queue: self.queue, until: now });
            return Err(SourceError::new("cannot extend"));
        }
        let answers = self.source.extend(lot).await?;
        self.life.live(self.world.delay(troubles.slow)).await;
        Ok(answers)
    }
}

impl Source for Wire {
    fn profile(&self) -> Profile {
        let keeps_order = self.plan.keeps_order;
        Profile {
            keeps_order: if keeps_order { KeepsOrder::OneByOne } else { KeepsOrder::Not },
            keeps_rests: keeps_order,
            ..Profile::new(self.plan.window, self.plan.settle_batch)
        }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery>, SourceError>> {
        Box::pin(self.receive_some(demand.most()))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.settle_lot(settle))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.extend_lot(receipts))
    }

    fn rest(&self, rests: Vec<Rest>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(self.rest_lot(rests))
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        self.source.depth()
    }

    fn health(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.is_stopped.store(true, Memory::Relaxed);
        self.stopped.notify_waiters();
        Box::pin(async {})
    }

    fn keep_order(&self, order: &Arc<Order>) {
        if self.plan.keeps_order && !self.life.is_over() {
            self.source.keep_order(order);
        }
    }
}
