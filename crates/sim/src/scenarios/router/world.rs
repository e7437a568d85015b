//! What the simulated ends share: the clock, the trace, the oracles, and the lives of the router.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Memory};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_schedule::Moment;
use sluicegate_tasks::Context;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::plan::{Plan, SourceFault, ms};
use crate::oracles::Broken;
use crate::oracles::router::{Fact, Oracles, Setup};
use crate::rng::Rng;
use crate::scenarios::Report;
use crate::trace::Trace;

/// So many facts and calls at one instant are a loop that never ends.
const MOST_AT_ONCE: u64 = 200_000;

/// The simulated world.
pub(super) struct World {
    pub(super) seed: u64,
    start: Instant,
    state: Mutex<State>,
    /// From now on everything goes well.
    calm: AtomicBool,
    calmed: Notify,
    /// A connection broke that did not answer.
    is_reset: Notify,
}

struct State {
    trace: Trace,
    oracles: Oracles,
    report: Report,
    broken: Option<Broken>,
    life: Option<Arc<Life>>,
    rng: Rng,
    queues: Vec<Troubles>,
    parked_until: Moment,
    at: Moment,
    at_once: u64,
    is_over: bool,
}

/// Until when a source fails in which way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Troubles {
    pub(super) receive: Moment,
    pub(super) settle: Moment,
    pub(super) extend: Moment,
    pub(super) lose_answer: Moment,
    pub(super) lose_settle: Moment,
    pub(super) slow: Moment,
    /// Which wire of the queue does not answer any more.
    pub(super) hangs: Option<u64>,
}

impl Troubles {
    /// Whether it is this one.
    fn hangs(&self, wire: u64) -> bool {
        self.hangs == Some(wire)
    }
}

/// One life of the router: from its start to its end or its crash.
pub(super) struct Life {
    over: Context,
}

impl Life {
    /// Whether it is over: then nothing that it does reaches anything any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Goes on as long as it lasts. The end comes first, and whoever meets it waits for ever.
    pub(super) async fn live<T>(&self, future: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            _ = self.over.cancelled() => std::future::pending().await,
            output = future => output,
        }
    }
}

impl World {
    pub(super) fn new(seed: u64, plan: &Plan, mut trace: Trace) -> Self {
        for queue in &plan.queues {
            trace.note(0, format_args!("{queue:?}"));
        }
        trace.note(0, format_args!("of 100 attempts {} go wrong", plan.trouble));
        let setup = Setup {
            queues: plan.queues.iter().map(|queue| queue.keeps_order).collect(),
            fair: plan.fair,
        };
        let state = State {
            trace,
            oracles: Oracles::new(setup),
            report: Report { seeds: 1, ..Report::default() },
            broken: None,
            life: None,
            rng: Rng::new(seed ^ 0x5eed),
            queues: vec![Troubles::default(); plan.queues.len()],
            parked_until: Moment::ZERO,
            at: Moment::ZERO,
            at_once: 0,
            is_over: false,
        };
        Self {
            seed,
            start: Instant::now(),
            state: Mutex::new(state),
            calm: AtomicBool::new(false),
            calmed: Notify::new(),
            is_reset: Notify::new(),
        }
    }

    /// The time since the beginning.
    pub(super) fn now(&self) -> Moment {
        Moment::ZERO + self.start.elapsed()
    }

    pub(super) fn instant(&self, at: Duration) -> Instant {
        self.start + at
    }

    /// A router begins to live. The one before it is dead.
    pub(super) fn begin_life(&self) -> Arc<Life> {
        self.end_life();
        let life = Arc::new(Life { over: Context::new() });
        self.state.lock().life = Some(Arc::clone(&life));
        self.see(Fact::Begun);
        life
    }

    pub(super) fn end_life(&self) {
        let life = self.state.lock().life.take();
        if let Some(life) = life {
            life.over.cancel();
        }
    }

    /// Tells the oracles what happened, and the trace.
    pub(super) fn see(&self, fact: Fact) {
        let now = self.now();
        let mut state = self.state.lock();
        if state.is_over || state.broken.is_some() {
            return;
        }
        state.trace.note(now.as_nanos(), format_args!("{fact}"));
        state.report.count(&fact);
        if let Err(broken) = state.oracles.see(now, fact) {
            state.trace.note(now.as_nanos(), format_args!("BROKEN {broken}"));
            state.broken = Some(broken);
        }
        let is_broken = state.broken.is_some();
        drop(state);
        if is_broken {
            // Everything stops, so that whoever waits for the end of the run gets there.
            self.end_life();
        }
    }

    /// Writes a line of the trace that no oracle cares about.
    pub(super) fn note(&self, line: std::fmt::Arguments<'_>) {
        let now = self.now();
        let mut state = self.state.lock();
        if !state.is_over {
            state.trace.note(now.as_nanos(), line);
        }
    }

