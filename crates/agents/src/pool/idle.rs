//! A worker between two turns.
//!
//! `docs/rules.md#agents-5`, `docs/rules.md#agents-7`.

use sluicegate_tasks::Context;
use tokio::sync::mpsc;

use super::job::{Job, Report};
use super::worker::{Body, Command, End, Seat};
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
}

impl Command {
    fn heed(self) -> Result<Box<Job>, End> {
        match self {
            Self::Turn(job) => Ok(job),
            Self::Retire(why) => Err(End::Recycled(why)),
        }
    }
}
