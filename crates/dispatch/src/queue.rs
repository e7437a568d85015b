//! A queue of the router: a source, those who receive from it, and its books.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_tasks::{Context, Invalid, TaskGroup};
use tokio::time::{Instant, timeout};

use crate::ledger::Ledger;
use crate::pool::Pool;
use crate::questions::Questions;
use crate::router::Core;
use crate::{BoxFuture, Demand, Fact, Receipt, Settled, Source, SourceError, route, settler};

/// How a queue is received from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// How many receive at once.
    pub connections: u32,
    /// How many messages one of them takes at a time.
    pub max_messages: usize,
}

/// A queue of the router.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) name: Arc<str>,
    pub(crate) settings: QueueSettings,
    pub(crate) ledger: Arc<Ledger>,
    source: Mutex<Receiving>,
    /// Settles and extends, to the very end.
    books: TaskGroup,
    last_poll: Mutex<Option<Instant>>,
    /// Held from asking for a batch until it is admitted, where order hangs on it.
    turn: tokio::sync::Mutex<()>,
    pub(crate) counts: Counts,
}

/// What a queue has seen.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) received: AtomicU64,
    pub(crate) acked: AtomicU64,
    pub(crate) retried: AtomicU64,
    lost: AtomicU64,
}

/// One life of a queue's source. A restart begins the next.
struct Receiving {
    source: Arc<dyn Source>,
    stopping: Context,
    /// Ends when the source is replaced: nobody waits for an answer of it then.
    replaced: Context,
    receivers: TaskGroup,
    /// What it was asked and has not answered yet.
    questions: Arc<Questions>,
}

/// How long a receiver waits for room in pools that were short of it, before it takes more anyway.
const LONGEST_WAIT_FOR_ROOM: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A source that has not answered for so long is not healthy.
const STALLED_AFTER: Duration = Duration::from_secs(60);

impl Queue {
    /// A queue that is not received from yet.
    pub(crate) fn new(
        name: Arc<str>,
        settings: QueueSettings,
        source: Arc<dyn Source>,
    ) -> Result<Arc<Self>, Invalid> {
        Ok(Arc::new(Self {
            ledger: Ledger::new(Arc::clone(&name)),
            source: Mutex::new(Receiving::new(&name, settings, source)?),
            books: TaskGroup::new(format!("{name}: books"), 2)?,
            settings,
            name,
            last_poll: Mutex::new(None),
            turn: tokio::sync::Mutex::new(()),
            counts: Counts::default(),
        }))
    }

    /// Begins to receive, to settle and to extend.
    pub(crate) async fn start(self: &Arc<Self>, core: &Arc<Core>) {
        let (queue, shared) = (Arc::clone(self), Arc::clone(core));
        self.books.submit_detached("settler", |cx| settler::run(shared, queue, cx)).await.ok();
        let (queue, shared) = (Arc::clone(self), Arc::clone(core));
        self.books.submit_detached("heartbeat", |cx| keep_alive(shared, queue, cx)).await.ok();
        self.receive(core).await;
    }

    async fn receive(self: &Arc<Self>, core: &Arc<Core>) {
        let (source, receivers, stopping, questions) = {
            let Receiving { source, receivers, stopping, questions, .. } = &*self.source.lock();
            (Arc::clone(source), receivers.clone(), stopping.clone(), Arc::clone(questions))
        };
        for _ in 0..self.settings.connections {
            let (queue, core) = (Arc::clone(self), Arc::clone(core));
            let (source, questions) = (Arc::clone(&source), Arc::clone(&questions));
            let receive = |cx: Context| receive(core, queue, source, questions, cx);
            receivers.submit(&stopping, receive).await.ok();
        }
    }

    pub(crate) fn source(&self) -> Arc<dyn Source> {
        Arc::clone(&self.source.lock().source)
    }

