//! Running a message and settling it: the way from a turn to a settlement.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering as Memory;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use sluicegate_tasks::{Context, Hearing, Turn};
use tokio::time::Instant;

use crate::in_flight::{Now, Tracked};
use crate::pool::{Item, ParkingKey, Pool};
use crate::route::park_in_tail;
use crate::router::Core;
use crate::{
    Attempt, BoxFuture, Fact, OnExhausted, Ordering, Outcome, Parked, ParkedCode, PoolSettings,
    Reason, Rejection, Settlement, settlement_for,
};

/// Starts whatever a pool's sluice lets through, until it is closed.
pub(crate) async fn pump(core: Arc<Core>, pool: Arc<Pool>) {
    while let Some(turn) = pool.sluice.next().await {
        let (shared, own) = (Arc::clone(&core), Arc::clone(&pool));
        // Refused only when the crew is drained: then the message hands itself back.
        pool.crew.try_submit(&core.cx, |cx| serve(shared, own, turn, cx)).ok();
    }
}

/// Runs messages one after the other, as long as there is one that may start.
async fn serve(core: Arc<Core>, pool: Arc<Pool>, first: Turn<Item>, cx: Context) {
    let mut next = Some(first);
    let mut hearing = cx.hearing();
    // Before the settings: what changes between the two is then seen at the next message.
    let mut revision = pool.revision();
    let mut settings = pool.settings();
    while let Some(turn) = next {
        pool.renew(&mut settings, &mut revision);
        let run = Run { core: &core, pool: &pool, settings: &settings };
        next = run.attempt(turn, &cx, &mut hearing).await;
    }
}

/// What may start in the place of a message that is over.
type Next = Option<Turn<Item>>;

/// One attempt at a message of a pool.
struct Run<'a> {
    core: &'a Arc<Core>,
    pool: &'a Arc<Pool>,
    settings: &'a Arc<PoolSettings>,
}

