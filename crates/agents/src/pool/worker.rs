//! A worker's task: a tree of processes from its start to its end, and the turns it has in between.
//!
//! `docs/rules.md#agents-4`, `docs/rules.md#agents-5`, `docs/rules.md#agents-6`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_executors::process::{Exit, Program, SpawnError, Tree, TreeSignal};
use sluicegate_tasks::{Context, Interrupt, Turn};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::converse::TurnEnd;
use super::{Shared, cancelled};
use crate::dialect::TurnReader;
use crate::event::ms;
use crate::live::Live;
use crate::sessions::Left;
use crate::settings::{CheckedSettings, Mode, PromptBy};
use crate::worker::{AfterTurn, Recycled, WorkerNumber};
use crate::{Event, Outcome, Reply, RequestError};

/// How long a process that has answered may take to end by itself.
const LINGER: Duration = Duration::from_secs(2);

/// How a worker's task is reached.
pub(super) struct Handle {
    inbox: mpsc::Sender<Command>,
    /// Ends it while it has no process yet.
    pub(super) kill: Context,
    pub(super) tree: Option<Arc<dyn Tree>>,
}

/// What a worker is told. It hears of one thing at a time, since the table says what state it is in.
pub(super) enum Command {
    Turn(Box<Job>),
    Retire(Recycled),
}

/// A turn that a worker has.
pub(super) struct Job {
    pub(super) live: Arc<Live>,
    pub(super) turn: Turn<Arc<Live>>,
    pub(super) settings: CheckedSettings,
    pub(super) started: Instant,
    /// How long it may run.
    limit: Duration,
    /// Whether its session had a turn before.
    pub(super) begun: bool,
    may_retry: bool,
    reply: Option<oneshot::Sender<Report>>,
    /// Ends with the pool.
    stop: Context,
}

/// What a worker says of a turn.
pub(super) enum Report {
    Ended {
        outcome: Outcome,
        left: Left,
    },
    /// It crashed before it said anything, and is gone.
    Again {
        turn: Turn<Arc<Live>>,
        left: Left,
    },
    /// It was gone before.
    NotBegun(Turn<Arc<Live>>),
}

/// A worker's place in the table. Dropped, the place is free.
pub(super) struct Seat {
    shared: Arc<Shared>,
    pub(super) number: WorkerNumber,
    pub(super) id: Arc<str>,
    kill: Context,
}

/// What a worker has. Given back in this order: first the processes, then the place, then the turn.
struct Body {
    tree: Option<Arc<dyn Tree>>,
    seat: Seat,
    job: Option<Box<Job>>,
    /// How the last turn left its session.
    left: Option<Left>,
    /// Reads what it says while nobody has asked it.
    overhears: TurnReader,
}

/// How a worker ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is replaced.
    Recycled(Recycled),
    /// Its turn is given up.
    Forced,
    /// It answered, and ends by itself.
    Answered,
    /// Its program has ended.
    Exited,
}

impl Job {
    pub(super) fn new(
        live: &Arc<Live>,
        turn: Turn<Arc<Live>>,
        started: Instant,
        begun: bool,
        may_retry: bool,
        reply: oneshot::Sender<Report>,
        shared: &Shared,
    ) -> Self {
        let (settings, stop) = (shared.settings(), shared.stop.clone());
        let of_tenant = settings.limits_of(&live.tenant).max_response_time;
        let limit = settings.execution_timeout.min(of_tenant);
        let (live, reply) = (Arc::clone(live), Some(reply));
        Self { live, turn, settings, started, limit, begun, may_retry, reply, stop }
    }

    /// Waits until it may not go on, and says why: it was cancelled, or its time is up. Cancel safe.
    pub(super) async fn interrupted(&self, worker: &str) -> RequestError {
        let cx = self.turn.context();
        let timed_out = |limit| self.timed_out(worker, limit);
        tokio::select! {
            biased;
            why = cx.cancelled() => match why {
                Interrupt::TimedOut => timed_out(self.live.request.ask.timeout.unwrap_or_default()),
                Interrupt::Cancelled => cancelled(&self.live, &self.stop),
            },
            () = sleep_until(self.started + self.limit) => timed_out(self.limit),
        }
    }

