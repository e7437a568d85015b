//! The one engine behind router and consumers: a source, what is in flight of it, its settlers, its heartbeat
//! and its end.
//!
//! ```text
//! receive ──▶ take in ──▶ … runs … ──▶ settle
//! mod.rs      Recipient   Held         settler.rs
//! ```
//!
//! A message is in exactly one place: its source, its recipient's hands as a [`Held`], or what is owed to the source.
//! Each hand-over is a move.

mod held;
mod in_flight;
mod questions;
mod resting;
mod settler;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_tasks::{Context, Invalid, TaskGroup};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use held::Returned;
pub(crate) use held::Subject;
pub use held::{Beside, Dropped, Held, Owed, Settling};
pub use in_flight::{Begun, Entry, InFlight, Tracked};
use questions::Questions;

use crate::{BoxFuture, Delivery, Demand, Parked, Settled, Source, SourceError, panicked};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A source that has not answered a receive, an ack or a heartbeat for so long is not healthy.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// The same for copies and dead letters: a broker that is short of memory takes none for a while, and is well.
const PATIENCE_WITH_COPIES: Duration = Duration::from_secs(600);
/// Settlers, heartbeat and the like, and whoever waits until a source has stopped.
const MOST_TASKS: u32 = 1 << 10;
/// A visibility window as long as this is none.
const NO_WINDOW: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Who receives messages: a queue of the router, or a consumer.
pub trait Recipient: Send + Sync + Sized + 'static {
    /// What is read out of a body.
    type Message: Send + 'static;
    /// What is kept of a message while it is in flight.
    type Entry: Entry;

    /// What may be asked for now. Waits until that is something.
    fn demand(intake: &Arc<Intake<Self>>) -> impl Future<Output = Demand> + Send;

    /// Takes a batch in, in its order. It must not wait.
    fn take_in(intake: &Arc<Intake<Self>>, batch: Vec<Delivery<Self::Message>>);

    /// Whatever else is to be done as long as messages are settled.
    fn background(intake: Arc<Intake<Self>>, cx: Context) -> impl Future<Output = ()> + Send;

    /// Whether a batch must be taken in before the next is asked for.
    fn in_turn(&self) -> bool;

    /// Keeps messages that are parked here.
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>>;

    /// Keeps that replayed messages are over.
    fn replay_over(&self, over: &[&Self::Entry]) -> BoxFuture<'_, Result<(), SourceError>> {
        let _ = over;
        Box::pin(async { Ok(()) })
    }

    /// A delivery was settled, durably, or its receipt was not valid any more.
    fn settled(&self, settling: &Settling<Self::Entry>, answer: &Settled);

    /// A message is not in flight any more.
    fn ended(intake: &Arc<Intake<Self>>, entry: &Self::Entry);

    /// A message has ended that another entry stands for.
    fn superseded_ended(intake: &Arc<Intake<Self>>, message: &Arc<Tracked<Self::Entry>>) {
        let _ = (intake, message);
    }

    /// Messages came back that cannot stay where they were, each with what was put beside it. Dropped, they go back to
    /// their source.
    fn take_back(intake: &Arc<Intake<Self>>, homeless: Vec<(Held<Self::Entry>, Beside)>) {
        let _ = intake;
        drop(homeless);
    }

    /// Settlements came too late: their receipts were not valid any more, or their messages had been taken in again.
    fn stale(&self, count: usize);

    /// The windows of deliveries had ended before they were extended.
    fn expired(&self, count: usize);

    /// The source could not do something.
    fn source_failed(&self, doing: &'static str, error: &SourceError);
}

/// A source with all that is received from it.
pub struct Intake<R: Recipient> {
    /// Who receives from it.
    pub recipient: R,
    /// What is in flight, and what the source is owed.
    pub owed: Arc<Owed<R::Entry>>,
    name: Arc<str>,
    receivers: u32,
    life: Mutex<Life<R::Message>>,
    /// Settlers and heartbeat, to the very end.
    background: TaskGroup,
    /// What they run under.
    living: Context,
    last_poll: Mutex<Option<Instant>>,
    /// Held from asking for a batch until it is taken in, where order hangs on it.
    turn: tokio::sync::Mutex<()>,
    /// Told when order may hang on it from now on.
    turns: Notify,
}