    /// Asks the source something, unless it is replaced meanwhile: one that hangs never answers, and
    /// what it was asked is asked again of the new one.
    pub(crate) async fn ask<A>(
        &self,
        question: impl for<'a> FnOnce(&'a dyn Source) -> BoxFuture<'a, Result<A, SourceError>>,
    ) -> Result<A, SourceError> {
        let (source, replaced, questions) = {
            let Receiving { source, replaced, questions, .. } = &*self.source.lock();
            (Arc::clone(source), replaced.clone(), Arc::clone(questions))
        };
        let _asked = questions.ask();
        let answer = replaced.until_interrupted(question(&*source)).await;
        answer.unwrap_or_else(|_| Err(SourceError::new("it was replaced before it answered")))
    }

    /// Stops receiving. What is here stays here. Waits for receivers until the deadline; `false` if
    /// some are still there.
    pub(crate) async fn stop(&self, deadline: Instant) -> bool {
        let (source, stopping, receivers) = {
            let receiving = self.source.lock();
            let Receiving { source, stopping, receivers, .. } = &*receiving;
            (Arc::clone(source), stopping.clone(), receivers.clone())
        };
        stopping.cancel();
        tokio::time::timeout_at(deadline, source.stop()).await.ok();
        receivers.drain(deadline).await.is_clean()
    }

    /// Goes on with a new source in place of one that has stalled. What was received before stays
    /// in the books, so what is delivered again is recognised.
    pub(crate) async fn restart(
        self: &Arc<Self>,
        core: &Arc<Core>,
        source: Arc<dyn Source>,
    ) -> Result<(), Invalid> {
        let new = Receiving::new(&self.name, self.settings, source)?;
        let old = std::mem::replace(&mut *self.source.lock(), new);
        old.stopping.cancel();
        old.replaced.cancel();
        *self.last_poll.lock() = None;
        self.receive(core).await;
        timeout(LONGEST_PAUSE, old.source.stop()).await.ok();
        Ok(())
    }

    /// Settles what is over until nothing is in flight or the deadline passes, then ends the books.
    /// Returns how many messages were not settled.
    pub(crate) async fn close(&self, deadline: Instant) -> u64 {
        tokio::time::timeout_at(deadline, self.ledger.in_flight.emptied()).await.ok();
        let left = self.ledger.in_flight.len() as u64;
        // What they leave undone is counted here, not by name.
        drop(self.books.drain(Instant::now()).await);
        left + self.counts.lost.load(Memory::Relaxed)
    }

    /// Whether no receive has come back for too long, the first one of a source included.
    pub(crate) fn stalled(&self) -> bool {
        let questions = Arc::clone(&self.source.lock().questions);
        questions.longest().is_some_and(|since| since.elapsed() >= STALLED_AFTER)
    }

    pub(crate) fn last_poll(&self) -> Option<Instant> {
        *self.last_poll.lock()
    }

    /// Whether nobody receives any more.
    pub(crate) fn is_stopped(&self) -> bool {
        let receiving = self.source.lock();
        receiving.stopping.is_cancelled() && receiving.receivers.stats().gauges.running == 0
    }

    pub(crate) fn settled(&self, gone: bool) {
        let count = if gone { &self.counts.acked } else { &self.counts.retried };
        count.fetch_add(1, Memory::Relaxed);
    }

    pub(crate) fn lost_settlements(&self, count: usize) {
        self.counts.lost.fetch_add(count as u64, Memory::Relaxed);
    }
}

impl Receiving {
    fn new(name: &str, settings: QueueSettings, source: Arc<dyn Source>) -> Result<Self, Invalid> {
        let receivers = TaskGroup::new(format!("{name}: receivers"), settings.connections)?;
        let (stopping, replaced) = (Context::new(), Context::new());
        Ok(Self { source, stopping, replaced, receivers, questions: Arc::default() })
    }
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}

