//! A worker between two turns.
//!
//! `docs/rules.md#agents-5`, `docs/rules.md#agents-7`.

use std::future::ready;
use std::pin::pin;

use bytes::Bytes;
use sluicegate_executors::process::Tree;
use sluicegate_tasks::Context;
use tokio::sync::mpsc;
use tokio::task::{unconstrained, yield_now};

use super::Shared;
use super::job::{Job, Report};
use super::worker::{Body, Command, End, Seat};
use crate::RequestError;
use crate::dialect::TurnReader;
use crate::sessions::Left;
use crate::worker::Recycled;

impl Body {
    /// Waits for the next turn; what the agent says meanwhile is nobody's, and one that answers unasked is replaced.
    pub(super) async fn idle(
        &mut self,
        cx: &Context,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Box<Job>, End> {
        let Some(tree) = &self.tree else { return Err(End::Exited) };
        let Seat { shared, number, .. } = &self.seat;
        // One that came up while the pool was ending was not among those that were told.
        let ends = shared.is_draining();
        let end = loop {
            tokio::select! {
                biased;
                // First: an agent that never stops talking is not to drown what the worker is told.
                command = commands.recv() => match command.map(Command::heed) {
                    Some(Ok(job)) => return Ok(job),
                    Some(Err(end)) => return Err(end),
                    None => return Err(End::Forced),
                },
                _ = cx.cancelled() => break End::Recycled(Recycled::Stopped),
                () = ready(()), if ends => break End::Recycled(Recycled::Stopped),
                read = tree.read() => {
                    if let Some(end) = self.overhears.after_turn(shared, read) {
                        break end;
                    }
                }
            }
            // A piece at a time: others are on this thread too.
            yield_now().await;
        };
        if shared.staff(|staff| staff.workers.leaves(*number)) {
            return Err(end);
        }
        // A turn was faster, which cannot be had here.
        match commands.recv().await.map(Command::heed) {
            Some(Ok(job)) => {
                self.not_begun(job);
                Err(end)
            }
            _ => Err(end),
        }
    }

    /// Waits until the agent may be asked: until the limiter lets it, and all is heard that it said before. Otherwise it
    /// says how the worker ends, if it does, and the request has been told.
    pub(super) async fn until_asked(&mut self) -> Result<(), Option<End>> {
        if !self.was_idle {
            let Some(tree) = self.tree.clone() else { return Err(None) };
            return self.until_new_is_asked(&*tree).await.map_err(Some);
        }
        let Self { tree: Some(tree), job: Some(job), seat, overhears, .. } = self else {
            return Err(None);
        };
        let waited = overhears.until_asked(&**tree, job, seat).await;
        match waited {
            Waited::Over => return Ok(()),
            Waited::Ends(end) => {
                if let Some(job) = self.job.take() {
                    self.not_begun(job);
                }
                return Err(Some(end));
            }
            Waited::GivenUp(error) => {
                job.tell(Report::Ended { outcome: Err(error), left: Left::Untouched });
            }
        }
        if seat.kill.is_cancelled() {
            return Err(Some(End::Exited));
        }
        // It has heard nothing, and may be asked something else.
        seat.shared.staff(|staff| staff.workers.not_asked(seat.number));
        self.job.take().map(|job| job.turn.fail());
        Err(None)
    }

    /// A turn cannot be had here.
    fn not_begun(&self, mut job: Box<Job>) {
        self.seat.shared.staff(|staff| staff.workers.draining(self.seat.number));
        let reply = job.reply.take();
        let report = Report::NotBegun(job.turn);
        reply.map(|reply| reply.send(report).ok());
    }
}

/// What is there to be read, if anything. It is not to look as if there were nothing because much was read before.
async fn read_now(tree: &dyn Tree) -> Option<Option<Bytes>> {
    let read = async {
        tokio::select! {
            biased;
            read = tree.read() => Some(read),
            () = ready(()) => None,
        }
    };
    unconstrained(read).await
}

/// What comes of a turn that waits for the limiter.
enum Waited {
    /// It may be had now.
    Over,
    /// Nobody wants it any more, or the worker is killed.
    GivenUp(RequestError),
    /// It cannot be had here.
    Ends(End),
}

impl TurnReader {
    /// Waits until a worker that was idle may be asked. What it says meanwhile is no answer.
    async fn until_asked(&mut self, tree: &dyn Tree, job: &Job, seat: &Seat) -> Waited {
        let shared = &seat.shared;
        let mut wait = pin!(shared.pace.wait(job.settings.upstream_rate_limit_rps));
        let mut given_up = pin!(seat.given_up(Some(job)));
        loop {
            tokio::select! {
                biased;
                error = &mut given_up => return Waited::GivenUp(error),
                read = tree.read() => {
                    if let Some(end) = self.after_turn(shared, read) {
                        return Waited::Ends(end);
                    }
                }
                () = &mut wait => return self.heard_out(tree, shared).await,
            }
            yield_now().await;
        }
    }

    /// What is there is heard before anything is asked.
    async fn heard_out(&mut self, tree: &dyn Tree, shared: &Shared) -> Waited {
        while let Some(read) = read_now(tree).await {
            if let Some(end) = self.after_turn(shared, read) {
                return Waited::Ends(end);
            }
            yield_now().await;
        }
        if self.has_rest() {
            return Waited::Ends(End::Recycled(Recycled::OutOfStep));
        }
        Waited::Over
    }

    /// Takes what is read of a worker that nobody has asked. Says how the worker ends, if it does.
    fn after_turn(&mut self, shared: &Shared, read: Option<Bytes>) -> Option<End> {
        let Some(bytes) = read else { return Some(End::Exited) };
        let in_step = self.overhear(&shared.settings().dialect, &bytes);
        (!in_step).then_some(End::Recycled(Recycled::OutOfStep))
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
