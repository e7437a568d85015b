//! Requests that are appended together.

use super::queue::Request;
use crate::{AppendError, EngineError, NewEvent, Position};

/// How many requests go together.
const MAX_REQUESTS: usize = 256;
/// How many events go together, but for the first request's.
const MAX_EVENTS: usize = 4_096;
/// How many bytes go together, but for the first request's: the lock is held while they are written.
const MAX_BYTES: usize = 4 << 20;

/// Requests, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) requests: Vec<Request>,
    /// What was pushed, for its bounds.
    events: usize,
    bytes: usize,
}

/// What became of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The position before its first event.
    pub(super) base: i64,
    /// Of each request, why its condition did not hold. Empty if all hold.
    pub(super) lost: Vec<Option<i64>>,
}

impl Batch {
    /// Takes a request, or gives it back if there is no room for it.
    pub(super) fn push(&mut self, request: Request) -> Result<(), Request> {
        let events = request.append.events().len();
        let bytes = request.append.events().iter().map(NewEvent::bytes).sum::<usize>();
        let fits = self.requests.len() < MAX_REQUESTS
            && self.events + events <= MAX_EVENTS
            && self.bytes + bytes <= MAX_BYTES;
        if !fits && !self.requests.is_empty() {
            return Err(request);
        }
        self.events += events;
        self.bytes += bytes;
        self.requests.push(request);
        Ok(())
    }

    /// How many events it has: some of its requests may have been taken out since they came.
    pub(super) fn events(&self) -> i64 {
        self.requests.iter().map(count).sum()
    }

    /// How much there is to write: its events, and the KiB of them.
    pub(super) fn rows(&self) -> u32 {
        u32::try_from(self.events + self.bytes / 1024).unwrap_or(u32::MAX)
    }

    /// Answers each request; says where the last event stands, if there is one.
    pub(super) fn answer(self, outcome: &Outcome) -> Option<i64> {
        let mut last = outcome.base;
        let mut head = None;
        for (n, request) in self.requests.into_iter().enumerate() {
            last += count(&request);
            let lost = outcome.lost.get(n).copied().flatten();
            head = if lost.is_none() { Some(last) } else { head };
            request.answer(match lost {
                None => position(last),
                Some(lost) => {
                    position(lost).and_then(|position| Err(AppendError::Conflict { position }))
                }
            });
        }
        head
    }

    /// Answers each that nothing was appended.
    pub(super) fn fail(self, error: &EngineError) {
        for request in self.requests {
            request.answer(Err(error.clone().into()));
        }
    }

    /// The requests whose answers somebody waits for, each by itself or as they are.
    pub(super) fn of(requests: Vec<Request>, singly: bool) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        for request in requests.into_iter().filter(|request| !request.is_given_up()) {
            let request = match batches.last_mut() {
                Some(batch) if !singly => batch.push(request).err(),
                _ => Some(request),
            };
            if let Some(request) = request {
                let mut batch = Self::default();
                // The first has room.
                batch.push(request).ok();
                batches.push(batch);
            }
        }
        batches
    }
}

/// How many events a request has.
pub(super) fn count(request: &Request) -> i64 {
    i64::try_from(request.append.events().len()).unwrap_or(i64::MAX)
}

/// A position as the database has it.
pub(super) fn position(number: i64) -> Result<Position, AppendError> {
    let wrong = |_| EngineError::new(format!("PostgreSQL: {number} is no position"));
    Position::try_from(number).map_err(|error| AppendError::Failed(wrong(error)))
}