/// Receives until told to stop.
///
/// A batch that was received is always routed: what is dropped on the way hands itself back.
async fn receive(
    core: Arc<Core>,
    queue: Arc<Queue>,
    source: Arc<dyn Source>,
    questions: Arc<Questions>,
    cx: Context,
) {
    let max = queue.settings.max_messages;
    let mut pause = FIRST_PAUSE;
    let mut pools: Vec<Arc<Pool>> = Vec::new();
    // A stopped source answers at once, so the context is looked at, not only waited for.
    while !cx.is_cancelled() {
        let wait = async {
            wait_for_settlements(&core, &queue).await;
            wait_for_room(&pools, &queue.settings).await;
        };
        if cx.until_interrupted(wait).await.is_err() {
            return;
        }
        // Of two batches the first must be admitted first: docs/rules.md#strict-5.
        let turn = async {
            match core.keeps_order() && !source.profile().keeps_order {
                true => Some(queue.turn.lock().await),
                false => None,
            }
        };
        let Ok(_turn) = cx.until_interrupted(turn).await else { return };
        let received = {
            let _asked = questions.ask();
            cx.until_interrupted(source.receive(Demand::any(max))).await
        };
        match received {
            Err(_) => return,
            Ok(Ok(batch)) => {
                *queue.last_poll.lock() = Some(Instant::now());
                pause = FIRST_PAUSE;
                if batch.is_empty() {
                    // A source that has nothing waits for it; one that does not must not spin.
                    tokio::task::yield_now().await;
                    continue;
                }
                queue.counts.received.fetch_add(batch.len() as u64, Memory::Relaxed);
                core.observe(&Fact::Received { queue: &queue.name, count: batch.len() });
                pools = route::route(&core, &queue, batch, &cx).await;
            }
            Ok(Err(error)) => {
                queue.failed(&core, "receive", &error);
                if cx.until_interrupted(tokio::time::sleep(pause)).await.is_err() {
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// What is done and cannot be said to the source yet would be done again after a crash: there is no more
/// of it than the pools can hold.
async fn wait_for_settlements(core: &Core, queue: &Queue) {
    let wanted = queue.settings.max_messages * queue.settings.connections as usize;
    loop {
        let room = usize::try_from(core.room()).unwrap_or(usize::MAX);
        let fewer = queue.ledger.in_flight.at_most((room / 2).max(room.saturating_sub(wanted)));
        // Pools may come or grow meanwhile.
        if timeout(LONGEST_WAIT_FOR_ROOM, fewer).await.is_ok() {
            return;
        }
    }
}

/// Waits until the pools of the batch before have room for the next one, so that a backlog flows at
/// the speed of its pools instead of being received and handed back. Not for ever: other pools wait
/// behind them in the same queue.
async fn wait_for_room(pools: &[Arc<Pool>], settings: &QueueSettings) {
    let wanted = u32::try_from(settings.max_messages).unwrap_or(u32::MAX);
    let wanted = wanted.saturating_mul(settings.connections);
    let all = async {
        for pool in pools {
            pool.sluice.room_for(wanted).await;
        }
    };
    timeout(LONGEST_WAIT_FOR_ROOM, all).await.ok();
}

/// Extends every message that is here at a third of its visibility window: docs/rules.md#window-1.
async fn keep_alive(core: Arc<Core>, queue: Arc<Queue>, cx: Context) {
    let mut round = Instant::now();
    loop {
        // From the beginning of one round to that of the next, however long a round takes.
        let next = round + queue.source().profile().visibility / 3;
        if cx.until_interrupted(tokio::time::sleep_until(next)).await.is_err() {
            return;
        }
        round = Instant::now();
        let all: Vec<Receipt> =
            queue.ledger.in_flight.all().iter().map(|tracked| tracked.receipt()).collect();
        for lot in all.chunks(queue.source().profile().settle_batch.max(1)) {
            let extended = queue.ask(|source| source.extend(lot.to_vec()));
            match cx.until_interrupted(extended).await {
                Err(_) => return,
                Ok(Ok(answers)) => {
                    let stale = answers.iter().filter(|answer| **answer == Settled::Stale).count();
                    if stale > 0 {
                        core.observe(&Fact::Expired { queue: &queue.name, count: stale });
                    }
                }
                Ok(Err(error)) => queue.failed(&core, "extend", &error),
            }
        }
    }
}
