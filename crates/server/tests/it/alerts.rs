//! A webhook that hears of warnings.

use std::time::Duration;

use sluicegate_dispatch::Severity;
use sluicegate_server::Daemon;
use sluicegate_server::settings::Settings;
use sluicegate_server::warnings::Code;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

async fn daemon(endpoint: &Endpoint, more: &str) -> (Daemon, TempDir) {
    let more = format!("{more}\n[alerts]\n");
    daemon_with(endpoint, &more).await
}

async fn daemon_every(endpoint: &Endpoint, every: &str) -> (Daemon, TempDir) {
    daemon_with(endpoint, &format!("[alerts]\nevery = {every:?}\n")).await
}

/// By this text, which ends within the table `alerts`.
async fn daemon_with(endpoint: &Endpoint, text: &str) -> (Daemon, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state.db").display().to_string();
    let text = format!(
        "{text}webhook = {:?}\nmin_severity = \"ERROR\"\n[state]\npath = {state:?}\n",
        endpoint.url("/alerts")
    );
    let settings = Settings::parse("test.toml", &text, &|_| None).expect("sound settings");
    (Daemon::open(settings, None).await.expect("it opens"), folder)
}

/// Code, subject, count and whether it is over, of each notice.
fn told(endpoint: &Endpoint) -> Vec<String> {
    let words = |asked: &sluicegate_testkit::endpoint::Asked| {
        let json = asked.json();
        let over = if json["resolved"] == true { " over" } else { "" };
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}{over}", text("code"), text("subject"), json["count"])
    };
    endpoint.asked().iter().map(words).collect()
}

#[tokio::test]
async fn a_webhook_hears_of_each_warning_that_is_bad_enough_once() {
    let endpoint = Endpoint::start().await;
    // What it does not take is told again.
    endpoint.then([Answer::status(500)]);
    let (daemon, _folder) = daemon(&endpoint, "").await;
    daemon.begin().await.expect("it begins");
    let record = daemon.record();
    record.raise(Code::Routing, Severity::Warning, "A", "too mild");
    record.raise(Code::Configuration, Severity::Error, "B", "bad enough");
    record.raise(Code::Configuration, Severity::Error, "B", "bad enough");
    endpoint.wait_for(2).await;
    sleep(Duration::from_millis(2_500)).await;
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 2, "once refused, once taken");
    let notice = asked[1].json();
    assert_eq!((&notice["code"], &notice["severity"]), (&"CONFIGURATION".into(), &"ERROR".into()));
    assert_eq!((&notice["subject"], &notice["count"]), (&"B".into(), &2.into()));
    assert_eq!(notice["resolved"], false);
    assert_eq!(asked[1].header("content-type"), Some("application/json"));
    record.resolve(Code::Configuration, "B");
    endpoint.wait_for(3).await;
    let last = endpoint.asked()[2].json();
    assert_eq!((&last["id"], &last["resolved"]), (&notice["id"], &true.into()));
    assert!(last["resolvedAt"].is_string(), "{last}");
    daemon.shutdown().await;
    assert_eq!(endpoint.count(), 3, "nothing twice");
}

/// Time is paused: it runs on when everybody waits.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_fails_is_left_alone_for_longer_and_longer() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let (daemon, _folder) = daemon(&endpoint, "").await;
    daemon.begin().await.expect("it begins");
    daemon.record().raise(Code::Configuration, Severity::Error, "B", "bad");
    sleep(Duration::from_secs(15 * 60)).await;
    let times: Vec<Instant> = endpoint.asked().iter().map(|asked| asked.at).collect();
    let pauses: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let wanted = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0];
    assert!(pauses.len() >= 8, "{pauses:?}");
    for (pause, wanted) in pauses.iter().zip(wanted) {
        assert!((0.7 * wanted..1.3 * wanted).contains(pause), "{pauses:?}");
    }
    assert!(pauses.iter().zip(wanted).any(|(pause, wanted)| (pause - wanted).abs() > 0.01));
    daemon.shutdown().await;
}

/// While it goes on happening, and only then.
#[tokio::test]
async fn what_goes_on_is_told_again_every_so_often() {
    let endpoint = Endpoint::start().await;
    let (daemon, _folder) = daemon_every(&endpoint, "2s").await;
    daemon.begin().await.expect("it begins");
    let raise = || daemon.record().raise(Code::Configuration, Severity::Error, "B", "bad");
    raise();
    endpoint.wait_for(1).await;
    let begun = Instant::now();
    raise();
    raise();
    endpoint.wait_for(2).await;
    let took = begun.elapsed();
    assert!((Duration::from_millis(1_500)..Duration::from_secs(4)).contains(&took), "{took:?}");
    sleep(Duration::from_secs(4)).await;
    assert_eq!(told(&endpoint), ["CONFIGURATION B 1", "CONFIGURATION B 3"]);
    // It begins once more, long after.
    raise();
    endpoint.wait_for(3).await;
    assert_eq!(told(&endpoint)[2], "CONFIGURATION B 4");
    daemon.shutdown().await;
}

