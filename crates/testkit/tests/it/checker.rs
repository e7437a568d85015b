//! The checker finds nothing where nothing is wrong, and each fault that an engine may have.

use std::sync::Arc;

use sluicegate_event_store::{BoxFuture, Engine};
use sluicegate_testkit::checker::{Fault, FaultyEngine, Report, SCENARIOS, check};
use sluicegate_testkit::conformance::events::{Rig, Subject};

struct Faulty(Fault);

struct One(Arc<FaultyEngine>);

impl Rig for Faulty {
    fn store(&self) -> BoxFuture<'_, Box<dyn Subject>> {
        Box::pin(async { Box::new(One(Arc::new(FaultyEngine::new(self.0, 7)))) as _ })
    }
}

impl Subject for One {
    fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.0) as _
    }

    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn Engine>>> {
        Box::pin(async { Some(self.engine()) })
    }
}

async fn reports(fault: Fault, rounds: u64, only: &[&str]) -> Vec<Report> {
    let mut reports = Vec::new();
    for scenario in SCENARIOS.iter().filter(|s| only.is_empty() || only.contains(&s.name)) {
        reports.push(check(&Faulty(fault), scenario, rounds, 1, &|_, _| {}).await);
    }
    reports
}

/// The fault is found by each of these scenarios.
async fn caught(fault: Fault, rounds: u64, by: &[&str]) {
    let reports = reports(fault, rounds, by).await;
    assert_eq!(reports.len(), by.len(), "all of {by:?} exist");
    for report in reports {
        println!("{fault:?} in {}: {} violations", report.scenario, report.violations);
        assert!(report.violations > 0, "{fault:?} in {report:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_right_engine_has_no_violations() {
    for report in reports(Fault::None, 100, &[]).await {
        assert_eq!(report.violations, 0, "{report:#?}");
        match report.scenario {
            // This engine has neither transactions nor processes.
            "old-transaction" | "several-processes" => assert!(report.skipped.is_some()),
            "tails" => assert!(report.appended > 1_000, "{report:?}"),
            _ => assert!(report.appended > 50 && report.refused > 50, "{report:?}"),
        }
    }
}

#[tokio::test]
async fn a_check_at_a_stale_head_is_caught() {
    caught(Fault::StaleHead, 50, &["one-winner", "overlapping", "or-rings", "plain", "histories"])
        .await;
}

#[tokio::test]
async fn items_taken_for_one_are_caught() {
    caught(Fault::OrAsAnd, 50, &["or-rings", "histories"]).await;
}

#[tokio::test]
async fn an_event_lost_while_paging_is_caught() {
    caught(Fault::LosesWhilePaging, 50, &["tails", "histories"]).await;
}

#[tokio::test]
async fn two_winners_in_a_hundred_are_caught() {
    caught(Fault::TwoWinners, 200, &["one-winner", "several-engines"]).await;
}

#[tokio::test]
async fn a_refusal_for_nothing_is_caught() {
    caught(Fault::RefusesForNothing, 200, &["overlapping", "histories"]).await;
}

#[tokio::test]
async fn torn_batches_are_caught() {
    caught(Fault::TornBatches, 50, &["tails", "plain", "histories"]).await;
}

#[tokio::test]
async fn events_that_can_be_read_too_late_are_caught() {
    caught(Fault::LateCommits, 100, &["tails"]).await;
}
