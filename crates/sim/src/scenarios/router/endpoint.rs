//! The executor: an answer for each attempt, drawn from the seed, the message and the count. And the
//! observer, who listens for what only the router knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    Attempt, BoxFuture, Executor, Fact as Said, Message, Observer, Outcome, Rejection, Severity,
};
use tokio::time::sleep;

use super::plan::ms;
use super::world::{Life, World};
use crate::oracles::router::Fact;
use crate::rng::Rng;

/// What the endpoints of one seed have answered so far.
#[derive(Debug, Default)]
pub(super) struct Answers {
    asked: Mutex<BTreeMap<usize, u64>>,
}

/// The executor of one life.
pub(super) struct Endpoint {
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
    pub(super) answers: Arc<Answers>,
    pub(super) trouble: u64,
    /// Every attempt takes so long and succeeds.
    pub(super) steady: Option<Duration>,
}

/// What happens at one attempt.
#[derive(Clone, Debug)]
struct Step {
    took: Took,
    answer: Answer,
}

#[derive(Clone, Copy, Debug)]
enum Took {
    /// It ends by itself, or when its context does.
    Time(Duration),
    /// It does not look at its context.
    Deaf(Duration),
    /// It ends with its context, or when everything goes well again.
    Hang,
}

#[derive(Clone, Debug)]
enum Answer {
    Outcome(Outcome),
    Panic,
}

/// The number that every message of the simulation carries.
pub(super) fn serial(message: &Message) -> usize {
    let payload = message.payload.as_deref().unwrap_or_default();
    payload.parse().expect("a message of the simulation carries its number")
}

impl Endpoint {
    fn step(&self, serial: usize) -> Step {
        let count = {
            let mut asked = self.answers.asked.lock();
            let count = asked.entry(serial).or_insert(0);
            *count += 1;
            *count
        };
        let mut rng = Rng::new(self.world.seed ^ (serial as u64) << 20 ^ count << 50);
        let rng = &mut rng;
        if let Some(took) = self.steady {
            return Step { took: Took::Time(took), answer: Answer::Outcome(Outcome::Done) };
        }
        if self.world.is_calm() {
            let took = Took::Time(ms(rng.between(0, 20)));
            return Step { took, answer: Answer::Outcome(Outcome::Done) };
        }
        let took = match rng.between(1, 100) {
            1..=25 => Took::Time(Duration::ZERO),
            26..=75 => Took::Time(ms(rng.between(1, 500))),
            76..=92 => Took::Time(ms(rng.between(500, 8_000))),
            93..=96 => Took::Time(ms(rng.between(5_000, 90_000))),
            97..=98 => Took::Deaf(ms(rng.between(100, 60_000))),
            _ => Took::Hang,
        };
        let answer = if rng.percent(self.trouble) { trouble(rng) } else { done() };
        Step { took, answer }
    }

    async fn run(&self, attempt: Attempt<'_>) -> Outcome {
        self.world.called();
        let serial = serial(attempt.message);
        let settings = Arc::clone(attempt.pool);
        self.world.see(Fact::Started { serial, settings, attempt: attempt.number });
        let mut under_way = UnderWay { endpoint: self, serial, is_over: false };
        let Step { took, answer } = self.step(serial);
        let interrupted = match took {
            Took::Time(Duration::ZERO) => false,
            Took::Time(took) => attempt.cx.until_interrupted(sleep(took)).await.is_err(),
            Took::Deaf(took) => {
                sleep(took).await;
                false
            }
            Took::Hang => {
                let calmed = attempt.cx.until_interrupted(self.world.calmed()).await;
                if calmed.is_ok() {
                    return under_way.end(Outcome::Unreachable { cause: "no answer".to_owned() });
                }
                true
            }
        };
        match answer {
            _ if interrupted => under_way.end(Outcome::Interrupted),
            Answer::Outcome(outcome) => under_way.end(outcome),
            Answer::Panic => {
                let after = None;
                under_way.end(Outcome::RetryLater {
                    after,
                    why: String::new(),
                    status: None,
                    body: None,
                });
                // Unwinds as a panic does, without a word on standard error.
                std::panic::resume_unwind(Box::new("the executor panicked"))
            }
        }
    }
}

/// An attempt that is under way. Dropped before its end, it was cut off.
struct UnderWay<'a> {
    endpoint: &'a Endpoint,
    serial: usize,
    is_over: bool,
}

impl UnderWay<'_> {
    fn end(&mut self, outcome: Outcome) -> Outcome {
        self.is_over = true;
        let (serial, said) = (self.serial, Some(outcome.clone()));
        self.endpoint.world.see(Fact::Ended { serial, outcome: said });
        outcome
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_over && !self.endpoint.life.is_over() {
            self.endpoint.world.see(Fact::Ended { serial: self.serial, outcome: None });
        }
    }
}

const fn done() -> Answer {
    Answer::Outcome(Outcome::Done)
}

fn trouble(rng: &mut Rng) -> Answer {
    let words = || "trouble".to_owned();
    let outcome = match rng.between(1, 100) {
        1..=30 => Outcome::RetryLater { after: None, why: words(), status: Some(503), body: None },
        31..=55 => {
            let after = Some(ms(rng.between(0, 40) * 1_000));
            Outcome::RetryLater { after, why: words(), status: Some(200), body: None }
        }
        56..=67 => Outcome::Throttled { after: ms(rng.between(1, 20_000)), body: None },
        68..=77 => Outcome::Rejected(Rejection {
            status: Some(400),
            why: words(),
            severity: Severity::Error,
            body: None,
        }),
        78..=86 => Outcome::Unreachable { cause: words() },
        87..=94 => Outcome::BreakerOpen { name: "b".into(), rest: ms(rng.between(0, 15_000)) },
        _ => return Answer::Panic,
    };
    Answer::Outcome(outcome)
}

impl Executor for Endpoint {
    fn execute<'a>(&'a self, attempt: Attempt<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.life.live(self.run(attempt)))
    }
}

/// Hears what only the router knows: who was let into a pool, and who was not.
pub(super) struct Listener {
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
}

impl Observer for Listener {
    fn observe(&self, said: &Said<'_>) {
        if self.life.is_over() {
            return;
        }
        match said {
            Said::Admitted { pool, message } => {
                let (pool, serial) = (Arc::clone(pool), serial(message));
                self.world.see(Fact::Admitted { pool, serial });
            }
            Said::PoolFull { pool, count } => {
                self.world.see(Fact::Refused { pool: Arc::clone(pool), count: *count });
            }
            Said::Redelivered { id, .. } => self.world.note(format_args!("here already: {id}")),
            Said::Requeued { id, .. } => self.world.note(format_args!("a copy: {id}")),
            Said::SourceFailed { queue, doing, cause } => {
                self.world.note(format_args!("{queue} failed to {doing}: {cause}"));
            }
            _ => {}
        }
    }
}