    pub(super) fn timed_out(&self, worker: &str, limit: Duration) -> RequestError {
        RequestError::ExecutionTimeout {
            request_id: self.live.request.id.to_string(),
            worker_id: worker.to_owned(),
            elapsed_ms: ms(self.started.elapsed()),
            timeout_ms: ms(limit),
            message: None,
        }
    }

    fn tell(&mut self, report: Report) {
        // A request that was given up hears of nothing; its turn comes back by drop.
        self.reply.take().map(|reply| reply.send(report).ok());
    }
}

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
            overhears: TurnReader::new(false),
        };
        let live = move |cx: Context| async move { body.live(&cx, program, commands).await };
        self.processes.try_submit(&self.stop, live).is_ok()
    }

    /// Tells a worker something that the table allows.
    pub(super) fn send(&self, number: WorkerNumber, command: Command) {
        let inbox = self.staff.lock().handles.get(&number).map(|handle| handle.inbox.clone());
        // The table lets one command through at a time. A worker whose task is gone gives everything back by drop.
        inbox.map(|inbox| inbox.try_send(command).ok());
    }

    /// Ends an idle worker.
    pub(super) fn retire(&self, number: WorkerNumber, why: Recycled) {
        if self.staff.lock().workers.retire(number) {
            self.send(number, Command::Retire(why));
        }
    }
}

impl Body {
    /// The whole life of a worker.
    async fn live(mut self, cx: &Context, program: Program, mut commands: mpsc::Receiver<Command>) {
        let shared = Arc::clone(&self.seat.shared);
        match self.spawn(program).await {
            Ok(tree) => self.tree = Some(tree),
            Err(error) => return self.not_started(error),
        }
        let end = loop {
            if self.job.is_some()
                && let Some(end) = self.turn().await
            {
                break end;
            }
            match self.idle(cx, &mut commands).await {
                Ok(job) => {
                    shared.pace.wait(job.settings.upstream_rate_limit_rps).await;
                    self.job = Some(job);
                }
                Err(end) => break end,
            }
        };
        if end == End::Exited && !self.seat.kill.is_cancelled() {
            shared.staff(|staff| staff.workers.ended(Instant::now(), self.seat.number));
        }
        if let Some(tree) = self.tree.clone() {
            self.end(&*tree, end, shared.settings().graceful_shutdown).await;
        }
        self.give_back();
    }

