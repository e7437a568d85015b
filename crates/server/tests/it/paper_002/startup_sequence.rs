//! Startup Sequence.

use std::time::Duration;

use sluicegate_server::StartError;
use sluicegate_server::health::Probe;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::Instant;

use super::{daemon, warnings};

fn synced(endpoint: &Endpoint, attempts: u32) -> String {
    format!(
        "[router]\nconfig_url = [{:?}]\nsync_attempts = {attempts}\nsync_retry_delay = \"10ms\"\n",
        endpoint.url("/config")
    )
}

// § The first sync comes before processing begins, and the router is initialised by it.
#[tokio::test]
async fn the_first_sync_initialises() {
    let endpoint = Endpoint::start().await;
    let pools = r#"{"processingPools":[{"code":"ORDERS","concurrency":3}],"queues":[]}"#;
    endpoint.otherwise(Answer::status(200).body(pools));
    let (daemon, _folder) = daemon(&synced(&endpoint, 12)).await;
    assert!(!daemon.health(Probe::Startup).is_ok());
    daemon.begin().await.expect("it begins");
    assert!(daemon.health(Probe::Startup).is_ok());
    assert_eq!(daemon.router().pool("ORDERS").expect("synced").concurrency, 3);
    assert_eq!(endpoint.count(), 1);
}

// § A disabled router is initialised and processes nothing.
#[tokio::test]
async fn a_disabled_router_does_nothing() {
    let (daemon, _folder) = daemon("[router]\nenabled = false\n").await;
    daemon.begin().await.expect("it begins");
    assert!(daemon.health(Probe::Startup).is_ok());
    assert_eq!(daemon.router().queue_views().len(), 0);
}

// § When all tries of the first sync fail, the process ends with exit code 1.
// § And there is a critical warning.
#[tokio::test]
async fn a_first_sync_that_fails_ends_it() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let (daemon, _folder) = daemon(&synced(&endpoint, 3)).await;
    let failed = daemon.begin().await.expect_err("it must not begin");
    assert!(matches!(failed, StartError::Sync(_)), "{failed}");
    assert_eq!(endpoint.count(), 3);
    assert_eq!(warnings(&daemon), ["CONFIG_SYNC_FAILED CRITICAL config"]);
    assert!(!daemon.health(Probe::Startup).is_ok());
}

// § The paper waits two seconds first. Here nothing waits: it is ready at once.
#[tokio::test]
async fn it_is_ready_at_once() {
    let began = Instant::now();
    let (daemon, _folder) = daemon("").await;
    daemon.begin().await.expect("it begins");
    while !daemon.health(Probe::Ready).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", daemon.health(Probe::Ready));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
