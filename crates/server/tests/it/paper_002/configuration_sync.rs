//! Configuration Sync.

use std::sync::Arc;

use sluicegate_dispatch::PoolSettings;
use sluicegate_server::Daemon;
use sluicegate_server::plan::{Layout, PoolLimits, plan};
use sluicegate_server::settings::RouterSettings;
use sluicegate_server::warnings::Code;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use sluicegate_testkit::scripted::grouped;
use sluicegate_testkit::scripted::rig::{Rig, done_after};

use super::{daemon, warnings};

// § Twelve tries, five seconds apart.
#[test]
fn twelve_tries_five_seconds_apart() {
    let settings = RouterSettings::default();
    assert_eq!((settings.sync_attempts, settings.sync_retry_delay.as_secs()), (12, 5));
}

fn text(endpoint: &Endpoint, more: &str) -> String {
    let url = endpoint.url("/config");
    let retry = "sync_attempts = 3\nsync_retry_delay = \"1ms\"";
    format!("[router]\nconfig_url = [{url:?}]\n{retry}\n{more}")
}

fn document(pools: &[(&str, u32)], queues: &[&str]) -> Answer {
    let pools: Vec<String> = pools
        .iter()
        .map(|(code, concurrency)| format!(r#"{{"code":"{code}","concurrency":{concurrency}}}"#))
        .collect();
    let queues: Vec<String> =
        queues.iter().map(|uri| format!(r#"{{"queueUri":"{uri}","queueName":"{uri}"}}"#)).collect();
    let body =
        format!(r#"{{"queues":[{}],"processingPools":[{}]}}"#, queues.join(","), pools.join(","));
    Answer::status(200).body(body)
}

// § A failed try is followed by another; a later success counts.
// § When a later sync fails, there is a warning and what was applied stays.
#[tokio::test]
async fn failures_are_retried_and_later_ones_survived() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(503), Answer::cut(), document(&[("A", 2)], &["sqlite:q"])]);
    let (daemon, _folder) = daemon(&text(&endpoint, "")).await;
    daemon.begin().await.expect("the third try works");
    assert_eq!((endpoint.count(), warnings(&daemon)), (3, vec![]));
    for bad in [Answer::status(404), Answer::status(200).body("no json"), Answer::ok()] {
        endpoint.otherwise(bad);
        daemon.sync().await.expect_err("nothing to apply");
        assert_eq!(daemon.router().pool("A").expect("it stays").concurrency, 2);
        assert_eq!(daemon.router().queue_views().len(), 1);
    }
    assert_eq!(warnings(&daemon), ["CONFIG_SYNC_FAILED WARNING config"]);
}

// § Existing pools change concurrency and rate; new ones are created; missing ones are drained.
// § Queues that are gone are stopped, new ones are started.
// § Queues that did not change are left untouched.
#[tokio::test]
async fn a_sync_makes_it_so() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(document(&[("A", 2), ("B", 1)], &["sqlite:q", "sqlite:r"]));
    let (daemon, _folder) = daemon(&text(&endpoint, "")).await;
    daemon.begin().await.expect("it begins");
    endpoint.otherwise(document(&[("A", 5), ("C", 1)], &["sqlite:q", "sqlite:s"]));
    let report = daemon.sync().await.expect("a document");
    let codes = |codes: &[Arc<str>]| codes.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(codes(&report.set_pools), ["A", "C"]);
    assert_eq!(codes(&report.removed_pools), ["B"]);
    assert_eq!(report.removed_queues, ["sqlite:r"]);
    assert_eq!(report.added_queues, ["sqlite:s"]);
    assert_eq!(codes(&daemon.router().pools()), ["A", "C"]);
    assert_eq!(daemon.router().pool("A").expect("there").concurrency, 5);
    let same = daemon.sync().await.expect("a document");
    assert_eq!(same, Default::default());
}

// § Queues that cannot be used are reported, and the rest goes on.
#[tokio::test]
async fn a_bad_queue_is_an_issue_and_the_rest_goes_on() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(document(&[("A", 2)], &["gopher:x", "sqlite:q"]));
    let (daemon, _folder) = daemon(&text(&endpoint, "")).await;
    daemon.begin().await.expect("it begins");
    let names = daemon
        .router()
        .queue_views()
        .iter()
        .map(|queue| queue.name.to_string())
        .collect::<Vec<_>>();
    assert_eq!(names, ["sqlite:q"]);
    assert!(daemon.router().pool("A").is_some());
}

fn queues(daemon: &Daemon) -> Vec<String> {
    daemon.router().queue_views().iter().map(|queue| queue.name.to_string()).collect()
}

fn open_warnings(daemon: &Daemon) -> Vec<String> {
    let open = daemon.record().warnings.open(Code::ConfigSyncFailed);
    open.iter().map(|warning| warning.message.to_string()).collect()
}

/// What is left out of a document is warned of until it is mended: nobody would consume that queue.
#[tokio::test]
async fn what_is_left_out_of_a_document_is_warned_of() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(document(&[("A", 2)], &["gopher:x", "sqlite:q"]));
    let (daemon, _folder) = daemon(&text(&endpoint, "")).await;
    daemon.begin().await.expect("it begins");
    for _ in 0..2 {
        let said = open_warnings(&daemon);
        assert!(said.len() == 1 && said[0].contains("queues[0].queueUri"), "{said:?}");
        daemon.sync().await.expect("a document");
    }
    endpoint.otherwise(document(&[("A", 2)], &["sqlite:q"]));
    daemon.sync().await.expect("a document");
    assert_eq!(open_warnings(&daemon), [""; 0]);
}

