//! The suite that every source passes.

use std::time::Duration;

use sluicegate_testkit::brokers::{Kind, start_or_skip};
use sluicegate_testkit::conformance::source::run;

use crate::rig::Queues;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let Some(broker) = start_or_skip(Kind::ActiveMq) else { return };
    let count = run(&Queues { broker, window: Duration::from_secs(4) }).await;
    assert!(count >= 28, "{count} checks");
}
