//! What arrives at the demo's endpoint: whether it is in order, and how long it took.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::script::{Answer, Script};

/// The book of one run. Clones are the same one.
#[derive(Clone)]
pub(super) struct Ledger {
    book: Arc<Mutex<Book>>,
    script: Script,
}

/// Which message it is: its number, its group, and its place in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) number: u32,
    pub(super) group: u32,
    pub(super) place: u32,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) delivered: u32,
    /// Messages that came again after they had been taken.
    pub(super) duplicates: u32,
    /// Messages that came before their turn, or beside another one of their group.
    pub(super) violations: u32,
    /// Answers that were no success, by what they were.
    pub(super) broken: u32,
    pub(super) put_off: u32,
    pub(super) throttled: u32,
    /// Answers that took long.
    pub(super) slow: u32,
    /// From being published to being taken, in microseconds.
    pub(super) latencies: Vec<u32>,
}

#[derive(Default)]
struct Book {
    groups: Vec<Group>,
    /// How often each message came.
    calls: Vec<u8>,
    published: Vec<Option<Instant>>,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Group {
    /// How many of its messages were taken.
    taken: u32,
    /// How many of its messages are being answered.
    busy: u32,
}

/// A call that is being answered. Dropped early, the message was not taken.
pub(super) struct Call {
    ledger: Ledger,
    token: Token,
    pub(super) answer: Answer,
}

impl Ledger {
    pub(super) fn new(messages: u32, groups: u32) -> Self {
        let book = Book {
            groups: vec![Group::default(); groups as usize],
            calls: vec![0; messages as usize],
            published: vec![None; messages as usize],
            counts: Counts::default(),
        };
        Self { book: Arc::new(Mutex::new(book)), script: Script::new(messages) }
    }

    /// Messages of these numbers are being published.
    pub(super) fn publishing(&self, numbers: std::ops::Range<u32>) {
        let now = Instant::now();
        let numbers = numbers.start as usize..numbers.end as usize;
        self.book.lock().published[numbers].fill(Some(now));
    }

    /// A message came. `None` if there is no such message.
    pub(super) fn begin(&self, token: Token) -> Option<Call> {
        let mut book = self.book.lock();
        let Book { groups, calls, counts, .. } = &mut *book;
        let group = groups.get_mut(token.group as usize)?;
        let earlier = calls.get_mut(token.number as usize)?;
        let answer = self.script.answer(token.number, *earlier);
        *earlier = earlier.saturating_add(1);
        counts.violations += u32::from(group.busy > 0 || token.place > group.taken);
        if token.place < group.taken {
            counts.duplicates += 1;
            // Behind a later one it is not only a copy, but out of order too.
            counts.violations += u32::from(token.place + 1 < group.taken);
        }
        group.busy += 1;
        match answer {
            Answer::Broken => counts.broken += 1,
            Answer::PutOff => counts.put_off += 1,
            Answer::Throttled => counts.throttled += 1,
            Answer::Slow(_) => counts.slow += 1,
            Answer::Quick(_) => {}
        }
        Some(Call { ledger: self.clone(), token, answer })
    }

    pub(super) fn delivered(&self) -> u32 {
        self.book.lock().counts.delivered
    }

    pub(super) fn counts(&self) -> Counts {
        self.book.lock().counts.clone()
    }
}

impl Call {
    /// The answer is on its way.
    pub(super) fn end(self) {
        let mut book = self.ledger.book.lock();
        let Book { groups, published, counts, .. } = &mut *book;
        let group = &mut groups[self.token.group as usize];
        if self.answer.takes() && self.token.place == group.taken {
            group.taken += 1;
            counts.delivered += 1;
            let published = published[self.token.number as usize];
            let latency = published.map_or(Duration::ZERO, |at| at.elapsed());
            counts.latencies.push(latency.as_micros().try_into().unwrap_or(u32::MAX));
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.ledger.book.lock().groups[self.token.group as usize].busy -= 1;
    }
}

impl Counts {
    /// How many answers made a message come again.
    pub(super) const fn refused(&self) -> u32 {
        self.broken + self.put_off + self.throttled
    }

    /// The latency that this part of the messages stayed within.
    pub(super) fn percentile(&self, part: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() as f64 * part).ceil() as usize;
        let latency = sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default();
        Duration::from_micros(u64::from(latency))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Token};

    const fn token(number: u32, group: u32, place: u32) -> Token {
        Token { number, group, place }
    }

    /// Delivers until it is taken, and gives delivered, duplicates, violations.
    fn check(ledger: &Ledger, tokens: &[Token], expected: (u32, u32, u32)) {
        for token in tokens {
            for _ in 0..3 {
                let call = ledger.begin(*token).unwrap();
                let taken = call.answer.takes();
                call.end();
                if taken {
                    break;
                }
            }
        }
        let counts = ledger.counts();
        let found = (counts.delivered, counts.duplicates, counts.violations);
        assert_eq!(found, expected, "{tokens:?}");
    }

    #[test]
    fn order_copies_and_company_are_seen() {
        let fresh = || Ledger::new(100, 2);
        let (a0, a1, a2, b0) = (token(0, 0, 0), token(2, 0, 1), token(4, 0, 2), token(1, 1, 0));
        check(&fresh(), &[a0, b0, a1], (3, 0, 0));
        check(&fresh(), &[a0, a0], (1, 1, 0));
        check(&fresh(), &[a0, a1, a0], (2, 1, 1));
        check(&fresh(), &[a1], (0, 0, 1));
        check(&fresh(), &[a0, a2, a1], (2, 0, 1));
        let ledger = fresh();
        let beside = ledger.begin(a0).unwrap();
        let other = ledger.begin(b0).unwrap();
        assert_eq!(ledger.counts().violations, 0);
        drop(ledger.begin(a0).unwrap());
        assert_eq!(ledger.counts().violations, 1);
        beside.end();
        other.end();
        assert!(ledger.begin(token(100, 0, 1)).is_none() && ledger.begin(token(1, 2, 1)).is_none());
    }

    #[test]
    fn percentiles_are_of_the_sorted_latencies() {
        let ledger = Ledger::new(4, 1);
        ledger.book.lock().counts.latencies = vec![40, 10, 30, 20];
        let counts = ledger.counts();
        for (part, expected) in [(0.0, 10), (0.5, 20), (0.75, 30), (0.99, 40), (1.0, 40)] {
            assert_eq!(counts.percentile(part).as_micros(), expected, "{part}");
        }
        assert_eq!(super::Counts::default().percentile(0.5).as_micros(), 0);
    }
}
