//! Working: the way from a turn to an end. A worker takes its next message in the same step in which
//! it is done with one, and gathers what is over while its handlers do not wait for anything.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use sluicegate_tasks::{Context, Turn};
use tokio::task::consume_budget;
use tokio::time::Instant;

use super::Core;
use super::books::{Books, End, Ended, Item};
use crate::failure::words;
use crate::metadata::{Letter, Metadata};
use crate::policy::{Attempted, Verdict, verdict};
use crate::stats::add;
use crate::{Class, Fact, Unmatched};

/// How many ends a worker gathers before it has them settled.
const GATHERED: usize = 64;

/// What may run in the place of a message that is over.
type Next = Option<Turn<Item>>;

/// Handles messages until the sluice is closed.
pub(super) async fn run(core: Arc<Core>, worker: u32, cx: Context) {
    let mut gathered = Gathered { ended: Vec::with_capacity(GATHERED), books: &core.books };
    let mut worker = Worker { core: &core, worker, cx, gathered: &mut gathered };
    while let Some(first) = core.sluice.next().await {
        let mut next = Some(first);
        while let Some(turn) = next {
            next = worker.serve(turn).await;
            // A handler that never waits must not keep its thread for ever.
            consume_budget().await;
        }
        worker.gathered.flush();
    }
}

/// Ends that a worker has gathered. Dropped, they are settled like others.
struct Gathered<'a> {
    ended: Vec<Ended>,
    books: &'a Books,
}

impl Gathered<'_> {
    fn push(&mut self, ended: Ended) {
        self.ended.push(ended);
        if self.ended.len() >= GATHERED {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.books.push_all(&mut self.ended);
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

struct Worker<'a, 'g> {
    core: &'a Core,
    worker: u32,
    cx: Context,
    gathered: &'g mut Gathered<'a>,
}

impl Worker<'_, '_> {
    /// Handles a message and answers with the next one, if one may run in its place.
    async fn serve(&mut self, turn: Turn<Item>) -> Next {
        let letter = Arc::clone(turn.value().letter());
        if self.core.books.is_superseded(&letter) {
            let (item, next) = turn.finish_and_next();
            item.let_go();
            return next;
        }
        let attempt = turn.value().failed.saturating_add(1);
        let attempted = self.attempt(&letter, attempt).await;
        match verdict(&self.core.settings().retry, attempt, attempted) {
            Verdict::Done => self.end(turn, End::Done),
            Verdict::Ignore => self.end(turn, End::Ignored),
            Verdict::HandBack => {
                // Dropped, it hands itself back.
                let (item, next) = turn.finish_and_next();
                drop(item);
                next
            }
            Verdict::Dead { why, poison } => {
                self.core.died(&letter, &why, poison);
                self.end(turn, End::Dead)
            }
            Verdict::Retry { after, why } => self.retry(turn, &letter, after, &why),
        }
    }

    /// Asks the handler. A panic of it is an error like others.
    async fn attempt(&mut self, letter: &Arc<Letter>, attempt: u32) -> Attempted {
        let core = self.core;
        let Some(handler) = core.consumer.handler(letter.envelope.event_type.as_deref()) else {
            return core.unmatched(letter);
        };
        let (letter, whose) = (Arc::clone(letter), Arc::clone(&core.whose));
        let about = Metadata { letter, whose, attempt, worker: self.worker };
        let call = || handler.call(about, self.cx.clone());
        let mut handled = match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(handled)) => pin!(AssertUnwindSafe(handled).catch_unwind()),
            Ok(Err(why)) => return Attempted::Poison { why },
            Err(panic) => return core.panicked(&words(&*panic)),
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
            Ok(Err(failure)) => {
                let class = core.settings().classes.of(&failure);
                Attempted::Failed { class, why: failure.to_string() }
            }
            Err(panic) => core.panicked(&words(&*panic)),
        }
    }

    fn end(&mut self, turn: Turn<Item>, end: End) -> Next {
        let (item, next) = turn.finish_and_next();
        self.gathered.push(item.end(end));
        next
    }

    /// In order, the failed message stays here at the front, and its key waits. Otherwise it comes
    /// again from its source, which keeps it meanwhile.
    fn retry(&mut self, mut turn: Turn<Item>, letter: &Letter, after: Duration, why: &str) -> Next {
        let item = turn.value_mut();
        item.failed = item.failed.saturating_add(1);
        let failed = item.failed;
        self.core.observe(&Fact::Retrying {
            consumer: &self.core.whose.name,
            id: name(letter),
            worker: self.worker,
            attempt: failed,
            after,
            why,
        });
        if self.core.order.is_none() {
            return self.end(turn, End::Retried { after, failed });
        }
        add(&self.core.books.counters.retried, 1);
        // Refused when the sluice is closed: then it hands itself back.
        drop(turn.retry_at(Some(Instant::now() + after)));
        self.core.sluice.try_next()
    }
}

impl Core {
    fn unmatched(&self, letter: &Letter) -> Attempted {
        match self.settings().unmatched {
            Unmatched::Ignore => Attempted::Ignored,
            Unmatched::Bury => {
                let event_type = letter.envelope.event_type.as_deref().unwrap_or("none");
                let why = format!("no handler for the event type {event_type:?}");
                Attempted::Poison { why }
            }
        }
    }

    fn panicked(&self, what: &str) -> Attempted {
        add(&self.books.counters.panicked, 1);
        Attempted::Failed { class: Class::Retry, why: format!("panicked: {what}") }
    }

    /// A message will not be tried again.
    pub(super) fn died(&self, letter: &Letter, why: &str, poison: bool) {
        add(&self.books.counters.poison, usize::from(poison));
        let (consumer, kept) = (&self.whose.name, self.source.profile().keeps_dead_letters);
        self.observe(&Fact::Dead { consumer, id: name(letter), why, poison, kept });
    }
}

/// What a person knows a message by.
fn name(letter: &Letter) -> &str {
    letter.envelope.id.as_deref().unwrap_or(&letter.broker_id)
}
