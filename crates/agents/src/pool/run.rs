//! A request's task: from the queue to its end.
//!
//! `docs/rules.md#agents-6`, `docs/rules.md#agents-8`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_tasks::{Admitted, Context, Refusal, Turn};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::admit::{LetIn, Spare};
use super::job::{Job, Report, limit};
use super::worker::Command;
use crate::event::ms;
use crate::journal::{AdmittedRecord, FinishedRecord, JournalError};
use crate::kept::Over;
use crate::live::Live;
use crate::metrics::Counted;
use crate::sessions::{InSession, Left, SessionTurn};
use crate::worker::{Assigned, Served};
use crate::{Event, Outcome, RequestError, Stage};

/// How long to wait before it is tried again to write down what came of a request.
const AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// How long to wait before it is tried again once it was told: twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

enum Attempt {
    Over(Outcome, Left),
    /// Its worker crashed before it said anything.
    Again(Turn<Arc<Live>>, Left),
}

/// A request in the table, which has no outcome yet. Dropped, it gets one.
pub(super) struct Ending {
    shared: Arc<Shared>,
    live: Option<Arc<Live>>,
    is_let_in: bool,
}

impl Shared {
    /// The whole life of a request that was let in.
    pub(super) async fn attend(
        self: &Arc<Self>,
        cx: &Context,
        let_in: LetIn,
        tell: oneshot::Sender<Result<(), RequestError>>,
    ) {
        let LetIn { live, session, place, spare, mut ending } = let_in;
        let record = record(&live);
        let mut writing = self.journal.admitted(&record);
        let error = match self.until_let_in(&live, &mut writing).await {
            Ok(written) => written.err().map(|error| self.state_failed("admitted", error)),
            Err(error) => {
                let outcome = Arc::new(Err(error.clone()));
                drop(place);
                ending.refuse(Arc::clone(&outcome));
                tell.send(Err(error)).ok();
                // It may be written even so: then it is known to be over, and its session is whose it was.
                if writing.await.is_ok() {
                    session.let_in();
                    Spare::keep(spare);
                    let unwritten = self.write_down(cx, &live, outcome, None).await;
                    self.write_later(cx, unwritten).await;
                }
                return;
            }
        };
        if let Some(error) = error {
            ending.refuse(Arc::new(Err(error.clone())));
            // Before it is told: whoever tries again finds the session free, and its rate as it was.
            drop((place, session, spare));
            // Whoever gave up meanwhile hears nothing.
            tell.send(Err(error)).ok();
            return;
        }
        let Some(admitted) = place.let_in() else { return };
        ending.is_let_in = true;
        session.let_in();
        Spare::keep(spare);
        let (request, tenant) = (&live.request.id, &live.request.ask.tenant);
        let depth = self.sluice.stats().gauges.queued;
        let priority = live.request.ask.priority;
        self.observe(&Event::RequestEnqueued { request, tenant, priority, depth });
        tell.send(Ok(())).ok();
        let mut had = None;
        let outcome = Arc::new(self.run(&live, &session, admitted, &mut had).await);
        // Whoever had no turn says nothing of the session; whoever has the next one waits until this is written.
        let begun = had.as_ref().map(|_| session.is_begun());
        let unwritten = self.write_down(cx, &live, Arc::clone(&outcome), begun).await;
        drop(had);
        ending.end(outcome);
        self.write_later(cx, unwritten).await;
    }

    /// From the queue to what came of it. `had` is the session's turn, once it had one.
    async fn run(
        self: &Arc<Self>,
        live: &Arc<Live>,
        session: &InSession,
        mut admitted: Admitted<Arc<Live>>,
        had: &mut Option<SessionTurn>,
    ) -> Outcome {
        let mut may_retry = live.request.ask.idempotent;
        // The queue's own timeout is for what comes in.
        let mut at_most = Duration::MAX;
        loop {
            let turn = match timeout(at_most, admitted.turn()).await {
                Ok(Ok(turn)) => turn,
                Ok(Err(refused)) => return Err(self.refusal(live, &refused.why)),
                Err(_) => return Err(self.refusal(live, &Refusal::QueueTimeout { after: at_most })),
            };
            // What comes again is the next of its session, so nobody waits for what is kept here.
            let of_session = match had.take() {
                Some(of_session) => of_session,
                None => match turn.context().until_interrupted(session.turn()).await {
                    Ok(of_session) => of_session,
                    Err(why) => {
                        turn.fail();
                        return Err(self.refusal(live, &Refusal::Interrupted(why)));
                    }
                },
            };
            let of_session = had.insert(of_session);
            live.begin();
            let waited = live.waited();
            self.observe(&Event::RequestDequeued { request: &live.request.id, waited });
            match self.attempt(live, session.is_begun(), turn, may_retry).await {
                Attempt::Over(outcome, left) => {
                    session.left(of_session, left);
                    return outcome;
                }
                Attempt::Again(turn, left) => {
                    session.left(of_session, left);
                    (may_retry, at_most) = (false, self.settings().queue_timeout);
                    live.wait_again();
                    admitted = turn.wait_again(Instant::now());
                }
            }
        }
    }

