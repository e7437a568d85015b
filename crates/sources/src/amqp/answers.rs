//! The answers to one call, for which others do the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sluicegate_dispatch::Settled;
use tokio::sync::Notify;

use super::names::Name;

/// One call of `settle` or `publish`, until all of its parts are answered.
#[derive(Debug, Default)]
pub(crate) struct Call {
    left: AtomicUsize,
    /// The answers that are not [`Settled::Done`], by the numbers of their parts.
    others: Mutex<Vec<(usize, Settled)>>,
    /// The names of messages that it settled; `None` when whoever called has gone.
    names: Mutex<Option<Vec<Name>>>,
    done: Notify,
}

/// One part of a call. It is answered once; dropped unanswered it is stale: its channel ended, and the
/// broker takes the message back by itself.
#[derive(Debug)]
pub(crate) struct Part {
    call: Arc<Call>,
    number: usize,
    is_answered: bool,
}

impl Call {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { names: Mutex::new(Some(Vec::new())), ..Self::default() })
    }

    /// The part of this number.
    pub(crate) fn part(self: &Arc<Self>, number: usize) -> Part {
        self.left.fetch_add(1, Ordering::Relaxed);
        Part { call: Arc::clone(self), number, is_answered: false }
    }

    /// Waits until all parts are answered, and writes the answers over what is there.
    pub(crate) async fn answers(&self, answers: &mut [Settled]) {
        loop {
            let mut done = std::pin::pin!(self.done.notified());
            done.as_mut().enable();
            if self.left.load(Ordering::Acquire) == 0 {
                break;
            }
            done.await;
        }
        for (number, answer) in self.others.lock().drain(..) {
            if let Some(place) = answers.get_mut(number) {
                *place = answer;
            }
        }
    }

    /// The names it has kept. From now on it keeps none.
    pub(crate) fn release_names(&self) -> Vec<Name> {
        self.names.lock().take().unwrap_or_default()
    }
}

impl Part {
    pub(crate) fn answer(mut self, answer: Settled) {
        self.conclude(answer);
    }

    /// Keeps the name of its message until the call is over; gives it back if that is so already.
    pub(crate) fn keep(&self, name: Name) -> Option<Name> {
        match &mut *self.call.names.lock() {
            Some(names) => {
                names.push(name);
                None
            }
            None => Some(name),
        }
    }

    fn conclude(&mut self, answer: Settled) {
        if std::mem::replace(&mut self.is_answered, true) {
            return;
        }
        if answer != Settled::Done {
            self.call.others.lock().push((self.number, answer));
        }
        if self.call.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.call.done.notify_waiters();
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.conclude(Settled::Stale);
    }
}
