//! Settling, extending and burying.
//!
//! Of one call, what is deleted, what is handed back and what is buried go side by side, and every
//! message is answered by itself.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use sluicegate_dispatch::{Receipt, Settle, Settled, Settlement, SourceError};
use tokio::time::Instant;

use super::batches::{AT_ONCE, Entry, Fate, Wish};
use super::books::{Extension, Live};
use super::settings::{LONGEST_HIDE, seconds_up};
use super::source::{Inner, Part};
use crate::Content;

/// What the service is asked for one receipt.
struct Question {
    /// Which of the caller's receipts it is.
    index: usize,
    live: Live,
    /// For how long it is to be hidden, if it is handed back.
    after: Duration,
}

/// The answer to one of the caller's receipts.
type Answer = (usize, Settled);

/// Deliveries that are being settled. Dropped, what was not settled is out as before.
struct Settling<'a, M: Content> {
    inner: &'a Inner<M>,
    lives: Vec<Live>,
}

impl<M: Content> Drop for Settling<'_, M> {
    fn drop(&mut self) {
        let mut books = self.inner.books.lock();
        self.lives.iter().for_each(|live| books.end_settling(live));
    }
}

/// Deliveries that are being extended.
struct Extending<'a, M: Content> {
    inner: &'a Inner<M>,
    lives: Vec<(usize, Live)>,
}

impl<M: Content> Drop for Extending<'_, M> {
    fn drop(&mut self) {
        let mut books = self.inner.books.lock();
        self.lives.iter().for_each(|(_, live)| books.end_extending(live));
        drop(books);
        self.inner.extended.notify_waiters();
    }
}

impl<M: Content> Inner<M> {
    /// # Cancel safety
    /// Dropped, the service may have done all, some or none of it. What it has not answered for is
    /// still out, and can be settled again.
    pub(super) async fn settle(&self, settle: Vec<Settle>) -> Result<Vec<Settled>, SourceError> {
        let now = Instant::now();
        let mut answers = vec![Settled::Stale; settle.len()];
        let (mut acks, mut retries, mut parks) = (Vec::new(), Vec::new(), Vec::new());
        let mut settling = Settling { inner: self, lives: Vec::new() };
        {
            let mut books = self.books.lock();
            let mut seen = HashSet::new();
            for (index, Settle { receipt, settlement }) in settle.into_iter().enumerate() {
                let (live, after, of) = match settlement {
                    Settlement::Ack => {
                        (books.begin_settling(&receipt, now), Duration::ZERO, &mut acks)
                    }
                    Settlement::Park => {
                        (books.begin_copying(&receipt, now), Duration::ZERO, &mut parks)
                    }
                    Settlement::Retry { after, .. } => {
                        (books.begin_settling(&receipt, now), after, &mut retries)
                    }
                };
                let Some(live) = live.filter(|_| seen.insert(receipt)) else { continue };
                if let Settlement::Retry { after, attempts, .. } = settlement {
                    books.hands_back(&live, attempts, now + after);
                }
                settling.lives.push(live.clone());
                of.push(Question { index, live, after });
            }
        }
        let (acks, retries, parks) =
            tokio::join!(self.delete(acks), self.hide(retries), self.bury(parks));
        for (index, answer) in acks.into_iter().chain(retries).chain(parks) {
            answers[index] = answer;
        }
        Ok(answers)
    }

    async fn delete(&self, questions: Vec<Question>) -> Vec<Answer> {
        let entry = |question: &'_ Question| (question.live.clone(), Wish::Delete);
        let fates = self.ask(questions.iter().map(entry).collect()).await;
        let mut books = self.books.lock();
        let answer = |(question, fate): (Question, Fate)| {
            let answer = match fate {
                Fate::Done => books.deleted(&question.live),
                Fate::Expired | Fate::Refused => books.not_deleted(&question.live),
                Fate::Failed(trouble) => Settled::Failed(trouble.into()),
            };
            (question.index, answer)
        };
        questions.into_iter().zip(fates).map(answer).collect()
    }

