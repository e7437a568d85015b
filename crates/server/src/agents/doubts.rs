//! Settings of agents that can be, and hardly were meant: limits above others, more than the machine has.

use std::fs;

use crate::settings::{AgentSettings, TenantLimits, words_in_braces};

/// Files that a tree of processes has open here: three pipes, the socket to its keeper, and its keeper.
const FILES: u64 = 5;
/// Files that everything else has open.
const OTHER_FILES: u64 = 100;
/// The processes of the smallest tree: its keeper, and the program.
const PROCESSES: u64 = 2;
/// As many trees as are kept at all.
#[cfg(target_os = "linux")]
const MOST: u64 = sluicegate_executors::process::Keepers::MOST as u64;
#[cfg(not(target_os = "linux"))]
const MOST: u64 = 0;

/// What this process may have of the machine, as far as that can be seen.
#[derive(Debug, Default)]
struct Machine {
    files: Option<u64>,
    processes: Option<u64>,
    memory_mb: Option<u64>,
}

/// Settings of agents that work and are doubtful: each with its key, and why.
#[must_use]
pub fn agent_doubts(settings: &AgentSettings) -> Vec<String> {
    let mut doubts = unfilled(settings);
    doubts.extend(without_effect(settings));
    doubts.extend(Machine::this().beyond(settings));
    doubts
}

/// Words in braces that may be meant for placeholders.
fn unfilled(settings: &AgentSettings) -> Vec<String> {
    let lists = [
        ("command", &settings.command),
        ("session_args", &settings.session_args),
        ("resume_args", &settings.resume_args),
    ];
    let mut doubts = Vec::new();
    for (key, arguments) in lists {
        let shown = arguments.iter().filter(|argument| !settings.hidden.contains(*argument));
        let words = shown.flat_map(|argument| words_in_braces(argument));
        let unknown = words.filter(|word| !matches!(*word, "session" | "prompt"));
        doubts.extend(unknown.map(|word| {
            format!(
                "agents.{key}: {{{word}}} stays as it is; {{session}} and {{prompt}} are filled"
            )
        }));
    }
    doubts
}

/// Limits that lie above others, of those that somebody has written.
fn without_effect(settings: &AgentSettings) -> Vec<String> {
    let mut doubts = Vec::new();
    let of_all = &settings.tenant_limits;
    let depth = settings.max_queue_depth_per_tenant;
    above(settings, "tenant_limits", (of_all, &TenantLimits::default()), &mut doubts);
    if of_all.max_queued_requests != depth {
        let queued = of_all.max_queued_requests;
        let (larger, smaller, least) = match queued > depth {
            true => ("tenant_limits.max_queued_requests", "max_queue_depth_per_tenant", depth),
            false => ("max_queue_depth_per_tenant", "tenant_limits.max_queued_requests", queued),
        };
        doubts.push(format!("agents.{larger} has no effect: agents.{smaller} is {least}"));
    }
    for tenant in &settings.tenants {
        let of = format!("tenant {}", tenant.id);
        above(settings, &of, (&tenant.limits, of_all), &mut doubts);
    }
    if let Some(worker) = settings.worker_memory_mb.filter(|mb| *mb > settings.max_total_memory_mb)
    {
        let total = settings.max_total_memory_mb;
        doubts.push(format!(
            "agents.worker_memory_mb is {worker}, more than all may use: max_total_memory_mb is {total}"
        ));
    }
    doubts
}

/// Says which limits of tenants lie above those of all, but for those that nobody has written.
fn above(
    settings: &AgentSettings,
    of: &str,
    (limits, unsaid): (&TenantLimits, &TenantLimits),
    doubts: &mut Vec<String>,
) {
    let (queued, global) = (limits.max_queued_requests, settings.max_queue_depth_global);
    let (running, workers) = (limits.max_concurrent_requests, settings.max_workers);
    let (time, all) = (limits.max_response_time, settings.execution_timeout);
    let mut doubt = |key: &str, is_above: bool, is_said: bool, value: String, other: String| {
        if is_above && is_said {
            doubts.push(format!("agents: {of}: {key} is {value} and has no effect: {other}"));
        }
    };
    doubt(
        "max_queued_requests",
        queued > global,
        queued != unsaid.max_queued_requests,
        queued.to_string(),
        format!("max_queue_depth_global is {global}"),
    );
    doubt(
        "max_concurrent_requests",
        running > workers,
        running != unsaid.max_concurrent_requests,
        running.to_string(),
        format!("max_workers is {workers}"),
    );
    doubt(
        "max_response_time",
        time > all,
        time != unsaid.max_response_time,
        format!("{time:?}"),
        format!("execution_timeout is {all:?}"),
    );
}

