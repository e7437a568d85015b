//! Being let in: a place in a group, with a permit or in line for one.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::context::Lineage;
use crate::permits::{OwnedPermit, Turn};
use crate::roster::{HasRoster, Roster, Seat};
use crate::stats::Counters;
use crate::task::{self, Hold, Manner};
use crate::{Context, Overload, Permits, Refusal, Refused, Task, TaskError};

/// What the handles and the tasks of a group share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) permits: Arc<Permits>,
    /// A parent's permits, taken where they are free and never waited for.
    pub(crate) lent: Option<Arc<Permits>>,
    pub(crate) overload: Overload,
    pub(crate) unwind: Duration,
    /// The service's own context, for detached tasks.
    pub(crate) service: Context,
    pub(crate) lineage: Arc<Lineage>,
    pub(crate) closing: CancellationToken,
    pub(crate) abort: CancellationToken,
    pub(crate) roster: Roster,
    pub(crate) names: Mutex<HashSet<Arc<str>>>,
    pub(crate) counters: Counters,
}


/// A place in the group: counted from here on, whether it starts at once or waits.
pub(crate) struct Place {
    seat: Seat<Shared>,
    start: Start,
    /// Given back when the task is gone.
    pub(crate) name: Option<NameTaken>,
}

enum Start {
    Now(OwnedPermit),
    InLine { turn: Turn<Arc<Permits>>, since: Instant },
}

impl Shared {
    /// A place by the group's policy, waiting for a permit where it says so.
    pub(crate) async fn place(self: &Arc<Self>, cx: &Context) -> Result<Place, Refusal> {
        match self.admit(cx) {
            Err(Refusal::AtLimit(_)) if self.overload == Overload::Wait => self.wait(cx).await,
            admitted => admitted,
        }
    }

    /// A place without waiting for it.
    pub(crate) fn admit(self: &Arc<Self>, cx: &Context) -> Result<Place, Refusal> {
        cx.check().map_err(Refusal::Interrupted)?;
        if cx.reenters(self.lineage.group) {
            return Err(Refusal::Nested { group: self.name.clone() });
        }
        // Counted first, then looked: see the group's first invariant.
        let seat = Seat::new(Arc::clone(self));
        if self.closing.is_cancelled() {
            return Err(Refusal::Draining);
        }
        let start = match self.try_permit() {
            Ok(permit) => Start::Now(permit),
            Err(at_limit) => match self.overload {
                Overload::Wait | Overload::FailFast => return Err(Refusal::AtLimit(at_limit)),
                Overload::HandBack { capacity, .. } | Overload::Queue { capacity } => {
                    let turn = Turn::queued(Arc::clone(&self.permits), capacity)
                        .map_err(|queued| Refusal::QueueFull { queued, capacity })?;
                    Start::InLine { turn, since: Instant::now() }
                }
            },
        };
        if let Start::Now(_) = start {
            self.counters.wait_time.record(Duration::ZERO);
        }
        self.counters.admitted.count();
        Ok(Place { seat, start, name: None })
    }

    /// The submitter waits for a permit: this is the backpressure.
    async fn wait(self: &Arc<Self>, cx: &Context) -> Result<Place, Refusal> {
        let since = Instant::now();
        let permit = tokio::select! {
            biased;
            permit = self.permits.acquire_owned(cx) => permit.map_err(Refusal::Interrupted)?,
            () = self.closing.cancelled() => return Err(Refusal::Draining),
        };
        let seat = Seat::new(Arc::clone(self));
        if self.closing.is_cancelled() {
            return Err(Refusal::Draining);
        }
        self.counters.wait_time.record(since.elapsed());
        self.counters.admitted.count();
        Ok(Place { seat, start: Start::Now(permit), name: None })
    }

    pub(crate) fn refuse<W>(&self, why: Refusal, work: W) -> Refused<W> {
        self.counters.rejected(&why);
        Refused { why, retry_after: self.overload.retry_after(), work }
    }

    /// How many tasks have ended that had started.
    pub(crate) fn ended(&self) -> u64 {
        let Counters { completed, panicked, .. } = &self.counters;
        completed.get() + panicked.get()
    }

    fn try_permit(&self) -> Result<OwnedPermit, crate::AtLimit> {
        let own = self.permits.try_acquire_owned();
        match (&self.lent, own) {
            (Some(lent), Err(at_limit)) => lent.try_acquire_owned().map_err(|_| at_limit),
            (_, own) => own,
        }
    }
}

impl Place {
    pub(crate) fn spawn<F, Fut, T>(self, cx: Context, manner: Manner<T>, work: F) -> Task<T>
    where
        F: FnOnce(Context) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let Self { seat, start, name } = self;
        let handle = match start {
            // Apart from the other, so that work that starts at once is a small future.
            Start::Now(permit) => {
                let hold = Hold { _name: name, _permit: permit, seat };
                tokio::spawn(task::run(hold, cx, manner, work))
            }
            Start::InLine { turn, since } => tokio::spawn(async move {
                let hold = in_line(name, seat, turn, since, &cx).await?;
                task::run(hold, cx, manner, work).await
            }),
        };
        Task { handle }
    }

    pub(crate) fn spawn_blocking<F, T>(self, cx: Context, manner: Manner<T>, work: F) -> Task<T>
    where
        F: FnOnce(Context) -> T + Send + 'static,
        T: Send + 'static,
    {
        let Self { seat, start, name } = self;
        let handle = tokio::spawn(async move {
            let hold = match start {
                Start::Now(permit) => Hold { _name: name, _permit: permit, seat },
                Start::InLine { turn, since } => in_line(name, seat, turn, since, &cx).await?,
            };
            task::run_blocking(hold, cx, manner, work).await
        });
        Task { handle }
    }
}

/// Waits for the permit of a queued task; the line was joined when it was let in.
async fn in_line(
    name: Option<NameTaken>,
    seat: Seat<Shared>,
    turn: Turn<Arc<Permits>>,
    since: Instant,
    cx: &Context,
) -> Result<Hold, TaskError> {
    let shared = &seat.of;
    tokio::select! {
        biased;
        // Before the permit: once a drain has begun, nothing starts any more.
        () = shared.closing.cancelled() => {
            shared.counters.handed_back.count();
            return Err(TaskError::HandedBack);
        }
        why = cx.cancelled() => {
            shared.counters.interrupted(why);
            return Err(TaskError::Interrupted(why));
        }
        () = turn => {}
    }
    shared.counters.wait_time.record(since.elapsed());
    let permit = OwnedPermit::of(Arc::clone(&shared.permits));
    Ok(Hold { _name: name, _permit: permit, seat })
}

/// A detached task's name, claimed for as long as the task is there.
pub(crate) struct NameTaken {
    shared: Arc<Shared>,
    name: Arc<str>,
}

impl NameTaken {
    pub(crate) fn claim(shared: &Arc<Shared>, name: Arc<str>) -> Result<Self, Refusal> {
        if shared.names.lock().insert(Arc::clone(&name)) {
            Ok(Self { shared: Arc::clone(shared), name })
        } else {
            Err(Refusal::NameTaken { name: name.to_string() })
        }
    }
}

impl Drop for NameTaken {
    fn drop(&mut self) {
        self.shared.names.lock().remove(&self.name);
    }
}

impl HasRoster for Shared {
    fn roster(&self) -> &Roster {
        &self.roster
    }
}
