//! A worker's start: its task, its program, its process.
//!
//! `docs/rules.md#agents-4`, `docs/rules.md#agents-5`.

use std::pin::pin;
use std::sync::Arc;

use sluicegate_executors::process::{Exit, Program, SpawnError, Tree, TreeSignal};
use sluicegate_tasks::Context;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::job::{Job, Report, crash};
use super::worker::{Body, End, Handle, Seat};
use crate::dialect::TurnReader;
use crate::sessions::Left;
use crate::settings::{CheckedSettings, Mode, PromptBy};
use crate::worker::WorkerNumber;
use crate::{Event, RequestError};

impl Shared {
    /// Starts the task of a worker, with its first turn or ahead of one. `false` if there is none for it: everything
    /// has come back by drop then.
    pub(super) fn start(
        self: &Arc<Self>,
        number: WorkerNumber,
        settings: &CheckedSettings,
        session: &str,
        job: Option<Job>,
    ) -> bool {
        let program = program(settings, session, job.as_ref());
        let (inbox, commands) = mpsc::channel(1);
        let kill = self.stop.child();
        let handle = Handle { inbox, kill: kill.clone(), tree: None };
        let id = self.staff(|staff| {
            staff.handles.insert(number, handle);
            staff.workers.id(number)
        });
        let seat = Seat { shared: Arc::clone(self), number, id, kill };
        let body = Body {
            tree: None,
            seat,
            job: job.map(Box::new),
            left: None,
            was_idle: false,
            overhears: TurnReader::new(false),
        };
        let live = move |cx: Context| async move { body.live(&cx, program, commands).await };
        self.processes.try_submit(&self.stop, live).is_ok()
    }
}

impl Body {
    pub(super) async fn spawn(&mut self, program: Program) -> Result<Arc<dyn Tree>, RequestError> {
        let shared = Arc::clone(&self.seat.shared);
        let mut spawning = shared.spawner.spawn(program);
        let error = {
            let id = &self.seat.id;
            let mut given_up = pin!(self.seat.given_up(self.job.as_deref()));
            if let Some(job) = &self.job
                && job.settings.prompt == PromptBy::Arg
            {
                // It is asked by its start.
                tokio::select! {
                    biased;
                    () = shared.pace.wait(job.settings.upstream_rate_limit_rps) => {}
                    error = &mut given_up => return Err(error),
                }
            }
            tokio::select! {
                biased;
                spawned = &mut spawning => {
                    let SpawnError { cause } = match spawned {
                        Ok(tree) => return Ok(self.started(Arc::from(tree))),
                        Err(error) => error,
                    };
                    shared.observe(&Event::WorkerNotStarted { worker: id, cause: &cause });
                    shared.staff(|staff| staff.workers.not_started(Instant::now()));
                    return Err(crash(id, None, cause));
                }
                error = &mut given_up => error,
            }
        };
        match &mut self.job {
            Some(job) => {
                job.tell(Report::Ended { outcome: Err(error.clone()), left: Left::Silent })
            }
            None if self.seat.kill.is_cancelled() => {}
            None => {
                let (worker, cause) = (&*self.seat.id, "it takes too long");
                shared.observe(&Event::WorkerNotStarted { worker, cause });
                shared.staff(|staff| staff.workers.not_started(Instant::now()));
            }
        }
        // It is told now; but the place is free when nothing is left of what was being started.
        let grace = shared.settings().graceful_shutdown;
        if let Ok(Ok(tree)) = timeout(grace, spawning).await {
            self.seat.killed(&*tree).await;
        }
        Err(error)
    }

