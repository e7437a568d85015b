//! `sluicegate check`.

use crate::stage::Stage;
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
