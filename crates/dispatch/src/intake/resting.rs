//! Messages that rest here until they are tried again: their sources note how often they were tried, and until when
//! they rest, so that a daemon that dies forgets neither: docs/rules.md#strict-7.
//!
//! Nobody waits for that: a note that comes too late is worth one attempt more after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_tasks::Context;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::in_flight::{Entry, Tracked};
use super::{FIRST_PAUSE, Intake, LONGEST_PAUSE, Recipient, STALLED_AFTER};
use crate::{Reason, Receipt, Rest, Settled, SourceError};

/// What is to be noted: of each message the latest, so there is no more of it than is in flight.
#[derive(Debug)]
pub(crate) struct Resting<E> {
    notes: Mutex<BTreeMap<u64, Note<E>>>,
    changed: Notify,
}

#[derive(Debug)]
struct Note<E> {
    tracked: Arc<Tracked<E>>,
    until: Instant,
    reason: Reason,
}

impl<E> Default for Resting<E> {
    fn default() -> Self {
        Self { notes: Mutex::default(), changed: Notify::new() }
    }
}

impl<E: Entry> Resting<E> {
    pub(super) fn push(&self, tracked: &Arc<Tracked<E>>, until: Instant, reason: Reason) {
        let note = Note { tracked: Arc::clone(tracked), until, reason };
        self.notes.lock().insert(tracked.number, note);
        self.changed.notify_one();
    }

    /// What is to be noted; waits for the first one. Cancel safe: nothing is taken before it answers.
    async fn next(&self, max: usize) -> Vec<Note<E>> {
        loop {
            let taken = self.take(max);
            if !taken.is_empty() {
                return taken;
            }
            self.changed.notified().await;
        }
    }

    fn take(&self, max: usize) -> Vec<Note<E>> {
        let mut notes = self.notes.lock();
        let first = std::iter::from_fn(|| notes.pop_first().map(|(_, note)| note));
        first.take(max).collect()
    }

    /// It was not noted. A later note of the same message stands.
    fn put_back(&self, note: Note<E>) {
        self.notes.lock().entry(note.tracked.number).or_insert(note);
    }
}

/// Has everything noted, until the context ends: what is here then goes back with all that is known of it.
pub(super) async fn run<R: Recipient>(intake: Arc<Intake<R>>, cx: Context) {
    let mut pause = FIRST_PAUSE;
    loop {
        let max = intake.source().profile().settle_batch.max(1);
        let noting = async {
            let notes = intake.owed.resting.next(max).await;
            note(&intake, notes).await
        };
        let Ok(is_noted) = cx.until_interrupted(noting).await else { return };
        if is_noted {
            pause = FIRST_PAUSE;
            continue;
        }
        if cx.until_interrupted(sleep(pause)).await.is_err() {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Has some noted; answers whether all were that could be.
async fn note<R: Recipient>(intake: &Intake<R>, mut notes: Vec<Note<R::Entry>>) -> bool {
    // What is being settled is over, or says all that when it goes back.
    notes.retain(|note| !note.tracked.is_settling() && !note.tracked.is_superseded());
    if notes.is_empty() {
        return true;
    }
    let now = Instant::now();
    let rest = |note: &Note<_>| Rest {
        receipt: note.tracked.receipt(),
        after: note.until.saturating_duration_since(now),
        attempts: note.tracked.attempts(),
        reason: note.reason,
    };
    let rests: Vec<Rest> = notes.iter().map(rest).collect();
    let used: Vec<Receipt> = rests.iter().map(|rest| rest.receipt.clone()).collect();
    let mut answers = match intake.ask(STALLED_AFTER, |source| source.rest(rests)).await {
        Ok(answers) => answers,
        Err(error) => {
            intake.recipient.source_failed("rest", &error);
            notes.into_iter().for_each(|note| intake.owed.resting.put_back(note));
            return false;
        }
    };
    answers.resize(notes.len(), Settled::Failed(SourceError::new("its source gave no answer")));
    let mut all = true;
    for ((note, answer), used) in notes.into_iter().zip(answers).zip(used) {
        match answer {
            Settled::Failed(error) => {
                intake.recipient.source_failed("rest", &error);
                intake.owed.resting.put_back(note);
                all = false;
            }
            // Delivered anew while that was under way, it is noted by the receipt that is valid now.
            Settled::Stale if note.tracked.receipt() != used => {
                intake.owed.resting.put_back(note);
            }
            Settled::Stale | Settled::Done => {}
        }
    }
    all
}
