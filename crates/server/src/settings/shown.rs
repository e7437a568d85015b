//! The settings as JSON, for people who ask a running daemon what it was told.
//!
//! Names are the file's in camelCase, values as the file would write them. A secret that is set is
//! `***`, one that is not is absent.

use serde_json::{Map, Value, json};

use super::http::{SCOPES, SUCCESSES, VERSIONS};
use super::pool::{ON_EXHAUSTED, ON_REJECTED, ORDERINGS, UNGROUPED};
use super::{
    AgentMode, AgentSettings, CgroupsBy, ClusterMode, HttpSettings, LogFormat, PoolSettings,
    PromptBy, QueueSettings, ServerSettings, Settings, TenantLimits, UnknownPool, duration,
};

impl Settings {
    /// Everything, without secrets.
    #[must_use]
    pub fn shown(&self) -> Value {
        json!({
            "server": server(&self.server),
            "state": { "path": self.state.path.display().to_string() },
            "router": {
                "enabled": self.router.enabled,
                "configUrl": texts(&self.router.config_url),
                "syncInterval": duration::shown(self.router.sync_interval),
                "syncAttempts": self.router.sync_attempts,
                "syncRetryDelay": duration::shown(self.router.sync_retry_delay),
                "maxPools": self.router.max_pools,
                "poolWarningThreshold": self.router.pool_warning_threshold,
                "unknownPool": word(&UnknownPool::WORDS, self.router.unknown_pool),
            },
            "http": http(&self.http),
            "queues": self.queues.iter().map(QueueSettings::shown).collect::<Value>(),
            "pools": self.pools.iter().map(PoolSettings::shown).collect::<Value>(),
            "log": { "format": word(&LogFormat::WORDS, self.log.format) },
            "alerts": present([
                ("webhook", self.alerts.webhook.as_ref().map(|url| json!(url.to_string()))),
                ("minSeverity", Some(json!(self.alerts.min_severity.label()))),
                ("every", Some(json!(duration::shown(self.alerts.every)))),
            ]),
            "events": {
                "url": self.events.url.to_string(),
                "maxConcurrentProjections": self.events.max_concurrent_projections,
                "maxProjectionTasks": self.events.max_projection_tasks,
            },
            "cluster": present([
                ("mode", Some(json!(word(&ClusterMode::WORDS, self.cluster.mode)))),
                ("url", self.cluster.url.as_ref().map(|url| json!(url.to_string()))),
                ("lease", Some(json!(duration::shown(self.cluster.lease)))),
            ]),
            "agents": agents(&self.agents),
        })
    }
}

impl QueueSettings {
    /// The queue, without credentials.
    #[must_use]
    pub fn shown(&self) -> Value {
        json!({
            "name": self.name,
            "uri": self.uri.to_string(),
            "connections": self.connections,
            "maxMessages": self.max_messages,
            "visibilityTimeout": duration::shown(self.visibility_timeout),
            "window": self.window,
        })
    }
}

impl PoolSettings {
    /// The pool, without its key. A limit that is not there is `null`.
    #[must_use]
    pub fn shown(&self) -> Value {
        present([
            ("code", Some(json!(self.code))),
            ("concurrency", Some(json!(self.concurrency.get()))),
            ("rateLimitPerMinute", Some(json!(self.rate_limit_per_minute.map(|rate| rate.get())))),
            ("ordering", Some(json!(word(&ORDERINGS, self.ordering)))),
            ("ungrouped", Some(json!(word(&UNGROUPED, self.ungrouped)))),
            ("maxAttempts", Some(json!(self.max_attempts.map_or(0, |most| most.get())))),
            ("onExhausted", Some(json!(word(&ON_EXHAUSTED, self.on_exhausted)))),
            ("onRejected", Some(json!(word(&ON_REJECTED, self.on_rejected)))),
            ("parking", Some(json!(self.parking))),
            ("signingSecret", self.signing_secret.as_ref().map(|key| json!(key.to_string()))),
        ])
    }
}

