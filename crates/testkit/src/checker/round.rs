//! A round: racers on a store, and the verdict on what they were answered.

use std::pin::Pin;
use std::sync::Arc;

use sluicegate_event_store::{Engine, Event, Position, Query, Read};
use sluicegate_tasks::{Context, TaskGroup};
use tokio::sync::Barrier;

use super::Needs;
use super::history::{Answer, History, What};
use super::oracle::judge;
use super::rng::Rng;
use super::scenarios::Run;
use crate::conformance::events::Subject;

/// How many engines race where there can be several.
const ENGINES: usize = 4;
/// How many tasks a round has at most.
const RACERS: u32 = 64;

/// Where rounds are run: one store, with its engines.
pub(super) struct Arena {
    engines: Vec<Arc<dyn Engine>>,
}

/// What a round's racers share.
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) rng: Rng,
    /// The head when it began: everything after it is of this round.
    pub(super) start: Position,
    pub(super) history: Arc<History>,
    engines: Vec<Arc<dyn Engine>>,
    group: TaskGroup,
}

/// How a round went.
pub(super) struct Ended {
    pub(super) appended: u64,
    pub(super) refused: u64,
    pub(super) wrong: Vec<String>,
}

/// What a racer does.
pub(super) type Racer = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Arena {
    pub(super) async fn new(subject: &dyn Subject, needs: Needs) -> Self {
        let mut engines = vec![subject.engine()];
        while engines.len() < ENGINES
            && let Some(another) = match needs {
                Needs::SeveralEngines => subject.another().await,
                Needs::SeveralProcesses => subject.in_another_process().await,
                Needs::Nothing | Needs::UnrelatedTransaction => None,
            }
        {
            engines.push(another);
        }
        Self { engines }
    }

    pub(super) fn engines(&self) -> &[Arc<dyn Engine>] {
        &self.engines
    }

    /// Runs a round, and judges it.
    pub(super) async fn round(&self, number: u64, rng: Rng, run: Run) -> Ended {
        let start = self.engines[0].head().await.expect("it has a head");
        let history = Arc::new(History::default());
        let group = TaskGroup::new("racers", RACERS).expect("there is one");
        let engines = self.engines.clone();
        let shared = Arc::clone(&history);
        let expected = run(Round { number, rng, start, history: shared, engines, group }).await;
        let log = self.log_after(start).await;
        // Where a task hangs on to it, what it still does is not seen: that is a fault as well.
        let Some(history) = Arc::into_inner(history) else {
            let wrong = vec!["a racer never came to its end".to_owned()];
            return Ended { appended: 0, refused: 0, wrong };
        };
        let calls = history.into_calls();
        let mut ended = Ended { appended: 0, refused: 0, wrong: judge(&calls, &log) };
        for call in &calls {
            match &call.what {
                What::Append { answer: Answer::Appended(_), .. } => ended.appended += 1,
                What::Append { answer: Answer::Refused(_), .. } => ended.refused += 1,
                _ => {}
            }
        }
        ended.wrong.extend(expected.judge(ended.appended, ended.refused));
        ended
    }

    async fn log_after(&self, start: Position) -> Vec<Event> {
        let mut read = Read::new(Query::all()).expect("it may be asked for");
        read.after = start;
        let mut log = Vec::new();
        loop {
            let page = self.engines[0].read(read.clone()).await.expect("it can be read");
            log.extend(page.events);
            let Some(next) = page.next else { return log };
            read.after = next;
        }
    }
}

/// What must come of a round, beside exact answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Nothing more.
    Exact,
    /// One append goes through.
    OneAppended,
    /// At least one goes through, and at least one does not.
    Both,
}

impl Expected {
    fn judge(self, appended: u64, refused: u64) -> Option<String> {
        let is_met = match self {
            Self::Exact => true,
            Self::OneAppended => appended == 1,
            Self::Both => appended > 0 && refused > 0,
        };
        (!is_met).then(|| format!("{self:?}, but {appended} went through and {refused} did not"))
    }
}

impl Round {
    /// The engine of a racer.
    pub(super) fn engine(&self, racer: u64) -> Arc<dyn Engine> {
        let count = self.engines.len() as u64;
        Arc::clone(&self.engines[(racer % count) as usize])
    }

    /// Lets racers go at once, each a few turns after the others, and waits for all of them.
    pub(super) async fn race(&mut self, racers: Vec<Racer>) {
        let barrier = Arc::new(Barrier::new(racers.len()));
        let mut tasks = Vec::new();
        for racer in racers {
            let (barrier, turns) = (Arc::clone(&barrier), self.rng.below(6));
            let task = self.group.try_submit(Context::new(), move |cx| async move {
                barrier.wait().await;
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                cx.until_interrupted(racer).await
            });
            tasks.push(task.expect("there is room for each"));
        }
        for task in tasks {
            task.await.expect("it ends well").expect("nobody interrupts it");
        }
    }
}
