//! What agents are told, and told anew while they run.

use serde_json::{Value, json};

use super::stage::{AgentStage, QUICK, file};
use crate::api::stage::Stage;

async fn reload(stage: &AgentStage, agents: &str) -> Value {
    stage.stage.rewrite(&file(agents));
    let reply = stage.stage.post("/api/v1/config/reload", "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

#[tokio::test]
async fn limits_change_live() {
    let one = "max_workers = 1\nmin_workers = 0\n";
    let stage = AgentStage::start(&format!("{QUICK}{one}")).await;
    stage.run("web:1", "!hang").await;
    let waits = stage.begin("web:2", "x").await;
    assert_eq!(stage.get(&waits).await["why"]["reason"], "no_worker");
    let said =
        reload(&stage, &format!("{QUICK}max_workers = 2\nenv = {{ NEW = \"value\" }}\n")).await;
    assert_eq!((&said["issues"], &said["needsRestart"]), (&json!([]), &json!([])), "{said}");
    assert_eq!(said["applied"]["agents"], true, "{said}");
    stage.until(&waits, "completed").await;
    assert_eq!(stage.stage.get("/api/v1/config").await.json()["agents"]["maxWorkers"], 2);
    let reply = stage.ask("web:3", "!print-env").await;
    assert!(reply.body.contains("NEW=value"), "{reply:?}");
    // One tenant may do more than the others.
    let more = "tenant_limits = { rate_limit_requests = 1 }\n[[agents.tenant]]\nid = \"web:4\"\nrate_limit_requests = 9\n";
    reload(&stage, &format!("{QUICK}max_workers = 2\n{more}")).await;
    for _ in 0..3 {
        assert_eq!(stage.ask("web:4", "x").await.status, 200);
    }
    assert_eq!(stage.ask("web:5", "x").await.status, 200);
    stage.ask("web:5", "x").await.problem(429, "rate_limited");
}

#[tokio::test]
async fn what_cannot_change_live_is_named_and_stays() {
    let stage = AgentStage::start(QUICK).await;
    stage.stage.rewrite("[agents]\nenabled = false\nqueue_timeout = \"1s\"\nmax_workers = 3\n");
    let said = stage.stage.post("/api/v1/config/reload", "").await.json();
    assert_eq!(said["needsRestart"], json!(["agents.enabled", "agents.queue_timeout"]));
    let shown = stage.stage.get("/api/v1/config").await.json()["agents"].clone();
    assert_eq!((&shown["enabled"], &shown["queueTimeout"]), (&json!(true), &json!("2m")));
    assert_eq!(shown["maxWorkers"], 3);
    stage.stage.rewrite("[agents]\nmax_workers = 0\n");
    let problem =
        stage.stage.post("/api/v1/config/reload", "").await.problem(422, "invalid_config");
    assert_eq!(
        (&problem["problems"][0]["key"], &problem["problems"][0]["line"]),
        (&json!("agents.max_workers"), &json!(2))
    );
    stage.end().await;
}

#[tokio::test]
async fn arguments_from_the_environment_are_not_shown() {
    let path = std::env::var("PATH").expect("a path");
    let text = "[agents]\ncommand = [\"/bin/sh\", \"--key=${PATH}\", \"-x\"]\n\
                session_args = [\"${PATH}\", \"{session}\"]\n";
    let stage = Stage::start(text).await;
    let reply = stage.get("/api/v1/config").await;
    let shown = &reply.json()["agents"];
    assert_eq!(shown["command"], json!(["/bin/sh", "***", "-x"]));
    assert_eq!(shown["sessionArgs"], json!(["***", "{session}"]));
    assert!(!reply.body.contains(&path));
}

/// Paper 001, section 10.
#[tokio::test]
async fn the_papers_object_is_taken_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("openclaw.json");
    let object = |enabled: bool| {
        json!({ "agents": { "defaults": { "workerPool": {
            "enabled": enabled, "maxWorkers": 2, "minWorkers": 0, "executionTimeoutMs": 60_000,
        }, "cliBackends": {} } } })
    };
    std::fs::write(&json, object(true).to_string()).expect("a file");
    let line = format!("{QUICK}worker_pool_json = {:?}\n", json.to_str().expect("a path"));
    let stage = AgentStage::start(&line).await;
    let shown = stage.stage.get("/api/v1/config").await.json()["agents"].clone();
    assert_eq!((&shown["maxWorkers"], &shown["executionTimeout"]), (&json!(2), &json!("1m")));
    // Not enabled there: one at a time, in order of arrival, from the next start on.
    std::fs::write(&json, object(false).to_string()).expect("a file");
    assert_eq!(reload(&stage, &line).await["needsRestart"], json!(["agents.serial"]));
    stage.end().await;
    let stage = AgentStage::start(&line).await;
    let first = stage.begin("web:1", "!sleep 700ms x").await;
    let second = stage.begin("web:2", "x").await;
    assert_eq!(stage.get(&second).await["state"], "queued");
    stage.until(&second, "completed").await;
    assert_eq!(stage.get(&first).await["state"], "completed");
    stage.end().await;
}

#[tokio::test]
async fn a_program_that_comes_is_no_more_warned_of() {
    let stage = AgentStage::of("[agents]\nenabled = true\ncommand = [\"/nowhere/agent\"]\n").await;
    let resolved = async || {
        let warnings = stage.stage.get("/api/v1/warnings").await.items();
        let found = warnings.iter().find(|one| one["code"] == "AGENT_NOT_STARTED");
        found.expect("it was warned of")["resolved"].clone()
    };
    assert_eq!(resolved().await, false);
    reload(&stage, QUICK).await;
    assert_eq!(resolved().await, true);
    assert_eq!(stage.ask("web:1", "x").await.status, 200);
    // One that goes is told of at once to whoever changed the file.
    stage.stage.rewrite("[agents]\nenabled = true\ncommand = [\"/nowhere/agent\"]\n");
    let said = stage.stage.post("/api/v1/config/reload", "").await.json();
    let issue = said["issues"][0].as_str().unwrap_or_default();
    assert!(issue.starts_with("agents.command: /nowhere/agent does not exist"), "{said}");
    stage.end().await;
}

/// Nothing is inherited but `PATH` and `HOME`; a folder is where it starts.
#[tokio::test]
async fn a_program_has_its_own_surroundings() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a path");
    let stage =
        AgentStage::start(&format!("{QUICK}folder = {path:?}\nenv = {{ A = \"1\" }}\n")).await;
    let reply = stage.ask("web:1", "!print-folder").await;
    assert_eq!(reply.json()["text"], json!(path), "{reply:?}");
    let reply = stage.ask("web:1", "!print-env").await;
    let text = reply.json()["text"].as_str().expect("a text").to_owned();
    let mut names: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    assert_eq!(names, ["A", "HOME", "PATH"]);
    stage.end().await;
}
