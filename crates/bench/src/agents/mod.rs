//! The pool of agents, beside the same program without a pool.
//!
//! Both sides run as tasks of the same runtime, by turns. The program is this one, which answers at once: what is
//! measured is the way to it and back. One that starts for some milliseconds stands for a real CLI, which takes hundreds.

mod direct;
pub(crate) mod sizing;
pub(crate) mod stand_in;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_agents::{
    Agents, Ask, Event, MemoryJournal, Mode, Observer, SessionId, Settings, Tenant,
};
use sluicegate_executors::process::Keepers;
use sluicegate_tasks::{Context, TaskGroup};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

use crate::report::{Promise, Report, Row};
use crate::timing::{Compared, by_turns};
use direct::Direct;

const PROMPT: &str = "Which orders are late, and why? Answer in one sentence.";
/// How long the program takes that stands for a real one.
const STARTS_FOR_MS: u32 = 5;

/// Nobody listens.
struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _: &Event<'_>) {}
}

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    let scene = Scene::new()?;
    let mut report = Report::new("agents", quick);
    let (rounds, turns, starts) = if quick { (3, 200, 20) } else { (15, 3_000, 100) };
    eprintln!("a worker that stays …");
    for (millis, turns) in [(0, turns), (1, turns / 10)] {
        let compared = scene.turns(millis, rounds, turns)?;
        let what = format!("a turn of a worker that stays, an answer of {millis} ms");
        let one = row(&what, "us", 1e3, compared, "the same lines");
        report.rows.push(one.promised(Promise::RatioAtMost(1.5)));
    }
    eprintln!("a process for each request …");
    for (millis, starts) in [(STARTS_FOR_MS, starts), (0, starts * 3)] {
        for (session, name) in [(None, "told"), (Some("s"), "nothing left of it")] {
            let compared = scene.starts(millis, session, rounds, starts)?;
            let what = format!("one-shot, a start of {millis} ms, until {name}");
            let one = row(&what, "us", 1e3, compared, "spawned directly");
            report.rows.push(one.promised(Promise::RatioAtMost(1.1)));
        }
    }
    Ok(report)
}

fn row(what: &str, unit: &'static str, per: f64, compared: Compared, beside: &str) -> Row {
    Row::new(what, unit, compared.ours / per).beside(beside, compared.baseline / per)
}

/// One side alone, for a profiler: `stay`, `stay-direct`, `once`, `once-gone` or `once-direct`, and how many.
pub(crate) fn spin(words: &[String]) -> Result<(), String> {
    let scene = Scene::new()?;
    let count = crate::child::number(words, 1)? as u32;
    let took = match words.first().map(String::as_str) {
        Some("stay") => scene.asked(&scene.staying(0)?, Some("s"), count),
        Some("once") => scene.asked(&scene.one_shot(0)?, None, count),
        Some("once-gone") => scene.asked(&scene.one_shot(0)?, Some("s"), count),
        Some("stay-direct") => scene.said(&scene.child(0)?, count),
        Some("once-direct") => scene.spawned(0, count),
        _ => return Err("which side?".to_owned()),
    };
    println!("{:.1} us each", took?.as_secs_f64() * 1e6 / f64::from(count));
    Ok(())
}

/// What both sides run on.
struct Scene {
    runtime: Runtime,
    group: TaskGroup,
    program: PathBuf,
}

