//! How many users so many workers serve: each user asks one thing at a time, and an answer takes a fifth of a second.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sluicegate_agents::{Agents, Ask, Mode, Tenant};

use super::Scene;
use crate::report::{Promise, Report, Row};

const ANSWER_MS: u32 = 200;
const SIZES: [(u32, usize); 9] =
    [(1, 4), (2, 8), (4, 4), (4, 8), (4, 16), (8, 16), (8, 32), (16, 32), (16, 64)];

/// Runs all of it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    let scene = Scene::new()?;
    let mut report = Report::new("agents-sizing", quick);
    let time = Duration::from_secs(if quick { 1 } else { 4 });
    for (workers, users) in SIZES {
        let measured = scene.size(workers, users, time)?;
        let most = f64::from(workers).min(users as f64) * 1e3 / f64::from(ANSWER_MS);
        let what = format!("{workers} workers, {users} users");
        let row = Row::new(what, "/s", measured.rate).beside("the most there can be", most);
        report.rows.push(row.promised(Promise::RatioAtLeast(0.9)));
        report.rows.push(Row::new("  wait, p95", "ms", measured.wait));
        report.rows.push(Row::new("  memory of pool and keepers", "MiB", measured.memory));
    }
    Ok(report)
}

struct Measured {
    rate: f64,
    /// The 95th of a hundred, in milliseconds.
    wait: f64,
    memory: f64,
}

impl Scene {
    fn size(&self, workers: u32, users: usize, time: Duration) -> Result<Measured, String> {
        let mut settings =
            self.settings(Mode::OneShot, &["agent", "sleep", &ANSWER_MS.to_string()]);
        settings.max_workers = workers;
        settings.max_queue_depth_global = 1_000;
        let agents = self.pool(settings)?;
        let (waits, memory, took) = self.run(async move {
            let begun = Instant::now();
            let asking = (0..users).map(|user| asks(agents.clone(), user, begun + time));
            let waits = join_all(asking).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            let (took, memory) = (begun.elapsed(), memory()?);
            drop(agents.shutdown(None).await);
            Ok((waits.concat(), memory, took))
        })?;
        let mut waits = waits;
        waits.sort_unstable();
        let rank = (waits.len() * 95).div_ceil(100).max(1) - 1;
        let wait = waits.get(rank).copied().unwrap_or(0) as f64;
        Ok(Measured { rate: waits.len() as f64 / took.as_secs_f64(), wait, memory })
    }
}

async fn asks(agents: Agents, user: usize, until: Instant) -> Result<Vec<u64>, String> {
    let tenant = Tenant::parse(&format!("bench:{user}")).map_err(|error| error.to_string())?;
    let mut waits = Vec::new();
    while Instant::now() < until {
        let ask = Ask::new(tenant.clone(), super::PROMPT);
        let ticket = agents.submit(ask).await.map_err(|error| error.to_string())?;
        let outcome = agents.wait(&ticket.request_id).await.map_err(|error| error.to_string())?;
        let outcome = outcome.ok_or("unknown")?;
        waits.push(outcome.as_ref().as_ref().map_err(ToString::to_string)?.queue_wait_ms);
    }
    Ok(waits)
}

/// What this process and its children use, in MiB: keepers, since the agents of one-shot requests are theirs.
fn memory() -> Result<f64, String> {
    let me = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{me}/task/{me}/children"));
    let threads =
        std::fs::read_dir(format!("/proc/{me}/task")).map_err(|error| error.to_string())?;
    let of_threads = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids = of_threads.chain(children.ok()).collect::<Vec<_>>().join(" ");
    let mut pids: Vec<&str> = pids.split_whitespace().collect();
    pids.sort_unstable();
    pids.dedup();
    let own = me.to_string();
    let kib = pids.into_iter().chain([own.as_str()]).filter_map(|pid| {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find(|line| line.starts_with("Pss:"))?.to_owned();
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    });
    Ok(kib.sum::<f64>() / 1024.0)
}
