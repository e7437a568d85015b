//! What a pool of agents is told, checked once.
//!
//! `docs/rules.md#agents-9`.

mod environment;
mod worker_pool;

pub use environment::Environment;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_tasks::{Invalid, Rate, TenantLimits as KernelLimits};

use crate::dialect::Dialect;

/// How a pool of agents works. Plain values: [`Settings::check`] makes them usable.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How long a process lives.
    pub mode: Mode,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Arguments for the first turn of a session.
    pub session_args: Vec<String>,
    /// Arguments for the turns after it.
    pub resume_args: Vec<String>,
    /// How the prompt reaches the program.
    pub prompt: PromptBy,
    /// The program's whole environment.
    pub environment: Environment,
    /// The folder it starts in; ours, if it does not matter.
    pub folder: Option<PathBuf>,
    /// How it is spoken to.
    pub dialect: Dialect,
    /// One request at a time, in order of arrival: what `enabled: false` of the paper's `workerPool` asks for.
    pub serial: bool,
    /// The most processes at once.
    pub max_workers: u32,
    /// How many are started ahead, where processes stay.
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
    /// What holds for every tenant.
    pub tenant_limits: TenantLimits,
    /// What holds for one, by its id, as in `telegram:42`.
    pub tenants: BTreeMap<String, TenantOverride>,
}

/// How long a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
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

/// What one tenant may take: the paper's `TenantResourceLimits`, and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// How many requests run at once.
    pub max_concurrent_requests: u32,
    /// How many wait.
    pub max_queued_requests: u32,
    /// How long one may take.
    pub max_response_time: Duration,
    /// How many are admitted in a window.
    pub rate_limit_requests: u32,
    /// How long that window is.
    pub rate_limit_window: Duration,
    /// The share of the whole in relation to others.
    pub weight: u32,
}

/// What holds for one tenant instead of what holds for every one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantOverride {
    /// Its limits.
    pub limits: TenantLimits,
    /// Whether `max_queued_requests` is its own: then no other depth limit counts.
    pub own_depth: bool,
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its key, as it was written.
    pub key: String,
    /// What would be right.
    pub message: String,
}

/// Settings that were found to be sound. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedSettings(Arc<Settings>);

impl Default for Settings {
    /// The paper's defaults, for the Claude CLI.
    fn default() -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            mode: Mode::OneShot,
            command: texts(&["claude", "-p", "--output-format", "json"]),
            session_args: texts(&["--session-id", "{session}"]),
            resume_args: texts(&["--resume", "{session}"]),
            prompt: PromptBy::Stdin,
            environment: Environment::default(),
            folder: None,
            dialect: Dialect::default(),
            serial: false,
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
            tenant_limits: TenantLimits::default(),
            tenants: BTreeMap::new(),
        }
    }
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self {
            max_concurrent_requests: 2,
            max_queued_requests: 3,
            max_response_time: Duration::from_secs(180),
            rate_limit_requests: 20,
            rate_limit_window: Duration::from_secs(60),
            weight: 1,
        }
    }
}

impl CheckedSettings {
    /// The same, one at a time in order of arrival or not: that does not change while a pool runs.
    pub(crate) fn with_serial(self, serial: bool) -> Self {
        if self.serial == serial {
            return self;
        }
        Self(Arc::new(Settings { serial, ..(*self.0).clone() }))
    }
}

impl Settings {
    /// Checks everything.
    ///
    /// # Errors
    /// All that cannot work, each with its key.
    pub fn check(self) -> Result<CheckedSettings, Vec<Wrong>> {
        let mut wrongs = Vec::new();
        self.check_numbers(&mut wrongs);
        self.check_relations(&mut wrongs);
        self.tenant_limits.check("tenant_limits", &mut wrongs);
        for (id, of_tenant) in &self.tenants {
            of_tenant.limits.check(&format!("tenant {id}"), &mut wrongs);
        }
        if wrongs.is_empty() { Ok(CheckedSettings(Arc::new(self))) } else { Err(wrongs) }
    }

