//! `[agents]`: the pool of agent subprocesses.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use sluicegate_agents::Dialect;
use sluicegate_tasks::{Rate, TenantLimits as KernelLimits};

use super::duration;
use super::reader::{Section, Seen, Value};
use super::secret::Secret;

mod placeholders;
mod pool;
mod related;
mod rules;
mod tenants;

pub(crate) use placeholders::words as words_in_braces;
use related::Given;
pub use tenants::{TenantLimits, TenantSettings};

/// `[agents]`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentSettings {
    /// Whether agents run.
    pub enabled: bool,
    /// How long a process lives.
    pub mode: AgentMode,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Arguments for the first turn of a session.
    pub session_args: Vec<String>,
    /// Arguments for the turns after it.
    pub resume_args: Vec<String>,
    /// Arguments that came from the environment, which are not shown.
    pub hidden: BTreeSet<String>,
    /// How the prompt reaches the program.
    pub prompt: PromptBy,
    /// What the program's environment has beside `PATH` and `HOME`.
    pub env: BTreeMap<String, Secret>,
    /// The folder it starts in; the daemon's, if it does not matter.
    pub folder: Option<PathBuf>,
    /// Whether each tree of processes is in a cgroup.
    pub cgroups: CgroupsBy,
    /// Names of line types and fields that differ from the built-in dialect.
    pub dialect: BTreeMap<String, String>,
    /// The most processes at once.
    pub max_workers: u32,
    /// How many are started ahead.
    pub min_workers: u32,
    /// How long a request may wait.
    pub queue_timeout: Duration,
    /// How long it may run.
    pub execution_timeout: Duration,
    /// How long a process may say nothing while it runs a request.
    pub max_silence: Option<Duration>,
    /// How many requests of one tenant may wait.
    pub max_queue_depth_per_tenant: u32,
    /// How many may wait in all.
    pub max_queue_depth_global: u32,
    /// After how long an idle process ends.
    pub worker_idle_timeout: Duration,
    /// After how many requests a process is replaced.
    pub max_requests_per_worker: u32,
    /// After how many errors in a row a process is replaced.
    pub max_worker_errors: u32,
    /// How long a process has between being asked to end and being killed.
    pub graceful_shutdown: Duration,
    /// How many requests may start in a second.
    pub upstream_rate_limit_rps: u32,
    /// Above how much memory in all nothing starts, in MiB.
    pub max_total_memory_mb: u32,
    /// How much memory one tree of processes may use, in MiB.
    pub worker_memory_mb: Option<u32>,
    /// A file with some of these settings as a JSON object; what it says is in them.
    pub worker_pool_json: Option<PathBuf>,
    /// One request at a time, in order of arrival: what that object says with `enabled: false`.
    pub serial: bool,
    /// What holds for every tenant.
    pub tenant_limits: TenantLimits,
    /// What holds for one.
    pub tenants: Vec<TenantSettings>,
}

/// How long a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMode {
    /// One request.
    OneShot,
    /// A session.
    Persistent,
}

/// How the prompt reaches the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptBy {
    /// On its standard input.
    Stdin,
    /// In place of `{prompt}` among its arguments, where everybody on the machine can see it.
    Arg,
}

/// Whether each tree of processes is in a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupsBy {
    /// If the system lets the daemon make some.
    Auto,
    /// None is.
    Off,
}

impl CgroupsBy {
    pub(super) const WORDS: [(&str, Self); 2] = [("auto", Self::Auto), ("off", Self::Off)];
}

impl AgentMode {
    pub(super) const WORDS: [(&str, Self); 2] =
        [("one-shot", Self::OneShot), ("persistent", Self::Persistent)];
}

impl PromptBy {
    pub(super) const WORDS: [(&str, Self); 2] = [("stdin", Self::Stdin), ("arg", Self::Arg)];
}

impl Default for AgentSettings {
    fn default() -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            enabled: false,
            mode: AgentMode::OneShot,
            command: texts(&["claude", "-p", "--output-format", "json"]),
            session_args: texts(&["--session-id", "{session}"]),
            resume_args: texts(&["--resume", "{session}"]),
            hidden: BTreeSet::new(),
            prompt: PromptBy::Stdin,
            env: BTreeMap::new(),
            folder: None,
            cgroups: CgroupsBy::Auto,
            dialect: BTreeMap::new(),
            max_workers: 4,
            min_workers: 1,
            queue_timeout: Duration::from_secs(120),
            execution_timeout: Duration::from_secs(180),
            max_silence: None,
            max_queue_depth_per_tenant: 3,
            max_queue_depth_global: 50,
            worker_idle_timeout: Duration::from_secs(300),
            max_requests_per_worker: 100,
            max_worker_errors: 3,
            graceful_shutdown: Duration::from_secs(10),
            upstream_rate_limit_rps: 15,
            max_total_memory_mb: 4096,
            worker_memory_mb: None,
            worker_pool_json: None,
            serial: false,
            tenant_limits: TenantLimits::default(),
            tenants: Vec::new(),
        }
    }
}

/// Everything but what is said to have no lower bound is at least one.
const COUNT: RangeInclusive<u32> = 1..=1_000_000;

fn count(value: &Value<'_>) -> Option<u32> {
    value.integer(COUNT)
}

/// So many in a span: each of them is remembered.
fn rate(value: &Value<'_>) -> Option<u32> {
    value.integer(1..=Rate::MAX_SLIDING)
}