    /// One turn: a worker is found, has it, and says what came of it.
    async fn attempt(
        self: &Arc<Self>,
        live: &Arc<Live>,
        begun: bool,
        mut turn: Turn<Arc<Live>>,
        may_retry: bool,
    ) -> Attempt {
        let started = Instant::now();
        let over = |error, left| Attempt::Over(Err(error), left);
        if !begun {
            let began = self.journal.began(&live.request.session);
            let limit = limit(&self.settings(), live);
            let error = match timeout(limit, turn.context().until_interrupted(began)).await {
                Ok(Ok(written)) => written.err().map(|error| self.state_failed("began", error)),
                Ok(Err(why)) => Some(self.refusal(live, &Refusal::Interrupted(why))),
                Err(_) => Some(RequestError::ExecutionTimeout {
                    request_id: live.request.id.to_string(),
                    worker_id: "none".to_owned(),
                    elapsed_ms: super::ms_since(started),
                    timeout_ms: ms(limit),
                    message: Some("it was not yet written down that its session begins".to_owned()),
                }),
            };
            if let Some(error) = error {
                turn.fail();
                return over(error, Left::Untouched);
            }
        }
        loop {
            let (reply, report) = oneshot::channel();
            let job = Job::new(live, turn, started, begun, may_retry, reply, self);
            if let Err((job, error)) = self.hand_over(job).await {
                job.turn.fail();
                return over(error, Left::Untouched);
            }
            // It always comes: whoever has the turn waits for nothing without a bound (its limit, the grace, and what a kill
            // may take), and one that is dropped is heard of too.
            match report.await {
                Ok(Report::Ended { outcome, left }) => return Attempt::Over(outcome, left),
                Ok(Report::Again { turn, left }) => return Attempt::Again(turn, left),
                // It was gone before it heard of the request: nothing happened.
                Ok(Report::NotBegun(back)) => turn = back,
                Err(_) => {
                    let error = if self.stop.is_cancelled() || self.is_draining() {
                        RequestError::ShuttingDown
                    } else {
                        RequestError::Internal { message: "the worker's task ended".to_owned() }
                    };
                    return over(error, Left::Heard);
                }
            }
        }
    }

    fn state_failed(&self, doing: &'static str, error: JournalError) -> RequestError {
        self.observe(&Event::JournalFailed { doing, cause: &error.cause });
        RequestError::StateFailed { message: error.cause }
    }

    /// Gives a turn to a worker, and waits for one to be gone where all places are taken.
    async fn hand_over(self: &Arc<Self>, mut job: Job) -> Result<(), (Job, RequestError)> {
        let served = Served {
            request: Arc::clone(&job.live.request.id),
            tenant: Arc::clone(&job.live.tenant),
            session: Arc::clone(job.live.request.session.name()),
            begun: job.begun,
        };
        let mut waiting = None;
        loop {
            let mut changed = pin!(self.staff_changed.notified());
            changed.as_mut().enable();
            let assigned = {
                let mut staff = self.staff.lock();
                // With what is in effect now: it is the command line that the worker is known by.
                job.settings = staff.settings.clone();
                // It was let in by what was in effect then.
                if let Err(error) = job.live.request.ask.check(job.settings.as_argument()) {
                    return Err((job, error));
                }
                staff.workers.assign(Instant::now(), &served, waiting.is_none())
            };
            match assigned {
                Assigned::Reuse(number) => {
                    self.send(number, Command::Turn(Box::new(job)));
                    return Ok(());
                }
                Assigned::Start(number) => {
                    // Without a task for it the turn is gone, and who waits for its report hears that.
                    let settings = job.settings.clone();
                    self.start(number, &settings, &served.session, Some(job));
                    return Ok(());
                }
                Assigned::Wait(retire) => {
                    if let Some((number, why)) = retire {
                        self.retire(number, why);
                    }
                    waiting.get_or_insert_with(|| WaitsForPlace::new(self));
                    tokio::select! {
                        biased;
                        () = changed => {}
                        error = job.interrupted("none") => return Err((job, error)),
                    }
                }
            }
        }
    }

