//! Warning Types. Each is caused, or is one that cannot be.

use std::sync::Arc;

use sluicegate_dispatch::{Observer, Outcome, PoolSettings, QueueSettings, Severity};
use sluicegate_server::record::Record;
use sluicegate_server::time::Wall;
use sluicegate_server::warnings::Code;
use sluicegate_testkit::scripted::rig::{Rig, done_after};
use sluicegate_testkit::scripted::{ScriptedSource, Step, delivery, grouped, message};

/// What a record makes of everything that a rig's router says.
struct Heard {
    rig: Rig,
    record: Arc<Record>,
}

impl Heard {
    async fn new(pools: impl IntoIterator<Item = PoolSettings>) -> Self {
        let record = Record::new(Arc::new(Wall));
        let rig = Rig::observed(pools, Some(record.clone() as Arc<dyn Observer>)).await;
        Self { rig, record }
    }

    fn words(&self) -> Vec<String> {
        let page = self.record.warnings.list(None, None, 1_000);
        let words = page.items.iter().map(|warning| {
            format!("{} {} {}", warning.code.label(), warning.severity, warning.subject)
        });
        words.collect()
    }
}

// § ROUTING, WARNING: no pool for a code.
// § The subject is the pool's code, and what comes again is counted.
#[tokio::test(start_paused = true)]
async fn routing() {
    let heard = Heard::new([]).await;
    heard.rig.hand_out([grouped("m1", "NOPE", "g"), grouped("m2", "NOPE", "h")]);
    heard.rig.source.until_settled(2).await;
    assert_eq!(heard.words(), ["ROUTING WARNING NOPE"]);
    assert_eq!(heard.record.warnings.list(None, None, 10).items[0].count, 2);
}

// § QUEUE_FULL, WARNING: a pool's buffer is full.
#[tokio::test(start_paused = true)]
async fn queue_full() {
    // Another pool has room, so the queue is asked for more.
    let heard = Heard::new([PoolSettings::new("A", 1), PoolSettings::new("B", 1)]).await;
    heard.rig.executor.otherwise(Step::Hang);
    // A queue that reads nothing ahead.
    let source = ScriptedSource::new();
    let settings = QueueSettings { window: 0, ..QueueSettings::new(1, 10) };
    heard.rig.router.add_queue("paper", settings, source.clone()).await.expect("a queue");
    let hand_out = |names: Vec<String>| {
        let one = |name: String| delivery(grouped(&name, "A", &name));
        source.hand_out(names.into_iter().map(one).collect());
    };
    hand_out((0..50).map(|n| format!("m{n}")).collect());
    heard.rig.pass(2).await;
    hand_out((0..2).map(|n| format!("x{n}")).collect());
    heard.rig.pass(2).await;
    assert_eq!(heard.words(), ["QUEUE_FULL WARNING A"]);
}

// § PROCESSING, WARNING: an unexpected failure while processing.
#[tokio::test(start_paused = true)]
async fn processing() {
    let heard = Heard::new([PoolSettings::new("A", 1)]).await;
    heard.rig.executor.on("m", [Step::Panic("oops")]);
    heard.rig.hand_out([message("m", "A")]);
    heard.rig.source.until_settled(1).await;
    assert_eq!(heard.words(), ["PROCESSING WARNING A"]);
}

// § CONFIGURATION, ERROR: 400, 404 and 401 to 499.
// § CONFIGURATION, CRITICAL: 501.
#[tokio::test(start_paused = true)]
async fn configuration() {
    for severity in [Severity::Error, Severity::Critical] {
        let heard = Heard::new([PoolSettings::new("A", 1)]).await;
        let rejection = sluicegate_dispatch::Rejection {
            status: None,
            why: "no".to_owned(),
            severity,
            body: None,
        };
        let step = Step::Answer(std::time::Duration::ZERO, Outcome::Rejected(rejection));
        heard.rig.executor.on("m", [step]);
        heard.rig.hand_out([message("m", "A")]);
        heard.rig.source.until_settled(1).await;
        assert_eq!(heard.words(), [format!("CONFIGURATION {severity} http://127.0.0.1:9/deliver")]);
    }
}

// § UNGROUPED_SERIAL, INFO: messages without a group wait beside idle permits. #10
#[tokio::test(start_paused = true)]
async fn ungrouped_serial() {
    let heard = Heard::new([PoolSettings::new("A", 4)]).await;
    heard.rig.executor.otherwise(done_after(10));
    heard.rig.hand_out((0..4).map(|n| message(&format!("m{n}"), "A")));
    heard.rig.source.until_settled(4).await;
    assert_eq!(heard.words(), ["UNGROUPED_SERIAL INFO A"]);
    let said = heard.record.warnings.list(None, None, 10).items[0].message.clone();
    assert!(said.contains("ungrouped"), "{said}");
}

// § CONFIG_SYNC_FAILED, CRITICAL: `startup_sequence::a_first_sync_that_fails_ends_it`.
// § CONFIG_SYNC_FAILED, WARNING: `configuration_sync::failures_are_retried_and_later_ones_survived`.
// § POOL_LIMIT, CRITICAL and WARNING: `configuration_sync::pools_are_limited`.
// § CONSUMER_RESTART, WARNING and CONSUMER_RESTART_FAILED, CRITICAL: `health_monitoring::a_restart_that_fails`.
// § PIPELINE_MAP_LEAK, WARNING: only a bug can cause it; what it says is checked here.
// § SHUTDOWN_CLEANUP_ERRORS, WARNING: raised by `Daemon::shutdown` for what could not be settled.
#[test]
fn a_leak_is_a_warning() {
    let leak = sluicegate_server::health::leak(2, 1).expect("a leak");
    let raised = leak.warning();
    assert_eq!((raised.code, raised.severity), (Code::PipelineMapLeak, Severity::Warning));
}

// § GROUP_THREAD_RESTART and GROUP_THREAD_EXIT_WITH_MESSAGES cannot be: a group has no thread. #3
// § SEMAPHORE_RELEASE_FAILED cannot be: a permit comes back by drop.
// § MEDIATOR_NULL_RESULT cannot be: an executor answers with an `Outcome`.
// § There are no other codes of the paper, and severities have one spelling.
#[test]
fn the_codes() {
    let mut codes: Vec<&str> = Code::ALL.iter().map(|code| code.label()).collect();
    codes.sort_unstable();
    #[rustfmt::skip]
    assert_eq!(codes, [
        "AGENTS_FAILING", "AGENT_NOT_STARTED", "BREAKER_OPEN", "CONFIGURATION", "CONFIG_INVALID", "CONFIG_SYNC_FAILED",
        "CONSUMER_RESTART", "CONSUMER_RESTART_FAILED", "GROUP_BLOCKED", "GROUP_STUCK", "MESSAGES_FAILING", "PARKED",
        "PIPELINE_MAP_LEAK", "POOL_LIMIT", "PROCESSING", "QUEUE_FULL", "ROUTING", "SHUTDOWN_CLEANUP_ERRORS",
        "SOURCE_DOWN", "START_FAILED", "STATE_FAILED", "UNGROUPED_SERIAL", "UNKNOWN_FIELD",
        "WORKER_STUCK",
    ]);
    let severities = [Severity::Info, Severity::Warning, Severity::Error, Severity::Critical];
    assert_eq!(severities.map(Severity::label), ["INFO", "WARNING", "ERROR", "CRITICAL"]);
}