    fn check_numbers(&self, wrongs: &mut Vec<Wrong>) {
        let counts = [
            ("max_workers", self.max_workers),
            ("max_queue_depth_per_tenant", self.max_queue_depth_per_tenant),
            ("max_queue_depth_global", self.max_queue_depth_global),
            ("max_requests_per_worker", self.max_requests_per_worker),
            ("max_worker_errors", self.max_worker_errors),
            ("upstream_rate_limit_rps", self.upstream_rate_limit_rps),
            ("max_total_memory_mb", self.max_total_memory_mb),
            ("worker_memory_mb", self.worker_memory_mb.unwrap_or(1)),
        ];
        for (key, _) in counts.into_iter().filter(|(_, count)| *count == 0) {
            wrongs.push(Wrong::new(key, "must be at least 1"));
        }
        if self.upstream_rate_limit_rps > Rate::MAX_SLIDING {
            let message = format!("must be at most {}", Rate::MAX_SLIDING);
            wrongs.push(Wrong::new("upstream_rate_limit_rps", message));
        }
        let times = [
            ("queue_timeout", self.queue_timeout),
            ("execution_timeout", self.execution_timeout),
            ("max_silence", self.max_silence.unwrap_or(Duration::from_secs(1))),
            ("worker_idle_timeout", self.worker_idle_timeout),
            ("graceful_shutdown", self.graceful_shutdown),
        ];
        for (key, time) in times {
            check_time(time).unwrap_or_else(|message| wrongs.push(Wrong::new(key, message)));
        }
    }

    fn check_relations(&self, wrongs: &mut Vec<Wrong>) {
        let mut wrong = |key: &str, message: String| wrongs.push(Wrong::new(key, message));
        if self.min_workers > self.max_workers {
            let (min, max) = (self.min_workers, self.max_workers);
            wrong("min_workers", format!("is {min}, more than max_workers, which is {max}"));
        }
        if self.graceful_shutdown > self.execution_timeout {
            let (grace, execution) = (self.graceful_shutdown, self.execution_timeout);
            let message =
                format!("is {grace:?}, longer than execution_timeout, which is {execution:?}");
            wrong("graceful_shutdown", message);
        }
        if self.command.first().is_none_or(|program| program.trim().is_empty()) {
            wrong("command", "must begin with the program to run".to_owned());
        }
        let arguments = [&self.command, &self.session_args, &self.resume_args];
        if arguments.into_iter().flatten().any(|argument| argument.contains('\0')) {
            wrong("command", "has an argument with a NUL".to_owned());
        }
        match (self.prompt, self.mode) {
            (PromptBy::Arg, Mode::Persistent) => {
                wrong(
                    "prompt",
                    "is \"arg\", and a process that stays is asked on its input".to_owned(),
                );
            }
            (PromptBy::Arg, _) if !has_prompt(&self.command) => {
                wrong("prompt", "is \"arg\", but command has no {prompt}".to_owned());
            }
            (PromptBy::Stdin, _) if has_prompt(&self.command) => {
                let message = "has {prompt}, which is filled only where prompt is \"arg\"";
                wrong("command", message.to_owned());
            }
            _ => {}
        }
        if self.command.first().is_some_and(|program| program.contains("{prompt}")) {
            wrong("command", "must not take the program's name from {prompt}".to_owned());
        }
        for (key, arguments) in
            [("session_args", &self.session_args), ("resume_args", &self.resume_args)]
        {
            if has_prompt(arguments) {
                wrong(key, "has {prompt}, which is filled only in command".to_owned());
            }
        }
    }

    /// What holds for one tenant.
    #[must_use]
    pub fn limits_of(&self, tenant: &str) -> &TenantLimits {
        self.tenants.get(tenant).map_or(&self.tenant_limits, |of_tenant| &of_tenant.limits)
    }

    /// How many requests run at once.
    #[must_use]
    pub const fn concurrency(&self) -> u32 {
        if self.serial { 1 } else { self.max_workers }
    }

    /// The command line of which the prompt becomes an argument, if it does.
    pub(crate) fn as_argument(&self) -> Option<&[String]> {
        (self.prompt == PromptBy::Arg).then_some(&self.command)
    }

    pub(crate) fn upstream(&self) -> Result<Rate, Invalid> {
        Rate::sliding(self.upstream_rate_limit_rps, Duration::from_secs(1))
    }

    /// The bounds of each tenant, as the kernel knows them.
    pub(crate) fn each_tenant(&self) -> Result<KernelLimits, Invalid> {
        let depth = self.tenant_limits.max_queued_requests.min(self.max_queue_depth_per_tenant);
        self.tenant_limits.in_kernel(depth)
    }

    /// The bounds of one tenant, as the kernel knows them.
    pub(crate) fn tenant(&self, of_tenant: &TenantOverride) -> Result<KernelLimits, Invalid> {
        let TenantOverride { limits, own_depth } = of_tenant;
        let all = if *own_depth { u32::MAX } else { self.max_queue_depth_per_tenant };
        limits.in_kernel(limits.max_queued_requests.min(all))
    }
}

