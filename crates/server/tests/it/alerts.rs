//! A webhook that hears of warnings.

use std::time::Duration;

use sluicegate_dispatch::Severity;
use sluicegate_server::Daemon;
use sluicegate_server::settings::Settings;
use sluicegate_server::warnings::Code;
use sluicegate_testkit::endpoint::{Answer, Endpoint};

#[tokio::test]
async fn a_webhook_hears_of_each_warning_that_is_bad_enough_once() {
    let endpoint = Endpoint::start().await;
    // What it does not take is told again.
    endpoint.then([Answer::status(500)]);
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state.db").display().to_string();
    let text = format!(
        "[alerts]\nwebhook = {:?}\nmin_severity = \"ERROR\"\n[state]\npath = {state:?}\n",
        endpoint.url("/alerts")
    );
    let settings = Settings::parse("test.toml", &text, &|_| None).expect("sound settings");
    let daemon = Daemon::open(settings, None).await.expect("it opens");
    daemon.begin().await.expect("it begins");
    let record = daemon.record();
    record.raise(Code::Routing, Severity::Warning, "A", "too mild");
    record.raise(Code::Configuration, Severity::Error, "B", "bad enough");
    record.raise(Code::Configuration, Severity::Error, "B", "bad enough");
    endpoint.wait_for(2).await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 2, "once refused, once taken");
    let told = asked[1].json();
    assert_eq!((&told["code"], &told["severity"]), (&"CONFIGURATION".into(), &"ERROR".into()));
    assert_eq!((&told["subject"], &told["count"]), (&"B".into(), &2.into()));
    assert_eq!(asked[1].header("content-type"), Some("application/json"));
    daemon.shutdown().await;
}
