//! The pool of agents in the daemon: started, changed and ended with it.
//!
//! | file | is |
//! |---|---|
//! | `journal.rs` | what is known of requests after a restart, in the state file |
//! | `heard.rs` | what the pool says, as log lines, numbers, warnings and events |
//! | `doubts.rs` | settings that can be, and hardly were meant |
//! | `program.rs` | whether the program that agents run is there |
//! | `streak.rs` | how many requests failed in a row |
//! | `stall.rs` | pure: whether a pool with work makes progress |
//! | `cpu.rs` | how busy the processors are |

mod cpu;
mod doubts;
mod heard;
mod journal;
mod program;
mod stall;
mod streak;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use sluicegate_agents::{Agents, CheckedSettings, Environment, Journal, Metrics, Wrong};
use sluicegate_dispatch::Severity;
use sluicegate_executors::process::Spawner;
use tokio::time::Instant;

use crate::daemon::{Daemon, StartError};
use crate::health::Stall;
use crate::settings::{AgentSettings, CgroupsBy};
use crate::time::Timestamp;
use crate::warnings::Code;

pub(crate) use streak::Streak;

pub use doubts::agent_doubts;
pub use program::program_fault;

use cpu::Cpu;
use journal::StoredJournal;
use stall::{StallDetector, Work};

/// What agents are called where a pool or a subject is named.
pub(crate) const NAME: &str = "agents";
/// What is said of a pool whose JSON object does not enable it.
pub const ONE_AT_A_TIME: &str = "one at a time, because workerPool.enabled is false";
/// What a program inherits; the rest of its environment is what the settings name.
const INHERITED: [&str; 2] = ["PATH", "HOME"];

/// The pool, once it is started.
#[derive(Default)]
pub(crate) struct AgentPool {
    pool: RwLock<Option<Agents>>,
    /// What starts processes, if it was said.
    spawner: OnceLock<Arc<dyn Spawner>>,
    stall: StallDetector,
    cpu: Cpu,
}

/// Why there is no pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAgents {
    /// The settings do not ask for one.
    Disabled,
    /// It is not started yet.
    Starting,
}

impl Daemon {
    /// Says what starts the processes of agents. Without it they are started by this program, whose `main` calls
    /// [`run_if_asked`](sluicegate_executors::process::keeper::run_if_asked) first. To be said before
    /// [`begin`](Daemon::begin); what is said later changes nothing.
    pub fn start_agents_by(&self, spawner: Arc<dyn Spawner>) {
        // The first one counts.
        self.inner.agents.spawner.set(spawner).ok();
    }

    /// The pool of agents.
    pub(crate) fn agents(&self) -> Result<Agents, NoAgents> {
        let pool = self.inner.agents.pool.read().clone();
        pool.ok_or_else(|| {
            if self.settings().agents.enabled { NoAgents::Starting } else { NoAgents::Disabled }
        })
    }

    /// Starts the pool, if the settings ask for one.
    pub(crate) async fn begin_agents(&self) -> Result<(), StartError> {
        let settings = self.settings();
        if !settings.agents.enabled {
            return Ok(());
        }
        let checked =
            checked(&settings.agents).map_err(|wrongs| StartError::Agents(words(&wrongs)))?;
        let spawner = self.spawner().map_err(|error| {
            StartError::Agents(format!("processes of agents cannot be started: {error}"))
        })?;
        let journal = StoredJournal::new(self.store().clone());
        journal.interrupt().await;
        let record = Arc::clone(&self.inner.record);
        let journal: Arc<dyn Journal> = Arc::new(journal);
        let pool =
            Agents::start(checked, spawner, journal, record).map_err(StartError::Settings)?;
        *self.inner.agents.pool.write() = Some(pool);
        if settings.agents.serial {
            tracing::info!(target: "sluicegate", "agents run {ONE_AT_A_TIME}");
        }
        say_doubts(&settings.agents);
        self.look_at_program(&settings.agents);
        Ok(())
    }

    fn spawner(&self) -> io::Result<Arc<dyn Spawner>> {
        if let Some(spawner) = self.inner.agents.spawner.get() {
            return Ok(Arc::clone(spawner));
        }
        let own = keepers(self.settings().agents.cgroups)?;
        Ok(Arc::clone(self.inner.agents.spawner.get_or_init(|| own)))
    }

    /// Warns at once of a program that is not there, not only when the first request fails, and says so.
    fn look_at_program(&self, settings: &AgentSettings) -> Option<String> {
        let fault = program_fault(settings);
        match &fault {
            Some(fault) => {
                self.record().raise(Code::AgentNotStarted, Severity::Error, NAME, fault.clone());
            }
            None => {
                self.record().resolve(Code::AgentNotStarted, NAME);
            }
        }
        fault
    }