#[tokio::test]
async fn a_first_configuration_that_cannot_be_had_is_alerted() {
    let endpoint = Endpoint::start().await;
    let more = "[router]\nconfig_url = [\"http://127.0.0.1:9/config\"]\nsync_attempts = 1\n";
    let (daemon, _folder) = daemon(&endpoint, more).await;
    daemon.begin().await.expect_err("there is no configuration");
    daemon.shutdown().await;
    assert_eq!(told(&endpoint), ["CONFIG_SYNC_FAILED config 1"]);
}

#[tokio::test]
async fn what_happens_at_the_end_is_alerted_too() {
    let endpoint = Endpoint::start().await;
    let (daemon, _folder) = daemon(&endpoint, "").await;
    daemon.begin().await.expect("it begins");
    for at in 0..20 {
        daemon.record().raise(Code::Configuration, Severity::Error, format!("{at:02}"), "words");
    }
    daemon.shutdown().await;
    let wanted: Vec<String> = (0..20).map(|at| format!("CONFIGURATION {at:02} 1")).collect();
    assert_eq!(told(&endpoint), wanted);
    daemon.record().raise(Code::Configuration, Severity::Error, "late", "words");
    daemon.shutdown().await;
    assert_eq!(endpoint.count(), 20, "it has ended");
}

#[tokio::test]
async fn a_webhook_that_hangs_holds_up_nothing() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let (daemon, _folder) = daemon(&endpoint, "").await;
    daemon.begin().await.expect("it begins");
    daemon.record().raise(Code::Configuration, Severity::Error, "a", "words");
    endpoint.wait_for(1).await;
    let begun = Instant::now();
    for _ in 0..1_000 {
        daemon.record().raise(Code::Configuration, Severity::Error, "b", "words");
    }
    assert_eq!(daemon.publish(None, Vec::new()).await.map(|published| published.accepted), Ok(0));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    daemon.shutdown().await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "a few seconds at the end, not {took:?}");
}

/// Notices are given up when there are too many, and whoever reads the next one knows.
#[tokio::test]
async fn what_was_given_up_is_said_with_the_next_notice() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(503)]);
    let (daemon, _folder) = daemon(&endpoint, "").await;
    daemon.begin().await.expect("it begins");
    for at in 0..1_500 {
        daemon.record().raise(Code::Configuration, Severity::Error, format!("{at:04}"), "words");
    }
    endpoint.wait_for(1_001).await;
    daemon.shutdown().await;
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 1_001, "one was refused and told again");
    let dropped: u64 = asked[1..].iter().filter_map(|asked| asked.json()["dropped"].as_u64()).sum();
    assert_eq!(dropped, 500);
}

/// How long after it was raised a warning was told, for each time that it was.
fn told_after(endpoint: &Endpoint, subject: &str, raised: Instant) -> Vec<Duration> {
    let of = |asked: &sluicegate_testkit::endpoint::Asked| {
        (asked.json()["subject"] == subject).then(|| asked.at - raised)
    };
    endpoint.asked().iter().filter_map(of).collect()
}

/// The webhook has failed for so long that it is left alone for minutes. Time is paused.
#[tokio::test(start_paused = true)]
async fn a_new_critical_warning_does_not_wait_for_the_pause_of_a_webhook() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let (daemon, _folder) = daemon(&endpoint, "").await;
    daemon.begin().await.expect("it begins");
    daemon.record().raise(Code::Configuration, Severity::Error, "old", "words");
    daemon.record().raise(Code::StateFailed, Severity::Critical, "known", "words");
    sleep(Duration::from_secs(30 * 60)).await;
    // It has just been tried, and is left alone for some minutes.
    let before = endpoint.count();
    while endpoint.count() == before {
        sleep(Duration::from_secs(1)).await;
    }
    let tries = endpoint.count();
    sleep(Duration::from_secs(30)).await;
    daemon.record().raise(Code::Configuration, Severity::Error, "mild", "words");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(endpoint.count(), tries, "others wait");
    let raised = Instant::now();
    daemon.record().raise(Code::StateFailed, Severity::Critical, "new", "words");
    sleep(Duration::from_secs(15)).await;
    let tried = told_after(&endpoint, "new", raised);
    assert!(tried.first().is_some_and(|first| *first < Duration::from_secs(2)), "{tried:?}");
    let tries = endpoint.count() - tries;
    assert!((2..=6).contains(&tries), "{tries}: again soon, but not all the time");
    endpoint.otherwise(Answer::ok());
    let works = Instant::now();
    sleep(Duration::from_secs(30)).await;
    for subject in ["new", "known", "old", "mild"] {
        let told = told_after(&endpoint, subject, works);
        assert!(told.iter().any(|after| *after > Duration::ZERO), "{subject}: {told:?}");
    }
    daemon.shutdown().await;
}
