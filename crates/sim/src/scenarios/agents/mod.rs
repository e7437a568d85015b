//! The pool of agents: requests of many users, agents that crash, hang, flood and refuse to end.
//!
//! Requests come in sessions, with priorities and deadlines, and are cancelled; workers are killed; limits and the
//! command line change; the clock jumps; and the pool ends while it is busy, or when all is quiet.
//!
//! | file | is |
//! |---|---|
//! | `watch` | what must not be, from what the agents did and what the callers heard |

mod watch;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_agents::scripted::Scripted;
use sluicegate_agents::{
    Agents, Ask, CheckedSettings, Event, MemoryJournal, Mode, Observer, Priority, SessionId,
    Settings, Tenant,
};
use tokio::time::{Instant, advance, sleep, timeout};

use crate::oracles::Broken;
use crate::rng::Rng;
use crate::scenarios::Report;
use crate::trace::Trace;
use watch::{Asked, Watch};

const TENANTS: u64 = 5;

/// What an agent is told to do.
const PROMPTS: [&str; 16] = [
    "work:40",
    "work:400",
    "say work:90",
    "say work:20 crash",
    "say hang",
    "hang",
    "stubborn hang",
    "stubborn work:30",
    "flood",
    "work:5 stay",
    "children work:20",
    "error work:10",
    "quiet",
    "noise",
    "work:15 crash",
    "segv",
];
/// Those that say something, or end in order, before anybody can kill them.
const ACTS: [&str; 4] = ["say", "flood", "quiet", "noise"];

/// Runs the scenario.
///
/// # Errors
/// What was seen and must not be.
pub fn run(seed: u64, trace: &mut Trace) -> Result<Report, Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can always be built");
    runtime.block_on(drive(Rng::new(seed), trace))
}

/// Remembers when requests start. A start is a turn: until an agent hears of it a process may have to come up, or
/// another one to go.
#[derive(Debug, Default)]
struct Starts(Mutex<Vec<Instant>>);

impl Observer for Starts {
    fn observe(&self, event: &Event<'_>) {
        if let Event::RequestDequeued { .. } = event {
            self.0.lock().push(Instant::now());
        }
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let mode = if rng.percent(50) { Mode::OneShot } else { Mode::Persistent };
    let mut command = vec!["agent".to_owned()];
    if mode == Mode::Persistent {
        command.push("--stay".to_owned());
    }
    let max_workers = rng.between_u32(1, 6);
    let mut settings = Settings {
        mode,
        command,
        max_workers,
        min_workers: rng.between_u32(0, max_workers),
        queue_timeout: Duration::from_millis(rng.between(500, 5_000)),
        execution_timeout: Duration::from_millis(rng.between(300, 2_000)),
        graceful_shutdown: Duration::from_millis(rng.between(20, 300)),
        max_queue_depth_global: rng.between_u32(4, 30),
        max_queue_depth_per_tenant: rng.between_u32(2, 20),
        worker_idle_timeout: Duration::from_millis(rng.between(50, 3_000)),
        max_requests_per_worker: rng.between_u32(1, 6),
        max_worker_errors: rng.between_u32(1, 3),
        upstream_rate_limit_rps: rng.between_u32(3, 40),
        max_silence: rng.percent(30).then(|| Duration::from_millis(250)),
        ..Settings::default()
    };
    settings.tenant_limits.max_concurrent_requests = rng.between_u32(1, 4);
    settings.tenant_limits.max_queued_requests = 20;
    settings.tenant_limits.rate_limit_requests = rng.between_u32(10, 1_000);
    settings
}

/// A pool, and what is known of it from outside.
struct Life {
    agents: Agents,
    scripted: Scripted,
    journal: Arc<MemoryJournal>,
    settings: Settings,
    report: Report,
    asked: Vec<Asked>,
    /// The most workers that were ever allowed.
    most: u32,
}

async fn drive(mut rng: Rng, trace: &mut Trace) -> Result<Report, Broken> {
    let (settings, began) = (settings(&mut rng), Instant::now());
    let (scripted, journal) = (Scripted::new(), Arc::new(MemoryJournal::new()));
    scripted.set_spawn_delay(Duration::from_millis(rng.between(0, 60)));
    let starts = Arc::<Starts>::default();
    let agents = start(&settings, &scripted, &journal, &starts);
    let most = settings.max_workers;
    let (report, asked) = (Report { seeds: 1, ..Report::default() }, Vec::new());
    let mut life = Life { agents, scripted, journal, settings, report, asked, most };
    for _ in 0..rng.between(80, 160) {
        life.submit(&mut rng).await;
        life.disturb(&mut rng).await;
        if rng.percent(60) {
            sleep(Duration::from_millis(rng.between(0, 80))).await;
        }
    }
    if rng.percent(50) {
        sleep(Duration::from_secs(20)).await;
    }
    let ends = timeout(Duration::from_secs(600), life.agents.shutdown(None)).await;
    if ends.is_err() {
        return Err(Broken::new(
            "ends",
            format!("the pool does not end: {:?}", life.agents.workers()),
        ));
    }
    let watch = Watch::new(began, life.scripted.log(), life.settings.mode);
    watch.note(trace);
    life.hear(&watch, trace).await?;
    watch.limits(life.most, &life.settings)?;
    watch::rate(&starts.0.lock(), life.settings.upstream_rate_limit_rps)?;
    watch.order(&life.asked)?;
    life.report.started = watch.starts();
    Ok(life.report)
}

fn start(
    settings: &Settings,
    scripted: &Scripted,
    journal: &Arc<MemoryJournal>,
    starts: &Arc<Starts>,
) -> Agents {
    let (journal, starts) = (Arc::<MemoryJournal>::clone(journal), Arc::<Starts>::clone(starts));
    let scripted = Arc::new(scripted.clone());
    Agents::start(checked(settings), scripted, journal, starts).expect("sound settings")
}

fn checked(settings: &Settings) -> CheckedSettings {
    settings.clone().check().expect("sound settings")
}

impl Life {
    async fn submit(&mut self, rng: &mut Rng) {
        let (tenant, number) = (rng.between(1, TENANTS), self.asked.len());
        let session = format!("t{tenant}-s{}", rng.between(1, 4));
        let doing = *rng.one_of(&PROMPTS);
        let prompt = format!("{doing} #{number}");
        let ask = Ask {
            session: Some(SessionId::parse(&session).expect("a name")),
            priority: *rng.one_of(&Priority::ALL),
            timeout: rng.percent(20).then(|| Duration::from_millis(rng.between(1, 900))),
            idempotent: rng.percent(50),
            ..Ask::new(
                Tenant::new("web", &tenant.to_string(), None).expect("a name"),
                prompt.as_str(),
            )
        };
        let (priority, idempotent) = (ask.priority, ask.idempotent);
        match self.agents.submit(ask).await {
            Ok(ticket) => {
                self.report.admitted += 1;
                let acts = ACTS.iter().any(|act| doing.starts_with(act));
                let may_come_twice = idempotent && !acts;
                let id = ticket.request_id;
                self.asked.push(Asked { id, session, prompt, priority, may_come_twice });
            }
            Err(_) => self.report.refused += 1,
        }
    }

