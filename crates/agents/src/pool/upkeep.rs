//! What keeps the pool in order by itself: workers that are started ahead, idle ones that end, memory.
//!
//! `docs/rules.md#agents-5`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_tasks::{Context, Pause};
use tokio::time::{Instant, sleep_until};

use super::Shared;
use crate::SessionId;
use crate::live::Live;
use crate::settings::CheckedSettings;
use crate::worker::Recycled;

/// How often memory is looked at.
const LOOK: Duration = Duration::from_secs(1);

impl Shared {
    /// Runs until the context ends.
    pub(super) async fn keep_up(self: &Arc<Self>, cx: &Context) {
        let mut pause: Option<Pause<Arc<Live>>> = None;
        loop {
            let mut changed = pin!(self.look.notified());
            changed.as_mut().enable();
            self.staff.lock().looks_at = None;
            let above = self.look_at_memory(&mut pause);
            let next = self.tidy(!above);
            let next = {
                let mut staff = self.staff.lock();
                let look = (!staff.workers.is_empty()).then(|| Instant::now() + LOOK);
                let next = [next, look].into_iter().flatten().min();
                // Above the limit whoever becomes idle is ended at once.
                staff.looks_at = next.filter(|_| !above);
                next
            };
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = cx.cancelled() => return,
                _ = self.stop.cancelled() => return,
                () = changed => {}
                () = due => {}
            }
        }
    }

    /// Ends idle workers whose time is up, starts those that are to be started ahead if any may start; and says when to
    /// look again.
    pub(super) fn tidy(self: &Arc<Self>, may_start: bool) -> Option<Instant> {
        let now = Instant::now();
        let (due, mut next) = self.staff.lock().workers.due(now);
        for (number, why) in due {
            self.retire(number, why);
        }
        let ahead = loop {
            if !may_start || self.is_draining() || self.stop.is_cancelled() {
                break None;
            }
            let (number, settings) = {
                let mut staff = self.staff.lock();
                match staff.workers.start_ahead(now) {
                    Ok(Some(number)) => (number, staff.settings.clone()),
                    Ok(None) => break None,
                    Err(again) => break Some(again),
                }
            };
            if !self.start_ahead(number, &settings) {
                // There is a pause from now on.
                self.staff.lock().workers.not_started(now);
            }
        };
        if let Some(ahead) = ahead {
            next = Some(next.map_or(ahead, |next| next.min(ahead)));
        }
        next
    }

    /// A worker whose command line names no session serves whichever comes first; another one is started for a
    /// session of its own, which the next request gets that brings none. `false` if there is no task for it.
    fn start_ahead(self: &Arc<Self>, number: u64, settings: &CheckedSettings) -> bool {
        let mut arguments = settings.command.iter().chain(&settings.session_args);
        let named = arguments.any(|argument| argument.contains("{session}"));
        let session = SessionId::fresh();
        if named {
            let session = Arc::clone(session.name());
            self.staff.lock().workers.reserve(number, session);
        }
        self.start(number, settings, session.name(), None)
    }

    /// Above the limit nothing starts, and idle workers end. Says whether it is above.
    fn look_at_memory(&self, pause: &mut Option<Pause<Arc<Live>>>) -> bool {
        let limit = u64::from(self.settings().max_total_memory_mb) * 1024 * 1024;
        let above = self.memory() > limit;
        if !above {
            *pause = None;
            return false;
        }
        pause.get_or_insert_with(|| self.sluice.pause("memory"));
        let idlest = self.staff.lock().workers.idlest();
        if let Some(number) = idlest {
            self.retire(number, Recycled::Memory);
        }
        true
    }

    /// How much memory all workers use, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let trees: Vec<_> = {
            let staff = self.staff.lock();
            staff.handles.values().filter_map(|handle| handle.tree.clone()).collect()
        };
        trees.iter().map(|tree| tree.memory()).sum()
    }
}
