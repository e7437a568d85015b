//! The settings in effect: the file, what was synced over it, and what was changed live since.

use serde_json::{Map, Value, json};
use sluicegate_dispatch::{DEFAULT_POOL, PoolSettings};

use crate::daemon::Daemon;
use crate::settings;

/// Everything, without secrets.
pub(crate) fn shown(daemon: &Daemon) -> Value {
    let (settings, in_effect) = (daemon.settings(), daemon.in_effect());
    let desired = settings.merged(&in_effect.documents);
    let mut shown = settings.shown();
    let applied = &in_effect.layout;
    shown["queues"] = desired.queues.iter().map(settings::QueueSettings::shown).collect();
    let mut pools: Vec<Value> = desired.pools.iter().map(settings::PoolSettings::shown).collect();
    let router = daemon.router();
    for pool in &mut pools {
        let code = pool["code"].as_str().unwrap_or_default();
        let asked = applied.pools.get(code);
        if let Some((asked, now)) = asked.zip(router.pool(code)) {
            mark(pool, asked, &now);
        }
    }
    if !applied.pools.contains_key(DEFAULT_POOL) {
        pools.extend(default_pool(daemon));
    }
    shown["pools"] = pools.into();
    shown
}

/// The default pool that nobody configured, if it was changed.
fn default_pool(daemon: &Daemon) -> Option<Value> {
    let now = daemon.router().pool(DEFAULT_POOL)?;
    let mut shown = settings::PoolSettings::new(DEFAULT_POOL).shown();
    mark(&mut shown, &PoolSettings::default_pool(), &now).then_some(shown)
}

/// Shows a pool's limits as they are, and marks those that are not as they were asked for.
fn mark(shown: &mut Value, asked: &PoolSettings, now: &PoolSettings) -> bool {
    let limits = [
        ("concurrency", json!(asked.concurrency), json!(now.concurrency)),
        (
            "rateLimitPerMinute",
            json!(asked.rate_limit_per_minute),
            json!(now.rate_limit_per_minute),
        ),
    ];
    let patched = limits.into_iter().filter(|(_, asked, now)| asked != now);
    let mut configured = Map::new();
    for (name, asked, now) in patched {
        shown[name] = now;
        configured.insert(name.to_owned(), asked);
    }
    if configured.is_empty() {
        return false;
    }
    shown["patched"] = configured.keys().cloned().collect();
    shown["configured"] = configured.into();
    true
}
