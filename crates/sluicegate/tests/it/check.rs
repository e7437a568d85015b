//! `sluicegate check`.

use crate::stage::Stage;
use sluicegate_testkit::brokers::{Kind, Lent, lend};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

#[test]
fn a_good_file_is_summed_up() {
    let stage = Stage::new();
    stage.run(&["check"]).check(0, &["defaults: ok", "default (sqlite:default)"]);
    assert!(!stage.path("sluicegate.db").exists(), "it changes nothing");
    let text = "[[queue]]\nname = \"orders\"\nuri = \"sqlite:o\"\n[[pool]]\ncode = \"ORDERS\"\n\
                concurrency = 7\nordering = \"strict\"\n";
    stage.file("sluicegate.toml", text);
    let words = ["sluicegate.toml: ok", "orders (sqlite:o)", "ORDERS (7 at once, strict order)"];
    stage.run(&["check"]).check(0, &words);
    stage.run(&["check", "--config", "sluicegate.toml"]).check(0, &words);
}

#[test]
fn every_problem_is_said_with_its_place_and_what_would_be_right() {
    let stage = Stage::new();
    let text = "[server]\nlisten = \"0.0.0.0:80\"\n[router]\nmax_pols = 3\n[[pool]]\n\
                code = \"A\"\nconcurrency = 0\n[state]\npath = \"${NOT_SET_ANYWHERE}\"\n";
    let file = stage.file("bad.toml", text);
    let words = [
        "4 problems",
        "bad.toml:2:10: server.listen",
        "bad.toml:4:1: router.max_pols",
        "max_pools",
        "bad.toml:7:15: pool[0].concurrency: must be at least 1",
        "bad.toml:9",
        "NOT_SET_ANYWHERE",
    ];
    stage.run(&["check", "--config", file]).check(2, &words);
    stage.run(&["check", "--config", "none.toml"]).check(2, &["none.toml", "cannot be read"]);
    let file = stage.file("broken.toml", "[server\n");
    stage.run(&["check", "--config", file]).check(2, &["broken.toml:1"]);
}

#[test]
fn a_state_file_that_cannot_be_used_is_said() {
    let stage = Stage::new();
    stage.file("text.db", "this is no database, but a poem");
    let at = |path: &str| format!("[state]\npath = {path:?}\n");
    let cases = [
        ("nowhere/state.db", "there is no folder nowhere"),
        ("text.db", "no state file"),
        (".", "directory"),
    ];
    for (path, words) in cases {
        let file = stage.file("state.toml", at(path));
        stage.run(&["check", "--config", file]).check(2, &["state.path", path, words]);
    }
}

