//! A consumer at work, on the engine that the router uses too.
//!
//! ```text
//! receive ──▶ take in ──▶ sluice ──▶ handle ──▶ settle
//! (intake)    take_in.rs  (kernel)   work.rs    (intake)
//! ```

mod take_in;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_dispatch::intake::{Dropped, Held, Intake, Recipient, Settling};
use sluicegate_dispatch::{
    BoxFuture, Delivery, Demand, Envelope, Order, Ordered, Parked, Reason, Settled, Settlement,
    Source, SourceError,
};
use sluicegate_tasks::{Context, Invalid, Sluice, TaskGroup};
use tokio::time::{Instant, sleep};
use tracing::{Instrument, info_span};

use crate::consumer::ConsumerBuilder;
use crate::metadata::{Consumed, Whose};
use crate::service::ConsumerReport;
use crate::stats::{Counters, add};
use crate::{Consumer, ConsumerStats, Fact, Observer, OrderBy, Size};

/// How long the last settlements may take, after everything else is over.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);
/// How many parts of the broker's timeout lie between two looks.
const LOOKS: u32 = 20;
/// A timeout as long as this is none.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Who sees to it that no more than the prefetch is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// We do: the source hands out whatever it is asked for.
    Here,
    /// The source does, by its connection. After a reconnect it delivers again what is still here,
    /// and must be heard though the prefetch is used up.
    AtSource,
}

/// A consumer as its engine knows it.
pub(crate) struct Consuming {
    consumer: Consumer,
    whose: Arc<Whose>,
    size: Size,
    order: Option<OrderBy>,
    /// Whether what fails waits here, at the front of its key: nobody else would hold its key back.
    waits_here: bool,
    bound: Bound,
    keeps_dead_letters: bool,
    sluice: Sluice<Held<Consumed>>,
    counters: Counters,
    tenant: Arc<str>,
    observer: Option<Observer>,
}

/// A consumer with its source.
type Engine = Intake<Consuming>;

/// A consumer that runs.
pub(crate) struct Running {
    engine: Arc<Engine>,
    workers: TaskGroup,
}

impl Consuming {
    fn settings(&self) -> &ConsumerBuilder {
        &self.consumer.settings
    }

    fn observe(&self, fact: &Fact<'_>) {
        fact.log();
        if let Some(observer) = &self.observer {
            // One that panics has said so itself, and stops nothing else.
            catch_unwind(AssertUnwindSafe(|| observer(fact))).ok();
        }
    }

    fn announce(&self) {
        let (consumer, queue) = (&self.whose.name, &self.whose.queue);
        let Size { workers, prefetch, workers_cut_from, prefetch_cut_from } = self.size;
        let cut =
            [("workers", workers_cut_from, workers), ("prefetch", prefetch_cut_from, prefetch)];
        for (what, asked, given) in cut {
            if let Some(asked) = asked {
                self.observe(&Fact::Capped { consumer, what, asked, given });
            }
        }
        self.observe(&Fact::Started { consumer, queue, workers, prefetch });
    }
}

impl Recipient for Consuming {
    type Message = Envelope;
    type Entry = Consumed;

    async fn demand(engine: &Arc<Engine>) -> Demand {
        let prefetch = engine.recipient.size.prefetch as usize;
        if engine.recipient.bound == Bound::AtSource {
            return Demand::any(prefetch);
        }
        let in_flight = &engine.owed.in_flight;
        in_flight.at_most(prefetch.saturating_sub(1)).await;
        Demand::any(prefetch.saturating_sub(in_flight.len()).max(1))
    }

    fn take_in(engine: &Arc<Engine>, batch: Vec<Delivery<Envelope>>) {
        take_in::take_in(engine, batch);
    }

    /// Names what has been here for four fifths of what the broker allows.
    async fn background(engine: Arc<Engine>, cx: Context) {
        let allowed = engine.recipient.settings().timeout;
        if allowed.is_zero() || allowed >= NO_TIMEOUT {
            return;
        }
        while cx.until_interrupted(sleep(allowed / LOOKS)).await.is_ok() {
            for (tracked, age) in engine.owed.in_flight.overdue(allowed / 5 * 4) {
                let consumer = &engine.recipient.whose.name;
                let id = &tracked.broker_id;
                engine.recipient.observe(&Fact::Overdue { consumer, id, age, allowed });
            }
        }
    }

    /// There is one receiver.
    fn in_turn(&self) -> bool {
        false
    }