fn has_prompt(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument.contains("{prompt}"))
}

/// What is longer than a year is meant to be none, and no clock can add it.
fn check_time(time: Duration) -> Result<(), &'static str> {
    if time.is_zero() {
        return Err("must be longer than zero");
    }
    if time > Duration::from_secs(366 * 24 * 3600) { Err("must be at most a year") } else { Ok(()) }
}

impl TenantLimits {
    fn check(&self, of: &str, wrongs: &mut Vec<Wrong>) {
        let mut wrong = |key: &str, message: String| {
            wrongs.push(Wrong::new(&format!("{of}.{key}"), message));
        };
        let (rate, weight) = (Rate::MAX_SLIDING, KernelLimits::MAX_WEIGHT);
        let counts = [
            ("max_concurrent_requests", self.max_concurrent_requests, u32::MAX),
            ("max_queued_requests", self.max_queued_requests, u32::MAX),
            ("rate_limit_requests", self.rate_limit_requests, rate),
            ("weight", self.weight, weight),
        ];
        for (key, count, max) in counts {
            if count == 0 {
                wrong(key, "must be at least 1".to_owned());
            } else if count > max {
                wrong(key, format!("must be at most {max}"));
            }
        }
        for (key, time) in [
            ("max_response_time", self.max_response_time),
            ("rate_limit_window", self.rate_limit_window),
        ] {
            check_time(time).unwrap_or_else(|message| wrong(key, message.to_owned()));
        }
    }

    fn in_kernel(&self, depth: u32) -> Result<KernelLimits, Invalid> {
        let rate = Rate::sliding(self.rate_limit_requests, self.rate_limit_window)?;
        let limits = KernelLimits::new().weight(self.weight).max_queued(depth);
        Ok(limits.max_running(self.max_concurrent_requests).admission_rate(rate))
    }
}

impl Wrong {
    pub(crate) fn new(key: &str, message: impl Into<String>) -> Self {
        Self { key: key.to_owned(), message: message.into() }
    }
}

impl Deref for CheckedSettings {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.0
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

impl std::error::Error for Wrong {}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/rules.md#agents-9`
    #[test]
    fn what_cannot_work_is_named_by_its_key() {
        type Change = fn(&mut Settings);
        let cases: [(&str, Change); 17] = [
            ("max_workers", |s| (s.max_workers, s.min_workers) = (0, 0)),
            ("min_workers", |s| s.min_workers = 5),
            ("queue_timeout", |s| s.queue_timeout = Duration::ZERO),
            ("max_silence", |s| s.max_silence = Some(Duration::ZERO)),
            ("graceful_shutdown", |s| s.graceful_shutdown = Duration::from_secs(181)),
            ("max_queue_depth_global", |s| s.max_queue_depth_global = 0),
            ("upstream_rate_limit_rps", |s| s.upstream_rate_limit_rps = 0),
            ("max_worker_errors", |s| s.max_worker_errors = 0),
            ("worker_memory_mb", |s| s.worker_memory_mb = Some(0)),
            ("command", |s| s.command = vec![" ".to_owned()]),
            ("prompt", |s| s.prompt = PromptBy::Arg),
            ("command", |s| s.command.push("{prompt}".to_owned())),
            ("command", |s| (s.prompt, s.command) = (PromptBy::Arg, vec!["{prompt}".to_owned()])),
            ("resume_args", |s| s.resume_args.push("{prompt}".to_owned())),
            ("tenant_limits.weight", |s| s.tenant_limits.weight = 10_001),
            ("tenant_limits.rate_limit_window", |s| {
                s.tenant_limits.rate_limit_window = Duration::ZERO;
            }),
            ("tenant web:1.max_queued_requests", |s| {
                let limits = TenantLimits { max_queued_requests: 0, ..TenantLimits::default() };
                s.tenants.insert("web:1".into(), TenantOverride { limits, own_depth: true });
            }),
        ];
        assert!(Settings::default().check().is_ok());
        for (key, change) in cases {
            let mut settings = Settings::default();
            change(&mut settings);
            let keys: Vec<String> =
                settings.check().unwrap_err().into_iter().map(|wrong| wrong.key).collect();
            assert_eq!(keys, [key]);
        }
    }

    #[test]
    fn no_workers_need_to_be_started_ahead() {
        assert!(Settings { min_workers: 0, ..Settings::default() }.check().is_ok());
    }
}
