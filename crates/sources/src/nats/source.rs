//! A JetStream consumer as a source.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Message as NatsMessage;
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Depth, Order, Profile, Publication, PublishError, Published,
    Receipt, Settle, Settled, Source, SourceError,
};
use sluicegate_tasks::TaskGroup;
use tokio::time::{Instant, sleep_until, timeout};

use super::attach::inspect;
use super::connect::{ANSWER, connect};
use super::front::Taken;
use super::message::{broker_id, envelope};
use super::publish::publish;
use super::settings::NatsSettings;
use super::settle;
use super::shared::Shared;
use crate::{Content, OpenError};

/// How long a receive waits for the first message.
const WAIT: Duration = Duration::from_secs(1);
/// How many deliveries one call may settle.
const SETTLE_BATCH: usize = 512;
/// How long opening may wait for the server.
const OPENING: Duration = Duration::from_secs(5);

/// A durable pull consumer of a JetStream stream.
///
/// - A delivery's window is the consumer's `ack_wait`, tracked here too: JetStream itself would take
///   an acknowledgement of a delivery long after its window.
/// - Every settlement is confirmed by the server before it is answered; those of one call are under
///   way together.
/// - A delay is the server's (`Nak` with a delay) and outlives both ends. The number of attempts does
///   too: it is written down in a stream of its own.
/// - After a crash new messages are held back until what was unsettled has come again, for one
///   window at most: else it would be overtaken.
pub struct NatsSource<M> {
    shared: Arc<Shared>,
    /// Ends the task when the source goes.
    tasks: TaskGroup,
    content: PhantomData<fn() -> M>,
}

impl<M: Content> NatsSource<M> {
    /// Connects, and finds or makes stream and consumer. A server that is not reached within five
    /// seconds is tried again in the background; [`health`](Source::health) says why it is not.
    ///
    /// # Errors
    /// [`OpenError::Refused`] where trying again would not help.
    pub async fn open(settings: NatsSettings) -> Result<Self, OpenError> {
        let name = format!("nats {}/{}", settings.stream, settings.consumer);
        let tasks = TaskGroup::new(name, 1).expect("a name and a limit");
        let shared = Shared::new::<M>(settings);
        match timeout(OPENING, shared.link_up()).await {
            Ok(Ok(())) => {}
            Ok(Err(OpenError::Unreachable(why))) => shared.fails(why),
            Ok(Err(refused)) => return Err(refused),
            Err(_) => shared.fails(format!("{}: no answer", shared.settings.place())),
        }
        let task = Arc::clone(&shared);
        let puller = tasks.submit_detached("puller", |cx| super::pull::run(task, cx)).await;
        // The group runs it, and it ends with the group.
        drop(puller.expect("a new group lets its first task in"));
        Ok(Self { shared, tasks, content: PhantomData })
    }

    async fn receive_within(
        &self,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<M>>, SourceError> {
        let give_up = Instant::now() + wait;
        let mut demand = Wanting { shared: &self.shared, wanted: 0 };
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // From here on nothing that happens is missed, though nobody waits yet.
            changed.as_mut().enable();
            if self.shared.is_stopped() || max == 0 {
                return Ok(Vec::new());
            }
            let now = Instant::now();
            // What it takes it answers at once: there is no await at which it could be dropped.
            let taken = self.shared.front.lock().take(max, now);
            if !taken.is_empty() {
                return Ok(taken.into_iter().map(delivery).collect());
            }
            if now >= give_up {
                return self.shared.trouble().map_or(Ok(Vec::new()), Err);
            }
            demand.raise(max);
            tokio::select! {
                () = changed => {}
                () = sleep_until(give_up) => {}
            }
        }
    }

    async fn count(&self) -> Result<Depth, SourceError> {
        let attached = self.shared.usable()?.attached;
        let info = timeout(ANSWER, attached.consumer.get_info()).await;
        let info = info.map_err(|_| SourceError::new("the server does not answer"))?;
        let info = info.map_err(SourceError::new)?;
        let out = self.shared.front.lock().out(Instant::now()) as u64;
        // What is delayed counts as delivered, as what is out does.
        let waiting = (info.num_pending + info.num_ack_pending as u64).saturating_sub(out);
        Ok(Depth { waiting, delayed: 0, out })
    }
}

impl NatsSource<sluicegate_dispatch::Envelope> {
    /// Connects, authenticates, looks at stream and consumer, and leaves everything as it is.
    ///
    /// # Errors
    /// [`OpenError::Refused`] or [`OpenError::Unreachable`].
    pub async fn probe(settings: &NatsSettings) -> Result<(), OpenError> {
        let client = connect(settings, std::sync::Weak::new(), 0).await?;
        let outcome = timeout(OPENING, inspect(client.clone(), settings)).await;
        // Its connection ends with its last handle, whether this works or not.
        client.drain().await.ok();
        let late = |_| OpenError::Unreachable(format!("{}: no answer", settings.place()));
        outcome.map_err(late)?
    }
}

/// How many messages one receiver waits for. Dropped, it waits for none.
struct Wanting<'a> {
    shared: &'a Shared,
    wanted: usize,
}

impl Wanting<'_> {
    fn raise(&mut self, to: usize) {
        if self.wanted < to {
            self.shared.front.lock().wanted += to - self.wanted;
            self.wanted = to;
        }
        self.shared.woken.notify_one();
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        if self.wanted > 0 {
            self.shared.front.lock().wanted -= self.wanted;
        }
    }
}

fn delivery<M: Content>(taken: Taken<NatsMessage>) -> Delivery<M> {
    let Taken { arrived, generation, attempts } = taken;
    Delivery {
        broker_id: broker_id(arrived.seq, arrived.published),
        receipt: Receipt { tag: arrived.seq, generation, handle: None },
        attempts,
        message: M::read(envelope(arrived.body)),
    }
}

impl<M: Content> Source<M> for NatsSource<M> {
    fn profile(&self) -> Profile {
        let visibility = self.shared.front.lock().window();
        let keeps_dead_letters = self.shared.settings.dead_subject.is_some();
        Profile { keeps_dead_letters, ..Profile::new(visibility, SETTLE_BATCH) }
    }

    fn receive(&self, demand: Demand) -> BoxFuture<'_, Result<Vec<Delivery<M>>, SourceError>> {
        Box::pin(self.receive_within(demand.most(), WAIT))
    }

    fn settle(&self, settle: Vec<Settle>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(settle::settle(&self.shared, settle))
    }

    fn extend(&self, receipts: Vec<Receipt>) -> BoxFuture<'_, Result<Vec<Settled>, SourceError>> {
        Box::pin(settle::extend(&self.shared, receipts))
    }

    fn depth(&self) -> BoxFuture<'_, Result<Depth, SourceError>> {
        Box::pin(self.count())
    }

    fn health(&self) -> Result<(), SourceError> {
        self.shared.trouble().map_or(Ok(()), Err)
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.shared.stop();
        Box::pin(self.shared.gives_back())
    }

    fn publish(
        &self,
        messages: Vec<Publication>,
    ) -> BoxFuture<'_, Result<Published, PublishError>> {
        Box::pin(publish(&self.shared, messages))
    }

    fn keep_order(&self, order: &Arc<Order>) {
        self.shared.keep_order(order);
    }
}

impl<M> fmt::Debug for NatsSource<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSource")
            .field("settings", &self.shared.settings)
            .field("tasks", &self.tasks.name())
            .finish_non_exhaustive()
    }
}