#[test]
fn a_queue_of_events_that_cannot_do_what_it_says_is_named() {
    let stage = Stage::new();
    let check = |target: &str, pools: &str| {
        let text = format!(
            "[[queue]]\nname = \"mail\"\nuri = \"events:?key=student&pool=MAIL&target={target}\"\n{pools}"
        );
        let file = stage.file("events.toml", text);
        stage.run(&["check", "--offline", "--config", file])
    };
    let strict = "[[pool]]\ncode = \"MAIL\"\nordering = \"strict\"\n";
    for forbidden in ["http%3A%2F%2F10.0.0.1%2F", "http%3A%2F%2Flocalhost%3A8080%2Fin"] {
        check(forbidden, strict).check(2, &["queue[0].uri", "target", "not allowed"]);
    }
    let good = "http%3A%2F%2F127.0.0.1%3A9%2F";
    let fine = check(good, strict);
    fine.check(0, &["ok"]);
    assert!(fine.stderr.is_empty(), "{}", fine.stderr);
    for (pools, why) in [("", "not in this file"), ("[[pool]]\ncode = \"MAIL\"\n", "not strict")] {
        let doubtful = check(good, pools);
        doubtful.check(0, &["ok"]);
        for word in ["queue[0]", "student", "MAIL", why, "strict"] {
            assert!(doubtful.stderr.contains(word), "{word}: {}", doubtful.stderr);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_asked_unless_offline() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let config = |url: &str| format!("[router]\nconfig_url = [{url:?}]\n");
    let good = r#"{"queues":[],"connections":1,"processingPools":[]}"#;
    endpoint.otherwise(Answer::status(200).body(good));
    let file = stage.file("synced.toml", config(&endpoint.url("/config")));
    stage.run(&["check", "-c", file]).check(0, &["synced from", "/config"]);
    endpoint.otherwise(Answer::status(500));
    stage.run(&["check", "-c", file]).check(1, &["/config", "status 500"]);
    endpoint.otherwise(Answer::status(200).body("<html>"));
    stage.run(&["check", "-c", file]).check(1, &["/config", "cannot be used"]);
    let file = stage.file("lost.toml", config("http://me:tiger@127.0.0.1:9/x"));
    let lost = stage.run(&["check", "-c", file]);
    lost.check(1, &["http://127.0.0.1:9/x", "could not be reached"]);
    assert!(!lost.stderr.contains("tiger"), "{}", lost.stderr);
    stage.run(&["check", "-c", file, "--offline"]).check(0, &["ok"]);
}

/// A broker, an address with another user or queue, which its broker refuses, and what is said of it.
fn refused(kind: Kind) -> Option<(Lent, String, &'static str)> {
    let broker = lend(kind)?;
    let url = broker.url().trim_end_matches('/');
    let (_, place) = url.split_once("://").expect("a URL");
    let place = place.rsplit('@').next().expect("a place");
    let (uri, words) = match kind {
        Kind::RabbitMq => (format!("amqp://guest:tiger@{place}?queue=q"), "user guest"),
        Kind::Postgres => {
            (format!("postgres://nobody-known:tiger@{place}?queue=q"), "nobody-known")
        }
        Kind::Nats => (format!("{url}?stream=NONE-SUCH&consumer=c"), "NONE-SUCH"),
        Kind::Sqs | Kind::ActiveMq => unreachable!("these refuse nobody unless they are told to"),
    };
    Some((broker, uri, words))
}

const AWS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "test"),
    ("AWS_SECRET_ACCESS_KEY", "tiger"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];

fn queue(name: &str, uri: &str) -> String {
    format!("[[queue]]\nname = {name:?}\nuri = {uri:?}\n")
}

#[test]
fn brokers_that_refuse_are_a_problem() {
    for kind in [Kind::RabbitMq, Kind::Postgres, Kind::Nats] {
        let Some((_broker, uri, words)) = refused(kind) else { continue };
        let stage = Stage::new();
        let file = stage.file("refused.toml", queue("bad", &uri) + &queue("good", "sqlite:good"));
        let ended = stage.run_with(&["check", "-c", file], &AWS, b"");
        ended.check(2, &["queue bad (", "refused: ", words]);
        assert!(!ended.stderr.contains("tiger"), "{ended:?}");
        let offline = stage.run_with(&["check", "--offline", "-c", file], &AWS, b"");
        offline.check(0, &["refused.toml: ok"]);
    }
}

#[test]
fn brokers_that_are_not_there_are_only_named() {
    let stage = Stage::new();
    for uri in [
        "amqp://guest:tiger@127.0.0.1:9/%2f?queue=q",
        "nats://127.0.0.1:9?stream=s&consumer=c",
        "activemq://127.0.0.1:9/q",
        "postgres://me:tiger@127.0.0.1:9/db?queue=q",
        "sqs+http://127.0.0.1:9/1/q?region=us-east-1",
    ] {
        let file = stage.file("away.toml", queue("away", uri));
        let ended = stage.run_with(&["check", "-c", file], &AWS, b"");
        ended.check(0, &["queue away (", "not reached: ", "not checked", "away.toml: ok"]);
        assert!(!ended.stdout.contains("tiger"), "{ended:?}");
    }
}

/// At start a queue that is refused is said, and the others are served.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_says_which_queue_was_refused_and_serves_the_others() {
    let Some((_broker, uri, words)) = refused(Kind::RabbitMq) else { return };
    let stage = Stage::new();
    let listen = "[server]\nlisten = \"127.0.0.1:0\"\n";
    let text = format!("{listen}{}{}", queue("bad", &uri), queue("good", "sqlite:good"));
    let mut daemon = stage.ready(&["--config", stage.file("refused.toml", text)]).await;
    daemon.says("queue bad was not opened: refused: ").await;
    daemon.says(words).await;
    let warnings = daemon.get("/api/v1/warnings").await;
    let warnings: serde_json::Value = serde_json::from_slice(&warnings.body).expect("JSON");
    assert_eq!(warnings["items"][0]["code"], "CONSUMER_RESTART_FAILED", "{warnings}");
    assert_eq!(warnings["items"][0]["subject"], "bad", "{warnings}");
    let queues = daemon.get("/api/v1/queues").await;
    let queues: serde_json::Value = serde_json::from_slice(&queues.body).expect("JSON");
    assert_eq!(queues["items"][0]["name"], "good", "{queues}");
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(!errors.contains("tiger"), "{errors}");
}
