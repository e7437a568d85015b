//! A request from admission to its end, as those see it who wait for it or follow it.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluicegate_tasks::{Context, ItemId};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::{Request, RequestError};

/// What came of a request.
pub type Outcome = Result<Reply, RequestError>;

/// What an agent answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// Its whole result.
    pub reply: Value,
    /// Its words.
    pub text: String,
    /// How long the request waited.
    pub queue_wait_ms: u64,
    /// How long it ran.
    pub execution_ms: u64,
    /// Which worker ran it.
    pub worker_id: String,
}

/// How a request stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// It waits for its turn.
    Queued,
    /// It runs.
    Running,
    /// It is over.
    Ended(Arc<Outcome>),
}

impl Stage {
    /// Its name: `queued`, `running`, `completed`, `failed`, `cancelled` or `interrupted`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Ended(outcome) => match &**outcome {
                Ok(_) => "completed",
                Err(RequestError::Cancelled) => "cancelled",
                Err(RequestError::Interrupted) => "interrupted",
                Err(_) => "failed",
            },
        }
    }
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) request: Request,
    pub(crate) tenant: Arc<str>,
    pub(crate) admitted: Instant,
    /// Ends when it is cancelled, or at its deadline.
    pub(crate) cx: Context,
    pub(crate) item: OnceLock<ItemId>,
    times: Mutex<Times>,
    /// Which worker has it, and for how long at most.
    runs: Mutex<Option<(Arc<str>, Duration)>>,
    /// What the agent said on the way, while somebody may follow: within what it may say in a turn.
    said: Mutex<SaidLines>,
    stage: watch::Sender<(Stage, usize)>,
    /// Wakes those who wait for its end, and for nothing else.
    ended: Notify,
}

/// When it waited, and ran.
#[derive(Debug)]
struct Times {
    /// How long it waited before the turns that it had.
    waited: Duration,
    /// Since when it waits again.
    waits_since: Option<Instant>,
    /// When its last turn began.
    started: Option<Instant>,
}

/// Lines, one after the other in one text: a short one takes little more than it is long.
#[derive(Debug, Default)]
struct SaidLines(String);

impl SaidLines {
    /// Adds a line, and says where it ends.
    fn add(&mut self, line: &str) -> usize {
        // None has an end of a line in it: that is what they are split at.
        self.0.push_str(line);
        self.0.push('\n');
        self.0.len()
    }

    /// The line that begins there, and where the next one does.
    fn at(&self, at: usize) -> Option<(Arc<str>, usize)> {
        let (line, _) = self.0.get(at..)?.split_once('\n')?;
        Some((line.into(), at + line.len() + 1))
    }
}

/// What somebody who follows a request hears.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Followed {
    /// It waits, or runs.
    Stage(Stage),
    /// The agent said something on the way: a line of JSON, or whatever it wrote.
    Line(Arc<str>),
    /// It is over; nothing follows.
    Ended(Arc<Outcome>),
}

/// Follows a request. Nothing is missed of what is said from the start of its turn on.
#[derive(Debug)]
pub struct Follow {
    live: Option<Arc<Live>>,
    heard: watch::Receiver<(Stage, usize)>,
    told: Option<&'static str>,
    /// How far it has heard what was said.
    said: usize,
    over: bool,
}

