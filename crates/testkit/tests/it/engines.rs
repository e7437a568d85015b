//! Every engine of the event store keeps the contract, and answers as an exact store does.

use sluicegate_testkit::checker::{SCENARIOS, check};
use sluicegate_testkit::conformance::events::{Rig, run};
use sluicegate_testkit::{brokers, engines};

/// `None` where it cannot be had, which is a failure where nothing may be left out.
fn rig(name: &str) -> Option<Box<dyn Rig>> {
    match engines::rig(name, Some(&["--exact", "engines::another_process", "--nocapture"])) {
        Ok(rig) => Some(rig),
        Err(why) if brokers::on_ci() => panic!("{why}"),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

async fn keeps_the_contract(name: &str) {
    if let Some(rig) = rig(name) {
        let count = run(&*rig).await;
        assert!(count >= 30, "{count} checks");
    }
}

/// A few rounds: `cargo xtask check-store` runs as many as one likes.
async fn is_exact(name: &str, rounds: u64) {
    let Some(rig) = rig(name) else { return };
    for scenario in SCENARIOS {
        let report = check(&*rig, scenario, rounds, 3, &|_, _| {}).await;
        assert_eq!(report.violations, 0, "{report:#?}");
        assert!(name != "postgres" || report.skipped.is_none(), "{report:?}");
        println!("{name}: {report:?}");
    }
}

/// The process that appends for those below. For anybody else there is nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_process() {
    engines::append_for_another().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_keeps_the_contract() {
    keeps_the_contract("memory").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_keeps_the_contract() {
    keeps_the_contract("sqlite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_keeps_the_contract() {
    keeps_the_contract("postgres").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_is_exact() {
    is_exact("memory", 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_is_exact() {
    is_exact("sqlite", 25).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_is_exact() {
    is_exact("postgres", 25).await;
}
