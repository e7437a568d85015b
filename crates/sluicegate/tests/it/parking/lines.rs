//! Parked messages as JSON Lines: out of one daemon, and into another.

use serde_json::{Value, json};

use super::scene::{On, Scene};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_is_imported_and_replayed_elsewhere() {
    let (from, to) = (Scene::new(On::Embedded).await, Scene::new(On::Embedded).await);
    let (from, to) = (from.expect("no broker"), to.expect("no broker"));
    let daemon = from.serve().await;
    from.park(&daemon, &["m1", "m2", "m3"]).await;
    let shown = from.run(&daemon, &["parked", "export"]);
    shown.check(0, &[]);
    let exported = lines(&shown.stdout);
    let ids: Vec<&str> =
        exported.iter().filter_map(|line| line["message"]["id"].as_str()).collect();
    assert_eq!(ids, ["m1", "m2", "m3"]);
    assert!(!shown.stdout.contains("hush-hush"), "{}", shown.stdout);
    let some = from.run(&daemon, &["parked", "export", "--code", "key_parked"]);
    assert_eq!(lines(&some.stdout).len(), 2);
    let file = from.stage.path("parked.jsonl");
    let name = file.to_str().expect("a name");
    from.run(&daemon, &["parked", "export", name, "--with-secrets"]).check(0, &["exported 3"]);
    let text = std::fs::read_to_string(&file).expect("a file");
    assert_eq!(text.matches("hush-hush").count(), 3);

    let daemon = to.serve().await;
    to.run(&daemon, &["parked", "import", name]).check(0, &["imported 3"]);
    let again = to.run(&daemon, &["parked", "import", name]);
    again.check(0, &["imported 0", "there already 3"]);
    to.is_parked(&daemon, &["m1", "m2", "m3"]).await;
    // The key is held here too.
    to.publish(&daemon, &["m4"]).await;
    to.is_parked(&daemon, &["m1", "m2", "m3", "m4"]).await;
    to.post(&daemon, "/api/v1/parked/2/replay", &json!({}), 409).await;
    to.run(&daemon, &["replay", "--all"]).check(0, &["replayed 4"]);
    from.endpoint.wait_for(4).await;
    to.endpoint.wait_for(1).await;
    assert_eq!(from.called(), ["m1", "m1", "m2", "m3"]);
    assert_eq!(from.endpoint.asked()[3].header("authorization"), Some("Bearer hush-hush"));
    assert_eq!(to.called(), ["m4"]);
    to.is_parked(&daemon, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_are_named_and_the_others_are_imported() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1"]).await;
    let exported = scene.run(&daemon, &["parked", "export", "--with-secrets"]).stdout;
    scene.run(&daemon, &["discard", "1"]).check(0, &[]);
    let mut wrong = lines(&exported).remove(0);
    wrong["message"]["id"] = json!(7);
    let mut unknown = lines(&exported).remove(0);
    unknown["code"] = json!("gone");
    let text = format!("{{\n{wrong}\n\n{}\n{unknown}\n", exported.trim());
    let file = scene.stage.file("bad.jsonl", text);
    let said = scene.run(&daemon, &["parked", "import", file]);
    said.check(2, &["imported 1", "3 refused", "line 1: ", "line 2: message: id must be a string"]);
    said.check(2, &["line 5: code must be one of malformed, rejected"]);
    scene.is_parked(&daemon, &["m1"]).await;
    scene.run(&daemon, &["parked", "import", "nowhere.jsonl"]).check(2, &["nowhere.jsonl"]);
}

/// Tokens of messages are for operators, and only when they ask.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_token_exports_no_secrets() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1"]).await;
    daemon.terminated().await;
    let text = std::fs::read_to_string(scene.stage.path("p.toml")).expect("a file");
    let tokens = "[server]\ntoken = \"operator-token\"\nread_token = \"reading-token\"\n";
    scene.stage.file("p.toml", text.replacen("[server]\n", tokens, 1));
    let daemon = scene.serve().await;
    let export = |token, more: &[&str]| {
        scene.run(&daemon, &[&["parked", "export", "--token", token], more].concat())
    };
    let refused = export("reading-token", &["--with-secrets"]);
    refused.check(1, &["forbidden: "]);
    assert!(!refused.stdout.contains("hush-hush"));
    let shown = export("reading-token", &[]);
    shown.check(0, &["\"m1\""]);
    assert!(!shown.stdout.contains("hush-hush"));
    export("operator-token", &["--with-secrets"]).check(0, &["hush-hush"]);
    let import = ["parked", "import", "x.jsonl", "--token", "reading-token"];
    scene.stage.file("x.jsonl", &shown.stdout);
    scene.run(&daemon, &import).check(1, &["forbidden: "]);
}