impl Live {
    pub(crate) fn new(request: Request, admitted: Instant, cx: Context) -> Self {
        Self {
            tenant: request.ask.tenant.id(),
            request,
            admitted,
            cx,
            item: OnceLock::new(),
            times: Mutex::new(Times {
                waited: Duration::ZERO,
                waits_since: Some(admitted),
                started: None,
            }),
            runs: Mutex::new(None),
            said: Mutex::default(),
            stage: watch::Sender::new((Stage::Queued, 0)),
            ended: Notify::new(),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage.borrow().0.clone()
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        let is_over = matches!(stage, Stage::Ended(_));
        self.stage.send_modify(|(known, _)| *known = stage);
        if is_over {
            self.ended.notify_waiters();
        }
    }

    /// A turn begins. It is the first in which something is said: what said something is not tried again.
    pub(crate) fn begin(&self) {
        let now = Instant::now();
        {
            let mut times = self.times.lock();
            let since = times.waits_since.take();
            times.waited += since.map_or(Duration::ZERO, |since| now - since);
            times.started = Some(now);
        }
        // Of what is tried again, the worker that it had is gone.
        *self.runs.lock() = None;
        self.set_stage(Stage::Running);
    }

    /// Its turn came to nothing, and it waits for another.
    pub(crate) fn wait_again(&self) {
        self.times.lock().waits_since = Some(Instant::now());
        self.set_stage(Stage::Queued);
    }

    /// How long it has waited in all, the time that it ran in between left out.
    pub(crate) fn waited(&self) -> Duration {
        let Times { waited, waits_since, .. } = *self.times.lock();
        waits_since.map_or(waited, |since| waited + since.elapsed())
    }

    pub(crate) fn started(&self) -> Option<Instant> {
        self.times.lock().started
    }

    /// A worker has it, and for how long at most.
    pub(crate) fn runs_on(&self, worker: &Arc<str>, limit: Duration) {
        *self.runs.lock() = Some((Arc::clone(worker), limit));
    }

    pub(crate) fn runs(&self) -> Option<(Arc<str>, Duration)> {
        self.runs.lock().clone()
    }

    /// The beginning of what the agent said, in so many characters.
    pub(crate) fn beginning(&self, most: usize) -> String {
        let beginning: String = self.said.lock().0.chars().take(most).collect();
        beginning.replace('\n', " ").trim_end().to_owned()
    }

    pub(crate) fn say(&self, line: &str) {
        let end = self.said.lock().add(line);
        self.stage.send_modify(|(_, known)| *known = end);
    }

    /// Waits for what comes of it. Cancel safe.
    pub(crate) async fn outcome(&self) -> Arc<Outcome> {
        let mut ended = pin!(self.ended.notified());
        // It may end between the look and the wait.
        ended.as_mut().enable();
        loop {
            if let Stage::Ended(outcome) = self.stage() {
                return outcome;
            }
            ended.as_mut().await;
            ended.set(self.ended.notified());
        }
    }

    pub(crate) fn follow(self: &Arc<Self>) -> Follow {
        let heard = self.stage.subscribe();
        Follow { live: Some(Arc::clone(self)), heard, told: None, said: 0, over: false }
    }
}

impl Follow {
    /// Follows what is over already.
    pub(crate) fn ended(outcome: Arc<Outcome>) -> Self {
        let (_, heard) = watch::channel((Stage::Ended(outcome), 0));
        Self { live: None, heard, told: None, said: 0, over: false }
    }

    /// What happens next; `None` once it has said how it ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Followed> {
        loop {
            if self.over {
                return None;
            }
            let (stage, said) = self.heard.borrow_and_update().clone();
            if said > self.said
                && let Some((line, next)) =
                    self.live.as_ref().and_then(|live| live.said.lock().at(self.said))
            {
                self.said = next;
                return Some(Followed::Line(line));
            }
            if let Stage::Ended(outcome) = stage {
                self.over = true;
                return Some(Followed::Ended(outcome));
            }
            if self.told != Some(stage.name()) {
                self.told = Some(stage.name());
                return Some(Followed::Stage(stage));
            }
            if self.heard.changed().await.is_err() {
                self.over = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lines_take_little() {
        let mut said = SaidLines::default();
        let ends: Vec<usize> = ["a", "", "é"].map(|line| said.add(line)).to_vec();
        assert_eq!(ends, [2, 3, 6]);
        let mut at = 0;
        for line in ["a", "", "é"] {
            let (heard, next) = said.at(at).unwrap();
            assert_eq!(&*heard, line);
            at = next;
        }
        assert_eq!(said.at(at), None);
        for _ in 0..100_000 {
            said.add("a");
        }
        assert!(said.0.capacity() < 500_000);
    }
}