/// One life of a source. A restart begins the next.
struct Life<M> {
    source: Arc<dyn Source<M>>,
    stopping: Context,
    /// Ends when the source is replaced: nobody waits for an answer of it then.
    replaced: Context,
    receivers: TaskGroup,
    questions: Arc<Questions>,
}

impl<R: Recipient> Intake<R> {
    /// A source that is not received from yet.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub fn new(
        name: Arc<str>,
        receivers: u32,
        source: Arc<dyn Source<R::Message>>,
        dropped: Dropped,
        recipient: R,
    ) -> Result<Arc<Self>, Invalid> {
        Ok(Arc::new(Self {
            recipient,
            owed: Owed::new(dropped, source.profile()),
            life: Mutex::new(Life::new(&name, receivers, source)?),
            background: TaskGroup::new(format!("{name}: background"), MOST_TASKS)?,
            living: Context::new(),
            name,
            receivers,
            last_poll: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            turns: Notify::new(),
        }))
    }

    /// Begins to receive and to settle. Nothing is waited for, so that nobody can give it up half-way.
    pub fn start(self: &Arc<Self>) {
        for lane in 0..self.owed.lanes().len() {
            self.go_on(move |intake, cx| settler::run(intake, lane, cx));
        }
        self.go_on(keep_alive);
        self.go_on(resting::run);
        self.go_on(hear_back);
        self.go_on(R::background);
        self.receive();
    }

    /// Does something in the background. There is room for it, until everything has ended.
    fn go_on<F>(self: &Arc<Self>, work: impl FnOnce(Arc<Self>, Context) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let intake = Arc::clone(self);
        self.background.try_submit(&self.living, |cx| work(intake, cx)).ok();
    }

    fn receive(self: &Arc<Self>) {
        let (source, receivers, stopping, questions) = {
            let Life { source, receivers, stopping, questions, .. } = &*self.life.lock();
            (Arc::clone(source), receivers.clone(), stopping.clone(), Arc::clone(questions))
        };
        for _ in 0..self.receivers {
            let (intake, source) = (Arc::clone(self), Arc::clone(&source));
            let questions = Arc::clone(&questions);
            let receive = |cx: Context| receive(intake, source, questions, cx);
            receivers.try_submit(&stopping, receive).ok();
        }
    }

    /// The source.
    #[must_use]
    pub fn source(&self) -> Arc<dyn Source<R::Message>> {
        Arc::clone(&self.life.lock().source)
    }

    /// The name it goes by.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Asks the source something, unless it is replaced meanwhile: one that hangs never answers, and
    /// what it was asked is asked again of the new one.
    pub(crate) async fn ask<A>(
        &self,
        patience: Duration,
        question: impl for<'a> FnOnce(
            &'a dyn Source<R::Message>,
        ) -> BoxFuture<'a, Result<A, SourceError>>,
    ) -> Result<A, SourceError> {
        let (source, replaced, questions) = {
            let Life { source, replaced, questions, .. } = &*self.life.lock();
            (Arc::clone(source), replaced.clone(), Arc::clone(questions))
        };
        let _asked = questions.ask(patience);
        let asking = panicked::as_error(async { question(&*source).await });
        let answer = replaced.until_interrupted(asking).await;
        answer.unwrap_or_else(|_| Err(SourceError::new("it was replaced before it answered")))
    }

    /// Whether batches are taken in in turn may have changed: whoever has asked without a turn asks again.
    pub(crate) fn look_at_turns(&self) {
        self.turns.notify_waiters();
    }

    /// Waits until batches must be taken in in turn.
    async fn until_in_turn(&self) {
        loop {
            let mut told = std::pin::pin!(self.turns.notified());
            told.as_mut().enable();
            if self.recipient.in_turn() {
                return;
            }
            told.await;
        }
    }

    /// Stops receiving. What is here stays here. Waits for receivers until the deadline; `false` if
    /// some are still there.
    ///
    /// # Cancel safety
    /// It stops, also if nobody waits for that.
    pub async fn stop(self: &Arc<Self>, deadline: Instant) -> bool {
        self.stop_and(deadline, |_| {}).await
    }

    /// The same, and then something else.
    pub(crate) async fn stop_and(
        self: &Arc<Self>,
        deadline: Instant,
        then: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> bool {
        let (source, receivers) = {
            let Life { source, stopping, receivers, .. } = &*self.life.lock();
            stopping.cancel();
            (Arc::clone(source), receivers.clone())
        };
        let intake = Arc::clone(self);
        let stopping = self.background.try_submit(&self.living, move |cx| async move {
            let stopped = cx.until_interrupted(async {
                stop(&*source, deadline).await;
                receivers.drain(deadline).await.is_clean()
            });
            let is_clean = stopped.await.unwrap_or(false);
            then(&intake);
            is_clean
        });
        // Refused where everything has ended.
        let Ok(stopping) = stopping else { return true };
        stopping.await.unwrap_or(false)
    }

    /// Goes on with a new source in place of one that has stalled. What was received before stays
    /// in flight, so what is delivered again is recognised. `false` if it was stopped, or has another source by now:
    /// then the new one is not used.
    ///
    /// # Errors
    /// None that is known; the kernel checks its limits.
    pub fn restart(
        self: &Arc<Self>,
        stalled: &Arc<dyn Source<R::Message>>,
        source: Arc<dyn Source<R::Message>>,
    ) -> Result<bool, Invalid> {
        let new = Life::new(&self.name, self.receivers, source)?;
        let old = {
            let mut life = self.life.lock();
            if life.stopping.is_cancelled() || !Arc::ptr_eq(&life.source, stalled) {
                return Ok(false);
            }
            std::mem::replace(&mut *life, new)
        };
        old.stopping.cancel();
        old.replaced.cancel();
        *self.last_poll.lock() = None;
        self.receive();
        let by = Instant::now() + LONGEST_PAUSE;
        self.go_on(move |_, _| async move { stop(&*old.source, by).await });
        Ok(true)
    }

    /// Settles what is over until nothing is in flight or the deadline passes, then ends.
    /// Returns how many messages were not settled.
    pub async fn close(&self, deadline: Instant) -> u64 {
        timeout_at(deadline, self.owed.in_flight.at_most(0)).await.ok();
        let left = self.owed.in_flight.len() as u64;
        // What they leave undone is counted here, not by name.
        drop(self.background.drain(Instant::now()).await);
        left
    }

    /// Forgets what is in flight, after it was closed. The source redelivers it.
    pub(crate) fn forget(self: &Arc<Self>) {
        self.owed.lanes().iter().for_each(|lane| drop(lane.take(usize::MAX)));
        for tracked in self.owed.in_flight.all() {
            self.owed.in_flight.end(&tracked, false);
            R::ended(self, &tracked.entry);
        }
        self.owed.in_flight.forget_strays();
    }

    /// Ends it where it stands. The source redelivers what was not settled.
    pub fn abandon(&self) {
        self.life.lock().stopping.cancel();
        self.living.cancel();
    }

    /// Whether the source has left a question unanswered for too long.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        let questions = Arc::clone(&self.life.lock().questions);
        questions.is_late()
    }

    /// When the source last answered a receive.
    #[must_use]
    pub fn last_poll(&self) -> Option<Instant> {
        *self.last_poll.lock()
    }

    /// Whether nobody receives any more.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let life = self.life.lock();
        life.stopping.is_cancelled() && life.receivers.stats().gauges.running == 0
    }
}