impl Scene {
    fn new() -> Result<Self, String> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let group = TaskGroup::new("bench", 1).map_err(|error| error.to_string())?;
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(Self { runtime, group, program })
    }

    /// Runs as a task, as whoever answers HTTP does.
    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> Result<T, String> {
        let task = self.group.run(Context::new(), |cx| async move {
            cx.until_interrupted(work).await.map_err(|why| format!("{why:?}"))?
        });
        self.runtime.block_on(task).map_err(|error| error.to_string())?
    }

    fn pool(&self, settings: Settings) -> Result<Agents, String> {
        let _inside = self.runtime.enter();
        let keepers = Keepers::new().map_err(|error| error.to_string())?;
        let settings = settings.check().map_err(|wrongs| format!("{wrongs:?}"))?;
        let journal = Arc::new(MemoryJournal::new());
        Agents::start(settings, Arc::new(keepers), journal, Arc::new(Nobody))
            .map_err(|error| error.to_string())
    }

    fn settings(&self, mode: Mode, arguments: &[&str]) -> Settings {
        let program = self.program.display().to_string();
        let words = arguments.iter().map(|word| (*word).to_owned());
        let mut settings = Settings {
            mode,
            command: [program].into_iter().chain(words).collect(),
            session_args: Vec::new(),
            resume_args: Vec::new(),
            min_workers: 0,
            upstream_rate_limit_rps: 100_000,
            max_requests_per_worker: u32::MAX,
            ..Settings::default()
        };
        settings.tenant_limits.rate_limit_requests = 100_000;
        settings.tenant_limits.rate_limit_window = Duration::from_millis(1);
        settings
    }

    fn staying(&self, millis: u32) -> Result<Agents, String> {
        self.pool(self.settings(Mode::Persistent, &["agent", "stay", &millis.to_string()]))
    }

    fn one_shot(&self, starts_for: u32) -> Result<Agents, String> {
        self.pool(self.settings(Mode::OneShot, &["agent", "once", &starts_for.to_string()]))
    }

    fn child(&self, millis: u32) -> Result<Arc<Mutex<Direct>>, String> {
        let (_inside, millis) = (self.runtime.enter(), millis.to_string());
        let child = Direct::start(&self.program, &["agent", "stay", &millis])?;
        Ok(Arc::new(Mutex::new(child)))
    }

    /// One request after the other through the pool.
    fn asked(
        &self,
        agents: &Agents,
        session: Option<&str>,
        count: u32,
    ) -> Result<Duration, String> {
        let (agents, tenant) = (agents.clone(), Tenant::parse("bench:1"));
        let session =
            session.map(SessionId::parse).transpose().map_err(|error| error.to_string())?;
        let ask = Ask { session, ..Ask::new(tenant.map_err(|error| error.to_string())?, PROMPT) };
        self.run(async move {
            let begun = Instant::now();
            for _ in 0..count {
                comes().await;
                let asked = agents.ask(ask.clone()).await;
                let (_, outcome) = asked.map_err(|error| error.to_string())?;
                outcome.as_ref().as_ref().map_err(ToString::to_string)?;
            }
            Ok(begun.elapsed())
        })
    }

    /// The same lines to a child and back.
    fn said(&self, child: &Arc<Mutex<Direct>>, count: u32) -> Result<Duration, String> {
        let message = serde_json::json!({"role": "user", "content": PROMPT});
        let line = serde_json::json!({"type": "user", "session_id": "s", "message": message});
        let (child, line) = (Arc::clone(child), format!("{line}\n"));
        self.run(async move {
            let mut child = child.lock().await;
            let begun = Instant::now();
            for _ in 0..count {
                comes().await;
                child.turn(line.as_bytes()).await?;
            }
            Ok(begun.elapsed())
        })
    }

    /// The same program, spawned directly.
    fn spawned(&self, starts_for: u32, count: u32) -> Result<Duration, String> {
        let (program, starts_for) = (self.program.clone(), starts_for.to_string());
        self.run(async move {
            let begun = Instant::now();
            for _ in 0..count {
                direct::once(&program, &["agent", "once", &starts_for], PROMPT.as_bytes()).await?;
            }
            Ok(begun.elapsed())
        })
    }

    fn turns(&self, millis: u32, rounds: usize, count: u32) -> Result<Compared, String> {
        let (agents, child) = (self.staying(millis)?, self.child(millis)?);
        compared(rounds, count, |n| self.asked(&agents, Some("s"), n), |n| self.said(&child, n))
    }

    /// In one session the next start waits until nothing is left of the last.
    fn starts(
        &self,
        millis: u32,
        session: Option<&str>,
        rounds: usize,
        count: u32,
    ) -> Result<Compared, String> {
        let agents = self.one_shot(millis)?;
        compared(rounds, count, |n| self.asked(&agents, session, n), |n| self.spawned(millis, n))
    }
}

/// The next request comes from outside, as over HTTP, not out of the answer to the last one.
async fn comes() {
    tokio::task::yield_now().await;
}

/// The first error of either side is that of both.
fn compared(
    rounds: usize,
    count: u32,
    ours: impl Fn(u32) -> Result<Duration, String>,
    baseline: impl Fn(u32) -> Result<Duration, String>,
) -> Result<Compared, String> {
    ours(1)?;
    baseline(1)?;
    let or_nothing = |took: Result<Duration, String>| took.unwrap_or(Duration::ZERO);
    let compared = by_turns(rounds, count, |n| or_nothing(ours(n)), |n| or_nothing(baseline(n)));
    let is_whole = compared.ours > 0.0 && compared.baseline > 0.0;
    is_whole.then_some(compared).ok_or_else(|| "a request failed in between".to_owned())
}
