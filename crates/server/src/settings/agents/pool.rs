//! From what the file says of agents to what their pool is told.

use sluicegate_agents as agents;
use sluicegate_agents::{Dialect, Environment};

use super::{AgentMode, AgentSettings, PromptBy, TenantLimits, TenantSettings};

impl AgentSettings {
    /// What the pool is told. Whatever the file could say is sound.
    pub(crate) fn pool(&self, environment: Environment) -> agents::Settings {
        let of_tenant = |tenant: &TenantSettings| {
            let (limits, own_depth) = (tenant.limits.pool(), tenant.own_depth);
            (tenant.id.clone(), agents::TenantOverride { limits, own_depth })
        };
        agents::Settings {
            mode: match self.mode {
                AgentMode::OneShot => agents::Mode::OneShot,
                AgentMode::Persistent => agents::Mode::Persistent,
            },
            command: self.command.clone(),
            session_args: self.session_args.clone(),
            resume_args: self.resume_args.clone(),
            prompt: match self.prompt {
                PromptBy::Stdin => agents::PromptBy::Stdin,
                PromptBy::Arg => agents::PromptBy::Arg,
            },
            environment,
            folder: self.folder.clone(),
            dialect: Dialect::with_names(&self.dialect).unwrap_or_default(),
            serial: self.serial,
            max_workers: self.max_workers,
            min_workers: self.min_workers,
            queue_timeout: self.queue_timeout,
            execution_timeout: self.execution_timeout,
            max_silence: self.max_silence,
            max_queue_depth_per_tenant: self.max_queue_depth_per_tenant,
            max_queue_depth_global: self.max_queue_depth_global,
            worker_idle_timeout: self.worker_idle_timeout,
            max_requests_per_worker: self.max_requests_per_worker,
            max_worker_errors: self.max_worker_errors,
            graceful_shutdown: self.graceful_shutdown,
            upstream_rate_limit_rps: self.upstream_rate_limit_rps,
            max_total_memory_mb: self.max_total_memory_mb,
            worker_memory_mb: self.worker_memory_mb,
            tenant_limits: self.tenant_limits.pool(),
            tenants: self.tenants.iter().map(of_tenant).collect(),
        }
    }

    /// Takes over what a JSON file can say.
    pub(super) fn set(&mut self, read: &agents::Settings) {
        self.serial = read.serial;
        self.max_workers = read.max_workers;
        self.min_workers = read.min_workers;
        self.queue_timeout = read.queue_timeout;
        self.execution_timeout = read.execution_timeout;
        self.max_queue_depth_per_tenant = read.max_queue_depth_per_tenant;
        self.max_queue_depth_global = read.max_queue_depth_global;
        self.worker_idle_timeout = read.worker_idle_timeout;
        self.max_requests_per_worker = read.max_requests_per_worker;
        self.graceful_shutdown = read.graceful_shutdown;
    }
}

impl TenantLimits {
    fn pool(&self) -> agents::TenantLimits {
        agents::TenantLimits {
            max_concurrent_requests: self.max_concurrent_requests,
            max_queued_requests: self.max_queued_requests,
            max_response_time: self.max_response_time,
            rate_limit_requests: self.rate_limit_requests,
            rate_limit_window: self.rate_limit_window,
            weight: self.weight,
        }
    }
}