    async fn hide(&self, questions: Vec<Question>) -> Vec<Answer> {
        // A call that begins a window anew must not reach the service after this one.
        for question in &questions {
            self.not_extending(&question.live).await;
        }
        let entry = |Question { live, after, .. }: &'_ Question| {
            // Beyond what the service allows the rest of the delay is kept here.
            (live.clone(), Wish::Hide(seconds_up(*after).min(room(live))))
        };
        let fates = self.ask(questions.iter().map(entry).collect()).await;
        let mut books = self.books.lock();
        let answer = |(question, fate): (Question, Fate)| {
            let answer = match fate {
                Fate::Done => books.handed_back(&question.live),
                Fate::Expired | Fate::Refused => books.not_handed_back(&question.live),
                Fate::Failed(trouble) => Settled::Failed(trouble.into()),
            };
            (question.index, answer)
        };
        questions.into_iter().zip(fates).map(answer).collect()
    }

    /// Writes messages into the queue's own dead-letter queue, and deletes those that are there. Without
    /// one all are only deleted.
    async fn bury(&self, questions: Vec<Question>) -> Vec<Answer> {
        let written = questions.into_iter().map(|question| async move {
            let written = self.keep_dead(&question.live).await;
            (question, written)
        });
        let mut written = stream::iter(written).buffer_unordered(AT_ONCE);
        let (mut answers, mut there) = (Vec::new(), Vec::new());
        while let Some((question, written)) = written.next().await {
            match written {
                Ok(()) => there.push(question),
                Err(error) => answers.push((question.index, Settled::Failed(error))),
            }
        }
        answers.extend(self.delete(there).await);
        answers
    }

    async fn keep_dead(&self, live: &Live) -> Result<(), SourceError> {
        let target = self.dead_letters();
        // Written there before, when it could not be deleted.
        let is_there = self.books.lock().is_over(&live.broker_id);
        if let (Some(target), Some(copy), false) = (target, &live.copy, is_there) {
            self.send_copy(&target, &live.broker_id, copy).await?;
        }
        self.books.lock().copied(live);
        Ok(())
    }

    /// Asks the service for all of them, and tells whether it works.
    async fn ask(&self, asked: Vec<(Live, Wish)>) -> Vec<Fate> {
        if asked.is_empty() {
            return Vec::new();
        }
        let entry = |(live, wish): &'_ (Live, Wish)| (live.handle().to_owned(), *wish);
        let entries: Vec<_> = asked.iter().map(entry).collect();
        let entries: Vec<_> =
            entries.iter().map(|(handle, wish)| Entry { handle, wish: *wish }).collect();
        let fates = self.link.ask_all(&entries).await;
        let trouble = fates.iter().find_map(|fate| match fate {
            Fate::Failed(trouble) => Some(trouble),
            _ => None,
        });
        match trouble {
            None => self.works(Part::Settling),
            Some(trouble) => self.fails(Part::Settling, trouble),
        }
        fates
    }

    /// Waits until no call is under way that begins this window anew. None is begun while it is being
    /// settled.
    async fn not_extending(&self, live: &Live) {
        loop {
            let mut extended = std::pin::pin!(self.extended.notified());
            extended.as_mut().enable();
            if !self.books.lock().is_extending(live) {
                return;
            }
            extended.await;
        }
    }

    /// Begins windows anew. Of what is being settled there is nothing to extend, and nothing has expired.
    pub(super) async fn extend(&self, receipts: Vec<Receipt>) -> Result<Vec<Settled>, SourceError> {
        let now = Instant::now();
        let window = self.link.settings.window;
        let mut answers = vec![Settled::Stale; receipts.len()];
        let mut extending = Extending { inner: self, lives: Vec::new() };
        {
            let mut books = self.books.lock();
            for (index, receipt) in receipts.iter().enumerate() {
                match books.begin_extending(receipt, now) {
                    Extension::Stale => {}
                    Extension::Settling => answers[index] = Settled::Done,
                    Extension::Live(live) => extending.lives.push((index, live)),
                }
            }
        }
        let seconds = |live: &Live| window.as_secs().min(room(live));
        let can_last = |(_, live): &&(usize, Live)| room(live) > 0;
        let lasting: Vec<_> = extending.lives.iter().filter(can_last).collect();
        let entry = |(_, live): &&(usize, Live)| (live.clone(), Wish::Hide(seconds(live)));
        let fates = self.ask(lasting.iter().map(entry).collect()).await;
        let mut books = self.books.lock();
        for ((index, live), fate) in lasting.into_iter().zip(fates) {
            answers[*index] = match fate {
                Fate::Done => books.extended(live, now + Duration::from_secs(seconds(live))),
                Fate::Expired => books.expired(live, now),
                // It is hidden as long as the service allows.
                Fate::Refused => Settled::Stale,
                Fate::Failed(trouble) => Settled::Failed(trouble.into()),
            };
        }
        drop(books);
        Ok(answers)
    }
}

/// For how many seconds more the service may hide it.
fn room(live: &Live) -> u64 {
    // A second less, since time passes until it is asked.
    live.room.as_secs().saturating_sub(1).min(LONGEST_HIDE)
}