    /// Changes the pool to what the file says now: the settings that are in effect then, and what is wrong with them, or
    /// why they are the old ones. What needs a restart stays as it is.
    pub(crate) fn change_agents(&self, new: &AgentSettings) -> (AgentSettings, Option<String>) {
        let old = self.settings().agents.clone();
        let mut live = new.clone();
        (live.enabled, live.queue_timeout) = (old.enabled, old.queue_timeout);
        (live.serial, live.cgroups) = (old.serial, old.cgroups);
        let Ok(pool) = self.agents() else { return (live, None) };
        let changed = checked(&live)
            .map_err(|wrongs| words(&wrongs))
            .and_then(|checked| pool.change(checked).map_err(|invalid| invalid.to_string()));
        match changed {
            Ok(_) => {
                say_doubts(&live);
                let fault = self.look_at_program(&live);
                (live, fault)
            }
            Err(why) => (old, Some(format!("agents were not changed: {why}"))),
        }
    }

    /// How many requests to agents run.
    #[must_use]
    pub fn running_requests(&self) -> usize {
        self.agents().map_or(0, |pool| pool.metrics().workers_busy)
    }

    /// For how long the pool has had work and made no progress, if that is too long.
    pub(crate) fn stalled_agents(&self) -> Option<Stall> {
        let pool = self.agents().ok()?;
        let (metrics, settings) = (pool.metrics(), pool.settings());
        let busy = metrics.workers_total - metrics.workers_idle;
        // What runs has the limit that it began with, whatever the settings say by now.
        let running = pool.longest_limit().unwrap_or_default();
        let longest = settings.queue_timeout.max(settings.execution_timeout).max(running);
        let work = Work {
            requests: u64::from(metrics.queue_depth) + busy as u64,
            moved: self.record().metrics.agents().moved(),
            longest: longest + settings.graceful_shutdown * 2,
        };
        let since = self.inner.agents.stall.sample(Instant::now(), work)?;
        Some(Stall::Agents { since })
    }

    /// The paper's metrics, with what the pool itself does not know.
    pub(crate) fn agent_metrics(&self) -> Result<Metrics, NoAgents> {
        let mut metrics = self.agents()?.metrics();
        metrics.timestamp = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        metrics.cpu_utilization_percent = self.inner.agents.cpu.percent();
        Ok(metrics)
    }

    /// Ends the pool: what waits is refused, what runs may finish for as long as it may run.
    pub(crate) async fn end_agents(&self) {
        let Ok(pool) = self.agents() else { return };
        let (metrics, settings) = (pool.metrics(), pool.settings());
        if metrics.workers_busy > 0 {
            let (running, within) =
                (metrics.workers_busy, settings.execution_timeout + settings.graceful_shutdown);
            tracing::info!(target: "sluicegate", running, ?within, "requests run, and may finish");
        }
        let report = pool.shutdown(None).await;
        if !report.is_clean() {
            tracing::warn!(target: "sluicegate", "requests were cut off when their time was up");
        }
    }
}

fn say_doubts(settings: &AgentSettings) {
    for doubt in agent_doubts(settings) {
        tracing::warn!(target: "sluicegate", "{doubt}");
    }
}

fn words(wrongs: &[Wrong]) -> String {
    wrongs.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What the pool is told, with the environment of its programs.
fn checked(settings: &AgentSettings) -> Result<CheckedSettings, Vec<Wrong>> {
    settings.pool(environment(settings)).check()
}

fn environment(settings: &AgentSettings) -> Environment {
    let inherited =
        INHERITED.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let written =
        settings.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned()));
    Environment::new(inherited.collect::<BTreeMap<_, _>>(), written.collect())
}

#[cfg(target_os = "linux")]
fn keepers(cgroups: CgroupsBy) -> io::Result<Arc<dyn Spawner>> {
    use sluicegate_executors::process::{Cgroups, Keepers};

    let keepers = Keepers::with(match cgroups {
        CgroupsBy::Auto => Cgroups::Auto,
        CgroupsBy::Off => Cgroups::Off,
    })?;
    match keepers.cgroups() {
        Ok(folder) => {
            tracing::info!(target: "sluicegate", ?folder, "each tree of agents is in a cgroup");
        }
        Err(why) => tracing::info!(target: "sluicegate", why, "trees of agents are in no cgroups"),
    }
    Ok(Arc::new(keepers))
}

#[cfg(not(target_os = "linux"))]
fn keepers(_: CgroupsBy) -> io::Result<Arc<dyn Spawner>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "they need Linux"))
}

impl fmt::Debug for AgentPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentPool").field("pool", &*self.pool.read()).finish_non_exhaustive()
    }
}