    /// What came of a request, durably before anybody hears of it. Where that cannot be, the work is done even so,
    /// and who waits for it hears of it; what is still to be written is answered.
    async fn write_down(
        &self,
        cx: &Context,
        live: &Live,
        outcome: Arc<Outcome>,
        begun: Option<bool>,
    ) -> Option<FinishedRecord> {
        let record = FinishedRecord {
            request_id: live.request.id.to_string(),
            session_id: live.request.session.clone(),
            session_begun: begun,
            outcome,
        };
        for pause in AGAIN.into_iter().map(Some).chain([None]) {
            let error = self.journal.finished(&record).await.err()?;
            self.observe(&Event::JournalFailed { doing: "finished", cause: &error.cause });
            let Some(pause) = pause else { break };
            if cx.until_interrupted(sleep(pause)).await.is_err() {
                break;
            }
        }
        Some(record)
    }

    /// What could not be written before it was told is written as soon as it can be, and for the last time when the pool
    /// ends: otherwise it would be taken for interrupted when the service starts again. Meanwhile its task is one of those
    /// that may be, which bounds them.
    async fn write_later(&self, cx: &Context, unwritten: Option<FinishedRecord>) {
        let Some(mut record) = unwritten else { return };
        // Others may have had their turns since.
        record.session_begun = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let ends = cx.until_interrupted(sleep(pause)).await.is_err();
            let Err(error) = self.journal.finished(&record).await else { return };
            if ends {
                self.observe(&Event::JournalFailed { doing: "finished", cause: &error.cause });
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn over(&self, live: &Live, outcome: Arc<Outcome>) {
        let now = Instant::now();
        let total = now - live.admitted;
        {
            let mut table = self.table.lock();
            table.remove(live);
            table.tally(&live.tenant).count(&outcome);
            let over = Over {
                session: live.request.session.clone(),
                tenant: live.request.ask.tenant.clone(),
                priority: live.request.ask.priority,
                outcome: Arc::clone(&outcome),
            };
            table.kept.keep(now, Arc::clone(&live.request.id), over);
        }
        {
            let mut minute = self.minute.lock();
            minute.count(now, Counted::of(&outcome));
            if let Some(started) = live.started() {
                minute.ran(now, now - started, total);
            }
        }
        let (request, tenant) = (&live.request.id, &live.request.ask.tenant);
        let worker = live.runs().map(|(worker, _)| worker);
        self.observe(&Event::over(request, tenant, worker.as_deref(), &outcome, total));
        live.set_stage(Stage::Ended(outcome));
    }
}

/// A turn that waits for a place, which must not be taken by a worker that is started ahead.
struct WaitsForPlace<'a>(&'a Shared);

impl<'a> WaitsForPlace<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.staff.lock().workers.set_waiting(true);
        Self(shared)
    }
}

impl Drop for WaitsForPlace<'_> {
    fn drop(&mut self) {
        self.0.staff(|staff| staff.workers.set_waiting(false));
    }
}

impl Ending {
    /// Puts a request into the table.
    pub(super) fn of(shared: &Arc<Shared>, live: &Arc<Live>) -> Self {
        shared.table.lock().add(live);
        Self { shared: Arc::clone(shared), live: Some(Arc::clone(live)), is_let_in: false }
    }

    /// It was not let in: whoever asked is told, and counts it.
    fn refuse(&mut self, outcome: Arc<Outcome>) {
        if let Some(live) = self.live.take() {
            self.shared.table.lock().remove(&live);
            live.set_stage(Stage::Ended(outcome));
        }
    }

    fn end(&mut self, outcome: Arc<Outcome>) {
        if let Some(live) = self.live.take() {
            self.shared.over(&live, outcome);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.is_let_in {
            self.end(Arc::new(Err(RequestError::Interrupted)));
        } else {
            self.refuse(Arc::new(Err(RequestError::ShuttingDown)));
        }
    }
}

fn record(live: &Live) -> AdmittedRecord {
    AdmittedRecord {
        request_id: live.request.id.to_string(),
        tenant: live.request.ask.tenant.clone(),
        session_id: live.request.session.clone(),
        owner: live.request.ask.tenant.owner(),
        priority: live.request.ask.priority,
    }
}