/// Two queues at one address would be received from twice: what one has parked the other does not know of, and order
/// is lost.
#[tokio::test]
async fn a_queue_at_the_address_of_another_is_left_out() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(document(&[("A", 2)], &["sqlite:q"]));
    let file = "[[queue]]\nname = \"orders\"\nuri = \"sqlite:q\"\n";
    let (daemon, _folder) = daemon(&text(&endpoint, file)).await;
    daemon.begin().await.expect("it begins");
    assert_eq!(queues(&daemon), ["orders"]);
    let said = open_warnings(&daemon);
    assert!(
        said.len() == 1 && said[0].contains("sqlite:q") && said[0].contains("orders"),
        "{said:?}"
    );
}

fn layout(count: usize) -> Layout {
    let pools = (0..count).map(|n| {
        let code: Arc<str> = format!("P{n:05}").into();
        (Arc::clone(&code), PoolSettings::new(code, 1))
    });
    Layout { pools: pools.collect(), ..Layout::default() }
}

// § At the most pools, further ones are not created, with a critical warning.
// § From the threshold on there is a warning.
#[tokio::test]
async fn pools_are_limited() {
    let limits = PoolLimits { most: 10_000, warn_from: 5_000 };
    for (count, refused, many) in
        [(5_000, 0, false), (5_001, 0, true), (10_000, 0, true), (10_003, 3, true)]
    {
        let planned = plan(&Layout::default(), &layout(count), limits);
        assert_eq!((planned.refused_pools.len(), planned.many_pools), (refused, many), "{count}");
    }
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(document(&[("A", 1), ("B", 1), ("C", 1)], &[]));
    let limits = "max_pools = 2\npool_warning_threshold = 1\n";
    let (daemon, _folder) = daemon(&text(&endpoint, limits)).await;
    daemon.begin().await.expect("it begins");
    assert_eq!(warnings(&daemon), ["POOL_LIMIT CRITICAL C", "POOL_LIMIT WARNING pools"]);
    assert_eq!(daemon.router().pools().len(), 2);
}

// § Concurrency absent or 0 follows the rate. #18
#[tokio::test]
async fn concurrency_follows_the_rate() {
    let endpoint = Endpoint::start().await;
    let body = r#"{"processingPools":[{"code":"A","rateLimitPerMinute":600},
        {"code":"B","concurrency":0,"rateLimitPerMinute":30},{"code":"C","concurrency":0},{"code":"D"}]}"#;
    endpoint.otherwise(Answer::status(200).body(body));
    let (daemon, _folder) = daemon(&text(&endpoint, "")).await;
    daemon.begin().await.expect("it begins");
    for (code, concurrency, rate) in
        [("A", 10, Some(600)), ("B", 1, Some(30)), ("C", 1, None), ("D", 1, None)]
    {
        let pool = daemon.router().pool(code).expect(code);
        assert_eq!((pool.concurrency, pool.rate_limit_per_minute), (concurrency, rate), "{code}");
    }
}

// § A queue's connections default to the document's, or to 1.
#[tokio::test]
async fn connections_default_to_one() {
    let read = |body: &str| {
        let synced = sluicegate_server::settings::synced::parse(body.as_bytes()).expect("it is");
        synced.queues.iter().map(|queue| queue.connections).collect::<Vec<_>>()
    };
    let queues = r#""queues":[{"queueUri":"sqlite:a"},{"queueUri":"sqlite:b","connections":7}]"#;
    assert_eq!(read(&format!("{{{queues}}}")), [1, 7]);
    assert_eq!(read(&format!(r#"{{{queues},"connections":3}}"#)), [3, 7]);
}

// § A removed pool hands back what it held, and untracks it. #4
// § A smaller concurrency does not hold the sync up. #15
#[tokio::test(start_paused = true)]
async fn a_change_does_not_wait_for_work() {
    let rig = Rig::new([PoolSettings::new("A", 4)]).await;
    rig.executor.otherwise(done_after(1_000_000));
    rig.hand_out((0..6).map(|n| grouped(&format!("m{n}"), "A", &format!("g{n}"))));
    rig.executor.until_started(4).await;
    let before = tokio::time::Instant::now();
    rig.router.set_pool(PoolSettings::new("A", 1)).expect("sound");
    rig.router.remove_pool("A");
    assert_eq!(before.elapsed(), std::time::Duration::ZERO);
    rig.source.until_settled(2).await;
    assert_eq!(rig.sorted(), ["m4 again 0s draining #0", "m5 again 0s draining #0"]);
    rig.settle_down().await;
    assert_eq!(rig.router.in_flight(), 4);
}

// § One sync at a time.
#[tokio::test]
async fn syncs_do_not_mix() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(document(&[("A", 2)], &["sqlite:q"]));
    let (daemon, _folder) = daemon(&text(&endpoint, "")).await;
    daemon.begin().await.expect("it begins");
    endpoint.otherwise(document(&[("B", 2)], &["sqlite:r"]));
    let (first, second) = tokio::join!(daemon.sync(), daemon.sync());
    let (first, second) = (first.expect("a document"), second.expect("a document"));
    let changed = |report: &sluicegate_server::ApplyReport| report.set_pools.len();
    assert_eq!(changed(&first) + changed(&second), 1, "one did it, the other found it done");
}

/// The address may carry credentials: they go into a header, not into the request's line.
#[tokio::test]
async fn credentials_of_the_address_are_sent() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(document(&[("A", 2)], &["sqlite:q"]));
    let plain = text(&endpoint, "");
    let (daemon, _folder) = daemon(&plain.replace("http://", "http://me:p%40ss%20w@")).await;
    daemon.begin().await.expect("it begins");
    let asked = &endpoint.asked()[0];
    assert_eq!(asked.headers["authorization"], "Basic bWU6cEBzcyB3");
    assert!(!asked.headers["host"].to_str().expect("text").contains('@'), "{:?}", asked.headers);
}
