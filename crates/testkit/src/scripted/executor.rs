//! An executor whose answers a test writes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Attempt, BoxFuture, Executor, Outcome};
use tokio::sync::Notify;

use super::until;

/// What an executor does at one attempt.
#[derive(Clone, Debug)]
pub enum Step {
    /// Takes so long and answers this.
    Answer(Duration, Outcome),
    /// Goes on until its context ends.
    Hang,
    /// Panics with these words.
    Panic(&'static str),
}

/// An executor that does as it is told, message by message, and `Done` at once otherwise.
#[derive(Debug, Default)]
pub struct ScriptedExecutor {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    steps: HashMap<String, VecDeque<Step>>,
    otherwise: Option<Step>,
    started: Vec<String>,
    ended: Vec<String>,
    running: usize,
    most_running: usize,
}

impl ScriptedExecutor {
    /// An executor with nothing to do but succeed.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// What to do at the next attempts at a message, in order.
    pub fn on(&self, id: &str, steps: impl IntoIterator<Item = Step>) {
        self.state.lock().steps.entry(id.to_owned()).or_default().extend(steps);
    }

    /// What to do with all others.
    pub fn otherwise(&self, step: Step) {
        self.state.lock().otherwise = Some(step);
    }

    /// The messages that were started, in order, each attempt as `id#number`.
    #[must_use]
    pub fn started(&self) -> Vec<String> {
        self.state.lock().started.clone()
    }

    /// The messages whose attempts ended, in order.
    #[must_use]
    pub fn ended(&self) -> Vec<String> {
        self.state.lock().ended.clone()
    }

    /// How many run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.state.lock().running
    }

    /// The most that ran at once.
    #[must_use]
    pub fn most_running(&self) -> usize {
        self.state.lock().most_running
    }

    /// Waits until so many attempts were started.
    ///
    /// # Panics
    /// When that takes more than a day.
    pub async fn until_started(&self, count: usize) {
        let started = until(&self.changed, || self.state.lock().started.len() >= count);
        if !started.await {
            panic!("only {:?} were started, not {count}", self.started());
        }
    }

    fn begin(&self, attempt: &Attempt<'_>) -> Step {
        let step = {
            let mut state = self.state.lock();
            state.started.push(format!("{}#{}", attempt.message.id, attempt.number));
            state.running += 1;
            state.most_running = state.most_running.max(state.running);
            let told = state.steps.get_mut(&*attempt.message.id).and_then(VecDeque::pop_front);
            told.or_else(|| state.otherwise.clone())
        };
        self.changed.notify_waiters();
        step.unwrap_or(Step::Answer(Duration::ZERO, Outcome::Done))
    }
}

/// An attempt under way. Dropped, it has ended.
struct Running<'a> {
    executor: &'a ScriptedExecutor,
    id: String,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.executor.state.lock();
        state.running -= 1;
        state.ended.push(std::mem::take(&mut self.id));
    }
}

impl Executor for ScriptedExecutor {
    fn execute<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let step = self.begin(&attempt);
            let _running = Running { executor: self, id: attempt.message.id.to_string() };
            match step {
                Step::Answer(Duration::ZERO, outcome) => outcome,
                Step::Answer(after, outcome) => {
                    let work = tokio::time::sleep(after);
                    match attempt.cx.until_interrupted(work).await {
                        Ok(()) => outcome,
                        Err(_) => Outcome::Interrupted,
                    }
                }
                Step::Hang => {
                    attempt.cx.cancelled().await;
                    Outcome::Interrupted
                }
                Step::Panic(words) => panic!("{words}"),
            }
        })
    }
}
