//! A worker between two turns.
//!
//! `docs/rules.md#agents-5`, `docs/rules.md#agents-7`.

use std::future::ready;

use bytes::Bytes;
use sluicegate_executors::process::Tree;
use sluicegate_tasks::Context;
use tokio::sync::mpsc;
use tokio::task::{unconstrained, yield_now};

use super::Shared;
use super::job::{Job, Report};
use super::worker::{Body, Command, End, Seat};
use crate::dialect::TurnReader;
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
                    Some(Ok(job)) => return self.heard_out(job).await,
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

    /// What is there is heard before anything is asked: it is no answer.
    async fn heard_out(&mut self, job: Box<Job>) -> Result<Box<Job>, End> {
        let Some(tree) = &self.tree else { return Err(End::Exited) };
        let end = loop {
            match read_now(&**tree).await {
                Some(read) => match self.overhears.after_turn(&self.seat.shared, read) {
                    Some(end) => break end,
                    None => yield_now().await,
                },
                None if self.overhears.has_rest() => break End::Recycled(Recycled::OutOfStep),
                None => return Ok(job),
            }
        };
        self.not_begun(job);
        Err(end)
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

impl TurnReader {
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