    /// Waits until a program that was started for its turn may be asked: however long the start took, no more are asked in
    /// a second than may be. What it says before is the turn's.
    pub(super) async fn until_new_is_asked(&mut self, tree: &dyn Tree) -> Result<(), End> {
        let (seat, Some(job)) = (&self.seat, &mut self.job) else { return Ok(()) };
        if job.settings.prompt == PromptBy::Arg {
            return Ok(());
        }
        let error = tokio::select! {
            biased;
            error = seat.given_up(Some(job)) => error,
            // There is nobody to be asked any more.
            _ = tree.exit() => return Ok(()),
            () = seat.shared.pace.wait(job.settings.upstream_rate_limit_rps) => return Ok(()),
        };
        job.tell(Report::Ended { outcome: Err(error), left: Left::Silent });
        Err(if seat.kill.is_cancelled() { End::Exited } else { End::Forced })
    }

    fn started(&self, tree: Arc<dyn Tree>) -> Arc<dyn Tree> {
        let Seat { shared, number, id, kill } = &self.seat;
        shared.staff(|staff| {
            staff.workers.started(Instant::now(), *number, tree.pid());
            if let Some(handle) = staff.handles.get_mut(number) {
                handle.tree = Some(Arc::clone(&tree));
            }
        });
        if kill.is_cancelled() {
            tree.signal(TreeSignal::Kill);
        }
        shared.observe(&Event::WorkerSpawned { worker: id });
        tree
    }

    /// There is no process: nothing happened, so a session that is new is still new.
    pub(super) fn not_started(mut self, error: RequestError) {
        if let Some(job) = &mut self.job {
            job.tell(Report::Ended { outcome: Err(error), left: Left::Untouched });
        }
        self.give_back();
    }
}

impl Seat {
    /// Waits until it is given up before it is asked: its turn is, or it is killed. A start ahead of a turn has as long as
    /// a turn may.
    pub(super) async fn given_up(&self, job: Option<&Job>) -> RequestError {
        let Self { id, kill, shared, .. } = self;
        let interrupted = async {
            match job {
                Some(job) => job.interrupted(id).await,
                None => {
                    sleep(shared.settings().execution_timeout).await;
                    crash(id, None, String::new())
                }
            }
        };
        tokio::select! {
            biased;
            error = interrupted => error,
            _ = kill.cancelled() => crash(id, Some(Exit::Signal(9)), String::new()),
        }
    }
}

/// The program for a worker: its command line with the session in it, and the prompt where that is an argument.
fn program(settings: &CheckedSettings, session: &str, job: Option<&Job>) -> Program {
    let begun = job.is_some_and(|job| job.begun);
    let of_session = if begun { &settings.resume_args } else { &settings.session_args };
    let of_session = of_session.iter().map(|argument| argument.replace("{session}", session));
    let prompt = match (settings.prompt, job) {
        (PromptBy::Arg, Some(job)) => Some(&*job.live.request.ask.message),
        _ => None,
    };
    let filled = |argument: &String| {
        let argument = argument.replace("{session}", session);
        prompt.map_or(argument.clone(), |prompt| argument.replace("{prompt}", prompt))
    };
    let (options, rest) = settings.command.split_at(end_of_options(settings));
    let command = options.iter().map(filled).chain(of_session).chain(rest.iter().map(filled));
    let mut command = command.map(Into::into);
    let mut environment = settings.environment.variables();
    // A process that stays is not of one request alone.
    let traced = job.filter(|_| settings.mode == Mode::OneShot);
    if let Some(parent) = traced.and_then(|job| job.live.request.ask.traceparent.as_deref()) {
        environment.insert("TRACEPARENT".into(), parent.into());
    }
    Program {
        command: command.next().unwrap_or_default(),
        arguments: command.collect(),
        environment,
        folder: settings.folder.clone(),
        memory_limit: settings.worker_memory_mb.map(|mb| u64::from(mb) * 1024 * 1024),
    }
}

/// Where the arguments of a session go: at the end, but before a `--` that stands before the prompt, since what is behind
/// it is no option.
fn end_of_options(settings: &CheckedSettings) -> usize {
    let command = settings.as_argument().unwrap_or_default();
    let prompt = command.iter().position(|argument| argument.contains("{prompt}"));
    let end = prompt.and_then(|at| command[..at].iter().rposition(|argument| argument == "--"));
    end.unwrap_or(settings.command.len())
}
