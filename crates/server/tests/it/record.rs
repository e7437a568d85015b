//! The record: a fact becomes a log line, a number, a warning and an event, without a secret.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use sluicegate_dispatch::{Fact, Observer, Severity};
use sluicegate_server::log::{self, Format, LogError};
use sluicegate_server::record::Record;
use sluicegate_server::warnings::Code;
use tracing::{Dispatch, Level};

use crate::scene::{Hands, SECRETS, every_fact, name};

/// Where log lines go in tests.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Has a log hear what something says, whatever other threads say or hear meanwhile.
///
/// While there is one log in the process, tracing asks the thread that comes first by a line whether anybody wants to
/// hear it: a thread without a log would silence it for all. So there is always a second one.
fn heard_by(log: impl Into<Dispatch>, what: impl FnOnce()) {
    static SECOND: OnceLock<Dispatch> = OnceLock::new();
    SECOND.get_or_init(|| {
        let discards = tracing_subscriber::fmt().with_max_level(Level::TRACE);
        discards.with_writer(std::io::sink).finish().into()
    });
    tracing::dispatcher::with_default(&log.into(), what);
}

/// The log lines that something makes, each as its level and its JSON.
fn logged(what: impl FnOnce()) -> Vec<(Level, serde_json::Value)> {
    let paper = Paper::default();
    let writer = paper.clone();
    let log = tracing_subscriber::fmt()
        .json()
        .with_max_level(Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    heard_by(log, what);
    let text = String::from_utf8(paper.0.lock().clone()).expect("a log is text");
    let lines = text.lines().map(|line| {
        let json: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        let level = json["level"].as_str().and_then(|level| level.parse().ok());
        (level.expect("a line has a level"), json)
    });
    lines.collect()
}

#[test]
fn facts_are_said_at_the_levels_of_the_table() {
    let louder = BTreeMap::from([
        ("failing", vec![Level::WARN]),
        ("expired", vec![Level::WARN]),
        ("malformed", vec![Level::WARN]),
        // Those that are warned of are said twice: what happened, and the new warning.
        ("unknown pool", vec![Level::DEBUG, Level::WARN]),
        ("full", vec![Level::DEBUG, Level::WARN]),
        ("unknown field", vec![Level::DEBUG, Level::INFO]),
        ("serial", vec![Level::INFO]),
        ("panicked", vec![Level::ERROR, Level::WARN]),
        ("rejected", vec![Level::DEBUG, Level::ERROR]),
        ("not implemented", vec![Level::DEBUG, Level::ERROR]),
        // What happened, and what is said rarely for those who read no more.
        ("failed", vec![Level::DEBUG, Level::WARN]),
        ("paused", vec![Level::INFO]),
        ("blocked", vec![Level::WARN, Level::ERROR]),
        ("parked", vec![Level::INFO]),
        ("used up", vec![Level::INFO, Level::ERROR]),
        // The same matter is said once.
        ("key parked", vec![Level::INFO]),
        ("opened", vec![Level::WARN, Level::WARN]),
        // What happened, and that what was warned of is over.
        ("closed", vec![Level::INFO, Level::INFO]),
    ]);
    let record = Record::new(Hands::new());
    every_fact(|name, fact| {
        let lines = logged(|| record.observe(fact));
        let levels: Vec<Level> = lines.iter().map(|(level, _)| *level).collect();
        let expected = louder.get(name).cloned().unwrap_or_else(|| vec![Level::DEBUG]);
        assert_eq!(levels, expected, "{name}: {lines:?}");
        for secret in SECRETS {
            assert!(!format!("{lines:?}").contains(secret), "{name}: {lines:?}");
        }
        assert!(lines.iter().all(|(_, line)| line["target"] == "sluicegate"), "{lines:?}");
    });
}

#[test]
fn a_line_names_what_it_is_about() {
    let record = Record::new(Hands::new());
    let all = logged(|| every_fact(|_, fact| record.observe(fact)));
    let said = |message: &str| {
        let found = all.iter().find(|(_, line)| line["fields"]["message"] == message);
        found.unwrap_or_else(|| panic!("no line says {message:?}")).1["fields"].clone()
    };
    let called = said("called");
    assert_eq!([&called["pool"], &called["id"], &called["status"]], ["P", "m1", "200"]);
    let settled = said("settled");
    assert_eq!([&settled["queue"], &settled["id"]], ["q", "m1"]);
    assert_eq!(settled.get("again"), None);
    let parked = said("parked");
    assert_eq!([&parked["queue"], &parked["code"]], ["q", "rejected"]);
    let rejected = said("rejected");
    assert_eq!(rejected["why"], "https://api.example.com/hook?*** answered 400: *** is no token");
    let warning = said("pool P has no room: 10 messages of a batch went back");
    assert_eq!([&warning["code"], &warning["subject"]], ["QUEUE_FULL", "P"]);
}

#[tokio::test(start_paused = true)]
async fn a_warning_is_said_and_told_once_and_counted_after_that() {
    let record = Record::new(Hands::new());
    let mut listener = record.feed.listen();
    let full = Fact::PoolFull { pool: &name("P"), count: 1 };
    let lines = logged(|| {
        record.observe(&full);
        record.observe(&full);
        record.raise(Code::ConsumerRestart, Severity::Warning, "q", "queue q was restarted");
        record.raise(Code::ConsumerRestart, Severity::Warning, "q", "queue q was restarted");
    });
    let loud = lines.iter().filter(|(level, _)| *level == Level::WARN).count();
    assert_eq!(loud, 2, "{lines:?}");
    let mut told = Vec::new();
    while let Some(Some(event)) = crate::scene::once(listener.next()) {
        let json: serde_json::Value = serde_json::from_str(&event.json).unwrap();
        assert_eq!(json["type"], event.name);
        told.push((event.name, json["code"].as_str().map(str::to_owned)));
    }
    let expected = [
        ("warning.raised", Some("QUEUE_FULL".to_owned())),
        ("pool.full", None),
        ("pool.full", None),
        ("warning.raised", Some("CONSUMER_RESTART".to_owned())),
    ];
    assert_eq!(told, expected);
    let counts: Vec<u64> =
        record.warnings.list(None, None, 9).items.iter().map(|warning| warning.count).collect();
    assert_eq!(counts, [2, 2]);
}

#[test]
fn no_name_can_forge_a_line() {
    let paper = Paper::default();
    let writer = paper.clone();
    let log = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let forged = &name("a\n2026 ERROR b");
    let text = "c\nd\u{1b}[31m";
    let record = Record::new(Hands::new());
    heard_by(log, || {
        record.observe(&Fact::UnknownPool { code: forged, id: forged });
        record.observe(&Fact::Redelivered { queue: forged, id: forged });
        record.observe(&Fact::Malformed { queue: forged, why: text });
        record.observe(&Fact::SourceFailed { queue: forged, doing: "receive", cause: text });
        record.observe(&Fact::Panicked { pool: forged, id: forged, what: text });
        record.raise(Code::ConfigSyncFailed, Severity::Warning, &**forged, text);
    });
    let lines = String::from_utf8(paper.0.lock().clone()).expect("a log is text");
    // What raises a new warning is said twice.
    assert_eq!(lines.lines().count(), 8, "{lines}");
}

/// What says to a run of [`child_that_logs`] that it is the child, and the format.
const CHILD: &str = "SLUICEGATE_TEST_LOG";

/// Does its work in a child of the next test only: a log is set up once in a life.
#[test]
fn child_that_logs() {
    let format = match std::env::var(CHILD).as_deref() {
        Ok("json") => Format::Json,
        Ok(_) => Format::Text,
        Err(_) => return,
    };
    match log::init(format) {
        Ok(()) => tracing::info!(target: "sluicegate", queue = "q", "said"),
        Err(error) => eprintln!("error: {error}"),
    }
    tracing::debug!(target: "sluicegate", "whispered");
    assert_eq!(log::init(format).is_err_and(|error| error == LogError::Twice), !wrong());
}

fn wrong() -> bool {
    std::env::var("RUST_LOG").is_ok_and(|wanted| wanted.contains("=="))
}

fn child(rust_log: Option<&str>, json: bool) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this test is a program"));
    command.args(["--exact", "record::child_that_logs", "--nocapture"]);
    command.env_remove("RUST_LOG").envs(rust_log.map(|wanted| ("RUST_LOG", wanted)));
    command.env(CHILD, if json { "json" } else { "text" });
    let output = command.output().expect("it can be run again");
    assert!(output.status.success(), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("said"), "{output:?}");
    String::from_utf8(output.stderr).expect("a log is text")
}

#[test]
fn the_log_goes_to_standard_error_as_it_is_asked_to() {
    let text = child(None, false);
    assert!(text.contains(" INFO sluicegate: said queue=\"q\"\n"), "{text:?}");
    assert!(!text.contains("whispered") && !text.contains('\u{1b}'), "{text:?}");
    let json: serde_json::Value = serde_json::from_str(child(None, true).trim()).unwrap();
    assert_eq!([&json["level"], &json["message"], &json["queue"]], ["INFO", "said", "q"]);
    assert!(child(Some("sluicegate=debug"), false).contains("whispered"));
    assert_eq!(child(Some("off"), false), "");
    assert!(child(Some(""), false).contains("said"));
    assert!(child(Some("a==b=="), false).starts_with("error: RUST_LOG cannot be read: "));
}
