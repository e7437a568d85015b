//! Metrics: the page, and what it is counted from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{
    CallStatus, Depth, Fact, Observer, Outcome, PoolSettings, QueueSettings, Reason, Rejection,
    Router, Severity,
};
use sluicegate_server::metrics::{Breakers, Snapshot};
use sluicegate_server::record::Record;
use tokio::time::Instant;

use crate::scene::{Hands, Stock, every_fact, message, name, router};

const MILLI: Duration = Duration::from_millis(1);

/// The names of SURFACE that are the router's.
const FAMILIES: [&str; 27] = [
    "append_conflicts",
    "breaker_state",
    "deliveries",
    "delivery_seconds",
    "events_appended",
    "inflight",
    "leader",
    "messages",
    "messages_parked",
    "pool_limit",
    "pool_oldest_wait_seconds",
    "pool_panics",
    "pool_queued",
    "pool_read_ahead",
    "pool_rejected",
    "pool_run_seconds",
    "pool_running",
    "pool_wait_seconds",
    "projections_rejected",
    "projections_running",
    "queue_depth",
    "queue_received",
    "queue_settle_failures",
    "queue_settled",
    "queue_unsettled",
    "rate_limited",
    "warnings",
];

async fn idle(record: &Arc<Record>, pools: &[&str]) -> Router {
    let pools = pools.iter().map(|code| PoolSettings::new(*code, 4)).collect();
    router(record, pools, Some(Stock::of([])), MILLI, Outcome::Done).await
}

fn value(page: &str, series: &str) -> Option<f64> {
    let mut found = page.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        (name == format!("sluicegate_{series}")).then(|| value.parse().expect("a number"))
    });
    let first = found.next();
    assert_eq!(found.next(), None, "{series} is there twice:\n{page}");
    first
}

