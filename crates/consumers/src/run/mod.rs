//! A consumer at work: one that receives, a crew that handles, one that settles.
//!
//! ```text
//! receive ──▶ take in ──▶ sluice ──▶ handle ──▶ settle
//! receive.rs  table.rs    (kernel)   work.rs    settle.rs
//! ```
//!
//! A message is in exactly one of: its source, the sluice, a worker's hands, the list of what is over.
//! Each hand-over is a move.

mod books;
mod receive;
mod settle;
mod table;
mod watch;
mod work;

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Envelope, Source};
use sluicegate_tasks::{Context, Invalid, Sluice, TaskGroup};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, info_span};

use crate::consumer::ConsumerBuilder;
use crate::metadata::Whose;
use crate::service::ConsumerReport;
use crate::{Consumer, ConsumerStats, Fact, Observer, OrderBy, Size};
use books::{Books, Item};

/// How long the last settlements may take, after everything else is over.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);

/// Who sees to it that no more than the prefetch is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// We do: the source hands out whatever it is asked for.
    BoundedHere,
    /// The source does, by its connection. After a reconnect it delivers again what is still here,
    /// and must be heard though the prefetch is used up.
    BoundedAtSource,
}

/// What the tasks of a consumer share.
pub(crate) struct Core {
    consumer: Consumer,
    whose: Arc<Whose>,
    size: Size,
    order: Option<OrderBy>,
    source: Arc<dyn Source<Envelope>>,
    intake: Intake,
    sluice: Sluice<Item>,
    books: Arc<Books>,
    tenant: Arc<str>,
    observer: Option<Observer>,
}

/// A consumer that runs.
pub(crate) struct Running {
    core: Arc<Core>,
    stopping: Context,
    receiver: TaskGroup,
    crew: TaskGroup,
    /// Settles, extends and watches, to the very end.
    clerks: TaskGroup,
}

impl Core {
    fn settings(&self) -> &ConsumerBuilder {
        &self.consumer.settings
    }

    fn observe(&self, fact: &Fact<'_>) {
        fact.log();
        if let Some(observer) = &self.observer {
            observer(fact);
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

impl Running {
    /// Begins to consume.
    pub(crate) async fn start(
        consumer: Consumer,
        source: Arc<dyn Source<Envelope>>,
        intake: Intake,
        observer: Option<Observer>,
    ) -> Result<Self, Invalid> {
        let (size, order) = (consumer.size(), consumer.order());
        let ConsumerBuilder { name, queue, .. } = &consumer.settings;
        let whose = Arc::new(Whose { name: Arc::clone(name), queue: Arc::clone(queue) });
        let name = &*whose.name;
        // What comes again after a reconnect may be here twice for a while.
        let capacity = size.prefetch.saturating_mul(2);
        let running = Self {
            stopping: Context::new(),
            receiver: TaskGroup::new(format!("{name}: receiver"), 1)?,
            crew: TaskGroup::new(format!("{name}: workers"), size.workers)?,
            clerks: TaskGroup::new(format!("{name}: books"), 3)?,
            core: Arc::new(Core {
                sluice: Sluice::builder(name, size.workers, capacity).build()?,
                whose,
                size,
                order,
                source,
                intake,
                books: Arc::default(),
                tenant: "".into(),
                observer,
                consumer,
            }),
        };
        running.core.announce();
        running.launch().await;
        Ok(running)
    }

    /// Puts everybody to work. The groups are new and have room, so nobody is refused.
    async fn launch(&self) {
        let core = || Arc::clone(&self.core);
        let (settler, heartbeat, watcher) = (core(), core(), core());
        self.clerks.submit_detached("settler", |cx| settle::run(settler, cx)).await.ok();
        self.clerks.submit_detached("heartbeat", |cx| watch::keep_alive(heartbeat, cx)).await.ok();
        self.clerks.submit_detached("watcher", |cx| watch::watch_age(watcher, cx)).await.ok();
        for worker in 0..self.core.size.workers {
            let (core, name) = (core(), &self.core.whose.name);
            let span = info_span!("worker", consumer = %name, worker);
            let work = move |cx| work::run(core, worker, cx).instrument(span);
            self.crew.submit_detached(format!("worker {worker}"), work).await.ok();
        }
        let core = core();
        self.receiver.submit(&self.stopping, |cx| receive::run(core, cx)).await.ok();
    }

    pub(crate) fn stats(&self) -> ConsumerStats {
        let gauges = self.core.sluice.stats().gauges;
        let mut stats = self.core.books.counters.snapshot();
        stats.in_hand = self.core.books.table.lock().len() as u64;
        stats.waiting = u64::from(gauges.queued);
        stats.running = u64::from(gauges.running);
        stats
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.core.whose.name
    }

    /// Receives no more, hands back what waits, lets handlers finish until the deadline, settles.
    pub(crate) async fn shutdown(&self, deadline: Instant) -> ConsumerReport {
        let core = &self.core;
        self.stopping.cancel();
        timeout_at(deadline, core.source.stop()).await.ok();
        // It ends at once: its waiting is interrupted, and a batch is taken in without waiting.
        drop(self.receiver.drain(deadline).await);
        // What waits hands itself back when it is dropped.
        let waited = core.sluice.close();
        let handed_back = waited.len() as u64;
        let running = core.sluice.stats().gauges.running;
        drop(waited);
        let drained = self.crew.drain(deadline).await;
        let aborted = drained.cancelled.len() + drained.abandoned.len();
        let settle_by = deadline.max(Instant::now() + LAST_SETTLEMENTS);
        timeout_at(settle_by, core.books.emptied()).await.ok();
        let unsettled = core.books.table.lock().len() as u64;
        drop(self.clerks.drain(Instant::now()).await);
        let report = ConsumerReport {
            name: Arc::clone(&core.whose.name),
            handed_back,
            finished: u64::from(running).saturating_sub(aborted as u64),
            aborted: aborted as u64,
            unsettled,
        };
        core.observe(&report.fact());
        report
    }
}
