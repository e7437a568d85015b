//! The answers of one batch, gathered until there is one for each.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_dispatch::{Settled, SourceError};
use tokio::sync::oneshot;

/// The answers of a batch.
#[derive(Debug)]
pub(crate) struct Tally {
    count: Mutex<Count>,
}

#[derive(Debug)]
struct Count {
    answers: Vec<Settled>,
    left: usize,
    asker: Option<oneshot::Sender<Vec<Settled>>>,
}

/// Who asked for a settlement: which of a batch.
pub(crate) type Asker = (Arc<Tally>, usize);

/// What follows when messages are taken in, or are not.
pub(crate) struct Publisher(Box<dyn FnOnce(Result<(), SourceError>) + Send>);

impl Publisher {
    pub(crate) fn new(then: impl FnOnce(Result<(), SourceError>) + Send + 'static) -> Self {
        Self(Box::new(then))
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Publisher")
    }
}

/// Answers that are to be given once no lock is held.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    settled: Vec<(oneshot::Sender<Vec<Settled>>, Vec<Settled>)>,
    published: Vec<(Publisher, Result<(), SourceError>)>,
}

impl Tally {
    /// A tally of so many answers, at least one.
    pub(crate) fn new(count: usize) -> (Arc<Self>, oneshot::Receiver<Vec<Settled>>) {
        let (asker, answers) = oneshot::channel();
        let count = Count { answers: vec![Settled::Stale; count], left: count, asker: Some(asker) };
        (Arc::new(Self { count: Mutex::new(count) }), answers)
    }
}

impl Replies {
    /// One answer of a batch, each once.
    pub(crate) fn settled(&mut self, (tally, at): Asker, settled: Settled) {
        let mut count = tally.count.lock();
        count.answers[at] = settled;
        count.left = count.left.saturating_sub(1);
        if count.left == 0 {
            let answers = std::mem::take(&mut count.answers);
            self.settled.extend(count.asker.take().map(|asker| (asker, answers)));
        }
    }

    /// The same answer for a whole batch.
    pub(crate) fn all_stale(&mut self, tally: &Tally) {
        let mut count = tally.count.lock();
        let answers = std::mem::take(&mut count.answers);
        self.settled.extend(count.asker.take().map(|asker| (asker, answers)));
    }

    pub(crate) fn published(&mut self, asker: Publisher, answer: Result<(), SourceError>) {
        self.published.push((asker, answer));
    }

    /// Gives the answers. Who went away does not hear them, and what was settled is.
    pub(crate) fn send(self) {
        for (asker, answers) in self.settled {
            asker.send(answers).ok();
        }
        for (publisher, answer) in self.published {
            (publisher.0)(answer);
        }
    }
}