    /// Cancels, kills, changes, or moves the clock.
    async fn disturb(&mut self, rng: &mut Rng) {
        if !rng.percent(25) {
            return;
        }
        self.report.faults += 1;
        match rng.between(1, 5) {
            1 | 2 if !self.asked.is_empty() => {
                let id = Arc::clone(&rng.one_of(&self.asked).id);
                self.agents.cancel(&id);
            }
            3 => {
                let workers = self.agents.workers();
                if !workers.is_empty() {
                    let id = Arc::clone(&rng.one_of(&workers).id);
                    self.agents.kill(&id).await;
                }
            }
            4 => {
                self.settings.max_workers = rng.between_u32(1, 6);
                self.settings.min_workers = rng.between_u32(0, self.settings.max_workers);
                if rng.percent(30) {
                    self.settings.command.push("--more".to_owned());
                }
                self.most = self.most.max(self.settings.max_workers);
                self.agents.change(checked(&self.settings)).expect("sound settings");
            }
            _ => {
                // What is due by now happens before the clock jumps.
                sleep(Duration::from_millis(1)).await;
                advance(Duration::from_millis(rng.between(1, 1_500))).await;
            }
        }
    }

    /// Every request that was let in has an outcome, here and in the next life, and it fits what its agent saw.
    async fn hear(&self, watch: &Watch, trace: &mut Trace) -> Result<(), Broken> {
        let later = start(&self.settings, &Scripted::new(), &self.journal, &Arc::default());
        for asked in &self.asked {
            let outcome = timeout(Duration::from_secs(1), self.agents.wait(&asked.id)).await;
            let Ok(Ok(Some(outcome))) = outcome else {
                return Err(Broken::new("lost", format!("{} has no end", asked.prompt)));
            };
            watch.outcome(asked, &outcome, trace)?;
            let written = later.wait(&asked.id).await.ok().flatten();
            if written.as_ref() != Some(&outcome) {
                let message = format!("{}: {outcome:?}, and later {written:?}", asked.prompt);
                return Err(Broken::new("journal", message));
            }
        }
        drop(later.shutdown(None).await);
        Ok(())
    }
}
