//! From what the file says to what the parts are told.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use sluicegate_dispatch as dispatch;
use sluicegate_executors as executors;
use sluicegate_executors::http::OwnAddresses;

use crate::plan::Layout;
use crate::settings::{self, Desired};

/// What calls over HTTP are told, and where they never go.
pub(crate) fn http(
    http: &settings::HttpSettings,
    own: OwnAddresses,
) -> executors::http::HttpSettings {
    executors::http::HttpSettings {
        timeout: http.timeout,
        connect_timeout: http.connect_timeout,
        version: http.version,
        prior_knowledge: http.prior_knowledge,
        success: http.success,
        allow_targets: allowed(http),
        own,
        breaker_scope: http.breaker.scope,
        breaker: dispatch::BreakerSettings {
            window: http.breaker.window,
            volume: http.breaker.volume,
            failure_ratio: http.breaker.failure_ratio,
            open_for: http.breaker.open_for,
            close_after: http.breaker.close_after,
        },
        ..executors::http::HttpSettings::default()
    }
}

/// The private ranges that targets may be in.
pub(crate) fn allowed(http: &settings::HttpSettings) -> Vec<IpNet> {
    let range = |cidr: &settings::Cidr| IpNet::new(cidr.network(), cidr.prefix()).ok();
    http.allow_targets.iter().filter_map(range).collect()
}

/// What a pool is told.
pub(crate) fn pool(pool: &settings::PoolSettings) -> dispatch::PoolSettings {
    dispatch::PoolSettings {
        code: pool.code.as_str().into(),
        concurrency: pool.concurrency.get(),
        rate_limit_per_minute: pool.rate_limit_per_minute.map(NonZeroU32::get),
        ordering: pool.ordering,
        ungrouped: pool.ungrouped,
        max_attempts: pool.max_attempts.map_or(0, NonZeroU32::get),
        on_exhausted: pool.on_exhausted,
        on_rejected: pool.on_rejected,
        parking: pool.parking,
        signing_key: pool.signing_secret.as_ref().map(|secret| secret.key().into()),
    }
}

/// How a queue is received from.
pub(crate) fn queue(queue: &settings::QueueSettings) -> dispatch::QueueSettings {
    dispatch::QueueSettings {
        connections: queue.connections,
        max_messages: queue.max_messages as usize,
        window: queue.window as usize,
    }
}

/// What becomes of messages whose pool does not exist, once they are in a queue.
pub(crate) const fn unknown_pool(unknown: settings::UnknownPool) -> dispatch::UnknownPool {
    match unknown {
        settings::UnknownPool::Default => dispatch::UnknownPool::Default,
        settings::UnknownPool::Park | settings::UnknownPool::Refuse => dispatch::UnknownPool::Park,
    }
}

/// What is wanted, by name.
pub(crate) fn layout(desired: Desired) -> Layout {
    let pools = desired.pools.iter().map(|one| (Arc::from(one.code.as_str()), pool(one)));
    let queues = desired.queues.into_iter().map(|one| (one.name.clone(), one));
    Layout { pools: pools.collect(), queues: queues.collect() }
}

/// A deadline far enough away to mean none.
pub(crate) const LONG: Duration = Duration::from_secs(25);
