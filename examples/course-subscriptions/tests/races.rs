//! The same races on both engines: whoever wins, no rule is broken.

use course_subscriptions::{open, race};
use sluicegate::events::EventStore;
use sluicegate_testkit::brokers::{Kind, start_or_skip};

async fn check(store: &EventStore) {
    let outcomes = [
        race::for_seats(store).await.expect("a race that ends"),
        race::with_oneself(store).await.expect("a race that ends"),
        race::for_courses(store).await.expect("a race that ends"),
    ];
    assert_eq!(outcomes, race::expected());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_holds_under_race_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    check(&open(folder.path().join("school.db").to_str().unwrap()).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_holds_under_race_in_postgresql() {
    let Some(server) = start_or_skip(Kind::Postgres) else { return };
    check(&open(server.url()).await.unwrap()).await;
}
