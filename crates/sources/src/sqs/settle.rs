//! Settling, extending and burying.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Receipt, Settle, Settled, Settlement, SourceError};
use tokio::time::Instant;

use super::batches::{Entry, Fate, Wish};
use super::books::{Books, Live, Standing};
use super::settings::{LONGEST_HIDE, seconds_up};
use super::source::{Inner, Part};
use crate::Content;

/// What the service is asked for one receipt.
struct Question {
    /// Which of the caller's receipts it is.
    index: usize,
    receipt: Receipt,
    settlement: Settlement,
    live: Live,
}

impl<M: Content> Inner<M> {
    /// # Cancel safety
    /// Dropped, the service may have done all, some or none of it. What it has not answered for is
    /// still out, and can be settled again.
    pub(super) async fn settle(&self, settle: Vec<Settle>) -> Result<Vec<Settled>, SourceError> {
        let dead = settle.iter().filter(|settle| settle.settlement == Settlement::Park);
        let dead: Vec<Receipt> = dead.map(|settle| settle.receipt.clone()).collect();
        if !dead.is_empty() {
            self.keep_dead(&dead).await?;
        }
        let now = Instant::now();
        let mut answers = vec![Settled::Stale; settle.len()];
        let mut questions = Vec::new();
        {
            let mut books = self.books.lock();
            let mut seen = HashSet::new();
            for (index, Settle { receipt, settlement }) in settle.into_iter().enumerate() {
                if !seen.insert(receipt.clone()) {
                    continue;
                }
                match books.standing(&receipt, now) {
                    Standing::Stale => {}
                    Standing::Done => {
                        books.told(&receipt);
                        answers[index] = Settled::Done;
                    }
                    Standing::Live(live) => {
                        if let Settlement::Retry { after, attempts, .. } = settlement {
                            books.hands_back(&live, attempts, now + after);
                        }
                        questions.push(Question { index, receipt, settlement, live });
                    }
                }
            }
        }
        self.ask(questions, answers).await
    }

    async fn ask(
        &self,
        questions: Vec<Question>,
        mut answers: Vec<Settled>,
    ) -> Result<Vec<Settled>, SourceError> {
        let entry = |question: &'_ Question| match question.settlement {
            Settlement::Ack | Settlement::Park => Wish::Delete,
            Settlement::Retry { after, .. } => {
                // Beyond what the service allows the rest of the delay is kept here.
                Wish::Hide(seconds_up(after).min(room(&question.live)))
            }
        };
        let entries: Vec<_> = questions
            .iter()
            .map(|question| Entry { handle: question.live.handle(), wish: entry(question) })
            .collect();
        let fates = self.link.ask_all(&entries).await;
        let trouble = fates.iter().find_map(|fate| match fate {
            Fate::Failed(trouble) => Some(trouble.clone()),
            _ => None,
        });
        let mut books = self.books.lock();
        for (question, fate) in questions.iter().zip(&fates) {
            let answer = conclude(&mut books, question, fate);

            if trouble.is_some() && answer == Settled::Done {
                books.keep_answer(&question.receipt, &question.live);
            }
            answers[question.index] = answer;
        }
        drop(books);
        match trouble {
            None => {
                self.works(Part::Settling);
                Ok(answers)
            }
            Some(trouble) => {
                self.fails(Part::Settling, &trouble);
                Err(trouble.into())
            }
        }
    }

    /// Begins windows anew.
    pub(super) async fn extend(&self, receipts: Vec<Receipt>) -> Result<Vec<Settled>, SourceError> {
        let now = Instant::now();
        let window = self.link.settings.window;
        let lives: Vec<Option<Live>> = {
            let books = self.books.lock();
            let live = |receipt: &Receipt| match books.standing(receipt, now) {
                Standing::Live(live) if room(&live) > 0 => Some(live),
                _ => None,
            };
            receipts.iter().map(live).collect()
        };
        let there: Vec<(usize, &Live)> = lives
            .iter()
            .enumerate()
            .filter_map(|(index, live)| live.as_ref().map(|live| (index, live)))
            .collect();
        let seconds = |live: &Live| window.as_secs().min(room(live));
        let entry =
            |(_, live): &(usize, &'_ Live)| (live.handle().to_owned(), Wish::Hide(seconds(live)));
        let wishes: Vec<_> = there.iter().map(entry).collect();
        let entries: Vec<_> =
            wishes.iter().map(|(handle, wish)| Entry { handle, wish: *wish }).collect();
        let fates = self.link.ask_all(&entries).await;
        let mut answers = vec![Settled::Stale; receipts.len()];
        let mut trouble = None;
        let mut books = self.books.lock();
        for ((index, live), fate) in there.into_iter().zip(fates) {
            match fate {
                Fate::Done => {
                    let ends = now + Duration::from_secs(seconds(live));
                    answers[index] = books.extended(live, ends);
                }
                Fate::Expired => books.expired(live, now),
                // It is hidden as long as the service allows.
                Fate::Refused => {}
                Fate::Failed(why) => trouble = Some(why),
            }
        }
        drop(books);
        trouble.map_or(Ok(answers), |trouble| {
            self.fails(Part::Settling, &trouble);
            Err(trouble.into())
        })
    }

    /// Writes messages into the queue's own dead-letter queue, before they are deleted. Without one they
    /// are only deleted.
    async fn keep_dead(&self, receipts: &[Receipt]) -> Result<(), SourceError> {
        match self.dead_letters() {
            Some(target) => self.copy_to(&target, receipts).await,
            None => Ok(()),
        }
    }

    async fn copy_to(&self, target: &Arc<str>, receipts: &[Receipt]) -> Result<(), SourceError> {
        let now = Instant::now();
        for receipt in receipts {
            let live = {
                let books = self.books.lock();
                match books.standing(receipt, now) {
                    // Written there before, when it could not be deleted.
                    Standing::Live(live) if !books.is_over(&live.broker_id) => live,
                    _ => continue,
                }
            };
            let Some(copy) = &live.copy else { continue };
            let sent = self.send_copy(target, &live.broker_id, copy).await;
            sent.inspect_err(|trouble| self.fails(Part::Settling, trouble))?;
            self.books.lock().moved(&live);
        }
        Ok(())
    }
}

/// For how many seconds more the service may hide it.
fn room(live: &Live) -> u64 {
    // A second less, since time passes until it is asked.
    live.room.as_secs().saturating_sub(1).min(LONGEST_HIDE)
}

/// Writes down what became of one settlement.
fn conclude(books: &mut Books, question: &Question, fate: &Fate) -> Settled {
    let live = &question.live;
    match (question.settlement, fate) {
        (_, Fate::Failed(_)) => Settled::Stale,
        (Settlement::Ack | Settlement::Park, Fate::Done) => books.deleted(live),
        (Settlement::Ack | Settlement::Park, Fate::Expired | Fate::Refused) => {
            books.not_deleted(live)
        }
        (Settlement::Retry { .. }, Fate::Done) => books.handed_back(live),
        (Settlement::Retry { .. }, Fate::Expired | Fate::Refused) => books.not_handed_back(live),
    }
}
