//! JetStream through the suite of sources.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use sluicegate_testkit::conformance::source::run;

use crate::rig::{Streams, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let Some(broker) = server() else { return };
    let window = Duration::from_secs(4);
    let count = run(&Streams { broker, window, made: AtomicUsize::new(0) }).await;
    assert!(count >= 28, "{count} checks");
}
