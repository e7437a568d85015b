//! One turn with an agent: asking, listening, and knowing when it is over.
//!
//! What ends it: a result, the end of the program, more output than may be, its time, or somebody who gives it up.
//!
//! `docs/rules.md#agents-7`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_executors::process::{Exit, NotRead, Tree};
use tokio::time::{Instant, sleep_until};

use super::job::{Job, crash};
use super::{Shared, ms_since};
use crate::RequestError;
use crate::dialect::{AgentResult, MAX_OUTPUT, Said, TurnReader};
use crate::event::ms;
use crate::sessions::Left;
use crate::settings::{Mode, PromptBy};
use crate::worker::WorkerNumber;

/// How much is shown of what an agent said that was not understood.
const SAID: usize = 200;

/// After so long without a word, what was said may be a result though its line has no end: some forget it, and stay.
const PAUSE: Duration = Duration::from_millis(250);

/// How a turn ended.
#[derive(Debug)]
pub(super) enum TurnEnd {
    /// With a result. The program may go on if it was told all, and has said nothing since that could be taken for
    /// the next answer; then this reads on.
    Result { result: AgentResult, reads_on: Option<TurnReader> },
    /// The program ended without one; `heard` if it had said anything.
    Crashed { error: RequestError, exit: Exit, heard: bool },
    /// It is given up, and the program with it.
    GivenUp { error: RequestError, heard: bool },
}

impl TurnEnd {
    /// Whether nothing can have come of it: it failed before it said anything. What ended in order may have done
    /// something, though it said nothing.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Crashed { exit, heard: false, .. } if *exit != Exit::Code(0))
    }

    /// How it leaves its session; `first` if it is the first turn of its program.
    pub(super) fn left(&self, first: bool) -> Left {
        match self {
            Self::Result { .. }
            | Self::Crashed { heard: true, .. }
            | Self::GivenUp { heard: true, .. } => Left::Heard,
            Self::Crashed { exit: Exit::Code(code), .. } if *code != 0 && first => Left::Refused,
            Self::Crashed { .. } => Left::Silent,
            Self::GivenUp { .. } => Left::CutOff,
        }
    }
}

/// The turn as far as it is.
struct Talk<'a> {
    tree: &'a dyn Tree,
    job: &'a Job,
    worker: &'a str,
    reader: TurnReader,
    /// What is still to be said to the agent.
    unsaid: VecDeque<Bytes>,
    /// It does not hear any more.
    is_deaf: bool,
}

impl Shared {
    /// Has a turn with an agent.
    ///
    /// Of a worker that `was_idle` all was heard that it said before. Dropped, the agent may have heard the half of it:
    /// nothing more can be said to it then.
    pub(super) async fn converse(
        &self,
        tree: &dyn Tree,
        job: &Job,
        (number, worker): (WorkerNumber, &Arc<str>),
        was_idle: bool,
    ) -> TurnEnd {
        let mut talk = Talk::new(tree, job, worker);
        let mut interrupted = pin!(job.interrupted(worker));
        let mut saying = talk.say_next();
        if was_idle {
            // At once, so that nothing is read between: from now on it may be the answer.
            tokio::select! {
                biased;
                error = &mut interrupted => return talk.given_up(error),
                said = said(&mut saying) => saying = talk.say_on(said),
                () = ready(()) => {}
            }
        }
        let mut heard = Instant::now();
        loop {
            let silent_at = job.settings.max_silence.and_then(|silence| heard.checked_add(silence));
            let paused_at = talk.reader.may_be_unended().then(|| heard + PAUSE);
            let read = tokio::select! {
                biased;
                read = tree.read() => read,
                error = &mut interrupted => return talk.given_up(error),
                said = said(&mut saying) => {
                    saying = talk.say_on(said);
                    continue;
                }
                () = until(paused_at) => match talk.unended() {
                    Some(result) => return talk.answered(result, saying.is_none()),
                    None => continue,
                },
                () = until(silent_at) => return talk.given_up(talk.silent(heard)),
            };
            let Some(bytes) = read else {
                let (has_output, silent) = (talk.reader.has_output(), talk.silent(heard));
                let says = talk.say_rest(saying);
                return tokio::select! {
                    biased;
                    end = talk.end(has_output) => end,
                    error = &mut interrupted => TurnEnd::GivenUp { error, heard: has_output },
                    // It may have ended its output, and stay.
                    () = until(silent_at) => TurnEnd::GivenUp { error: silent, heard: has_output },
                    never = says => match never {},
                };
            };
            heard = Instant::now();
            self.staff.lock().workers.active(heard, number);
            match talk.hear(&bytes) {
                Some(Heard::Result(result)) => {
                    // By what was said before: what it takes of it now is too late.
                    let is_said = saying.is_none();
                    drop(saying);
                    return talk.answered(result, is_said);
                }
                Some(Heard::End(end)) => return end,
                None => {}
            }
            if saying.is_none() {
                saying = talk.say_next();
            }
        }
    }
}

