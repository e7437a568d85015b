//! Working: the way from a turn to an end. A worker takes its next message in the same step in which
//! it is done with one, and gathers what is over while its handlers do not wait for anything.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use sluicegate_dispatch::intake::{Held, Recipient as _, Settling, Tracked};
use sluicegate_dispatch::{Reason, Settlement, panic_words};
use sluicegate_tasks::{Context, Turn};
use tokio::task::{consume_budget, yield_now};
use tokio::time::Instant;

use super::{Consuming, Engine};
use crate::metadata::{Consumed, Metadata};
use crate::policy::{Attempted, Verdict, verdict};
use crate::stats::add;
use crate::{Class, Fact, Unmatched};

/// How many ends a worker gathers before it has them settled, and for how long.
const GATHERED: usize = 64;
const GATHERING: Duration = Duration::from_millis(5);

type Item = Held<Consumed>;
type Message = Arc<Tracked<Consumed>>;

/// What may run in the place of a message that is over.
type Next = Option<Turn<Item>>;

/// Handles messages until the sluice is closed.
pub(super) async fn run(engine: Arc<Engine>, worker: u32, cx: Context) {
    let settlings = Vec::with_capacity(GATHERED);
    let mut gathered =
        Gathered { settlings, since: Instant::now(), is_late: false, engine: &engine };
    let consuming = &engine.recipient;
    let mut worker = Worker { consuming, worker, cx, gathered: &mut gathered };
    while let Some(first) = consuming.sluice.next().await {
        let mut next = Some(first);
        while let Some(turn) = next {
            next = worker.serve(turn).await;
            // A handler that never waits must not keep its thread for ever, nor from those who settle.
            match std::mem::take(&mut worker.gathered.is_late) {
                true => yield_now().await,
                false => consume_budget().await,
            }
        }
        worker.gathered.flush();
    }
}

/// Settlements that a worker has gathered. Dropped, they are told like others.
struct Gathered<'a> {
    settlings: Vec<Settling<Consumed>>,
    /// When the first of them was over.
    since: Instant,
    /// Whether they had to wait for a handler that does not.
    is_late: bool,
    engine: &'a Engine,
}

