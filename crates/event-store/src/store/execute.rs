//! Executing a command: read, decide, append; and all of it again where something came between.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use sluicegate_tasks::Context;
use tokio::time::sleep;

use super::EventStore;
use crate::{AppendError, BoxFuture, Decision, ExecuteError, Position};

/// After how many tries a command is given up.
const TRIES: u32 = 16;
/// How long the first pause is at most. Each one is twice as long as the one before,
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// up to this one.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

impl EventStore {
    /// Reads what a decision depends on, decides, and appends its events under the condition that it still holds. Where
    /// something came between, it does so again, after a pause.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use sluicegate_event_store::{EventStore, ExecuteError, NewEvent, Query, decision, fold};
    ///
    /// let store = EventStore::in_memory();
    /// let subscribe = |student: &'static str| {
    ///     decision(
    ///         || fold::count(Query::types(["StudentSubscribed"]).tag("course", "c1")),
    ///         move |taken| match taken {
    ///             0 => Ok(vec![NewEvent::of("StudentSubscribed").tag("course", "c1").tag("student", student)]),
    ///             _ => Err("the course is full"),
    ///         },
    ///     )
    /// };
    /// assert!(store.execute(&subscribe("s1")).await?.position.is_some());
    /// let refused = store.execute(&subscribe("s2")).await.unwrap_err();
    /// assert_eq!(refused, ExecuteError::Refused("the course is full"));
    /// # Ok::<(), ExecuteError<&str>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Cancel safety
    /// Dropped, its events may be appended or not; never some of them.
    ///
    /// # Errors
    /// [`ExecuteError`], when it is awaited. Too many projections are no reason to try again: that is refused at once.
    pub fn execute<'d, D: Decision>(&self, decision: &'d D) -> Execute<'d, D> {
        Execute { store: self.clone(), decision, cx: Context::new(), most: TRIES }
    }
}

/// A command that is to be executed: await it.
#[must_use = "await it"]
pub struct Execute<'d, D> {
    store: EventStore,
    decision: &'d D,
    cx: Context,
    most: u32,
}

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The position of the last event that was appended, if any was.
    pub position: Option<Position>,
    /// How often it was tried.
    pub tries: u32,
}

impl<D: Decision> Execute<'_, D> {
    /// It is given up when the context ends.
    pub fn under(mut self, cx: &Context) -> Self {
        self.cx = cx.clone();
        self
    }

    /// It is given up after so many tries; after 16 if it is not said.
    pub fn tries(mut self, most: u32) -> Self {
        self.most = most.max(1);
        self
    }

    async fn run(self) -> Result<Executed, ExecuteError<D::Error>> {
        let mut tries = 0;
        loop {
            tries += 1;
            let interrupted = |why| ExecuteError::Interrupted { why, tries };
            self.cx.check().map_err(interrupted)?;
            let tried = self.cx.until_interrupted(self.try_once()).await;
            let position = match tried.map_err(interrupted)? {
                Err(ExecuteError::Append(AppendError::Conflict { position })) => position,
                Err(error) => return Err(error),
                Ok(position) => return Ok(Executed { position, tries }),
            };
            if tries >= self.most {
                return Err(ExecuteError::Conflict { position, tries });
            }
            let pause = pause(tries, RandomState::new().hash_one(tries));
            self.cx.until_interrupted(sleep(pause)).await.map_err(interrupted)?;
        }
    }

    async fn try_once(&self) -> Result<Option<Position>, ExecuteError<D::Error>> {
        let projections = self.decision.projections();
        let projected = self.store.project(projections, Position::START).await;
        let (states, condition) = projected.map_err(ExecuteError::Project)?;
        let events = self.decision.decide(states).map_err(ExecuteError::Refused)?;
        if events.is_empty() {
            return Ok(None);
        }
        let appended = self.store.append_if(events, condition).await;
        appended.map(Some).map_err(ExecuteError::Append)
    }
}

impl<'d, D: Decision> IntoFuture for Execute<'d, D> {
    type Output = Result<Executed, ExecuteError<D::Error>>;
    type IntoFuture = BoxFuture<'d, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// How long to wait after so many tries: somewhere in the upper half of a span that doubles, so that those who came
/// together do not come together again.
fn pause(tries: u32, random: u64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_PAUSE);
    let half = doubled / 2;
    let of_half = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
    half + Duration::from_nanos(random % (of_half + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_differ_and_have_an_end() {
        let span = |tries| (pause(tries, 0), pause(tries, 1_000_000));
        assert_eq!(span(1), (Duration::from_millis(1), Duration::from_millis(2)));
        assert_eq!(pause(2, 0), Duration::from_millis(2));
        assert_eq!(pause(5, 0), Duration::from_millis(16));
        assert_eq!(pause(40, 0), LONGEST_PAUSE / 2);
        for random in [0, 1, 77_777_777, u64::MAX] {
            assert!((LONGEST_PAUSE / 2..=LONGEST_PAUSE).contains(&pause(u32::MAX, random)));
        }
    }
}