impl<'a> Talk<'a> {
    fn new(tree: &'a dyn Tree, job: &'a Job, worker: &'a str) -> Self {
        let settings = &job.settings;
        let (session, message) = (&job.live.request.session, &job.live.request.ask.message);
        let prompt = match (settings.mode, settings.prompt) {
            (Mode::Persistent, _) => {
                Some(Bytes::from(settings.dialect.prompt(session.name(), message)))
            }
            (Mode::OneShot, PromptBy::Stdin) => Some(Bytes::copy_from_slice(message.as_bytes())),
            (Mode::OneShot, PromptBy::Arg) => None,
        };
        let reader = TurnReader::new(settings.mode == Mode::OneShot);
        let unsaid = prompt.into_iter().collect();
        Self { tree, job, worker, reader, unsaid, is_deaf: false }
    }

    fn answered(self, result: AgentResult, is_said: bool) -> TurnEnd {
        let mut reader = self.reader.after();
        let in_step = is_said
            && self.unsaid.is_empty()
            && !self.is_deaf
            && reader.overhear(&self.job.settings.dialect, &[]);
        TurnEnd::Result { result, reads_on: in_step.then_some(reader) }
    }

    fn given_up(&mut self, error: RequestError) -> TurnEnd {
        // What it said last may be the answer, though its line has no end.
        if error.is_timeout()
            && let Some(result) = self.unended()
        {
            return TurnEnd::Result { result, reads_on: None };
        }
        let heard = self.reader.has_output();
        TurnEnd::GivenUp { error: self.explained(error), heard }
    }

    fn unended(&mut self) -> Option<AgentResult> {
        self.reader.unended_result(&self.job.settings.dialect)
    }

    /// It has said nothing for as long as it may.
    fn silent(&self, heard: Instant) -> RequestError {
        let silence = self.job.settings.max_silence.unwrap_or(Duration::ZERO);
        let mut error = self.job.timed_out(self.worker, silence);
        if let RequestError::ExecutionTimeout { message, .. } = &mut error {
            let ms = ms_since(heard).max(ms(silence));
            *message = Some(format!("it said nothing for {ms} ms, as long as max_silence allows"));
        }
        error
    }

    fn ends(&self) -> bool {
        self.job.settings.mode == Mode::OneShot
    }