/// Makes a page of what the facts left behind and looks for series in it.
fn check(page: &str, expected: &[(&str, Option<f64>)]) {
    for (series, expected) in expected {
        assert_eq!(value(page, series), *expected, "{series} in\n{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn facts_are_counted_by_pool_and_queue() {
    let record = Record::new(Hands::new());
    let router = idle(&record, &["P", "R"]).await;
    every_fact(|_, fact| record.metrics.count(fact));
    let (pool, queue, message) = (&name("R"), &name("q"), &message("m", None));
    let took = Duration::from_secs(2);
    let statuses = [
        CallStatus::Http(503),
        CallStatus::Timeout,
        CallStatus::Connect,
        CallStatus::Reset,
        CallStatus::RefusedTarget,
        CallStatus::Http(503),
    ];
    for status in statuses {
        record.metrics.count(&Fact::Called { pool, message, status, took });
    }
    let rejection =
        Rejection { status: None, why: String::new(), severity: Severity::Error, body: None };
    let outcomes = [
        Outcome::Done,
        Outcome::RetryLater { after: None, why: String::new(), status: None, body: None },
        Outcome::Throttled { after: took, body: None },
        Outcome::Rejected(rejection),
        Outcome::Unreachable { cause: String::new() },
        Outcome::BreakerOpen { name: name("b"), rest: took },
        Outcome::Interrupted,
        Outcome::Done,
    ];
    for outcome in &outcomes {
        record.metrics.count(&Fact::Finished { queue, pool, message, attempt: 1, outcome, took });
    }
    let again = Some(Reason::Failed);
    for (again, stale) in [(None, true), (again, true), (again, false), (again, false)] {
        record.metrics.count(&Fact::Settled { queue, id: None, again, stale });
    }
    let page = record.metrics.render(Snapshot::of(&router));
    let expected = [
        (r#"messages_total{pool="P",outcome="success"}"#, Some(1.0)),
        (r#"messages_total{pool="P",outcome="retry"}"#, Some(1.0)),
        (r#"messages_total{pool="P",outcome="rejected"}"#, Some(1.0)),
        (r#"messages_total{pool="P",outcome="throttled"}"#, None),
        (r#"messages_total{pool="R",outcome="success"}"#, Some(2.0)),
        (r#"messages_total{pool="R",outcome="retry"}"#, Some(1.0)),
        (r#"messages_total{pool="R",outcome="throttled"}"#, Some(1.0)),
        (r#"messages_total{pool="R",outcome="rejected"}"#, Some(1.0)),
        (r#"messages_total{pool="R",outcome="unreachable"}"#, Some(1.0)),
        (r#"messages_total{pool="R",outcome="breaker_open"}"#, Some(1.0)),
        (r#"messages_total{pool="R",outcome="interrupted"}"#, Some(1.0)),
        (r#"messages_total{pool="R",outcome="other"}"#, None),
        (r#"deliveries_total{pool="P",status="200"}"#, Some(1.0)),
        (r#"deliveries_total{pool="R",status="503"}"#, Some(2.0)),
        (r#"deliveries_total{pool="R",status="timeout"}"#, Some(1.0)),
        (r#"deliveries_total{pool="R",status="connect"}"#, Some(1.0)),
        (r#"deliveries_total{pool="R",status="reset"}"#, Some(1.0)),
        (r#"deliveries_total{pool="R",status="refused_target"}"#, Some(1.0)),
        (r#"deliveries_total{pool="R",status="other"}"#, None),
        (r#"delivery_seconds_sum{pool="R"}"#, Some(12.0)),
        (r#"delivery_seconds_count{pool="R"}"#, Some(6.0)),
        (r#"pool_panics_total{pool="P"}"#, Some(1.0)),
        (r#"pool_panics_total{pool="R"}"#, Some(0.0)),
        (r#"rate_limited_total{pool="P"}"#, Some(1.0)),
        (r#"rate_limited_total{pool="R"}"#, Some(0.0)),
        (r#"queue_received_total{queue="q"}"#, Some(3.0)),
        (r#"queue_settled_total{queue="q",how="ack"}"#, Some(1.0)),
        (r#"queue_settled_total{queue="q",how="retry"}"#, Some(3.0)),
        (r#"queue_settled_total{queue="q",how="stale"}"#, Some(2.0)),
    ];
    check(&page, &expected);
}

#[tokio::test(start_paused = true)]
async fn settlements_that_fail_are_counted() {
    let record = Record::new(Hands::new());
    let router = idle(&record, &["P"]).await;
    for doing in ["settle", "park", "receive"] {
        record.metrics.count(&Fact::SourceFailed { queue: &name("q"), doing, cause: "" });
    }
    let page = record.metrics.render(Snapshot::of(&router));
    check(&page, &[(r#"queue_settle_failures_total{queue="q"}"#, Some(2.0))]);
}

#[tokio::test(start_paused = true)]
async fn the_rest_is_read_off_at_a_scrape() {
    let record = Record::new(Hands::new());
    let router = idle(&record, &["P"]).await;
    every_fact(|_, fact| record.observe(fact));
    let depth = Depth { waiting: 5, delayed: 7, out: 100 };
    let snapshot = Snapshot {
        depths: BTreeMap::from([(name("q"), depth), (name("gone"), depth)]),
        parked: 9,
        breakers: Breakers { closed: 4, half_open: 2, open: 1 },
        warnings: record.warnings.open_by_code(),
        leader: true,
        ..Snapshot::of(&router)
    };
    let page = record.metrics.render(snapshot);
    let expected = [
        (r#"queue_depth{queue="q"}"#, Some(12.0)),
        (r#"queue_depth{queue="gone"}"#, None),
        (r#"inflight{queue="q"}"#, Some(0.0)),
        ("messages_parked", Some(9.0)),
        (r#"breaker_state{state="closed"}"#, Some(4.0)),
        (r#"breaker_state{state="half-open"}"#, Some(2.0)),
        (r#"breaker_state{state="open"}"#, Some(1.0)),
        (r#"warnings{severity="INFO",code="UNGROUPED_SERIAL"}"#, Some(1.0)),
        (r#"warnings{severity="WARNING",code="QUEUE_FULL"}"#, Some(1.0)),
        (r#"warnings{severity="WARNING",code="BREAKER_OPEN"}"#, Some(0.0)),
        (r#"warnings{severity="ERROR",code="PARKED"}"#, Some(1.0)),
        (r#"warnings{severity="CRITICAL",code="CONFIGURATION"}"#, Some(1.0)),
        ("leader", Some(1.0)),
        (r#"pool_limit{pool="P"}"#, Some(4.0)),
    ];
    check(&page, &expected);
    check(&record.metrics.render(Snapshot::default()), &[("leader", Some(0.0))]);
}

#[tokio::test(start_paused = true)]
async fn the_page_has_the_names_it_must_have_and_no_other() {
    let record = Record::new(Hands::new());
    let page = record.metrics.render(Snapshot::of(&idle(&record, &["P"]).await));
    let families: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE sluicegate_")).collect();
    let names: BTreeSet<&str> =
        families.iter().filter_map(|family| family.split(' ').next()).collect();
    assert_eq!(names, BTreeSet::from(FAMILIES), "{page}");
    assert_eq!(families.len(), FAMILIES.len());
    assert!(page.ends_with("# EOF\n"));
}

#[tokio::test(start_paused = true)]
async fn the_kernels_histograms_and_gauges_are_taken_over() {
    let record = Record::new(Hands::new());
    let messages = (0..4).map(|at| message(&format!("m{at}"), None));
    let pools = vec![PoolSettings::new("P", 1)];
    let takes = Duration::from_millis(2_500);
    let router = router(&record, pools, Some(Stock::of(messages)), takes, Outcome::Done).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let page = record.metrics.render(Snapshot::of(&router));
    let expected = [
        (r#"pool_running{pool="P"}"#, Some(1.0)),
        (r#"pool_queued{pool="P"}"#, Some(2.0)),
        (r#"pool_oldest_wait_seconds{pool="P"}"#, Some(4.0)),
        (r#"inflight{queue="q"}"#, Some(3.0)),
    ];
    check(&page, &expected);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let page = record.metrics.render(Snapshot::of(&router));
    let expected = [
        (r#"pool_running{pool="P"}"#, Some(0.0)),
        (r#"pool_run_seconds_sum{pool="P"}"#, Some(10.0)),
        (r#"pool_run_seconds_count{pool="P"}"#, Some(4.0)),
        (r#"pool_run_seconds_bucket{le="2.097152",pool="P"}"#, Some(0.0)),
        (r#"pool_run_seconds_bucket{le="4.194304",pool="P"}"#, Some(4.0)),
        // They waited for 0, 2.5, 5 and 7.5 s.
        (r#"pool_wait_seconds_sum{pool="P"}"#, Some(15.0)),
        (r#"pool_wait_seconds_bucket{le="0.000256",pool="P"}"#, Some(1.0)),
        (r#"pool_wait_seconds_bucket{le="4.194304",pool="P"}"#, Some(2.0)),
        (r#"pool_wait_seconds_bucket{le="8.388608",pool="P"}"#, Some(4.0)),
        (r#"pool_wait_seconds_bucket{le="+Inf",pool="P"}"#, Some(4.0)),
        (r#"queue_received_total{queue="q"}"#, Some(4.0)),
        (r#"queue_settled_total{queue="q",how="ack"}"#, Some(4.0)),
        (r#"messages_total{pool="P",outcome="success"}"#, Some(4.0)),
        (r#"inflight{queue="q"}"#, Some(0.0)),
    ];
    check(&page, &expected);
}

#[tokio::test(start_paused = true)]
async fn messages_that_were_not_let_in_are_counted_one_by_one() {
    let record = Record::new(Hands::new());
    let messages = (0..60).map(|at| message(&format!("m{at}"), None));
    // Another pool has room, so the queue is asked for more.
    let pools = vec![PoolSettings::new("P", 1), PoolSettings::new("Q", 1)];
    let takes = Duration::from_secs(300);
    let router = router(&record, pools, None, takes, Outcome::Done).await;
    let settings = QueueSettings { window: 0, ..QueueSettings::new(1, 10) };
    router.add_queue("q", settings, Stock::of(messages)).await.expect("a queue");
    tokio::time::sleep(Duration::from_secs(100)).await;
    // One runs, fifty wait, and the last batch of ten did not fit in whole.
    let page = record.metrics.render(Snapshot::of(&router));
    let rejected = r#"pool_rejected_total{pool="P",reason="queue_full"}"#;
    check(&page, &[(rejected, Some(10.0)), (r#"pool_queued{pool="P"}"#, Some(49.0))]);
}

#[tokio::test(start_paused = true)]
async fn durations_fall_into_the_bucket_that_holds_them() {
    let micros = |micros| Duration::from_micros(micros);
    let cases = [
        (Duration::ZERO, "0.000256"),
        (micros(256), "0.000256"),
        (Duration::from_nanos(256_001), "0.000512"),
        (micros(1_024), "0.001024"),
        (micros(1_025), "0.002048"),
        (micros(1 << 30), "1073.741824"),
        (micros((1 << 30) + 1), "+Inf"),
        (Duration::MAX, "+Inf"),
    ];
    for (took, first) in cases {
        let record = Record::new(Hands::new());
        let router = idle(&record, &["P"]).await;
        let (pool, message) = (&name("P"), &message("m", None));
        let status = CallStatus::Http(200);
        record.metrics.count(&Fact::Called { pool, message, status, took });
        let page = record.metrics.render(Snapshot::of(&router));
        let buckets: Vec<_> =
            page.lines().filter(|line| line.contains("delivery_seconds_bucket")).collect();
        let filled: Vec<_> = buckets.iter().filter(|line| line.ends_with(" 1")).collect();
        assert!(filled[0].contains(&format!("le=\"{first}\"")), "{took:?}: {page}");
        assert_eq!(buckets.len(), 24, "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn pools_and_queues_that_are_gone_are_forgotten() {
    let record = Record::new(Hands::new());
    let router = idle(&record, &["P", "R"]).await;
    let calls = |pool: &str| {
        let (pool, message) = (&name(pool), &message("m", None));
        let status = CallStatus::Http(200);
        record.metrics.count(&Fact::Called { pool, message, status, took: MILLI });
    };
    let received = || record.metrics.count(&Fact::Received { queue: &name("q"), count: 1 });
    let render = || record.metrics.render(Snapshot::of(&router));
    calls("P");
    calls("R");
    received();
    assert!(render().contains("pool=\"P\""));
    assert!(router.remove_pool("P"));
    assert!(router.remove_queue("q", Instant::now() + MILLI).await);
    router.clean_up().await;
    let page = render();
    assert!(!page.contains("pool=\"P\"") && !page.contains("queue="), "{page}");
    let r = r#"deliveries_total{pool="R",status="200"}"#;
    let (p, q) =
        (r#"deliveries_total{pool="P",status="200"}"#, r#"queue_received_total{queue="q"}"#);
    check(&page, &[(r, Some(1.0)), (p, None), (q, None)]);
    // Missed twice, they are gone; should the names come again, they begin anew.
    render();
    router.set_pool(PoolSettings::new("P", 1)).unwrap();
    calls("P");
    check(&render(), &[(p, Some(1.0)), (r, Some(1.0))]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_younger_than_the_snapshot_loses_nothing() {
    let record = Record::new(Hands::new());
    let router = idle(&record, &[]).await;
    let before = Snapshot::of(&router);
    router.set_pool(PoolSettings::new("P", 1)).unwrap();
    let (pool, message) = (&name("P"), &message("m", None));
    let status = CallStatus::Http(200);
    record.metrics.count(&Fact::Called { pool, message, status, took: MILLI });
    for _ in 0..3 {
        assert!(!record.metrics.render(before.clone()).contains("pool="));
        let page = record.metrics.render(Snapshot::of(&router));
        check(&page, &[(r#"deliveries_total{pool="P",status="200"}"#, Some(1.0))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_was_added_again_while_it_leaves_is_shown_once() {
    let record = Record::new(Hands::new());
    let pools = vec![PoolSettings::new("P", 2)];
    let stock = Stock::of([message("m1", Some("a")), message("m2", Some("b"))]);
    let source = Some(Arc::clone(&stock));
    let takes = Duration::from_secs(30);
    let router = router(&record, pools, source, takes, Outcome::Done).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(router.remove_pool("P"));
    router.set_pool(PoolSettings::new("P", 3)).unwrap();
    stock.add([message("m3", None)]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let page = record.metrics.render(Snapshot::of(&router));
    let running = r#"pool_running{pool="P"}"#;
    check(&page, &[(running, Some(3.0)), (r#"pool_limit{pool="P"}"#, Some(3.0))]);
    let mut series = BTreeSet::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, _) = line.rsplit_once(' ').unwrap();
        assert!(series.insert(name), "{name} is there twice");
    }
}

#[tokio::test(start_paused = true)]
async fn no_endpoint_can_grow_the_page() {
    let record = Record::new(Hands::new());
    let router = idle(&record, &["P"]).await;
    let (pool, message) = (&name("P"), &message("m", None));
    for code in (100..1000).chain(100..1000) {
        let status = CallStatus::Http(code);
        record.metrics.count(&Fact::Called { pool, message, status, took: MILLI });
    }
    let page = record.metrics.render(Snapshot::of(&router));
    let lines: Vec<_> =
        page.lines().filter(|line| line.starts_with("sluicegate_deliveries_total")).collect();
    assert_eq!(lines.len(), 25);
    check(&page, &[(r#"deliveries_total{pool="P",status="100"}"#, Some(2.0))]);
    check(&page, &[(r#"deliveries_total{pool="P",status="other"}"#, Some(1752.0))]);
}

#[tokio::test(start_paused = true)]
async fn many_pools_are_told_apart() {
    let record = Record::new(Hands::new());
    let codes: Vec<String> = (1..=300).map(|at| format!("P{at}")).collect();
    let router = idle(&record, &codes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let message = &message("m", None);
    for (calls, code) in (1..).zip(&codes) {
        let (pool, status) = (&name(code), CallStatus::Http(200));
        (0..calls).for_each(|_| {
            record.metrics.count(&Fact::Called { pool, message, status, took: MILLI });
        });
    }
    let page = record.metrics.render(Snapshot::of(&router));
    let lines: BTreeSet<&str> = page.lines().collect();
    for (calls, code) in (1..).zip(&codes) {
        let line = format!(r#"sluicegate_deliveries_total{{pool="{code}",status="200"}} {calls}"#);
        assert!(lines.contains(&*line), "no {line}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_escaped() {
    let record = Record::new(Hands::new());
    let router = idle(&record, &["a\"b\\c\nd"]).await;
    let page = record.metrics.render(Snapshot::of(&router));
    check(&page, &[(r#"pool_limit{pool="a\"b\\c\nd"}"#, Some(4.0))]);
}

#[test]
fn what_happens_to_every_message_costs_no_allocation() {
    let record = Record::new(Hands::new());
    let (pool, queue, id) = (&name("P"), &name("q"), &name("m1"));
    let (message, outcome) = (&message("m1", Some("g")), &Outcome::Done);
    let (took, status) = (MILLI, CallStatus::Http(200));
    let walk = || {
        record.observe(&Fact::Admitted { pool, message });
        record.observe(&Fact::Started { pool, message, attempt: 1, waited: took });
        record.observe(&Fact::Called { pool, message, status, took });
        record.observe(&Fact::Finished { queue, pool, message, attempt: 1, outcome, took });
        record.observe(&Fact::Settled { queue, id: Some(id), again: None, stale: false });
    };
    walk();
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| walk()));
    assert_eq!(counted.count_total, 0);
}

#[derive(Debug)]
struct Ours;

impl prometheus_client::collector::Collector for Ours {
    fn encode(
        &self,
        mut encoder: prometheus_client::encoding::DescriptorEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        let kind = prometheus_client::metrics::MetricType::Gauge;
        encoder.encode_descriptor("workers", "Workers", None, kind)?.encode_gauge(&3)
    }
}

#[test]
fn other_parts_add_their_own() {
    let record = Record::new(Hands::new());
    record.metrics.register(Ours);
    let page = record.metrics.render(Snapshot::default());
    check(&page, &[("workers", Some(3.0)), ("leader", Some(0.0))]);
    assert_eq!(page.matches("# EOF").count(), 1);
}