fn server(server: &ServerSettings) -> Value {
    present([
        ("listen", Some(json!(server.listen.to_string()))),
        ("token", server.token.as_ref().map(|token| json!(token.to_string()))),
        ("readToken", server.read_token.as_ref().map(|token| json!(token.to_string()))),
        ("drain", Some(json!(duration::shown(server.drain)))),
        (
            "tls",
            server.tls.as_ref().map(|tls| {
                json!({
                    "cert": tls.cert.display().to_string(),
                    "key": tls.key.display().to_string(),
                })
            }),
        ),
    ])
}

fn http(http: &HttpSettings) -> Value {
    let breaker = &http.breaker;
    json!({
        "timeout": duration::shown(http.timeout),
        "connectTimeout": duration::shown(http.connect_timeout),
        "version": word(&VERSIONS, http.version),
        "priorKnowledge": http.prior_knowledge,
        "success": word(&SUCCESSES, http.success),
        "allowTargets": texts(&http.allow_targets),
        "breaker": {
            "scope": word(&SCOPES, breaker.scope),
            "window": duration::shown(breaker.window),
            "volume": breaker.volume,
            "failureRatio": breaker.failure_ratio,
            "openFor": duration::shown(breaker.open_for),
            "closeAfter": breaker.close_after,
        },
    })
}

fn agents(agents: &AgentSettings) -> Value {
    let tenants = agents.tenants.iter().map(|tenant| {
        let mut shown = limits(&tenant.limits);
        shown["id"] = json!(tenant.id);
        shown
    });
    let arguments = |arguments: &[String]| {
        let shown =
            |text: &String| if agents.hidden.contains(text) { "***" } else { text }.to_owned();
        arguments.iter().map(shown).collect::<Vec<_>>()
    };
    json!({
        "enabled": agents.enabled,
        "mode": word(&AgentMode::WORDS, agents.mode),
        "command": arguments(&agents.command),
        "sessionArgs": arguments(&agents.session_args),
        "resumeArgs": arguments(&agents.resume_args),
        "prompt": word(&PromptBy::WORDS, agents.prompt),
        "env": agents.env.iter().map(|(k, v)| (k.clone(), json!(v.to_string()))).collect::<Value>(),
        "folder": agents.folder.as_ref().map(|folder| folder.display().to_string()),
        "cgroups": word(&CgroupsBy::WORDS, agents.cgroups),
        "dialect": agents.dialect,
        "maxWorkers": agents.max_workers,
        "minWorkers": agents.min_workers,
        "queueTimeout": duration::shown(agents.queue_timeout),
        "executionTimeout": duration::shown(agents.execution_timeout),
        "maxSilence": agents.max_silence.map(duration::shown),
        "maxQueueDepthPerTenant": agents.max_queue_depth_per_tenant,
        "maxQueueDepthGlobal": agents.max_queue_depth_global,
        "workerIdleTimeout": duration::shown(agents.worker_idle_timeout),
        "maxRequestsPerWorker": agents.max_requests_per_worker,
        "maxWorkerErrors": agents.max_worker_errors,
        "gracefulShutdown": duration::shown(agents.graceful_shutdown),
        "upstreamRateLimitRps": agents.upstream_rate_limit_rps,
        "maxTotalMemoryMb": agents.max_total_memory_mb,
        "workerMemoryMb": agents.worker_memory_mb.unwrap_or(0),
        "workerPoolJson": agents.worker_pool_json.as_ref().map(|path| path.display().to_string()),
        "serial": agents.serial,
        "tenantLimits": limits(&agents.tenant_limits),
        "tenants": tenants.collect::<Value>(),
    })
}

fn limits(limits: &TenantLimits) -> Value {
    json!({
        "maxConcurrentRequests": limits.max_concurrent_requests,
        "maxQueuedRequests": limits.max_queued_requests,
        "maxResponseTime": duration::shown(limits.max_response_time),
        "rateLimitRequests": limits.rate_limit_requests,
        "rateLimitWindow": duration::shown(limits.rate_limit_window),
        "weight": limits.weight,
    })
}

/// An object of the fields that are there.
fn present<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect::<Map<_, _>>())
}

fn texts<T: ToString>(all: &[T]) -> Value {
    all.iter().map(ToString::to_string).collect()
}

/// The word that the file has for a value.
fn word<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, meaning)| *meaning == value).map_or("", |(word, _)| word)
}