    /// Says the next of what is to be said. An agent that answers and ends hears that there is no more: many wait
    /// for that before they begin.
    fn say_next(&mut self) -> Option<Saying<'a>> {
        match self.unsaid.pop_front() {
            Some(bytes) => Some(self.tree.write(bytes)),
            None => {
                if self.ends() {
                    self.tree.close_input();
                }
                None
            }
        }
    }

    /// The same, when something was said.
    fn say_on(&mut self, said: Result<(), NotRead>) -> Option<Saying<'a>> {
        self.is_deaf |= said.is_err();
        self.say_next()
    }

    /// Says all that is still to be said, to an agent that says no more: it may read on, and end when it has heard all.
    fn say_rest(
        &mut self,
        saying: Option<Saying<'a>>,
    ) -> impl Future<Output = Infallible> + use<'a> {
        let (tree, unsaid, ends) = (self.tree, std::mem::take(&mut self.unsaid), self.ends());
        async move {
            if let Some(saying) = saying {
                saying.await.ok();
            }
            for bytes in unsaid {
                tree.write(bytes).await.ok();
            }
            if ends {
                tree.close_input();
            }
            std::future::pending().await
        }
    }

    fn hear(&mut self, bytes: &[u8]) -> Option<Heard> {
        if self.reader.push(bytes).is_err() {
            let limit = MAX_OUTPUT as u64;
            let error = RequestError::OutputLimit { limit };
            return Some(Heard::End(TurnEnd::GivenUp { error, heard: true }));
        }
        let (dialect, environment) = (&self.job.settings.dialect, &self.job.settings.environment);
        while let Some(said) = self.reader.next(dialect) {
            match said {
                Said::Line(line) => self.job.live.say(&environment.redact(&line)),
                Said::Echo => {}
                Said::Asks(asked) if self.ends() => {
                    let asked = environment.redact(&asked.subtype);
                    let message = format!("It asks ({asked}), and nobody answers");
                    let reply = serde_json::Value::Null;
                    let error = RequestError::AgentError { message, reply };
                    return Some(Heard::End(self.given_up(error)));
                }
                Said::Asks(asked) => self.unsaid.push_back(Bytes::from(dialect.denial(&asked))),
                Said::Result(result) => return Some(Heard::Result(result)),
            }
        }
        None
    }

    /// A process that stays and has said no line that could be understood may speak another language.
    fn explained(&mut self, mut error: RequestError) -> RequestError {
        if let RequestError::ExecutionTimeout { message, .. } = &mut error
            && !self.ends()
            && !self.reader.understood()
        {
            let rest = self.job.settings.environment.redact(&self.reader.unfinished());
            if !rest.is_empty() {
                self.job.live.say(&rest);
            }
            let said = match self.job.live.beginning(SAID) {
                said if said.is_empty() => "it said nothing".to_owned(),
                said => format!("it said: {said}"),
            };
            let before = message.take().map(|before| format!("{before}; ")).unwrap_or_default();
            *message = Some(format!("{before}no line of the dialect came; {said}"));
        }
        error
    }

    /// The agent says no more.
    async fn end(&mut self, heard: bool) -> TurnEnd {
        let settings = &self.job.settings;
        // Before it is cut: the half of a secret is not known for one.
        let shown = |text: &str| settings.environment.redact(text);
        let came_to = match self.reader.end(&settings.dialect, shown) {
            Ok((result, true)) => return TurnEnd::Result { result, reads_on: None },
            Ok((result, false)) => Ok(result),
            Err(message) => Err(message),
        };
        let exit = self.tree.exit().await;
        let error = match (exit, came_to) {
            (Exit::Code(0), Ok(result)) if self.ends() => {
                return TurnEnd::Result { result, reads_on: None };
            }
            (Exit::Code(0), Err(message)) if self.ends() => RequestError::BadOutput { message },
            (exit, _) => {
                let environment = &self.job.settings.environment;
                let stderr = self.tree.errors_as(&|said, is_cut| match is_cut {
                    true => environment.redact_cut(said),
                    false => environment.redact(said),
                });
                crash(self.worker, Some(exit), stderr)
            }
        };
        TurnEnd::Crashed { error, exit, heard }
    }
}

type Saying<'a> = crate::BoxFuture<'a, Result<(), NotRead>>;

/// What ends a turn, of what is heard.
enum Heard {
    Result(AgentResult),
    End(TurnEnd),
}

/// Waits until something is said. An agent that does not listen any more ends, or answers even so.
async fn said(saying: &mut Option<Saying<'_>>) -> Result<(), NotRead> {
    match saying {
        Some(saying) => saying.await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
