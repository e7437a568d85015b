//! The configuration: shown, and read again.

use serde_json::json;
use sluicegate_server::Daemon;
use sluicegate_server::settings::Settings;

use super::schema::Document;
use super::stage::Stage;

#[tokio::test]
async fn a_right_file_is_applied_and_says_what_needs_a_restart() {
    let stage = Stage::start("[[pool]]\ncode = \"A\"\n[[pool]]\ncode = \"B\"\n").await;
    stage.rewrite(
        "[server]\nlisten = \"127.0.0.1:9999\"\n[[pool]]\ncode = \"A\"\nconcurrency = 3\n\
         [[pool]]\ncode = \"C\"\n[[queue]]\nname = \"orders\"\nuri = \"sqlite:orders\"\n",
    );
    let reply = stage.post("/api/v1/config/reload", "").await;
    let wanted = json!({
        "applied": {
            "setPools": ["A", "C"], "removedPools": ["B"], "addedQueues": ["orders"],
            "removedQueues": ["default"], "agents": false,
        },
        "issues": [],
        "needsRestart": ["server.listen"],
    });
    assert_eq!((reply.status, reply.json()), (200, wanted));
    Document::of(&stage).await.check("post", "/api/v1/config/reload", &reply);
    let pools = stage.get("/api/v1/pools").await.items();
    let a = pools.iter().find(|pool| pool["code"] == "A").expect("pool A");
    assert_eq!(a["concurrency"], 3);
    let queues = stage.get("/api/v1/queues").await.items();
    assert_eq!(
        (&queues[0]["name"], &queues[0]["uri"]),
        (&json!("orders"), &json!("sqlite:orders"))
    );
    let config = stage.get("/api/v1/config").await.json();
    assert_eq!(config["pools"][0]["concurrency"], 3);
    assert_ne!(
        config["server"]["listen"], "127.0.0.1:9999",
        "what needs a restart has not changed"
    );
}

#[tokio::test]
async fn a_wrong_file_changes_nothing_and_every_problem_is_data() {
    let stage = Stage::start("[[pool]]\ncode = \"A\"\n").await;
    stage.rewrite("[[pool]]\ncode = \"A\"\nconcurrency = 0\n[[pool]]\ncode = \"B\"\nspeed = 1\n");
    let problem = stage.post("/api/v1/config/reload", "").await.problem(422, "invalid_config");
    let problems = problem["problems"].as_array().expect("a list");
    let keys: Vec<_> = problems.iter().map(|one| (&one["key"], &one["line"])).collect();
    assert_eq!(
        keys,
        [(&json!("pool[0].concurrency"), &json!(3)), (&json!("pool[1].speed"), &json!(6))]
    );
    assert!(problems.iter().all(|one| one["message"].is_string() && one["column"].is_u64()));
    assert!(problem["file"].as_str().is_some_and(|file| file.ends_with("sluicegate.toml")));
    assert_eq!(stage.get("/api/v1/pools").await.items().len(), 1);
}

#[tokio::test]
async fn without_a_file_there_is_nothing_to_reload() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.state.path = folder.path().join("state.db");
    let daemon = Daemon::open(settings, None).await.unwrap();
    let stage = Stage::of(daemon, folder).await;
    stage.post("/api/v1/config/reload", "").await.problem(409, "no_config_file");
}

#[tokio::test]
async fn the_configuration_is_shown_without_secrets() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let toml = format!("[[pool]]\ncode = \"A\"\nsigning_secret = \"{secret}\"\n");
    let stage = Stage::start(&toml).await;
    let reply = stage.get("/api/v1/config").await;
    assert_eq!(reply.json()["pools"][0]["signingSecret"], "***");
    assert!(!reply.body.contains(&secret[6..]), "{reply:?}");
    assert_eq!(
        stage.get("/api/v1/cluster").await.json(),
        json!({ "mode": "single", "role": "primary" })
    );
}
