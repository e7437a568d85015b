//! The pool: the shell round the pure parts.
//!
//! ```text
//! submit ──▶ enter ──▶ journal ──▶ turn ──▶ assign ──▶ converse ──▶ journal ──▶ told
//! admit.rs   (sluice)  run.rs      (sluice) run.rs     converse.rs  run.rs      live.rs
//! ```
//!
//! Each request is a task (`run.rs`) that owns it from admission to its end; each worker is a task (`worker.rs`) that
//! owns a tree of processes from its start to its end. A request hands its [`Turn`] to the worker, which ends it when
//! it is idle again or gone: so neither a place nor a session is free before its process is.
//!
//! Invariants:
//! 1. What a request's task holds it gives back by drop; a request that is dropped has an outcome too.
//! 2. A worker's task ends with its processes gone; its place in the table, and then its turn, come back after that.
//! 3. No lock is held while somebody is told, woken or waited for.

mod admit;
mod converse;
mod end;
mod idle;
mod job;
mod pace;
mod run;
mod start;
mod tally;
mod upkeep;
mod view;
mod worker;

pub use admit::Ticket;
pub use tally::TenantTally;
pub use view::{Found, Pending, TenantLine, WhyNot};

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_executors::process::Spawner;
use sluicegate_tasks::{Context, Interrupt, Invalid, Sluice, TaskGroup};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::live::Live;
use crate::metrics::LastMinute;
use crate::sessions::Sessions;
use crate::settings::{CheckedSettings, Settings};
use crate::worker::{AfterTurn, Bounds, WorkerNumber, Workers};
use crate::{Event, Journal, Observer, RequestError};
use tally::Table;
use worker::Handle;

/// A pool of agents. Clones are the same pool. When the last one is dropped, what waits is refused, what runs is
/// cancelled, and processes are ended; [`shutdown`](Agents::shutdown) lets them finish first.
#[derive(Clone)]
pub struct Agents {
    shared: Arc<Shared>,
    _last: Arc<StopOnDrop>,
}

/// Tasks hold what is shared, so this is what ends them.
struct StopOnDrop {
    sluice: Sluice<Arc<Live>>,
    stop: Context,
}

struct Shared {
    sluice: Sluice<Arc<Live>>,
    /// A task for each request.
    requests: TaskGroup,
    /// A task for each worker.
    processes: TaskGroup,
    /// What keeps the pool in order.
    service: TaskGroup,
    stop: Context,
    /// Ends the upkeep alone.
    upkeep: Context,
    staff: Mutex<Staff>,
    /// A worker came, went, or is idle.
    staff_changed: Notify,
    /// The upkeep is to look sooner than it would.
    look: Notify,
    table: Mutex<Table>,
    sessions: Arc<Sessions>,
    journal: Arc<dyn Journal>,
    spawner: Arc<dyn Spawner>,
    observer: Arc<dyn Observer>,
    minute: Mutex<LastMinute>,
    draining: AtomicBool,
    /// When prompts were handed over.
    pace: pace::Pace,
}

/// The workers, and how to reach the task of each.
struct Staff {
    /// The settings in effect: here, so that a worker is started with those that it is known to be started with.
    settings: CheckedSettings,
    /// How often the command line changed.
    command: u64,
    workers: Workers,
    handles: HashMap<WorkerNumber, Handle>,
    /// When the upkeep looks again by itself; `None` if it wants to hear of every change.
    looks_at: Option<Instant>,
}

impl Agents {
    /// A pool that begins at once to start the workers that are to be started ahead. Needs a tokio runtime with
    /// time around it.
    ///
    /// # Errors
    /// A setting that the kernel cannot work with.
    pub fn start(
        settings: CheckedSettings,
        spawner: Arc<dyn Spawner>,
        journal: Arc<dyn Journal>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Invalid> {
        let (stop, upkeep) = (Context::new(), Context::new());
        let (requests, processes) = task_limits(&settings);
        let shared = Arc::new(Shared {
            sluice: sluice(&settings)?,
            requests: TaskGroup::new("agent-requests", requests)?,
            processes: TaskGroup::new("agent-workers", processes)?,
            service: TaskGroup::new("agents", 1)?,
            staff: Mutex::new(Staff {
                workers: Workers::new(Bounds::of(&settings, 0)),
                handles: HashMap::new(),
                settings,
                command: 0,
                looks_at: None,
            }),
            staff_changed: Notify::new(),
            look: Notify::new(),
            table: Mutex::default(),
            sessions: Arc::default(),
            minute: Mutex::default(),
            draining: AtomicBool::new(false),
            pace: pace::Pace::default(),
            stop: stop.clone(),
            upkeep,
            journal,
            spawner,
            observer,
        });
        let upkeep = Arc::clone(&shared);
        let started = shared.service.try_submit(&shared.upkeep, |cx| async move {
            upkeep.keep_up(&cx).await;
        });
        drop(started);
        let last = StopOnDrop { sluice: shared.sluice.clone(), stop };
        Ok(Self { shared, _last: Arc::new(last) })
    }

    /// Changes the settings, at once and for what waits; what runs goes on as it began, and workers with another
    /// command line are replaced when they are idle.
    ///
    /// Returns the keys of what takes effect only when the pool is started again.
    ///
    /// # Errors
    /// A setting that the kernel cannot work with. What comes before it is changed.
    pub fn change(&self, settings: CheckedSettings) -> Result<Vec<&'static str>, Invalid> {
        self.shared.change(settings)
    }

