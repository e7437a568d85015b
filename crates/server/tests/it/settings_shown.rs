//! The settings as a running daemon shows them.

use serde_json::{Value, json};
use sluicegate_server::settings::Settings;

const SECRETIVE: &str = r#"
    [server]
    token = "tiger1"
    read_token = "tiger2"
    [router]
    config_url = ["https://me:tiger3@h.example/pools?key=tiger4"]
    [[queue]]
    name = "a"
    uri = "sqlite:a"
    [[pool]]
    code = "A"
    signing_secret = "whsec_dGlnZXJ0aWdlcnRpZ2VydGlnZXJ0aWdlcg=="
    [alerts]
    webhook = "https://hooks.example/tiger5"
    [cluster]
    url = "postgres://me:tiger6@db/app"
    [agents]
    env = { KEY = "tiger7" }
"#;

fn read(text: &str) -> Settings {
    Settings::parse("f.toml", text, &|_| None).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn what_is_secret_is_masked() {
    let settings = read(SECRETIVE);
    let shown = settings.shown();
    let cases = [
        ("/server/token", json!("***")),
        ("/server/readToken", json!("***")),
        ("/router/configUrl/0", json!("https://h.example/pools?key=***")),
        ("/pools/0/signingSecret", json!("***")),
        ("/alerts/webhook", json!("https://hooks.example/***")),
        ("/cluster/url", json!("postgres://***@db/app")),
        ("/agents/env/KEY", json!("***")),
    ];
    for (pointer, expected) in cases {
        assert_eq!(shown.pointer(pointer), Some(&expected), "{pointer}");
    }
    for text in [shown.to_string(), format!("{settings:?}")] {
        assert!(!text.contains("tiger") && !text.contains("dGlnZXJ0"), "{text}");
    }
}

#[test]
fn what_is_not_set_is_absent() {
    let shown = read("[[pool]]\ncode = \"A\"\n").shown();
    for pointer in [
        "/server/token",
        "/server/readToken",
        "/server/tls",
        "/pools/0/signingSecret",
        "/alerts/webhook",
        "/cluster/url",
    ] {
        assert_eq!(shown.pointer(pointer), None, "{pointer}");
    }
}

#[test]
fn everything_is_shown_as_the_file_would_write_it() {
    let everything = include_str!("../fixtures/everything.toml");
    let shown = read(everything).shown();
    let written: toml::Value = toml::from_str(everything).unwrap();
    for (section, value) in written.as_table().unwrap() {
        let section = match section.as_str() {
            "queue" => "queues",
            "pool" => "pools",
            other => other,
        };
        same(&format!("/{section}"), value, &shown);
    }
}

/// Every key of the file is in what is shown, under its name in camelCase, with its value.
fn same(pointer: &str, written: &toml::Value, shown: &Value) {
    match written {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let key = if key == "tenant" { "tenants".to_owned() } else { camel(key) };
                same(&format!("{pointer}/{key}"), value, shown);
            }
        }
        toml::Value::Array(values) => {
            assert!(shown.pointer(pointer).is_some_and(Value::is_array), "{pointer}");
            for (at, value) in values.iter().enumerate() {
                same(&format!("{pointer}/{at}"), value, shown);
            }
        }
        written => {
            let expected = json!(written);
            let found = shown.pointer(pointer).cloned().unwrap_or(Value::Null);
            // What is not set is empty in the file and absent here; seconds may be shown as minutes.
            let unset = expected == json!("") || expected == json!("${SLUICEGATE_TOKEN:-}");
            let minutes = [("120s", "2m"), ("180s", "3m"), ("300s", "5m"), ("60s", "1m")];
            let same = minutes.iter().any(|(file, here)| expected == *file && found == *here);
            assert!(found == expected || same || unset && found.is_null(), "{pointer}: {found}");
        }
    }
}

fn camel(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

#[test]
fn a_pool_without_limits_says_so() {
    let shown = read("[[pool]]\ncode = \"A\"\n").shown();
    let expected = json!({
        "code": "A", "concurrency": 20, "rateLimitPerMinute": null, "ordering": "batch",
        "ungrouped": "fifo", "maxAttempts": 0, "onExhausted": "park", "onRejected": "skip",
        "parking": true,
    });
    assert_eq!(shown["pools"][0], expected);
    let queue = json!({
        "name": "default", "uri": "sqlite:default", "connections": 1, "maxMessages": 10,
        "visibilityTimeout": "30s", "window": 2000,
    });
    assert_eq!(shown["queues"][0], queue);
}