    /// Dead letters are kept by the source.
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        drop(parked);
        Box::pin(async { Ok(()) })
    }

    fn settled(&self, settling: &Settling<Consumed>, answer: &Settled) {
        if *answer == Settled::Stale {
            return;
        }
        let counters = &self.counters;
        let counter = match settling.settlement() {
            Settlement::Ack if settling.entry().is_some_and(Consumed::is_ignored) => {
                &counters.ignored
            }
            Settlement::Ack => &counters.done,
            Settlement::Retry { reason: Reason::Draining, .. } => &counters.handed_back,
            Settlement::Retry { .. } => &counters.retried,
            Settlement::Park if self.keeps_dead_letters => &counters.dead,
            Settlement::Park => &counters.dropped,
        };
        add(counter, 1);
    }

    fn ended(_: &Arc<Engine>, _: &Consumed) {}

    fn stale(&self, count: usize) {
        if count == 0 {
            return;
        }
        add(&self.counters.stale, count);
        self.observe(&Fact::Stale { consumer: &self.whose.name, count });
    }

    /// A window that has ended is no harm: the message is recognised when it comes again.
    fn expired(&self, _: usize) {}

    fn source_failed(&self, doing: &'static str, error: &SourceError) {
        let (consumer, cause) = (&self.whose.name, error.cause.as_str());
        self.observe(&Fact::SourceFailed { consumer, doing, cause });
    }
}

impl Consumed {
    fn is_ignored(&self) -> bool {
        self.is_ignored.load(Ordering::Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.engine.abandon();
    }
}

impl Running {
    /// Begins to consume.
    pub(crate) async fn start(
        consumer: Consumer,
        source: Arc<dyn Source<Envelope>>,
        bound: Bound,
        observer: Option<Observer>,
    ) -> Result<Self, Invalid> {
        let (size, order) = (consumer.size(), consumer.order());
        let ConsumerBuilder { name, queue, .. } = &consumer.settings;
        let whose = Arc::new(Whose { name: Arc::clone(name), queue: Arc::clone(queue) });
        let name = Arc::clone(name);
        // What comes again after a reconnect may be here twice for a while.
        let capacity = size.prefetch.saturating_mul(2);
        let ordered = order.as_ref().map_or(Ordered::Nothing, OrderBy::at_source);
        source.keep_order(&Arc::new(Order::everywhere(ordered)));
        let profile = source.profile();
        let is_kept =
            |order: &OrderBy| profile.keeps_order.one_by_one() && order.is_known_to_source();
        let consuming = Consuming {
            waits_here: order.as_ref().is_some_and(|order| !is_kept(order)),
            sluice: Sluice::builder(&*name, size.workers, capacity).build()?,
            whose,
            size,
            order,
            bound,
            keeps_dead_letters: profile.keeps_dead_letters,
            counters: Counters::default(),
            tenant: "".into(),
            observer,
            consumer,
        };
        let dropped = Dropped { after: Duration::ZERO, reason: Reason::Draining };
        let running = Self {
            workers: TaskGroup::new(format!("{name}: workers"), size.workers)?,
            engine: Intake::new(name, 1, source, dropped, consuming)?,
        };
        running.engine.recipient.announce();
        running.start_workers().await;
        running.engine.start();
        Ok(running)
    }

    /// Puts everybody to work. The group is new and has room, so nobody is refused.
    async fn start_workers(&self) {
        for worker in 0..self.engine.recipient.size.workers {
            let engine = Arc::clone(&self.engine);
            let span = info_span!("worker", consumer = %self.name(), worker);
            let work = move |cx| work::run(engine, worker, cx).instrument(span);
            self.workers.submit_detached(format!("worker {worker}"), work).await.ok();
        }
    }

    pub(crate) fn stats(&self) -> ConsumerStats {
        let Consuming { sluice, counters, .. } = &self.engine.recipient;
        let gauges = sluice.stats().gauges;
        let mut stats = counters.snapshot();
        stats.in_hand = self.engine.owed.in_flight.len() as u64;
        stats.waiting = u64::from(gauges.queued);
        stats.running = u64::from(gauges.running);
        stats
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.engine.name()
    }

    /// Receives no more, hands back what waits, lets handlers finish until the deadline, settles.
    pub(crate) async fn shutdown(&self, deadline: Instant) -> ConsumerReport {
        let Consuming { sluice, .. } = &self.engine.recipient;
        // From now on nothing starts, however long the source takes to stop; what runs has half of the time at least.
        let ending = sluice.pause("ending");
        let running = sluice.stats().gauges.running;
        let now = Instant::now();
        self.engine.stop(now + deadline.saturating_duration_since(now) / 2).await;
        // What waits hands itself back when it is dropped.
        let waited = sluice.close();
        let handed_back = waited.len() as u64;
        drop((waited, ending));
        let drained = self.workers.drain(deadline).await;
        let aborted = drained.cancelled.len() + drained.abandoned.len();
        let settle_by = deadline.max(Instant::now() + LAST_SETTLEMENTS);
        let unsettled = self.engine.close(settle_by).await;
        let report = ConsumerReport {
            name: Arc::clone(self.name()),
            handed_back,
            finished: u64::from(running).saturating_sub(aborted as u64),
            aborted: aborted as u64,
            unsettled,
        };
        self.engine.recipient.observe(&report.fact());
        report
    }
}
