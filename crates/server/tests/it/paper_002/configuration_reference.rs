//! Configuration Reference.

use std::time::Duration;

use sluicegate_dispatch::{
    DEFAULT_DELAY, DEFAULT_GROUP, DEFAULT_POOL, FAST_FAIL_DELAY, MAX_DELAY, PoolSettings,
};
use sluicegate_executors::http::{HttpSettings, HttpVersion};
use sluicegate_server::settings::{Settings, synced};
use sluicegate_server::warnings::Warnings;

#[test]
fn core_properties() {
    let router = Settings::default().router;
    // § The router is enabled.
    assert!(router.enabled);
    // § It syncs every 5 minutes.
    assert_eq!(router.sync_interval, Duration::from_secs(300));
    // § At most 10,000 pools.
    assert_eq!(router.max_pools, 10_000);
    // § A warning from 5,000 pools on.
    assert_eq!(router.pool_warning_threshold, 5_000);
}

#[test]
fn queues() {
    let queue = &Settings::default().queues[0];
    // § Ten messages a poll.
    assert_eq!(queue.max_messages, 10);
    // § One connection.
    assert_eq!(queue.connections, 1);
    // § A window of 30 seconds.
    assert_eq!(queue.visibility_timeout, Duration::from_secs(30));
}

#[test]
fn http_mediator() {
    let http = HttpSettings::default();
    // § A request has 15 minutes.
    assert_eq!(http.timeout, Duration::from_secs(900));
    assert_eq!(Settings::default().http.timeout, http.timeout);
    // § HTTP/2.
    assert_eq!(http.version, HttpVersion::Http2);
    // § A connection has 30 seconds.
    assert_eq!(http.connect_timeout, Duration::from_secs(30));
    // § Three calls, one and two seconds apart.
    assert_eq!(http.retry_delays, [Duration::from_secs(1), Duration::from_secs(2)]);
    // § The breaker looks at ten calls; here at those of ten seconds, if there are so many. #5
    assert_eq!(http.breaker.window, Duration::from_secs(10));
    assert_eq!(http.breaker.volume, 10);
    // § It opens when half of them failed.
    assert!((http.breaker.failure_ratio - 0.5).abs() < f64::EPSILON);
    // § It stays open for five seconds.
    assert_eq!(http.breaker.open_for, Duration::from_secs(5));
    // § Three successes close it.
    assert_eq!(http.breaker.close_after, 3);
}

#[test]
fn constants() {
    // § The capacity factor is 20 and the floor 50.
    assert_eq!(
        (PoolSettings::new("A", 10).capacity(), PoolSettings::new("A", 1).capacity()),
        (200, 50)
    );
    // § The default pool is called DEFAULT-POOL.
    assert_eq!(DEFAULT_POOL, "DEFAULT-POOL");
    // § Its concurrency is 20.
    assert_eq!(PoolSettings::default_pool().concurrency, 20);
    // § The group of messages without one is __DEFAULT__.
    assert_eq!(DEFAULT_GROUP, "__DEFAULT__");
    // § A nack is for 30 seconds.
    assert_eq!(DEFAULT_DELAY, Duration::from_secs(30));
    // § A fast-fail nack is for 10.
    assert_eq!(FAST_FAIL_DELAY, Duration::from_secs(10));
    // § The longest delay is 43,200 seconds.
    assert_eq!(MAX_DELAY, Duration::from_secs(43_200));
    // § A shutdown has 25 and 30 seconds.
    assert_eq!(Settings::default().server.drain, Duration::from_secs(25 + 30));
    // § Warnings go after 8 hours.
    assert_eq!(Warnings::KEPT_FOR, Duration::from_secs(8 * 60 * 60));
    // § Concurrency absent or 0 follows the rate. #18
    let body = br#"{"processingPools":[{"code":"A","rateLimitPerMinute":600},{"code":"B"}]}"#;
    let pools = synced::parse(body).expect("it is").pools;
    assert_eq!(pools.iter().map(|pool| pool.concurrency.get()).collect::<Vec<_>>(), [10, 1]);
}
