//! Running a message and settling it: the way from a turn to a settlement.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering as Memory;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use sluicegate_schedule::ItemId;
use sluicegate_tasks::{Context, Hearing, Turn};
use tokio::time::Instant;

use crate::intake::Tracked;
use crate::item::{Item, Rest};
use crate::last_error::LastErrors;
use crate::outcome::clamped;
use crate::parking::HoldsUp;
use crate::pool::Pool;
use crate::routed::{Now, Routed};
use crate::{
    Attempt, BoxFuture, Executor, Fact, LastError, Message, Observer, OnExhausted, OnRejected,
    Ordering, Outcome, Parked, ParkedCode, ParkedStore, PoolSettings, Reason, Rejection,
    Settlement, panic_words, settlement_for,
};

/// How long a message of a paused host is away at most, where coming again costs it nothing.
const LONGEST_AWAY: Duration = Duration::from_secs(60);

/// What runs messages, and what it tells.
pub(crate) struct Runner {
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) parked: Arc<dyn ParkedStore>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) cx: Context,
    /// How messages failed that may be in their queues again.
    last_errors: LastErrors,
}

impl Runner {
    pub(crate) fn new(
        executor: Arc<dyn Executor>,
        parked: Arc<dyn ParkedStore>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self { executor, parked, observer, cx: Context::new(), last_errors: LastErrors::default() }
    }

    /// An observer that panics has said so itself, and stops nothing else.
    pub(crate) fn observe(&self, fact: &Fact<'_>) {
        let observe = AssertUnwindSafe(|| self.observer.observe(fact));
        std::panic::catch_unwind(observe).ok();
    }

    /// Whether a message was replayed and is not over: docs/rules.md#park-2.
    pub(crate) fn is_replayed(&self, tracked: &Tracked<Routed>) -> bool {
        self.parked.is_replayed(&tracked.entry.queue, &tracked.entry.message.id)
    }

    /// Whether a message is held up by what is parked of its key, or is being parked: by that, and unless it was replayed
    /// and passes.
    pub(crate) fn is_held_up(
        &self,
        by: Option<HoldsUp>,
        queue: &str,
        message: &Message,
        key: &str,
        passes: impl FnOnce() -> bool,
    ) -> bool {
        match by {
            Some(HoldsUp::All) => true,
            Some(HoldsUp::Newcomers) => !passes(),
            None => self.parked.holds_key(queue, &message.pool, key) && !passes(),
        }
    }

    /// How the last attempt at a message failed, here or before it went back to its queue.
    pub(crate) fn last_error(&self, queue: &Arc<str>, id: &Arc<str>) -> Option<Arc<LastError>> {
        self.last_errors.get(queue, id)
    }

    fn last_error_of(&self, entry: &Routed) -> Option<Arc<LastError>> {
        entry.last_error().or_else(|| self.last_error(&entry.queue, &entry.message.id))
    }

    /// Remembers how an attempt failed.
    fn failed(&self, entry: &Routed, error: LastError) {
        let error = Arc::new(error);
        entry.set_last_error(Arc::clone(&error));
        self.last_errors.insert(&entry.queue, &entry.message.id, error);
    }

    /// A message is over: nobody asks any more how it failed before.
    fn over(&self, tracked: &Tracked<Routed>) {
        self.last_errors.remove(&tracked.entry.queue, &tracked.entry.message.id);
    }
}

/// Starts whatever a pool's sluice lets through, until it is closed.
pub(crate) async fn pump(runner: Arc<Runner>, pool: Arc<Pool>) {
    while let Some(turn) = pool.sluice.next().await {
        let (shared, own) = (Arc::clone(&runner), Arc::clone(&pool));
        // Refused only when the workers are drained: then the message hands itself back.
        pool.workers.try_submit(&runner.cx, |cx| serve(shared, own, turn, cx)).ok();
    }
}