impl Gathered<'_> {
    fn push(&mut self, settling: Settling<Consumed>) {
        let now = Instant::now();
        if self.settlings.is_empty() {
            self.since = now;
        }
        self.settlings.push(settling);
        self.is_late = now - self.since >= GATHERING;
        if self.settlings.len() >= GATHERED || self.is_late {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.engine.owed.push_all(&mut self.settlings);
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

struct Worker<'a, 'g> {
    consuming: &'a Consuming,
    worker: u32,
    cx: Context,
    gathered: &'g mut Gathered<'a>,
}

impl Worker<'_, '_> {
    /// Handles a message and answers with the next one, if one may run in its place.
    async fn serve(&mut self, turn: Turn<Item>) -> Next {
        let message = Arc::clone(turn.value().tracked());
        if message.is_superseded() {
            return let_go(turn);
        }
        let attempt = message.attempts().saturating_add(1);
        let attempted = self.attempt(&message, attempt).await;
        match verdict(&self.consuming.settings().retry, attempt, attempted) {
            Verdict::Done => self.end(turn, Settlement::Ack),
            Verdict::Ignore => {
                message.entry.is_ignored.store(true, Ordering::Relaxed);
                self.end(turn, Settlement::Ack)
            }
            Verdict::HandBack => {
                // Dropped, it hands itself back.
                let (held, next) = turn.finish_and_next();
                drop(held);
                next
            }
            // What stands for it by now is tried, whatever became of it.
            Verdict::Dead { .. } | Verdict::Retry { .. } if message.is_superseded() => {
                self.consuming.stale(1);
                let_go(turn)
            }
            Verdict::Dead { why, poison } => {
                self.consuming.died(&message, &why, poison);
                self.end(turn, Settlement::Park)
            }
            Verdict::Retry { after, why } => self.retry(turn, &message, after, &why),
        }
    }

    /// Asks the handler. A panic of it is an error like others.
    async fn attempt(&mut self, message: &Message, attempt: u32) -> Attempted {
        let core = self.consuming;
        let event_type = message.entry.envelope.event_type.as_deref();
        let Some(handler) = core.consumer.handler(event_type) else {
            return core.unmatched(event_type);
        };
        let (tracked, whose) = (Arc::clone(message), Arc::clone(&core.whose));
        let about = Metadata { tracked, whose, attempt, worker: self.worker };
        let call = || handler.call(about, self.cx.clone());
        let mut handled = match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(handled)) => pin!(AssertUnwindSafe(handled).catch_unwind()),
            Ok(Err(why)) => return Attempted::Poison { why },
            Err(panic) => return core.panicked(&panic_words(&*panic)),
        };
        let answer = poll_fn(|poller| {
            let answer = handled.as_mut().poll(poller);
            if answer.is_pending() {
                // It may take long: what is over must not wait for it.
                self.gathered.flush();
            }
            answer
        })
        .await;
        match answer {
            Ok(Ok(())) => Attempted::Done,
            Ok(Err(_)) if self.cx.is_cancelled() => Attempted::Interrupted,
            // Also how an error is classed and put into words is the service's own code.
            Ok(Err(failure)) => catch_unwind(AssertUnwindSafe(|| {
                let class = core.settings().classes.of(&failure);
                Attempted::Failed { class, why: failure.to_string() }
            }))
            .unwrap_or_else(|panic| core.panicked(&panic_words(&*panic))),
            Err(panic) => core.panicked(&panic_words(&*panic)),
        }
    }

    fn end(&mut self, turn: Turn<Item>, settlement: Settlement) -> Next {
        let (held, next) = turn.finish_and_next();
        self.gathered.push(held.settling(settlement));
        next
    }

    /// It comes again from its source, which keeps it meanwhile, and its key if there is one. Where the source does
    /// not keep order it stays here at the front, and its key waits.
    fn retry(&mut self, turn: Turn<Item>, message: &Message, after: Duration, why: &str) -> Next {
        let attempts = message.attempts().saturating_add(1);
        message.set_attempts(attempts);
        self.consuming.observe(&Fact::Retrying {
            consumer: &self.consuming.whose.name,
            id: name(message),
            worker: self.worker,
            attempt: attempts,
            after,
            why,
        });
        if !self.consuming.waits_here {
            return self.end(turn, Settlement::Retry { after, attempts, reason: Reason::Failed });
        }
        add(&self.consuming.counters.retried, 1);
        // Refused when the sluice is closed: then it hands itself back.
        drop(turn.retry_at(Some(Instant::now() + after)));
        self.consuming.sluice.try_next()
    }
}

/// Another entry stands for a message: this one is over.
fn let_go(turn: Turn<Item>) -> Next {
    let (held, next) = turn.finish_and_next();
    held.let_go();
    next
}

impl Consuming {
    fn unmatched(&self, event_type: Option<&str>) -> Attempted {
        match self.settings().unmatched {
            Unmatched::Ignore => Attempted::Ignored,
            Unmatched::Bury => {
                let event_type = event_type.unwrap_or("none");
                let why = format!("no handler for the event type {event_type:?}");
                Attempted::Poison { why }
            }
        }
    }

    fn panicked(&self, what: &str) -> Attempted {
        add(&self.counters.panicked, 1);
        Attempted::Failed { class: Class::Retry, why: format!("panicked: {what}") }
    }

    /// A message will not be tried again.
    pub(super) fn died(&self, message: &Tracked<Consumed>, why: &str, poison: bool) {
        add(&self.counters.poison, usize::from(poison));
        let (consumer, kept) = (&self.whose.name, self.keeps_dead_letters);
        self.observe(&Fact::Dead { consumer, id: name(message), why, poison, kept });
    }
}

/// What a person knows a message by.
fn name(message: &Tracked<Consumed>) -> &str {
    message.entry.envelope.id.as_deref().unwrap_or(&message.broker_id)
}
