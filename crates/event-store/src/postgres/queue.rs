//! Where requests wait for their batch. It is bounded by bytes and by count, and everybody takes a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex as Lock;
use sluicegate_postgres_link::Broken;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use sluicegate_tasks::{Context, OwnedManyPermits, Permits};

use super::batch::Batch;
use crate::{Append, AppendCondition, AppendError, EngineError, Position};

/// How many units of room there are, for requests that wait and those that are on their way.
const UNITS: u32 = 32 * 1024;
/// How many bytes go into a unit. The largest append takes half of the room.
const UNIT: usize = 1024;

/// What is known of a condition before it is checked under the lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Up to where it holds.
    pub(super) holds_to: i64,
    /// How often it took too long.
    pub(super) rounds: u32,
}

impl Known {
    /// After which position events are left to check.
    pub(super) fn after(self, condition: &AppendCondition) -> i64 {
        condition.after.as_i64().max(self.holds_to)
    }
}

/// What became of an append that has not failed.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is there; where its last event stands.
    Appended(Position),
    /// It is not: its condition takes longer to check than others may be kept waiting.
    Unchecked(Append),
}

/// An append that waits for its answer.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) append: Append,
    /// What is known of its condition.
    pub(super) known: Known,
    /// By which its first event is found.
    pub(super) token: i64,
    /// How often it was sent.
    pub(super) tries: u32,
    /// Whoever sets it decides: it is sent, or it never will be.
    decided: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<Answer, AppendError>>,
    _room: OwnedManyPermits,
}

impl Request {
    /// Nobody waits for it any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.answer.is_closed()
    }

    /// Counts that it is sent; answers whether it may be. Who gave it up for not being sent was told so.
    pub(super) fn begin(&mut self) -> bool {
        let may = self.tries > 0 || !self.decided.swap(true, Ordering::AcqRel);
        self.tries += u32::from(may);
        may
    }

    pub(super) fn answer(self, answer: Result<Position, AppendError>) {
        // Who has gone does not hear it.
        self.answer.send(answer.map(Answer::Appended)).ok();
    }

    /// Gives it back to its caller, who looks its condition up.
    pub(super) fn give_back(self) {
        self.answer.send(Ok(Answer::Unchecked(self.append))).ok();
    }

    /// It was sent for nothing, through no fault of its own.
    pub(super) fn forgive(&mut self) {
        // Not sent at all it would count as one that may be given up.
        self.tries = self.tries.saturating_sub(1).max(1);
    }

    /// How often its condition took too long; `None` if it has none.
    pub(super) fn rounds(&self) -> Option<u32> {
        self.append.condition().map(|_| self.known.rounds)
    }
}

/// The end where requests come in.
#[derive(Debug)]
pub(super) struct Entry {
    room: Arc<Permits>,
    sender: mpsc::Sender<Request>,
    limit: Duration,
    tokens: Tokens,
    outage: Arc<Outage>,
}

/// The end where they are taken from.
#[derive(Debug)]
pub(super) struct Exit {
    taken: Mutex<Taken>,
    /// Why nothing can be sent.
    pub(super) outage: Arc<Outage>,
}

/// Why the database is not reached, while it is not.
#[derive(Debug, Default)]
pub(super) struct Outage {
    why: Lock<Option<String>>,
}

impl Outage {
    pub(super) fn note(&self, failed: Option<&Broken>) {
        *self.why.lock() = failed.map(Broken::to_string);
    }
}

#[derive(Debug)]
struct Taken {
    receiver: mpsc::Receiver<Request>,
    /// The one that had no room in the last batch.
    next: Option<Request>,
}

/// A queue whose requests wait so long for their answers.
pub(super) fn queue(limit: Duration) -> (Entry, Exit) {
    let room = Arc::new(Permits::new(UNITS).expect("there is room"));
    // Each takes a unit at least, so who has room has a place.
    let (sender, receiver) = mpsc::channel(UNITS as usize);
    let outage = Arc::<Outage>::default();
    let entry = Entry { room, sender, limit, tokens: Tokens::new(), outage: Arc::clone(&outage) };
    (entry, Exit { taken: Mutex::new(Taken { receiver, next: None }), outage })
}

impl Entry {
    /// Waits for the answer to an append, until then at most. Dropped before it was sent it is not appended.
    pub(super) async fn append(
        &self,
        append: Append,
        known: Known,
        end: Instant,
    ) -> Result<Answer, AppendError> {
        // Whoever was not sent hears of it before a caller with the same patience goes.
        let last_moment = end - self.limit / 20;
        let timed_out = || AppendError::TimedOut { after: self.limit };
        let units = units(&append);
        let room = match self.room.try_acquire_many_owned(units) {
            Ok(room) => room,
            Err(_) => {
                let cx = Context::new().with_deadline(last_moment);
                let room = self.room.acquire_many_owned(&cx, units).await;
                room.map_err(|_| self.not_sent().unwrap_or_else(timed_out))?
            }
        };
        let (answer, mut answered) = oneshot::channel();
        let token = self.tokens.next();
        let decided = Arc::<AtomicBool>::default();
        let own = Arc::clone(&decided);
        let request = Request { append, known, token, tries: 0, decided, answer, _room: room };
        if self.sender.try_send(request).is_err() {
            return Err(EngineError::new("the store has ended").into());
        }
        let early = timeout_at(last_moment, &mut answered).await;
        let answer = match early {
            Ok(answer) => Ok(answer),
            Err(_) => match self.not_sent() {
                Some(error) if !own.swap(true, Ordering::AcqRel) => return Err(error),
                _ => timeout_at(end, answered).await,
            },
        };
        match answer {
            Ok(Ok(answer)) => answer,
            // The store has ended, or took too long. Nobody knows.
            Ok(Err(_)) | Err(_) => Err(timed_out()),
        }
    }

    /// What is said of an append that was not sent because the database is not reached.
    fn not_sent(&self) -> Option<AppendError> {
        let why = self.outage.why.lock();
        let why = why.as_ref()?;
        let cause = format!("{why}: waited {:?} for it, nothing was appended", self.limit);
        Some(EngineError::new(cause).into())
    }
}

fn units(append: &Append) -> u32 {
    let bytes = append.events().iter().map(crate::NewEvent::bytes).sum::<usize>();
    u32::try_from(bytes / UNIT + 1).unwrap_or(UNITS).min(UNITS)
}

impl Exit {
    /// Waits for requests; answers all that are there, as far as they fit. Dropped, it has taken none.
    pub(super) async fn batch(&self) -> Option<Batch> {
        let mut taken = self.taken.lock().await;
        let first = match taken.next.take() {
            Some(next) => next,
            None => taken.receiver.recv().await?,
        };
        let mut batch = Batch::default();
        let mut next = Some(first);
        while let Some(request) = next.take().or_else(|| taken.receiver.try_recv().ok()) {
            if request.is_given_up() {
                continue;
            }
            if let Err(more) = batch.push(request) {
                taken.next = Some(more);
                break;
            }
        }
        Some(batch)
    }
}

/// Numbers that nobody else has.
#[derive(Debug)]
struct Tokens {
    next: std::sync::atomic::AtomicU64,
}

impl Tokens {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        // The keys that the standard library makes up for a map are random, and so is what they make of a number.
        let first = RandomState::new().hash_one(std::process::id());
        Self { next: first.into() }
    }

    fn next(&self) -> i64 {
        self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed).cast_signed()
    }
}