impl<M: Send + 'static> Life<M> {
    fn new(name: &str, receivers: u32, source: Arc<dyn Source<M>>) -> Result<Self, Invalid> {
        let receivers = TaskGroup::new(format!("{name}: receivers"), receivers)?;
        let (stopping, replaced) = (Context::new(), Context::new());
        Ok(Self { source, stopping, replaced, receivers, questions: Arc::default() })
    }
}

/// Receives until told to stop.
///
/// A batch that was received is always taken in: what is dropped on the way hands itself back.
async fn receive<R: Recipient>(
    intake: Arc<Intake<R>>,
    source: Arc<dyn Source<R::Message>>,
    questions: Arc<Questions>,
    cx: Context,
) {
    let mut pause = FIRST_PAUSE;
    // A stopped source answers at once, so the context is looked at, not only waited for.
    while !cx.is_cancelled() {
        let asking = async {
            // Of two batches the first must be taken in first: docs/rules.md#strict-5.
            let turn = match intake.recipient.in_turn() {
                true => Some(intake.turn.lock().await),
                false => None,
            };
            (turn, R::demand(&intake).await)
        };
        let Ok((turn, demand)) = cx.until_interrupted(asking).await else { return };
        let received = {
            let _asked = questions.ask(STALLED_AFTER);
            let asking = panicked::as_error(async { source.receive(demand.clone()).await });
            let asking = async {
                tokio::select! {
                    biased;
                    received = asking => Some(received),
                    // It asks again, in its turn.
                    () = intake.until_in_turn(), if turn.is_none() => None,
                }
            };
            cx.until_interrupted(asking).await
        };
        match received {
            Err(_) => return,
            Ok(None) => {}
            Ok(Some(Ok(batch))) => {
                *intake.last_poll.lock() = Some(Instant::now());
                pause = FIRST_PAUSE;
                if batch.is_empty() {
                    // A source that has nothing waits for it; one that does not must not spin.
                    tokio::task::yield_now().await;
                    continue;
                }
                R::take_in(&intake, batch);
                // Its places are those of the messages now.
                drop(demand);
            }
            Ok(Some(Err(error))) => {
                // What it asked for, and its turn to ask, are for others meanwhile.
                drop((demand, turn));
                intake.recipient.source_failed("receive", &error);
                if cx.until_interrupted(sleep(pause)).await.is_err() {
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Extends every message that is in flight at a third of its visibility window: docs/rules.md#window-1.
async fn keep_alive<R: Recipient>(intake: Arc<Intake<R>>, cx: Context) {
    let mut round = Instant::now();
    loop {
        let (visibility, replaced) = {
            let life = intake.life.lock();
            (life.source.profile().visibility, life.replaced.clone())
        };
        if visibility >= NO_WINDOW {
            // The next source may have one.
            if cx.until_interrupted(replaced.cancelled()).await.is_err() {
                return;
            }
            continue;
        }
        // From the beginning of one round to that of the next, however long a round takes.
        if cx.until_interrupted(sleep_until(round + visibility / 3)).await.is_err() {
            return;
        }
        round = Instant::now();
        keep_strays(&intake, &cx).await;
        let all = intake.owed.in_flight.all();
        for batch in all.chunks(intake.source().profile().settle_batch.max(1)) {
            let receipts: Vec<_> = batch.iter().map(|tracked| tracked.receipt()).collect();
            let extended = intake.ask(STALLED_AFTER, |source| source.extend(receipts.clone()));
            match cx.until_interrupted(extended).await {
                Err(_) => return,
                Ok(Ok(answers)) => {
                    // What was settled or delivered anew meanwhile has not expired.
                    let is_expired = |((tracked, receipt), answer): &((&Arc<Tracked<_>>, _), _)| {
                        *answer == Settled::Stale
                            && !tracked.is_settling()
                            && tracked.valid_receipt().as_ref() == Some(*receipt)
                    };
                    let pairs = batch.iter().zip(&receipts).zip(answers);
                    let expired = pairs.filter(is_expired).count();
                    if expired > 0 {
                        intake.recipient.expired(expired);
                    }
                }
                Ok(Err(error)) => intake.recipient.source_failed("extend", &error),
            }
        }
    }
}

/// Hears what comes back, until the context ends.
async fn hear_back<R: Recipient>(intake: Arc<Intake<R>>, cx: Context) {
    while let Ok(returned) = cx.until_interrupted(intake.owed.returned()).await {
        let mut homeless = Vec::new();
        for one in returned {
            match one {
                Returned::Homeless(tracked, beside) => {
                    homeless.push((intake.owed.hold(tracked), beside));
                }
                Returned::Superseded(tracked) => R::superseded_ended(&intake, &tracked),
            }
        }
        if !homeless.is_empty() {
            R::take_back(&intake, homeless);
        }
    }
}

/// Ends a source, whatever goes wrong with that.
async fn stop<M: 'static>(source: &dyn Source<M>, deadline: Instant) {
    let stopping = panicked::as_error(async {
        source.stop().await;
        Ok(())
    });
    timeout_at(deadline, stopping).await.ok();
}

/// Extends what is only to be settled, and is not yet.
async fn keep_strays<R: Recipient>(intake: &Arc<Intake<R>>, cx: &Context) {
    let receipts = intake.owed.in_flight.stray_receipts();
    for batch in receipts.chunks(intake.source().profile().settle_batch.max(1)) {
        let extended = intake.ask(STALLED_AFTER, |source| source.extend(batch.to_vec()));
        match cx.until_interrupted(extended).await {
            Err(_) => return,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => intake.recipient.source_failed("extend", &error),
        }
    }
}

impl<R: Recipient> std::fmt::Debug for Intake<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Intake").field("name", &self.name).finish_non_exhaustive()
    }
}
