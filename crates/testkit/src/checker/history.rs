//! What was asked of a store and what it answered, with the order of calls and answers.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use parking_lot::Mutex;
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, Engine, Event, NewEvent, Position, Query, Read,
};

/// Writes down what happens in a round.
#[derive(Default)]
pub(super) struct History {
    clock: AtomicU64,
    calls: Mutex<Vec<Call>>,
}

/// Something that was asked, and the answer.
#[derive(Debug)]
pub(super) struct Call {
    /// Who it is, for the data of its events.
    pub(super) id: u64,
    /// When it was called and answered, by a clock that counts both.
    pub(super) called: u64,
    pub(super) answered: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Append {
        events: Vec<NewEvent>,
        condition: Option<AppendCondition>,
        answer: Answer,
    },
    /// A page of what a query asks for.
    Read {
        query: Query,
        after: Position,
        events: Vec<Event>,
        next: Option<Position>,
    },
    /// All that a reader that goes on was given.
    Tail {
        query: Query,
        after: Position,
        events: Vec<Event>,
    },
}

#[derive(Debug)]
pub(super) enum Answer {
    Appended(Position),
    Refused(Position),
    /// Nobody waited for it: it may have happened.
    Left,
    /// It failed: it may have happened even so.
    Failed(String),
}

/// An event without its data, which say who appended it.
pub(super) fn event(event_type: &str, tags: impl IntoIterator<Item = String>) -> NewEvent {
    NewEvent::of(event_type).with_tags(tags)
}

impl History {
    /// One more tick.
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn add(&self, called: u64, what: What) {
        let call = Call { id: called, called, answered: self.tick(), what };
        self.calls.lock().push(call);
    }

    /// Appends; answers with the last position where that is known.
    pub(super) async fn append(
        &self,
        engine: &dyn Engine,
        events: Vec<NewEvent>,
        condition: Option<AppendCondition>,
    ) -> Option<Position> {
        let (called, append) = self.call(&events, condition.as_ref());
        let answer = match engine.append(append).await {
            Ok(position) => Answer::Appended(position),
            Err(AppendError::Conflict { position }) => Answer::Refused(position),
            Err(error) => Answer::Failed(error.to_string()),
        };
        let appended = match answer {
            Answer::Appended(position) => Some(position),
            _ => None,
        };
        self.add(called, What::Append { events, condition, answer });
        appended
    }

    /// Appends, and does not wait for the answer longer than a few turns of the others.
    pub(super) async fn append_and_leave(
        &self,
        engine: &dyn Engine,
        events: Vec<NewEvent>,
        condition: Option<AppendCondition>,
        turns: u64,
    ) {
        let (called, append) = self.call(&events, condition.as_ref());
        let mut appending = engine.append(append);
        let mut answer = Answer::Left;
        for _ in 0..turns {
            match (&mut appending).now_or_never() {
                Some(Ok(position)) => answer = Answer::Appended(position),
                Some(Err(AppendError::Conflict { position })) => answer = Answer::Refused(position),
                Some(Err(error)) => answer = Answer::Failed(error.to_string()),
                None => {
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            break;
        }
        drop(appending);
        self.add(called, What::Append { events, condition, answer });
    }

    /// The call's tick, and what is asked: each event says in its data whose it is, and which.
    fn call(&self, events: &[NewEvent], condition: Option<&AppendCondition>) -> (u64, Append) {
        let called = self.tick();
        let of = |(n, event): (u64, &NewEvent)| event.clone().json(&[called, n]);
        let events = (0..).zip(events).map(of).collect();
        (called, Append::new(events, condition.cloned()).expect("they may be stored"))
    }

    /// Reads a page; answers with its events.
    pub(super) async fn read(&self, engine: &dyn Engine, read: Read) -> Vec<Event> {
        let called = self.tick();
        let (query, after) = (read.query().clone(), read.after);
        // What cannot be read shows nothing wrong.
        let Ok(page) = engine.read(read).await else { return Vec::new() };
        let events = page.events.clone();
        self.add(called, What::Read { query, after, events, next: page.next });
        page.events
    }

    /// What a reader was given that went on until all was written.
    pub(super) fn tailed(&self, query: Query, after: Position, events: Vec<Event>) {
        let called = self.tick();
        self.add(called, What::Tail { query, after, events });
    }

    /// All calls, in the order in which they were called.
    pub(super) fn into_calls(self) -> Vec<Call> {
        let mut calls = self.calls.into_inner();
        calls.sort_unstable_by_key(|call| call.called);
        calls
    }
}