fn weight(value: &Value<'_>) -> Option<u32> {
    value.integer(1..=KernelLimits::MAX_WEIGHT)
}

fn time(value: &Value<'_>) -> Option<Duration> {
    value.duration(duration::from(Duration::from_millis(1)))
}

impl AgentSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let mut read = Self::default();
        read.read_command(section);
        read.read_limits(section);
        let mut given = Given::of(section);
        read.tenant_limits = section.table("tenant_limits", |inner| {
            given.queued = inner.has("max_queued_requests");
            given.response = inner.has("max_response_time");
            TenantLimits::read(inner, &read.tenant_limits)
        });
        read.check(section);
        read.take_over(section, &mut given);
        read.relate(&given);
        for name in ["tenants", "limits"] {
            let both =
                "write [agents.tenant_limits] for all tenants, [[agents.tenant]] for one of them";
            section.misnamed(name, both);
        }
        let mut ids: Seen = HashMap::new();
        read.tenants = section
            .tables("tenant", |inner| TenantSettings::read(inner, &read.tenant_limits, &mut ids));
        read
    }

    fn read_command(&mut self, section: &mut Section<'_>) {
        let hidden = RefCell::new(BTreeSet::new());
        let text = |known: &[&str], value: &Value<'_>| {
            let text = value.text()?;
            placeholders::check(value, known)?;
            if value.written().contains("${") {
                hidden.borrow_mut().insert(text.clone());
            }
            Some(text)
        };
        let texts = |known: &'static [&'static str], value: &Value<'_>| {
            let texts = value.list(|value| text(known, value))?;
            let has_nul = texts.iter().any(|text| text.contains('\0'));
            if has_nul { value.wrong("must not have a NUL in an argument") } else { Some(texts) }
        };
        self.enabled = section.read("enabled", self.enabled, Value::boolean);
        self.mode = section.read("mode", self.mode, |value| value.word(&AgentMode::WORDS));
        self.prompt = section.read("prompt", self.prompt, |value| value.word(&PromptBy::WORDS));
        let command = |value: &Value<'_>| {
            let command = texts(&["session", "prompt"], value)?;
            match command.first() {
                Some(program) if !program.trim().is_empty() => Some(command),
                _ => value.wrong("must begin with the program to run"),
            }
        };
        self.command = section.read("command", std::mem::take(&mut self.command), command);
        let of_session = |value: &Value<'_>| texts(&["session"], value);
        self.session_args =
            section.read("session_args", std::mem::take(&mut self.session_args), of_session);
        self.resume_args =
            section.read("resume_args", std::mem::take(&mut self.resume_args), of_session);
        self.hidden = hidden.into_inner();
        self.env = section.table("env", |inner| {
            let entries = inner.entries(|name, value| {
                // Whatever it is called, it may be a key.
                let text = value.mask().text()?;
                if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
                    return value.wrong("cannot be in an environment");
                }
                Some((name.to_owned(), Secret::new(text)))
            });
            entries.into_iter().collect()
        });
        self.cgroups = section.read("cgroups", self.cgroups, |value| value.word(&CgroupsBy::WORDS));
        self.dialect =
            section.table("dialect", |inner| inner.entries(dialect).into_iter().collect());
        let folder = section.optional("folder", Value::text);
        self.folder = folder.filter(|folder| !folder.is_empty()).map(PathBuf::from);
    }

    fn read_limits(&mut self, section: &mut Section<'_>) {
        let counts = [
            ("max_workers", &mut self.max_workers),
            ("max_queue_depth_per_tenant", &mut self.max_queue_depth_per_tenant),
            ("max_queue_depth_global", &mut self.max_queue_depth_global),
            ("max_requests_per_worker", &mut self.max_requests_per_worker),
            ("max_worker_errors", &mut self.max_worker_errors),
            ("max_total_memory_mb", &mut self.max_total_memory_mb),
        ];
        for (name, field) in counts {
            *field = section.read(name, *field, count);
        }
        let times = [
            ("queue_timeout", &mut self.queue_timeout),
            ("execution_timeout", &mut self.execution_timeout),
            ("worker_idle_timeout", &mut self.worker_idle_timeout),
            ("graceful_shutdown", &mut self.graceful_shutdown),
        ];
        for (name, field) in times {
            *field = section.read(name, *field, time);
        }
        self.upstream_rate_limit_rps =
            section.read("upstream_rate_limit_rps", self.upstream_rate_limit_rps, rate);
        self.max_silence = section.read("max_silence", None, |value| match value.written() {
            "\"\"" => Some(None),
            _ => time(value).map(Some),
        });
        let from_zero = |value: &Value<'_>| value.integer(0..=*COUNT.end());
        self.min_workers = section.read("min_workers", self.min_workers, from_zero);
        let memory = section.optional("worker_memory_mb", from_zero);
        self.worker_memory_mb = memory.filter(|memory| *memory > 0);
        let path = section.optional("worker_pool_json", Value::text);
        self.worker_pool_json = path.filter(|path| !path.is_empty()).map(PathBuf::from);
    }
}

/// A name of the dialect, if there is one of that key.
fn dialect(key: &str, value: &Value<'_>) -> Option<(String, String)> {
    let named = (key.to_owned(), value.filled()?);
    match Dialect::with_names(&BTreeMap::from([named.clone()])) {
        Ok(_) => Some(named),
        Err(wrongs) => value.wrong(wrongs.first().map_or("", |wrong| &wrong.message)),
    }
}
