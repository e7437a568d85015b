//! A worker's task: a tree of processes from its start to its end, and the turns it has in between.
//!
//! `docs/rules.md#agents-4`, `docs/rules.md#agents-5`, `docs/rules.md#agents-6`.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_executors::process::{Program, Tree, TreeSignal};
use sluicegate_tasks::Context;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::Shared;
use super::converse::TurnEnd;
use super::job::{Job, Report};
use crate::Event;
use crate::dialect::TurnReader;
use crate::sessions::Left;
use crate::settings::Mode;
use crate::worker::{AfterTurn, Recycled, WorkerNumber};

/// How long a process that has answered may take to end by itself.
const LINGER: Duration = Duration::from_secs(2);

/// What is not gone so long after SIGKILL is held by the system, or nobody tells of its end: it can do nothing more, and
/// its place is not lost with it.
const KILLED_WITHIN: Duration = Duration::from_secs(30);

/// How a worker's task is reached.
pub(super) struct Handle {
    pub(super) inbox: mpsc::Sender<Command>,
    /// Ends it while it has no process yet.
    pub(super) kill: Context,
    pub(super) tree: Option<Arc<dyn Tree>>,
}

/// What a worker is told. It hears of one thing at a time, since the table says what state it is in.
pub(super) enum Command {
    Turn(Box<Job>),
    Retire(Recycled),
}

/// A worker's place in the table. Dropped, the place is free.
pub(super) struct Seat {
    pub(super) shared: Arc<Shared>,
    pub(super) number: WorkerNumber,
    pub(super) id: Arc<str>,
    pub(super) kill: Context,
}

/// What a worker has. Given back in this order: first the processes, then the place, then the turn.
pub(super) struct Body {
    pub(super) tree: Option<Arc<dyn Tree>>,
    pub(super) seat: Seat,
    pub(super) job: Option<Box<Job>>,
    /// How the last turn left its session.
    pub(super) left: Option<Left>,
    /// Whether it was there before its turn came.
    pub(super) was_idle: bool,
    /// Reads what it says while nobody has asked it.
    pub(super) overhears: TurnReader,
}

/// How a worker ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It is replaced.
    Recycled(Recycled),
    /// Its turn is given up.
    Forced,
    /// It answered, and ends by itself.
    Answered,
    /// Its program has ended.
    Exited,
}

impl Shared {
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
    pub(super) async fn live(
        mut self,
        cx: &Context,
        program: Program,
        mut commands: mpsc::Receiver<Command>,
    ) {
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
                Ok(job) => (self.job, self.was_idle) = (Some(job), true),
                Err(end) => break end,
            }
        };
        // One that answers before it is asked is of no more use than one that does not stay.
        let by_itself = matches!(end, End::Exited | End::Recycled(Recycled::OutOfStep));
        if by_itself && !self.seat.kill.is_cancelled() {
            shared.staff(|staff| staff.workers.ended(Instant::now(), self.seat.number));
        }
        if let Some(tree) = self.tree.clone() {
            self.end(&*tree, end, shared.settings().graceful_shutdown).await;
        }
        self.give_back();
    }

    /// A turn. Says how the worker ends, unless it goes on.
    async fn turn(&mut self) -> Option<End> {
        if let Err(end) = self.until_asked().await {
            return end;
        }
        let (Some(tree), Some(job)) = (self.tree.clone(), &mut self.job) else { return None };
        let Seat { shared, number, id, .. } = &self.seat;
        let (request, tenant) = (&job.live.request.id, &job.live.request.ask.tenant);
        job.live.runs_on(id, job.limit);
        shared.observe(&Event::WorkerAssigned { worker: id, request, tenant });
        let stays = job.settings.mode == Mode::Persistent;
        let mut end = shared.converse(&*tree, job, (*number, id), self.was_idle).await;
        let exited = matches!(end, TurnEnd::Crashed { .. });
        // Who was killed has not crashed.
        let killed = self.seat.kill.is_cancelled() || tree.is_killed_for_memory();
        let retry = job.may_retry && end.is_nothing() && !killed;
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
        self.seat.killed(tree).await;
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
    pub(super) fn give_back(self) {
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

impl Seat {
    /// Kills a tree, and waits until nothing of it is left.
    pub(super) async fn killed(&self, tree: &dyn Tree) {
        tree.signal(TreeSignal::Kill);
        if timeout(KILLED_WITHIN, tree.gone()).await.is_err() {
            let abandoned = Event::WorkerAbandoned { worker: &self.id, after: KILLED_WITHIN };
            self.shared.observe(&abandoned);
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