    /// Something goes wrong on purpose.
    pub(super) fn fault(&self, line: std::fmt::Arguments<'_>) {
        self.state.lock().report.faults += 1;
        self.note(line);
    }

    /// # Errors
    /// What an oracle has found.
    pub(super) fn check(&self) -> Result<(), Broken> {
        self.state.lock().broken.clone().map_or(Ok(()), Err)
    }

    /// A call to an end. So many of them at one instant are a loop.
    pub(super) fn called(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        if state.at < now {
            (state.at, state.at_once) = (now, 0);
        }
        state.at_once += 1;
        if state.at_once == MOST_AT_ONCE && state.broken.is_none() {
            let words = format!("{MOST_AT_ONCE} calls at one instant");
            state.broken = Some(Broken::new("loops", words));
            drop(state);
            self.end_life();
        }
    }

    pub(super) fn draw<R>(&self, draw: impl FnOnce(&mut Rng) -> R) -> R {
        draw(&mut self.state.lock().rng)
    }

    /// How long a call to an end is under way.
    pub(super) async fn delay(&self, slow: Moment) {
        let is_slow = self.now() < slow;
        let delay = self.draw(|rng| match rng.between(1, 10) {
            _ if is_slow => rng.between(200, 2_000),
            1..=4 => 0,
            5..=8 => rng.between(1, 5),
            _ => rng.between(5, 60),
        });
        if delay > 0 {
            sleep(ms(delay)).await;
        }
    }

    pub(super) fn troubles(&self, queue: usize) -> Troubles {
        if self.is_calm() { Troubles::default() } else { self.state.lock().queues[queue] }
    }

    /// The connections of a queue break, those that hang too.
    pub(super) fn reset(&self, queue: usize) {
        self.state.lock().queues[queue].hangs = None;
        self.is_reset.notify_waiters();
    }

    /// Waits, as a call to a source that hangs does: until the connection breaks.
    pub(super) async fn hang(&self, queue: usize, wire: u64) {
        loop {
            let mut reset = std::pin::pin!(self.is_reset.notified());
            reset.as_mut().enable();
            if !self.state.lock().queues[queue].hangs(wire) {
                return;
            }
            reset.await;
        }
    }

    pub(super) fn trouble(&self, queue: usize, fault: SourceFault, until: Moment, wire: u64) {
        let mut state = self.state.lock();
        let troubles = &mut state.queues[queue];
        match fault {
            SourceFault::Receive => troubles.receive = until,
            SourceFault::Settle => troubles.settle = until,
            SourceFault::Extend => troubles.extend = until,
            SourceFault::LoseAnswer => troubles.lose_answer = until,
            SourceFault::LoseSettle => troubles.lose_settle = until,
            SourceFault::Slow => troubles.slow = until,
            SourceFault::Hang => troubles.hangs = Some(wire),
            SourceFault::Redeliver | SourceFault::Expire => {}
        }
    }

    /// Whether everything that the router talks to answers as it should.
    pub(super) fn is_healthy(&self) -> bool {
        let now = self.now();
        let well = |troubles: Troubles| {
            let Troubles { settle, lose_answer, lose_settle, slow, hangs, .. } = troubles;
            [settle, lose_answer, lose_settle, slow].iter().all(|until| *until <= now)
                && hangs.is_none()
        };
        let queues = self.state.lock().queues.len();
        self.parked_fails_until() <= now && (0..queues).all(|queue| well(self.troubles(queue)))
    }

    pub(super) fn parked_fails_until(&self) -> Moment {
        if self.is_calm() { Moment::ZERO } else { self.state.lock().parked_until }
    }

    pub(super) fn parked_fails(&self, until: Moment) {
        self.state.lock().parked_until = until;
    }

    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Memory::Relaxed)
    }

    /// From now on everything goes well.
    pub(super) fn calm_down(&self) {
        self.calm.store(true, Memory::Relaxed);
        self.calmed.notify_waiters();
    }

    /// Waits for that.
    pub(super) async fn calmed(&self) {
        let mut calmed = std::pin::pin!(self.calmed.notified());
        calmed.as_mut().enable();
        if !self.is_calm() {
            calmed.await;
        }
    }

    /// Nothing that happens from now on is of interest.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
        self.end_life();
    }

    /// What is left of it.
    pub(super) fn close(&self) -> (Trace, Report) {
        let mut state = self.state.lock();
        state.report.widest = state.oracles.widest();
        (std::mem::take(&mut state.trace), state.report)
    }
}

impl Report {
    fn count(&mut self, fact: &Fact) {
        match fact {
            Fact::Admitted { .. } => self.admitted += 1,
            Fact::Refused { count, .. } => self.refused += *count as u64,
            Fact::Started { .. } => self.started += 1,
            _ => {}
        }
    }
}