    /// The settings in effect.
    #[must_use]
    pub fn settings(&self) -> CheckedSettings {
        self.shared.settings()
    }
}

impl Shared {
    fn settings(&self) -> CheckedSettings {
        self.staff.lock().settings.clone()
    }

    fn observe(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Works on the table of workers, and lets those look at it who wait for one.
    fn staff<R>(&self, work: impl FnOnce(&mut Staff) -> R) -> R {
        let done = work(&mut self.staff.lock());
        self.staff_changed.notify_waiters();
        self.look.notify_waiters();
        done
    }

    /// The same for a turn that was answered. The upkeep hears of it only if it would come too late to end the worker
    /// for being idle: to wake it costs as much as the turn.
    fn turn_ended(&self, number: WorkerNumber, ok: bool, in_step: bool) -> AfterTurn {
        let now = Instant::now();
        let (after, looks_in_time) = {
            let mut staff = self.staff.lock();
            let idle_until = now.checked_add(staff.settings.worker_idle_timeout);
            let looks_in_time =
                staff.looks_at.is_some_and(|at| idle_until.is_none_or(|until| at <= until));
            (staff.workers.turn_ended(now, number, ok, in_step), looks_in_time)
        };
        self.staff_changed.notify_waiters();
        if !looks_in_time {
            self.look.notify_waiters();
        }
        after
    }

    fn change(&self, settings: CheckedSettings) -> Result<Vec<&'static str>, Invalid> {
        let old = self.settings();
        let mut not_live = Vec::new();
        if old.serial != settings.serial {
            not_live.push("serial");
        }
        // What waits has its place in an order: of all, or of its session.
        let settings = settings.with_serial(old.serial);
        self.sluice.resize(settings.concurrency(), settings.max_queue_depth_global)?;
        self.sluice.set_rate(Some(settings.upstream()?));
        self.sluice.set_each_tenant(settings.each_tenant()?)?;
        for tenant in old.tenants.keys().filter(|tenant| !settings.tenants.contains_key(*tenant)) {
            self.sluice.unset_tenant(tenant.as_str());
        }
        for (tenant, of_tenant) in &settings.tenants {
            self.sluice.set_tenant(tenant.as_str(), settings.tenant(of_tenant)?)?;
        }
        let (requests, processes) = task_limits(&settings);
        self.requests.resize(requests)?;
        self.processes.resize(processes)?;
        if old.queue_timeout != settings.queue_timeout {
            not_live.push("queue_timeout");
        }
        self.staff(|staff| {
            staff.command += u64::from(!same_command(&staff.settings, &settings));
            staff.workers.set_bounds(Bounds::of(&settings, staff.command));
            staff.settings = settings;
        });
        Ok(not_live)
    }
}

fn sluice(settings: &CheckedSettings) -> Result<Sluice<Arc<Live>>, Invalid> {
    // Turns that are cancelled at the end of a drain end their processes first.
    let unwind = settings.graceful_shutdown + Duration::from_secs(5);
    let builder =
        Sluice::builder("agents", settings.concurrency(), settings.max_queue_depth_global)
            .rate(settings.upstream()?)
            .queue_timeout(settings.queue_timeout)
            .each_tenant(settings.each_tenant()?)
            .recent_times()
            .unwind(unwind);
    let with_tenant = |builder, (tenant, of_tenant): (&String, _)| {
        let limits = settings.tenant(of_tenant)?;
        Ok(sluicegate_tasks::SluiceBuilder::tenant(builder, tenant.as_str(), limits))
    };
    settings.tenants.iter().try_fold(builder, with_tenant)?.build()
}

/// How many tasks there may be, of requests and of workers. The queue and the table bound both; a request that is
/// over is one more until that is written down.
const fn task_limits(settings: &Settings) -> (u32, u32) {
    let (depth, workers) = (settings.max_queue_depth_global, settings.max_workers);
    let requests = depth.saturating_add(workers).saturating_mul(2).saturating_add(64);
    (requests, workers.saturating_mul(2).saturating_add(64))
}

/// Whether a process that was started with the one may go on with the other.
fn same_command(one: &Settings, other: &Settings) -> bool {
    let of = |settings: &Settings| {
        let Settings { mode, command, session_args, resume_args, environment, .. } =
            settings.clone();
        let Settings { folder, dialect, worker_memory_mb, .. } = settings.clone();
        (mode, command, session_args, resume_args, environment, folder, dialect, worker_memory_mb)
    };
    of(one) == of(other)
}

/// Who cancelled a request: its caller, or the end of the pool.
fn cancelled(live: &Live, stop: &Context) -> RequestError {
    let by_caller = live.cx.check() == Err(Interrupt::Cancelled) && !stop.is_cancelled();
    if by_caller { RequestError::Cancelled } else { RequestError::ShuttingDown }
}

/// How long since then, in milliseconds.
fn ms_since(then: Instant) -> u64 {
    crate::event::ms(then.elapsed())
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.sluice.close();
        self.stop.cancel();
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agents").finish_non_exhaustive()
    }
}