impl Machine {
    fn this() -> Self {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let limits = read("/proc/self/limits");
        // In columns: its name, what holds, what may be asked for.
        let limit = |name: &str| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        let pids = read("/proc/sys/kernel/pid_max").trim().parse().ok();
        let memory = read("/proc/meminfo");
        let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = kib.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            files: limit("Max open files"),
            processes: [limit("Max processes"), pids].into_iter().flatten().min(),
            memory_mb: kib.map(|kib| kib >> 10),
        }
    }

    /// What is more than this machine has.
    fn beyond(&self, settings: &AgentSettings) -> Vec<String> {
        let mut doubts = Vec::new();
        let of_files = self.files.map(|files| {
            (files.saturating_sub(OTHER_FILES) / FILES, format!("{files} open files (ulimit -n)"))
        });
        let of_processes = self.processes.map(|processes| {
            (processes / PROCESSES, format!("{processes} processes (ulimit -u, kernel.pid_max)"))
        });
        let of_keepers = (MOST > 0).then(|| (MOST, format!("{MOST} trees of processes at all")));
        let least = [of_files, of_processes, of_keepers].into_iter().flatten();
        if let Some((room, why)) = least.min_by_key(|(room, _)| *room)
            && u64::from(settings.max_workers) > room
        {
            doubts.push(format!(
                "agents.max_workers is {}, and no more than {room} can run here: {why}",
                settings.max_workers
            ));
        }
        if let Some(memory) = self.memory_mb
            && u64::from(settings.max_total_memory_mb) > memory
            && settings.max_total_memory_mb != AgentSettings::default().max_total_memory_mb
        {
            let total = settings.max_total_memory_mb;
            doubts.push(format!(
                "agents.max_total_memory_mb is {total}, and the machine has {memory}: it stops nothing in time"
            ));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::Settings;

    fn doubts(lines: &str) -> Vec<String> {
        let text = format!("[agents]\n{lines}\n");
        let settings = Settings::parse("f.toml", &text, &|_| None).unwrap().agents;
        let machine = Machine { files: Some(1024), processes: Some(5_000), memory_mb: Some(8_000) };
        let mut doubts = unfilled(&settings);
        doubts.extend(without_effect(&settings));
        doubts.extend(machine.beyond(&settings));
        doubts
    }

    /// `docs/rules.md#agents-9`
    #[test]
    fn what_has_no_effect_is_named() {
        let cases = [
            (
                "tenant_limits.max_concurrent_requests = 5",
                "tenant_limits: max_concurrent_requests is 5",
            ),
            ("tenant_limits.max_queued_requests = 60", "max_queue_depth_global is 50"),
            ("tenant_limits.max_response_time = \"10m\"", "execution_timeout is 180s"),
            (
                "max_queue_depth_per_tenant = 9\ntenant_limits.max_queued_requests = 8",
                "agents.max_queue_depth_per_tenant has no effect",
            ),
            (
                "max_queue_depth_per_tenant = 8\ntenant_limits.max_queued_requests = 9",
                "agents.tenant_limits.max_queued_requests has no effect",
            ),
            (
                "[[agents.tenant]]\nid = \"web:1\"\nmax_concurrent_requests = 9",
                "tenant web:1: max_concurrent_requests is 9 and has no effect: max_workers is 4",
            ),
            ("worker_memory_mb = 5000", "max_total_memory_mb is 4096"),
            ("command = [\"sh\", \"{model}\"]", "agents.command: {model} stays as it is"),
            ("max_workers = 1000000", "no more than 184 can run here: 1024 open files"),
            ("max_total_memory_mb = 9000", "the machine has 8000"),
        ];
        for (lines, words) in cases {
            let doubts = doubts(lines);
            assert_eq!(doubts.len(), 1, "{lines}: {doubts:?}");
            assert!(doubts[0].contains(words), "{lines}: {doubts:?}");
        }
    }

    #[test]
    fn what_nobody_has_written_is_not_doubted() {
        let lines = [
            "",
            "max_workers = 1",
            "max_queue_depth_global = 2",
            "execution_timeout = \"1m\"",
            "max_workers = 184",
            "max_queue_depth_per_tenant = 9",
        ];
        for line in lines {
            assert_eq!(doubts(line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn this_machine_is_seen() {
        let Machine { files, processes, memory_mb } = Machine::this();
        assert!([files, processes, memory_mb].into_iter().flatten().all(|found| found > 0));
        let settings = AgentSettings { max_workers: 1_000_000, ..AgentSettings::default() };
        assert_eq!(Machine::this().beyond(&settings).len(), usize::from(MOST > 0));
        let short = AgentSettings { execution_timeout: Duration::from_secs(9), ..settings };
        assert!(Machine::default().beyond(&short).len() <= 1);
    }
}
