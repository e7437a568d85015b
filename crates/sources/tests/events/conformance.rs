//! Events through the suite of sources.

use std::time::Duration;

use sluicegate_testkit::conformance::source::run;

use crate::rig::Queues;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract_in_memory() {
    let count = run(&Queues { window: Duration::from_secs(4), in_files: false }).await;
    assert!(count >= 40, "{count} checks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract_in_a_file() {
    let count = run(&Queues { window: Duration::from_secs(6), in_files: true }).await;
    assert!(count >= 40, "{count} checks");
}
