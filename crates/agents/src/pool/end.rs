//! Ending: a request, a worker, the pool.
//!
//! `docs/rules.md#agents-11`.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_executors::process::TreeSignal;
use sluicegate_tasks::DrainReport;
use tokio::time::{Instant, timeout};

use super::{Agents, Shared};
use crate::Event;

impl Agents {
    /// Cancels a request, wherever it is. `false` if it is not here, or over.
    pub fn cancel(&self, id: &str) -> bool {
        let live = self.shared.table.lock().live.get(id).cloned();
        live.inspect(|live| live.cx.cancel()).is_some()
    }

    /// Kills a worker, with whatever it runs, and waits until it is gone. `false` if there is none of that id.
    ///
    /// # Cancel safety
    /// Dropped, it is killed even so.
    pub async fn kill(&self, worker: &str) -> bool {
        let shared = &self.shared;
        let mut is_known = false;
        let (number, kill) = loop {
            let mut changed = pin!(shared.staff_changed.notified());
            changed.as_mut().enable();
            {
                let staff = shared.staff.lock();
                let Some(number) = staff.workers.number_of(worker) else { return is_known };
                if let Some(handle) = staff.handles.get(&number) {
                    break (number, handle.kill.clone());
                }
            }
            // Its task is about to begin, or has ended just now.
            is_known = true;
            changed.await;
        };
        shared.observe(&Event::WorkerKilled { worker, signal: "SIGKILL" });
        // First, so that no request comes to it any more.
        shared.staff(|staff| staff.workers.killed(number));
        // In this order: a process that is started just now is found here, or finds that it was killed.
        kill.cancel();
        let tree = shared.staff.lock().handles.get(&number).and_then(|handle| handle.tree.clone());
        tree.inspect(|tree| tree.signal(TreeSignal::Kill));
        loop {
            let mut changed = pin!(shared.staff_changed.notified());
            changed.as_mut().enable();
            if !shared.staff.lock().handles.contains_key(&number) {
                return true;
            }
            changed.await;
        }
    }

    /// Ends the pool: nothing more is let in, what waits is refused, what runs may finish until the deadline, or for
    /// as long as it may run and its process may take to end. Then it is cancelled. It resolves when no process is
    /// left. Can be called twice, also at once.
    ///
    /// # Cancel safety
    /// Dropped, nothing more is let in, and what runs goes on.
    pub async fn shutdown(&self, deadline: Option<Instant>) -> DrainReport {
        self.shared.shutdown(deadline).await
    }
}

impl Shared {
    async fn shutdown(self: &Arc<Self>, deadline: Option<Instant>) -> DrainReport {
        let settings = self.settings();
        let grace = settings.graceful_shutdown;
        if !self.draining.swap(true, Ordering::SeqCst) {
            let pending = u64::from(self.sluice.stats().gauges.queued);
            self.observe(&Event::Shutdown { pending });
        }
        self.upkeep.cancel();
        self.staff(|staff| staff.workers.end());
        self.tidy(false);
        let deadline =
            deadline.unwrap_or_else(|| Instant::now() + settings.execution_timeout + grace);
        let report = self.sluice.drain(deadline).await;
        // Every process is given its grace, then none is left.
        drop(timeout(grace * 2, self.all_gone()).await);
        self.stop.cancel();
        let at = Instant::now() + grace;
        drop(self.processes.drain(at).await);
        drop(self.requests.drain(at).await);
        drop(self.service.drain(at).await);
        report
    }

    async fn all_gone(&self) {
        loop {
            let mut changed = pin!(self.staff_changed.notified());
            changed.as_mut().enable();
            if self.staff.lock().workers.is_empty() {
                return;
            }
            changed.await;
        }
    }
}