    async fn spawn(&mut self, program: Program) -> Result<Arc<dyn Tree>, RequestError> {
        let shared = Arc::clone(&self.seat.shared);
        let mut spawning = shared.spawner.spawn(program);
        let error = {
            let id = &self.seat.id;
            let mut given_up = pin!(self.given_up());
            if let Some(job) = &self.job {
                // A turn that waited for its place is not to go together with later ones.
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
        if let Some(job) = &mut self.job {
            job.tell(Report::Ended { outcome: Err(error.clone()), left: Left::Silent });
        }
        // It is told now; but the place is free when nothing is left of what was being started.
        let grace = shared.settings().graceful_shutdown;
        if let Ok(Ok(tree)) = timeout(grace, spawning).await {
            tree.signal(TreeSignal::Kill);
            tree.gone().await;
        }
        Err(error)
    }

    /// Waits until its start is given up: its turn is, or it is killed.
    async fn given_up(&self) -> RequestError {
        let Seat { id, kill, .. } = &self.seat;
        let interrupted = async {
            match &self.job {
                Some(job) => job.interrupted(id).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            error = interrupted => error,
            _ = kill.cancelled() => crash(id, Some(Exit::Signal(9)), String::new()),
        }
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
    fn not_started(mut self, error: RequestError) {
        if let Some(job) = &mut self.job {
            job.tell(Report::Ended { outcome: Err(error), left: Left::Untouched });
        }
        self.give_back();
    }

    /// A turn. Says how the worker ends, unless it goes on.
    async fn turn(&mut self) -> Option<End> {
        let (Some(tree), Some(job)) = (self.tree.clone(), &mut self.job) else { return None };
        let Seat { shared, number, id, .. } = &self.seat;
        let (request, tenant) = (&job.live.request.id, &job.live.request.ask.tenant);
        job.live.runs_on(id, job.limit);
        shared.observe(&Event::WorkerAssigned { worker: id, request, tenant });
        let stays = job.settings.mode == Mode::Persistent;
        let mut end = shared.converse(&*tree, job, (*number, id)).await;
        let exited = matches!(end, TurnEnd::Crashed { .. });
        let retry = job.may_retry && end.is_nothing();
        let (answered, ok, reads_on) = match &mut end {
            TurnEnd::Result { result, reads_on } => (true, !result.is_error, reads_on.take()),
            _ => (false, false, None),
        };
        // Whether it was started for the session as it was found is known by its first turn.
        let left = end.left(self.left.is_none());
        self.left = Some(left);
        if !retry {
            let outcome = job.outcome(end, id);
            job.tell(Report::Ended { outcome, left });
        }
        if answered && stays {
            let in_step = reads_on.is_some();
            let after = shared.turn_ended(*number, ok, in_step);
            self.overhears = reads_on.unwrap_or_else(|| TurnReader::new(false));
            let AfterTurn::Recycle(why) = after else {
                self.released(ok);
                return None;
            };
            return Some(End::Recycled(why));
        }
        shared.staff(|staff| staff.workers.turn_failed(Instant::now(), *number, ok));
        Some(match (answered, exited) {
            (true, _) => End::Answered,
            (_, true) => End::Exited,
            _ => End::Forced,
        })
    }

    /// Waits for the next turn; what the agent says meanwhile is nobody's, and one that answers unasked is replaced.
    async fn idle(
        &mut self,
        cx: &Context,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Box<Job>, End> {
        let Some(tree) = &self.tree else { return Err(End::Exited) };
        let Seat { shared, number, .. } = &self.seat;
        let (overhears, settings) = (&mut self.overhears, shared.settings());
        let chatter = async {
            while let Some(bytes) = tree.read().await {
                if !overhears.overhear(&settings.dialect, &bytes) {
                    return End::Recycled(Recycled::OutOfStep);
                }
            }
            End::Exited
        };
        // One that came up while the pool was ending was not among those that were told.
        let ending = async {
            if !shared.is_draining() {
                std::future::pending::<()>().await;
            }
        };
        let end = tokio::select! {
            biased;
            // What is there is heard before anything is asked.
            end = chatter => end,
            command = commands.recv() => match command.map(Command::heed) {
                Some(Ok(job)) if self.overhears.has_rest() => {
                    self.not_begun(job);
                    return Err(End::Recycled(Recycled::OutOfStep));
                }
                heeded => return heeded.unwrap_or(Err(End::Forced)),
            },
            _ = cx.cancelled() => End::Recycled(Recycled::Stopped),
            () = ending => End::Recycled(Recycled::Stopped),
        };
        if shared.staff(|staff| staff.workers.retire(*number)) {
            return Err(end);
        }
        // Somebody was faster: a turn that cannot be had here, or the same end.
        match commands.recv().await.map(Command::heed) {
            Some(Ok(job)) => {
                self.not_begun(job);
                Err(end)
            }
            _ => Err(end),
        }
    }

    /// A turn cannot be had here.
    fn not_begun(&self, mut job: Box<Job>) {
        self.seat.shared.staff(|staff| staff.workers.draining(self.seat.number));
        let reply = job.reply.take();
        let report = Report::NotBegun(job.turn);
        reply.map(|reply| reply.send(report).ok());
    }

    /// Ends the tree: asks, waits, kills; and waits until nothing of it is left.
    async fn end(&self, tree: &dyn Tree, end: End, grace: Duration) {
        let Seat { shared, number, id, .. } = &self.seat;
        shared.staff(|staff| staff.workers.draining(*number));
        if let End::Recycled(why) = end {
            shared.observe(&Event::WorkerRecycled { worker: id, why });
        }
        let exited = || async {
            let unread = async {
                while tree.read().await.is_some() {}
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                _ = tree.exit() => {}
                () = unread => {}
            }
        };
        tree.close_input();
        let mut over = end == End::Exited;
        if matches!(end, End::Answered | End::Recycled(_)) {
            over = timeout(LINGER.min(grace), exited()).await.is_ok();
        }
        if !over {
            tree.signal(TreeSignal::Terminate);
            over = timeout(grace, exited()).await.is_ok();
            if over && end == End::Forced {
                shared.observe(&Event::WorkerKilled { worker: id, signal: "SIGTERM" });
            }
        }
        if !over {
            shared.staff(|staff| staff.workers.stuck(*number));
            shared.observe(&Event::WorkerStuck { worker: id, after: grace });
            shared.observe(&Event::WorkerKilled { worker: id, signal: "SIGKILL" });
        }
        // What a program that has ended left behind goes too.
        tree.signal(TreeSignal::Kill);
        tree.gone().await;
    }

    /// The turn is over, and the worker goes on.
    fn released(&mut self, ok: bool) {
        if let Some(job) = self.job.take() {
            let request = &job.live.request.id;
            let after = job.started.elapsed();
            self.seat.shared.observe(&Event::WorkerReleased {
                worker: &self.seat.id,
                request,
                after,
            });
            if ok {
                job.turn.finish()
            } else {
                job.turn.fail()
            };
        }
    }

    /// Processes, place, turn: in this order.
    fn give_back(self) {
        let Self { tree, seat, job, left, .. } = self;
        let (shared, id) = (Arc::clone(&seat.shared), Arc::clone(&seat.id));
        drop(tree);
        drop(seat);
        let Some(mut job) = job else { return };
        let (request, after) = (&job.live.request.id, job.started.elapsed());
        shared.observe(&Event::WorkerReleased { worker: &id, request, after });
        // Who has not been told yet gets the turn back, to try again.
        match job.reply.take() {
            Some(reply) => {
                let left = left.unwrap_or(Left::Untouched);
                drop(reply.send(Report::Again { turn: job.turn, left }));
            }
            None => drop(job.turn.finish()),
        }
    }
}

impl Command {
    fn heed(self) -> Result<Box<Job>, End> {
        match self {
            Self::Turn(job) => Ok(job),
            Self::Retire(why) => Err(End::Recycled(why)),
        }
    }
}

impl Job {
    /// What came of the turn.
    fn outcome(&self, end: TurnEnd, worker: &str) -> Outcome {
        let result = match end {
            TurnEnd::Result { result, .. } => result,
            TurnEnd::Crashed { error, .. } | TurnEnd::GivenUp { error, .. } => return Err(error),
        };
        // It is told to others than the caller, and kept.
        let environment = &self.settings.environment;
        let (text, mut reply) = (result.text.map(|text| environment.redact(&text)), result.reply);
        environment.redact_value(&mut reply);
        if result.is_error {
            return Err(RequestError::AgentError { message: text.unwrap_or_default(), reply });
        }
        match text {
            None => Err(RequestError::BadOutput { message: self.settings.dialect.no_text(&reply) }),
            Some(text) => Ok(Reply {
                reply,
                text,
                queue_wait_ms: ms(self.started - self.live.admitted),
                execution_ms: ms(self.started.elapsed()),
                worker_id: worker.to_owned(),
            }),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // First the processes, which are killed by this where they are not gone; with the lock released.
        let handle = self.shared.staff.lock().handles.remove(&self.number);
        drop(handle);
        self.shared.staff(|staff| staff.workers.gone(self.number));
    }
}

pub(super) fn crash(worker: &str, exit: Option<Exit>, stderr: String) -> RequestError {
    let (exit_code, signal) = match exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal_name(signal))),
        None => (None, None),
    };
    RequestError::WorkerCrash { worker_id: worker.to_owned(), exit_code, signal, stderr }
}

fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 14] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (31, "SIGSYS"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("SIG{signal}"), |(_, name)| (*name).to_owned())
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
    let mut command = settings.command.iter().map(filled);
    let mut environment = settings.environment.variables();
    // A process that stays is not of one request alone.
    let traced = job.filter(|_| settings.mode == Mode::OneShot);
    if let Some(parent) = traced.and_then(|job| job.live.request.ask.traceparent.as_deref()) {
        environment.insert("TRACEPARENT".into(), parent.into());
    }
    Program {
        command: command.next().unwrap_or_default().into(),
        arguments: command.chain(of_session).map(Into::into).collect(),
        environment,
        folder: settings.folder.clone(),
        memory_limit: settings.worker_memory_mb.map(|mb| u64::from(mb) * 1024 * 1024),
    }
}
