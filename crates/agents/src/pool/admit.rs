//! Letting a request in: checked, claimed for its session, in the queue, written down.
//!
//! `docs/rules.md#agents-2`, `docs/rules.md#agents-3`, `docs/rules.md#agents-8`.

use std::sync::Arc;

use sluicegate_tasks::{Admitted, CancelOnDrop, Entry, Interrupt, Refusal};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::run::Ending;
use super::{Agents, Shared, cancelled};
use crate::event::ms;
use crate::live::Live;
use crate::metrics::Counted;
use crate::sessions::{Asked, InSession, NotClaimed};
use crate::settings::CheckedSettings;
use crate::{Ask, Event, Outcome, Request, RequestError, SessionId};

/// A request that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the id is what to ask for"]
pub struct Ticket {
    /// The request.
    pub request_id: Arc<str>,
    /// Its session.
    pub session_id: SessionId,
}

/// A request between the queue and its task.
pub(super) struct LetIn {
    pub(super) live: Arc<Live>,
    pub(super) session: InSession,
    pub(super) place: Place,
    /// After the claim: whoever gets the session next claims it.
    pub(super) spare: Option<Spare>,
    /// After all that it held: whoever tries again finds that free.
    pub(super) ending: Ending,
}

/// The place in the queue of a request that is not let in yet. Dropped, it never was, and its tenant's rate is given back
/// what it took of it.
pub(super) struct Place(Option<Admitted<Arc<Live>>>);

impl Place {
    /// The request is let in.
    pub(super) fn let_in(mut self) -> Option<Admitted<Arc<Live>>> {
        self.0.take()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.take().map(Admitted::refuse);
    }
}

/// A session that a worker was started for ahead, for a request that is not let in yet. Dropped, it is nobody's again.
pub(super) struct Spare {
    shared: Arc<Shared>,
    session: Option<Arc<str>>,
}

impl Spare {
    /// The request is let in, and the session, if it is one of these, is its own.
    pub(super) fn keep(spare: Option<Self>) {
        if let Some(mut spare) = spare {
            spare.session = None;
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.shared.staff(|staff| staff.workers.give_back_spare(&session));
        }
    }
}

impl Agents {
    /// Lets a request in, or says why not. It resolves once that is written down; from then on the request is the
    /// pool's, and goes on whether or not anybody waits for it.
    ///
    /// # Errors
    /// The paper's four refusals, and what cannot be.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the request is cancelled.
    pub async fn submit(&self, ask: Ask) -> Result<Ticket, RequestError> {
        let tenant = ask.tenant.clone();
        let submitted = async { self.shared.submit(ask).await?.let_in().await }.await;
        submitted.inspect_err(|error| self.shared.rejected(&tenant, error))
    }

    /// [`submit`](Agents::submit) and [`wait`](Agents::wait) in one, for who has nothing to do in between: it is woken
    /// when all is over, and not before.
    ///
    /// # Errors
    /// As there: the request was not let in.
    ///
    /// # Cancel safety
    /// Dropped before the request is let in, it is cancelled; after that it goes on.
    pub async fn ask(&self, ask: Ask) -> Result<(Ticket, Arc<Outcome>), RequestError> {
        let tenant = ask.tenant.clone();
        let asked = async {
            let mut submitted = self.shared.submit(ask).await?;
            let outcome = submitted.live.outcome().await;
            Ok((submitted.let_in().await?, outcome))
        };
        asked.await.inspect_err(|error| self.shared.rejected(&tenant, error))
    }
}

/// A request whose task has begun. Dropped before it is let in, it is cancelled: whoever gives up before the request's
/// id is known wants no answer.
struct Submitted {
    live: Arc<Live>,
    told: oneshot::Receiver<Result<(), RequestError>>,
    guard: Option<CancelOnDrop>,
}

impl Submitted {
    /// Waits until it is let in.
    async fn let_in(&mut self) -> Result<Ticket, RequestError> {
        let told = (&mut self.told).await;
        if let Some(guard) = self.guard.take() {
            guard.disarm();
        }
        told.unwrap_or(Err(RequestError::ShuttingDown))?;
        let Request { id, session, .. } = &self.live.request;
        Ok(Ticket { request_id: Arc::clone(id), session_id: session.clone() })
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take()
            && matches!(self.told.try_recv(), Ok(Ok(())))
        {
            guard.disarm();
        }
    }
}

impl Shared {
    async fn submit(self: &Arc<Self>, ask: Ask) -> Result<Submitted, RequestError> {
        let settings = self.settings();
        ask.check(settings.as_argument())?;
        if self.is_draining() {
            return Err(RequestError::ShuttingDown);
        }
        let (session, spare) = self.session_for(&ask);
        let let_in = self.let_in(&settings, ask, session, spare).await?;
        let live = Arc::clone(&let_in.live);
        let (tell, told) = oneshot::channel();
        let guard = Some(live.cx.cancel_on_drop());
        let submitted = Submitted { live, told, guard };
        let shared = Arc::clone(self);
        let attend = move |cx| async move { shared.attend(&cx, let_in, tell).await };
        if let Err(refused) = self.requests.try_submit(&self.stop, attend) {
            return Err(self.no_task(&refused.why));
        }
        Ok(submitted)
    }