/// Runs messages one after the other, as long as there is one that may start.
async fn serve(runner: Arc<Runner>, pool: Arc<Pool>, first: Turn<Item>, cx: Context) {
    let mut next = Some(first);
    let mut hearing = cx.hearing();
    // Before the settings: what changes between the two is then seen at the next message.
    let mut revision = pool.revision();
    let mut settings = pool.settings();
    while let Some(turn) = next {
        pool.renew(&mut settings, &mut revision);
        let run = Run { runner: &runner, pool: &pool, settings: &settings, revision };
        next = run.attempt(turn, &cx, &mut hearing).await;
    }
}

/// What may start in the place of a message that is over.
type Next = Option<Turn<Item>>;

/// One attempt at a message of a pool.
struct Run<'a> {
    runner: &'a Runner,
    pool: &'a Arc<Pool>,
    settings: &'a Arc<PoolSettings>,
    revision: u32,
}

impl Run<'_> {
    /// Runs a message and answers with the next one, if one may start in its place.
    async fn attempt(&self, mut turn: Turn<Item>, cx: &Context, hearing: &mut Hearing) -> Next {
        let started = Instant::now();
        let tracked = Arc::clone(turn.value().held.tracked());
        self.pool.places.started();
        if tracked.is_superseded() {
            return self.let_go(turn, &tracked);
        }
        if tracked.entry.is_acked() {
            self.becomes(&tracked, Now::Waiting);
            return self.end(turn, Settlement::Ack);
        }
        let turns_back = self.settings.turns_back(&tracked.entry.message);
        if turns_back && turn.value().past.batch.as_ref().is_some_and(|batch| batch.failed()) {
            self.becomes(&tracked, Now::Waiting);
            let (item, next) = turn.finish_and_next();
            self.pool.left(&tracked.entry.message);
            self.pool.cascaded(item);
            return next;
        }
        match catch_unwind(AssertUnwindSafe(|| self.parked_key(turn.value()))) {
            Ok(None) => {}
            Ok(Some(key)) => {
                self.becomes(&tracked, Now::Waiting);
                return self.park_in_tail(turn, &tracked, &key);
            }
            // It could not be asked whether it may start.
            Err(panic) => {
                let outcome = self.panicked(&tracked.entry.message, &*panic);
                return self.conclude(turn, &tracked, outcome);
            }
        }
        if self.lacks_key(turn.value()) {
            let rest = turn.value_mut().past.rest.take();
            let now = Rest { until: started, reason: Reason::Draining, breaker: None };
            return self.rest(turn, &tracked, rest.unwrap_or(now));
        }
        let host = tracked.entry.message.target.authority();
        let paused = self.pool.paused_until(host, started);
        if let Some(rest) = turn.value_mut().past.rest.take()
            && rest.until > started
            && (rest.reason != Reason::Throttled || paused.is_some())
        {
            return self.rest(turn, &tracked, rest);
        }
        if let Some(until) = paused {
            return self.postpone(turn, &tracked, until);
        }
        let waited = started - turn.since();
        let Some(before) = tracked.entry.run(started) else {
            self.becomes(&tracked, Now::Waiting);
            return self.end(turn, Settlement::Ack);
        };
        self.pool.rests(&before, &Now::Running { since: started });
        let number = tracked.attempts().saturating_add(1);
        let (pool, message) = (&self.pool.code, &tracked.entry.message);
        self.runner.observe(&Fact::Started { pool, message, attempt: number, waited });
        let outcome = self.execute(message, number, cx, hearing).await;
        let took = started.elapsed();
        let (queue, attempt, outcome) = (&tracked.entry.queue, number, outcome);
        let fact = Fact::Finished { queue, pool, message, attempt, outcome: &outcome, took };
        self.runner.observe(&fact);
        if self.pool.revision() == self.revision {
            return self.conclude(turn, &tracked, outcome);
        }
        // What follows is as its pool is now.
        let settings = self.pool.settings();
        Run { settings: &settings, ..*self }.conclude(turn, &tracked, outcome)
    }

    /// Whether a message has no key here, and needs one by now: it was let in while its pool kept no order.
    fn lacks_key(&self, item: &Item) -> bool {
        !item.has_key && self.settings.key_name(&item.held.tracked().entry.message).is_some()
    }

    /// Another entry stands for a message by now: whatever became of this one, that one runs.
    fn let_go(&self, turn: Turn<Item>, tracked: &Tracked<Routed>) -> Next {
        self.becomes(tracked, Now::Waiting);
        let (item, next) = turn.finish_and_next();
        self.pool.left(&tracked.entry.message);
        tracked.entry.leave_place();
        item.held.let_go();
        next
    }

    /// Changes what a message is doing.
    fn becomes(&self, tracked: &Tracked<Routed>, now: Now) {
        let before = tracked.entry.set_now(now.clone());
        self.pool.rests(&before, &now);
    }

    /// The key of a message, if it is parked with its tail: docs/rules.md#strict-4. Looked at when the
    /// message would start: those before it are parked by then, and nobody overtakes them.
    fn parked_key(&self, item: &Item) -> Option<Arc<str>> {
        let (settings, tracked) = (self.settings, item.held.tracked());
        let (queue, message) = (&tracked.entry.queue, &tracked.entry.message);
        let (key, waited) = match self.pool.tail_of(queue, message, item.number) {
            Some((key, holds_up)) => (key, Some(holds_up)),
            None if settings.ordering != Ordering::Strict || !settings.parks_keys() => return None,
            None => (settings.key(message)?, None),
        };
        let held_up = waited.max(self.pool.parks_key(queue, message, &key));
        let passes = || self.runner.parked.lets_pass(queue, &message.id);
        self.runner.is_held_up(held_up, queue, message, &key, passes).then_some(key)
    }

    /// Asks the executor.
    async fn execute(
        &self,
        message: &crate::Message,
        number: u32,
        cx: &Context,
        hearing: &mut Hearing,
    ) -> Outcome {
        let attempt = Attempt { message, pool: self.settings, number, cx };
        let executor = &self.runner.executor;
        let execute = async {
            if executor.stops_by_drop() {
                return until_heard(hearing, cx, executor.execute(attempt)).await;
            }
            executor.execute(attempt).await
        };
        match AssertUnwindSafe(execute).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(panic) => self.panicked(message, &*panic),
        }
    }

    /// A panic of others' code is an outcome like others.
    fn panicked(&self, message: &crate::Message, panic: &(dyn Any + Send)) -> Outcome {
        let what = panic_words(panic);
        let (pool, id) = (&self.pool.code, &message.id);
        self.runner.observe(&Fact::Panicked { pool, id, what: &what });
        let why = format!("panicked: {what}");
        Outcome::RetryLater { after: None, why, status: None, body: None }
    }

    /// The host of a message is to be left alone: it waits at the front of its key, as if it had
    /// not started. docs/rules.md#throttle-1
    fn postpone(&self, turn: Turn<Item>, tracked: &Tracked<Routed>, until: Instant) -> Next {
        let reason = Reason::Throttled;
        if self.goes_back(&turn) {
            let rest = until.saturating_duration_since(Instant::now());
            // A broker may count each delivery; the others are asked again, for the pause may be lifted.
            let is_free = turn.value().held.source().selects;
            let after = if is_free { rest.min(LONGEST_AWAY) } else { rest };
            return self.retry_at_source(turn, tracked, after, reason);
        }
        self.rest(turn, tracked, Rest { until, reason, breaker: None })
    }

    /// A message waits at the front of its key, as if it had not started. One that lacks a key is let in again, with it:
    /// docs/rules.md#strict-6.
    fn rest(&self, turn: Turn<Item>, tracked: &Tracked<Routed>, rest: Rest) -> Next {
        let Rest { until, reason, breaker } = rest;
        let lacks_key = self.lacks_key(turn.value());
        self.becomes(tracked, Now::Retrying { until, reason, breaker });
        self.pool.places.waits_again();
        match turn.postpone(until) {
            Ok(item) if lacks_key => self.let_in_again(item),
            Ok(item) => self.rests_now(tracked, item),
            Err(item) => self.turned_out(item, Duration::ZERO, Reason::Draining),
        }
        self.pool.sluice.try_next()
    }

    /// Whoever acknowledged a message just before it began to rest could not let it go on.
    fn rests_now(&self, tracked: &Tracked<Routed>, item: ItemId) {
        if tracked.entry.is_acked() {
            self.pool.sluice.release(item);
        }
    }

    fn let_in_again(&self, item: ItemId) {
        if let Some(item) = self.pool.withdraw(item) {
            item.give_back();
        }
    }

    /// Whether a message that cannot run now goes back to its source instead of waiting here, so that it does not
    /// take the places of others: docs/rules.md#pool-4.
    fn goes_back(&self, turn: &Turn<Item>) -> bool {
        let may = self.settings.ordering != Ordering::Strict || turn.value().comes_alone();
        may && self.pool.is_resting_full(self.settings)
    }

    /// The whole of what follows from an outcome: docs/rules.md#settle-1.
    fn conclude(&self, turn: Turn<Item>, tracked: &Arc<Tracked<Routed>>, outcome: Outcome) -> Next {
        self.count(&outcome);
        if let Outcome::Throttled { after, .. } = &outcome {
            let (host, after) = (tracked.entry.message.target.authority(), clamped(*after));
            self.pool.pause(host, Instant::now() + after);
            self.runner.observe(&Fact::Paused { pool: &self.pool.code, host, after });
        }
        let target = &tracked.entry.message.target;
        if let Some(error) = LastError::of(&outcome, target) {
            self.runner.failed(&tracked.entry, error);
        }
        if tracked.is_superseded() {
            return self.let_go(turn, tracked);
        }
        let before = tracked.attempts();
        match (settlement_for(&outcome, before), outcome) {
            (Settlement::Park, Outcome::Rejected(rejection)) => {
                self.reject(turn, tracked, rejection)
            }
            (Settlement::Retry { after, attempts, reason }, outcome) => {
                tracked.set_attempts(attempts);
                let max = self.settings.max_attempts;
                if attempts > before && max > 0 && attempts >= max {
                    self.exhaust(turn, tracked, &outcome)
                } else if self.settings.ordering == Ordering::Strict
                    && outcome != Outcome::Interrupted
                    && !self.goes_back(&turn)
                {
                    self.retry_here(turn, tracked, after, reason, &outcome)
                } else {
                    self.retry_at_source(turn, tracked, after, reason)
                }
            }
            (settlement, _) => {
                tracked.set_attempts(before.saturating_add(1));
                self.end(turn, settlement)
            }
        }
    }

    fn count(&self, outcome: &Outcome) {
        let counts = &self.pool.counts;
        let count = match outcome {
            Outcome::Done => &counts.succeeded,
            Outcome::Rejected(_) | Outcome::Unreachable { .. } => &counts.failed,
            Outcome::BreakerOpen { .. } => &counts.put_off,
            _ => &counts.retried,
        };
        count.fetch_add(1, Memory::Relaxed);
    }

    /// It will never work: kept for a person, or dropped where the pool says so.
    fn reject(
        &self,
        turn: Turn<Item>,
        tracked: &Arc<Tracked<Routed>>,
        rejection: Rejection,
    ) -> Next {
        let Rejection { status, why, severity, .. } = rejection;
        let (pool, message) = (&self.pool.code, &tracked.entry.message);
        self.runner.observe(&Fact::Rejected { pool, message, severity, why: &why });
        // The attempt counts, though nothing is tried again after it.
        tracked.set_attempts(tracked.attempts().saturating_add(1));
        let parks_key = self.settings.on_rejected == OnRejected::Park;
        let key = self.strict_key(tracked).filter(|_| parks_key);
        self.park(turn, tracked, ParkedCode::Rejected, why, status, key)
    }

    /// Its attempts are used up: docs/rules.md#strict-3.
    fn exhaust(&self, turn: Turn<Item>, tracked: &Arc<Tracked<Routed>>, outcome: &Outcome) -> Next {
        let (why, status) = outcome.words();
        let why =
            format!("{} of {} attempts: {why}", tracked.attempts(), self.settings.max_attempts);
        match (self.strict_key(tracked), self.settings.on_exhausted) {
            (Some(_), OnExhausted::Block) => self.block(turn, tracked),
            (key, on_exhausted) => {
                let key = key.filter(|_| on_exhausted == OnExhausted::Park);
                self.park(turn, tracked, ParkedCode::Exhausted, why, status, key)
            }
        }
    }

    /// What stays in order with a message across deliveries, if anything does.
    fn strict_key(&self, tracked: &Tracked<Routed>) -> Option<Arc<str>> {
        let strict = self.settings.ordering == Ordering::Strict;
        strict.then(|| self.settings.key(&tracked.entry.message)).flatten()
    }

    /// Parks a message behind a parked one of its key.
    fn park_in_tail(
        &self,
        turn: Turn<Item>,
        tracked: &Arc<Tracked<Routed>>,
        key: &Arc<str>,
    ) -> Next {
        let reason = "an earlier message of its group is parked".to_owned();
        self.park(turn, tracked, ParkedCode::KeyParked, reason, None, Some(Arc::clone(key)))
    }

    /// Puts a message aside, with its key where one is given: until that is durable the key is taken for
    /// parked, also if somebody frees it meanwhile. Where the pool keeps nothing the message is dropped.
    fn park(
        &self,
        turn: Turn<Item>,
        tracked: &Arc<Tracked<Routed>>,
        code: ParkedCode,
        reason: String,
        status: Option<u16>,
        key: Option<Arc<str>>,
    ) -> Next {
        if !self.settings.parking && code != ParkedCode::KeyParked {
            return self.end(turn, Settlement::Ack);
        }
        self.pool.counts.parked.fetch_add(1, Memory::Relaxed);
        let Routed { message, queue, .. } = &tracked.entry;
        let parked = Box::new(Parked {
            queue: Arc::clone(queue),
            broker_id: Arc::clone(&tracked.broker_id),
            pool: Some(Arc::clone(&self.pool.code)),
            code,
            reason,
            status,
            attempts: tracked.attempts(),
            holds_key: key.is_some(),
            last_error: self.runner.last_error_of(&tracked.entry),
            message: Ok(message.clone()),
        });
        self.runner.over(tracked);
        let holds_up = match code {
            ParkedCode::KeyParked => HoldsUp::Newcomers,
            _ => HoldsUp::All,
        };
        let parking = key.map(|key| self.pool.park_key(queue, message, &key, holds_up));
        self.pool.left(message);
        if self.settings.ordering == Ordering::Strict {
            let (item, hold, next) = turn.linger_and_next();
            item.held.park(parked, (parking, hold));
            return next;
        }
        let (item, next) = turn.finish_and_next();
        item.held.park(parked, ());
        next
    }

    /// Over and done with. In strict order the next of the key waits until the source knows:
    /// docs/rules.md#strict-1.
    fn end(&self, turn: Turn<Item>, settlement: Settlement) -> Next {
        let tracked = turn.value().held.tracked();
        self.pool.left(&tracked.entry.message);
        if settlement == Settlement::Ack {
            self.runner.over(tracked);
        }
        let is_replayed = settlement == Settlement::Ack && self.runner.is_replayed(tracked);
        if self.settings.ordering == Ordering::Strict {
            let (item, hold, next) = turn.linger_and_next();
            if is_replayed {
                item.held.settle_replayed(hold);
            } else {
                item.held.settle_until(settlement, hold);
            }
            return next;
        }
        let (item, next) = turn.finish_and_next();
        if is_replayed {
            item.held.settle_replayed(());
        } else {
            item.held.settle(settlement);
        }
        next
    }

    /// Strict order: the head stays here, at the front, and its key waits: docs/rules.md#strict-2.
    fn retry_here(
        &self,
        mut turn: Turn<Item>,
        tracked: &Tracked<Routed>,
        after: Duration,
        reason: Reason,
        outcome: &Outcome,
    ) -> Next {
        let until = Instant::now() + after;
        // Where no call was made there is nothing to note.
        if reason != Reason::BreakerOpen {
            turn.value().held.rests(after, reason);
        }
        let breaker = match outcome {
            Outcome::BreakerOpen { name, .. } => Some(Arc::clone(name)),
            _ => None,
        };
        let lets_in_again = tracked.entry.is_displaced() || self.lacks_key(turn.value());
        turn.value_mut().past.is_head = true;
        self.becomes(tracked, Now::Retrying { until, reason, breaker });
        self.pool.places.waits_again();
        match turn.retry_at(Some(until)) {
            Ok(item) => {
                let (pool, id) = (&self.pool.code, &tracked.entry.message.id);
                self.runner.observe(&Fact::Retrying { pool, id, after: Some(after), reason });
                if lets_in_again {
                    self.let_in_again(item);
                } else {
                    self.rests_now(tracked, item);
                }
            }
            Err(item) => self.turned_out(item, after, reason),
        }
        self.pool.sluice.try_next()
    }

    fn block(&self, mut turn: Turn<Item>, tracked: &Tracked<Routed>) -> Next {
        turn.value_mut().past.is_head = true;
        self.becomes(tracked, Now::Blocked);
        turn.value().held.rests(Duration::ZERO, Reason::Failed);
        self.pool.places.waits_again();
        match turn.retry_at(None) {
            Ok(item) => {
                self.rests_now(tracked, item);
                let (pool, id) = (&self.pool.code, &tracked.entry.message.id);
                let reason = Reason::Failed;
                self.runner.observe(&Fact::Retrying { pool, id, after: None, reason });
            }
            Err(item) => self.turned_out(item, Duration::ZERO, Reason::Draining),
        }
        self.pool.sluice.try_next()
    }

    /// Its pool is gone, so it cannot wait there: it goes back, but for one that later ones of its group could come
    /// before.
    fn turned_out(&self, item: Item, after: Duration, reason: Reason) {
        self.pool.places.started();
        let tracked = Arc::clone(item.held.tracked());
        self.becomes(&tracked, Now::Waiting);
        let stays = self.settings.ordering == Ordering::Strict && !item.comes_alone();
        match stays && !tracked.entry.is_acked() {
            true => item.at_once().give_back(),
            false => item.hand_back(after, reason),
        }
    }

    /// It comes again from its source, and those of its batch and group with it:
    /// docs/rules.md#fifo-2. They go back before the key is free.
    fn retry_at_source(
        &self,
        turn: Turn<Item>,
        tracked: &Tracked<Routed>,
        after: Duration,
        reason: Reason,
    ) -> Next {
        self.becomes(tracked, Now::Waiting);
        if let Some(batch) = turn.value().past.batch.as_ref()
            && self.settings.turns_back(&tracked.entry.message)
        {
            self.pool.cascade(batch);
        }
        let attempts = tracked.attempts();
        self.end(turn, Settlement::Retry { after, attempts, reason })
    }
}

/// Runs an attempt until its context ends; then drops it where it stands.
async fn until_heard(
    hearing: &mut Hearing,
    cx: &Context,
    mut executing: BoxFuture<'_, Outcome>,
) -> Outcome {
    if cx.is_cancelled() {
        return Outcome::Interrupted;
    }
    poll_fn(|poller| match executing.as_mut().poll(poller) {
        Poll::Pending => hearing.poll_unpin(poller).map(|_| Outcome::Interrupted),
        outcome => outcome,
    })
    .await
}