impl Run<'_> {
    /// Runs a message and answers with the next one, if one may start in its place.
    async fn attempt(&self, turn: Turn<Item>, cx: &Context, hearing: &mut Hearing) -> Next {
        let started = Instant::now();
        let tracked = Arc::clone(turn.value().held.tracked());
        if turn.value().fellows.as_ref().is_some_and(|fellows| fellows.failed()) {
            let (item, next) = turn.finish_and_next();
            self.pool.cascaded(item);
            return next;
        }
        let host = tracked.message.target.authority();
        if let Some(until) = self.pool.paused_until(host, started) {
            return self.postpone(turn, &tracked, until);
        }
        let waited = started - turn.since();
        let number = tracked.change(|standing| {
            standing.now = Now::Running { since: started };
            standing.attempts + 1
        });
        let (pool, message) = (&self.pool.code, &tracked.message);
        self.core.observe(&Fact::Started { pool, message, attempt: number, waited });
        let outcome = self.execute(&tracked, number, cx, hearing).await;
        let took = started.elapsed();
        self.core.observe(&Fact::Finished { pool, message, outcome: &outcome, took });
        self.conclude(turn, &tracked, outcome)
    }

    /// Asks the executor. A panic of it is an outcome like others.
    async fn execute(
        &self,
        tracked: &Tracked,
        number: u32,
        cx: &Context,
        hearing: &mut Hearing,
    ) -> Outcome {
        let message = &tracked.message;
        let attempt = Attempt { message, pool: self.settings, number, cx };
        let executor = &self.core.executor;
        let execute = async {
            if executor.stops_by_drop() {
                return until_heard(hearing, cx, executor.execute(attempt)).await;
            }
            executor.execute(attempt).await
        };
        match AssertUnwindSafe(execute).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(panic) => {
                let what = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "a panic without words".to_owned());
                let (pool, id) = (&self.pool.code, &message.id);
                self.core.observe(&Fact::Panicked { pool, id, what: &what });
                Outcome::RetryLater { after: None, why: format!("panicked: {what}"), status: None }
            }
        }
    }

    /// The host of a message is to be left alone: it waits at the front of its key, as if it had
    /// not started. docs/rules.md#throttle-1
    fn postpone(&self, turn: Turn<Item>, tracked: &Tracked, until: Instant) -> Next {
        let reason = Reason::Throttled;
        tracked.change(|standing| {
            standing.now = Now::Retrying { until, reason, breaker: None };
        });
        if let Err(item) = turn.postpone(until) {
            item.held.hand_back(Duration::ZERO, Reason::Draining);
        }
        self.pool.sluice.try_next()
    }

    /// The whole of what follows from an outcome: docs/rules.md#settle-1.
    fn conclude(&self, turn: Turn<Item>, tracked: &Arc<Tracked>, outcome: Outcome) -> Next {
        self.count(&outcome);
        if let Outcome::Throttled { after } = &outcome {
            let host = tracked.message.target.authority();
            self.pool.pause(host, Instant::now() + *after);
            self.core.observe(&Fact::Paused { pool: &self.pool.code, host, after: *after });
        }
        let before = tracked.attempts();
        match (settlement_for(&outcome, before), outcome) {
            (Settlement::Park, Outcome::Rejected(rejection)) => {
                self.reject(turn, tracked, rejection)
            }
            (Settlement::Retry { after, attempts, reason }, outcome) => {
                tracked.change(|standing| standing.attempts = attempts);
                let max = self.settings.max_attempts;
                if attempts > before && max > 0 && attempts >= max {
                    self.exhaust(turn, tracked, &outcome)
                } else if self.settings.ordering == Ordering::Strict
                    && outcome != Outcome::Interrupted
                {
                    self.retry_here(turn, tracked, after, reason, &outcome)
                } else {
                    self.retry_at_source(turn, after, attempts, reason)
                }
            }
            (settlement, _) => self.end(turn, settlement, None, None),
        }
    }

    fn count(&self, outcome: &Outcome) {
        let counts = &self.pool.counts;
        let count = match outcome {
            Outcome::Done => &counts.succeeded,
            Outcome::Rejected(_) | Outcome::Unreachable { .. } => &counts.failed,
            _ => &counts.retried,
        };
        count.fetch_add(1, Memory::Relaxed);
    }

    /// It will never work: kept for a person, or dropped where the pool says so.
    fn reject(&self, turn: Turn<Item>, tracked: &Tracked, rejection: Rejection) -> Next {
        let Rejection { status, why, severity } = rejection;
        let (pool, message) = (&self.pool.code, &tracked.message);
        self.core.observe(&Fact::Rejected { pool, message, severity, why: &why });
        let parked = self.parked(&turn, tracked, ParkedCode::Rejected, why, status, false);
        self.end(turn, Settlement::Ack, parked, None)
    }

    /// Its attempts are used up: docs/rules.md#strict-3.
    fn exhaust(&self, turn: Turn<Item>, tracked: &Arc<Tracked>, outcome: &Outcome) -> Next {
        let (why, status) = last_words(outcome);
        let why =
            format!("{} of {} attempts: {why}", tracked.attempts(), self.settings.max_attempts);
        let strict = self.settings.ordering == Ordering::Strict;
        let key = self.settings.key(&tracked.message).filter(|_| strict);
        match (key, self.settings.on_exhausted) {
            (Some(_), OnExhausted::Block) => self.block(turn, tracked),
            (Some(key), OnExhausted::Park) => {
                let code = ParkedCode::Exhausted;
                let parked = self.parked(&turn, tracked, code, why, status, true);
                let queue = turn.value().held.queue();
                let parking = parked.is_some().then(|| self.pool.park_key(queue, &key));
                // What waits behind it must not start when it has ended, and is parked after it.
                let tail =
                    if parked.is_some() { self.withdraw_tail(tracked, &key) } else { Vec::new() };
                let next = self.end(turn, Settlement::Ack, parked, parking);
                for item in tail {
                    park_in_tail(self.pool, item.held, &key);
                }
                next
            }
            (None, _) | (Some(_), OnExhausted::Skip) => {
                let code = ParkedCode::Exhausted;
                let parked = self.parked(&turn, tracked, code, why, status, false);
                self.end(turn, Settlement::Ack, parked, None)
            }
        }
    }

    /// What waits behind a head in this pool, in the order in which it came.
    fn withdraw_tail(&self, head: &Arc<Tracked>, key: &Arc<str>) -> Vec<Item> {
        let mut tail = Vec::new();
        for tracked in self.core.in_flight() {
            let Some(place) = tracked.standing().place else { continue };
            let same = place.pool == self.pool.id
                && !Arc::ptr_eq(&tracked, head)
                && self.settings.key(&tracked.message).as_ref() == Some(key);
            if same && let Some(item) = self.pool.sluice.withdraw(place.item) {
                self.pool.counts.parked.fetch_add(1, Memory::Relaxed);
                self.pool.left(&tracked.message);
                tail.push(item);
            }
        }
        tail
    }

    /// What is kept of a message; `None` where the pool keeps nothing.
    fn parked(
        &self,
        turn: &Turn<Item>,
        tracked: &Tracked,
        code: ParkedCode,
        reason: String,
        status: Option<u16>,
        holds_key: bool,
    ) -> Option<Box<Parked>> {
        if !self.settings.parking {
            return None;
        }
        self.pool.counts.parked.fetch_add(1, Memory::Relaxed);
        Some(Box::new(Parked {
            queue: Arc::clone(turn.value().held.queue()),
            broker_id: Arc::clone(&tracked.broker_id),
            pool: Some(Arc::clone(&self.pool.code)),
            code,
            reason,
            status,
            // The one that was rejected counts, though nothing is tried again after it.
            attempts: tracked.attempts() + u32::from(code == ParkedCode::Rejected),
            holds_key,
            message: Ok(tracked.message.clone()),
        }))
    }

    /// Over and done with. In strict order the next of the key waits until the source knows:
    /// docs/rules.md#strict-1.
    fn end(
        &self,
        turn: Turn<Item>,
        settlement: Settlement,
        parked: Option<Box<Parked>>,
        parking: Option<ParkingKey>,
    ) -> Next {
        self.pool.left(&turn.value().held.tracked().message);
        let (item, hold, next) = if self.settings.ordering == Ordering::Strict {
            let (item, hold, next) = turn.linger_and_next();
            (item, Some(hold), next)
        } else {
            let (item, next) = turn.finish_and_next();
            (item, None, next)
        };
        item.held.settle(settlement, parked, hold, parking);
        next
    }

    /// Strict order: the head stays here, at the front, and its key waits: docs/rules.md#strict-2.
    fn retry_here(
        &self,
        turn: Turn<Item>,
        tracked: &Tracked,
        after: Duration,
        reason: Reason,
        outcome: &Outcome,
    ) -> Next {
        let until = Instant::now() + after;
        let breaker = match outcome {
            Outcome::BreakerOpen { name, .. } => Some(Arc::clone(name)),
            _ => None,
        };
        tracked.change(|standing| standing.now = Now::Retrying { until, reason, breaker });
        match turn.retry_at(Some(until)) {
            Ok(_) => {
                let (pool, id) = (&self.pool.code, &tracked.message.id);
                self.core.observe(&Fact::Retrying { pool, id, after: Some(after), reason });
            }
            Err(item) => item.held.hand_back(after, reason),
        }
        self.pool.sluice.try_next()
    }

    fn block(&self, turn: Turn<Item>, tracked: &Tracked) -> Next {
        tracked.change(|standing| standing.now = Now::Blocked);
        match turn.retry_at(None) {
            Ok(_) => {
                let (pool, id) = (&self.pool.code, &tracked.message.id);
                let reason = Reason::Failed;
                self.core.observe(&Fact::Retrying { pool, id, after: None, reason });
            }
            Err(item) => item.held.hand_back(Duration::ZERO, Reason::Draining),
        }
        self.pool.sluice.try_next()
    }

    /// It comes again from its source, and those of its batch and group with it:
    /// docs/rules.md#fifo-2. They go back before the key is free.
    fn retry_at_source(
        &self,
        turn: Turn<Item>,
        after: Duration,
        attempts: u32,
        reason: Reason,
    ) -> Next {
        if let Some(fellows) = turn.value().fellows.as_ref() {
            self.pool.cascade(fellows);
        }
        self.end(turn, Settlement::Retry { after, attempts, reason }, None, None)
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

fn last_words(outcome: &Outcome) -> (String, Option<u16>) {
    match outcome {
        Outcome::RetryLater { why, status, .. } => (why.clone(), *status),
        Outcome::Unreachable { cause } => (cause.clone(), None),
        other => (other.label().to_owned(), None),
    }
}