    /// The session of a request, which may be one that a worker was started for ahead.
    fn session_for(self: &Arc<Self>, ask: &Ask) -> (SessionId, Option<Spare>) {
        if let Some(session) = &ask.session {
            return (session.clone(), None);
        }
        let spare = self.staff.lock().workers.take_spare();
        let Some(session) = spare.and_then(|session| SessionId::parse(&session).ok()) else {
            return (SessionId::fresh(), None);
        };
        let name = Some(Arc::clone(session.name()));
        (session, Some(Spare { shared: Arc::clone(self), session: name }))
    }

    /// Claims a session for a request. The journal is asked for one that is not here, unless it is new.
    async fn claim(&self, live: &Live) -> Result<InSession, RequestError> {
        let Request { session, ask, .. } = &live.request;
        let owner = ask.tenant.owner();
        let mut asked = if ask.session.is_none() { Asked::Yes(None) } else { Asked::No };
        loop {
            match self.sessions.claim(session, &owner, asked) {
                Ok(claim) => return Ok(claim),
                Err(NotClaimed::Forbidden) => {
                    let session_id = session.to_string();
                    return Err(RequestError::SessionForbidden { session_id });
                }
                Err(NotClaimed::Unknown) => {
                    let known = self.until_let_in(live, self.journal.session(session)).await?;
                    asked = Asked::Yes(
                        known
                            .map_err(|error| RequestError::StateFailed { message: error.cause })?,
                    );
                }
            }
        }
    }

    async fn let_in(
        self: &Arc<Self>,
        settings: &CheckedSettings,
        ask: Ask,
        session: SessionId,
        spare: Option<Spare>,
    ) -> Result<LetIn, RequestError> {
        let tenant = ask.tenant.id();
        let entry = if settings.serial {
            Entry::of(Arc::clone(&tenant)).key("serial")
        } else {
            let class = ask.priority.class();
            Entry::of(Arc::clone(&tenant)).key(Arc::clone(session.name())).class(class)
        };
        let now = Instant::now();
        let cx = match ask.timeout {
            Some(timeout) => self.stop.with_timeout(timeout),
            None => self.stop.child(),
        };
        let id: Arc<str> = uuid::Uuid::now_v7().to_string().into();
        let live = Arc::new(Live::new(Request { id, session, ask }, now, cx));
        let claim = self.claim(&live).await?;
        match self.sluice.enter(&live.cx, entry, Arc::clone(&live)).await {
            Ok(admitted) => {
                admitted.id().map(|item| live.item.set(item));
                let ending = Ending::of(self, &live);
                Ok(LetIn { live, session: claim, place: Place(Some(admitted)), spare, ending })
            }
            Err(refused) => Err(self.refusal(&live, &refused.why)),
        }
    }

    /// Waits for what must be before a request is let in: until it is given up, or has waited for as long as it may.
    pub(super) async fn until_let_in<T>(
        &self,
        live: &Live,
        wait: impl Future<Output = T>,
    ) -> Result<T, RequestError> {
        let after = self.settings().queue_timeout;
        let left = after.saturating_sub(live.waited());
        let waited = match timeout(left, live.cx.until_interrupted(wait)).await {
            Ok(waited) => waited.map_err(Refusal::Interrupted),
            Err(_) => Err(Refusal::QueueTimeout { after }),
        };
        waited.map_err(|why| self.refusal(live, &why))
    }

    /// The kernel's reasons in the paper's words.
    pub(super) fn refusal(&self, live: &Live, why: &Refusal) -> RequestError {
        let timed_out = |timeout| RequestError::QueueTimeout {
            request_id: live.request.id.to_string(),
            waited_ms: ms(live.waited()),
            timeout_ms: ms(timeout),
        };
        match why {
            Refusal::TenantQueueFull { queued, max } => RequestError::TenantQueueFull {
                tenant_id: live.request.ask.tenant.clone(),
                current_depth: *queued,
                max_depth: *max,
            },
            Refusal::QueueFull { queued, capacity } => {
                RequestError::GlobalQueueFull { current_depth: *queued, max_depth: *capacity }
            }
            Refusal::TenantRateLimited { retry_in } => {
                RequestError::RateLimited { retry_after_ms: ms(*retry_in).max(1) }
            }
            Refusal::QueueTimeout { after } => timed_out(*after),
            Refusal::Interrupted(Interrupt::TimedOut) => {
                timed_out(live.request.ask.timeout.unwrap_or_default())
            }
            Refusal::Interrupted(Interrupt::Cancelled) => cancelled(live, &self.stop),
            Refusal::Draining => RequestError::ShuttingDown,
            other => RequestError::Internal { message: other.to_string() },
        }
    }

    fn no_task(&self, why: &Refusal) -> RequestError {
        if matches!(why, Refusal::AtLimit(_)) {
            let queued = self.sluice.stats().gauges.queued;
            let max_depth = self.sluice.capacity();
            return RequestError::GlobalQueueFull { current_depth: queued, max_depth };
        }
        RequestError::ShuttingDown
    }

    fn rejected(&self, tenant: &crate::Tenant, error: &RequestError) {
        if matches!(error, RequestError::Invalid { .. } | RequestError::TooLarge { .. }) {
            return;
        }
        self.table.lock().tally(&tenant.id()).rejected += 1;
        self.minute.lock().count(Instant::now(), Counted::Rejected);
        self.observe(&Event::RequestRejected { tenant, error });
        if let RequestError::GlobalQueueFull { current_depth, max_depth } = error {
            self.observe(&Event::Backpressure { depth: *current_depth, max: *max_depth });
        }
    }
}
