//! Requests to agents, over the daemon's crashes and ends.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluicegate_testkit::programs::fake_agent;

use crate::stage::{Daemon, Stage};

const ANYWHERE: &str = "--listen=127.0.0.1:0";
const FILE: &str = "--config=sluicegate.toml";

fn stage(agents: &str) -> Stage {
    let stage = Stage::new();
    let program = fake_agent();
    let text = format!(
        "[agents]\nenabled = true\ncommand = [{:?}, \"-p\", \"--output-format\", \"json\"]\n{agents}\n",
        program.to_str().expect("a path")
    );
    stage.file("sluicegate.toml", text);
    stage
}

async fn serve(stage: &Stage) -> Daemon {
    stage.ready(&[FILE, ANYWHERE]).await
}

fn json(fetched: &sluicegate::server::fetch::Fetched) -> Value {
    serde_json::from_slice(&fetched.body).expect("JSON")
}

/// Asks without waiting, and gives the id.
async fn begin(daemon: &Daemon, session: &str, message: &str) -> String {
    let body =
        json!({ "tenant": "web:1", "sessionId": session, "message": message, "wait": false });
    let reply = daemon.post("/api/v1/requests", &body).await;
    assert_eq!(reply.status, 202, "{:?}", reply.body);
    json(&reply)["requestId"].as_str().expect("an id").to_owned()
}

/// Asks again and again until the answer is as wanted.
async fn until(daemon: &Daemon, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..2_000 {
        let found = json(&daemon.get(path).await);
        if wanted(&found) {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{path} does not become what it should");
}

/// Waits until some workers are busy, and gives their processes.
async fn busy(daemon: &Daemon, count: usize) -> Vec<u64> {
    let are_busy = |found: &Value| {
        let items = found["items"].as_array().expect("a list");
        items.iter().filter(|one| one["state"] == "BUSY").count() == count
    };
    let found = until(daemon, "/api/v1/workers", are_busy).await;
    let items = found["items"].as_array().expect("a list");
    items.iter().filter_map(|one| one["pid"].as_u64()).collect()
}

/// Whether a process runs: one that has ended and was not waited for does not.
fn runs(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// `docs/rules.md#agents-8`, `docs/rules.md#agents-3`
#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_requests_are_interrupted_and_sessions_go_on() {
    let stage = stage("max_workers = 2\nmin_workers = 0\n");
    let daemon = serve(&stage).await;
    let done = begin(&daemon, "s", "said").await;
    let path = format!("/api/v1/requests/{done}");
    until(&daemon, &path, |found| found["state"] == "completed").await;
    let running = begin(&daemon, "s", "!fork 2 !hang").await;
    let queued = begin(&daemon, "s", "never").await;
    let processes = busy(&daemon, 1).await;
    daemon.kill().await;
    let gone = || processes.iter().all(|pid| !runs(*pid));
    for _ in 0..1_000 {
        if gone() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(gone(), "nothing of an agent survives the daemon: {processes:?}");
    let mut daemon = serve(&stage).await;
    daemon.says("requests were interrupted by the last end").await;
    for id in [&running, &queued] {
        let found = json(&daemon.get(&format!("/api/v1/requests/{id}")).await);
        assert_eq!(
            (&found["state"], &found["error"]["code"]),
            (&json!("interrupted"), &json!("interrupted"))
        );
    }
    let found = json(&daemon.get(&format!("/api/v1/requests/{done}")).await);
    assert_eq!((&found["state"], &found["text"]), (&json!("completed"), &json!("said")));
    let workers = json(&daemon.get("/api/v1/workers").await);
    assert_eq!(workers["items"], json!([]), "none runs again by itself");
    let ask =
        |tenant: &str| json!({ "tenant": tenant, "sessionId": "s", "message": "!print-args" });
    let reply = daemon.post("/api/v1/requests", &ask("web:1")).await;
    let text = json(&reply)["text"].to_string();
    assert!(text.contains("--resume") && !text.contains("--session-id"), "{text}");
    let reply = daemon.post("/api/v1/requests", &ask("web:2")).await;
    assert_eq!((reply.status.as_u16(), &json(&reply)["code"]), (403, &json!("session_forbidden")));
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
}

/// `docs/rules.md#agents-11`
#[tokio::test(flavor = "multi_thread")]
async fn at_its_end_who_waits_is_answered() {
    let stage = stage("max_workers = 1\nmin_workers = 0\ngraceful_shutdown = \"500ms\"\n");
    let mut daemon = serve(&stage).await;
    let ask = |message: &str| json!({ "tenant": "web:1", "message": message });
    let (path, runs_on, waits) = ("/api/v1/requests", ask("!fork 2 !sleep 1500ms done"), ask("x"));
    let others = async {
        let processes = busy(&daemon, 1).await;
        let signals = async {
            let waits = |found: &Value| found["queueDepth"] == 1;
            until(&daemon, "/api/v1/agents/metrics", waits).await;
            daemon.signal(Signal::SIGTERM);
        };
        (tokio::join!(daemon.post(path, &waits), signals).0, processes)
    };
    let (first, (second, processes)) = tokio::join!(daemon.post(path, &runs_on), others);
    assert_eq!((first.status.as_u16(), &json(&first)["text"]), (200, &json!("done")));
    assert_eq!((second.status.as_u16(), &json(&second)["code"]), (503, &json!("shutting_down")));
    daemon.says("ended; everything was settled").await;
    let (code, errors) = daemon.ended().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(processes.iter().all(|pid| !runs(*pid)), "{processes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_end_is_killed_when_its_time_is_up() {
    let limits = "execution_timeout = \"1500ms\"\ngraceful_shutdown = \"200ms\"\n";
    let stage = stage(limits);
    let daemon = serve(&stage).await;
    begin(&daemon, "s", "!ignore-term !fork 2 !hang").await;
    let processes = busy(&daemon, 1).await;
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(processes.iter().all(|pid| !runs(*pid)), "{processes:?}");
}

/// Secrets are not in the log either, whatever level it has; prompts are not.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_neither_secrets_nor_prompts() {
    let stage = stage("env = { API_KEY = \"${TEST_AGENT_KEY}\" }\n");
    let variables = [("TEST_AGENT_KEY", "sk-tiger-4711"), ("RUST_LOG", "trace")];
    let daemon = stage.ready_with(&[FILE, ANYWHERE], &variables).await;
    for message in [
        "elephant !print-env",
        "elephant !stderr sk-tiger-4711 !crash",
        "!error elephant sk-tiger-4711",
    ] {
        let body = json!({ "tenant": "web:1", "message": message });
        daemon.post("/api/v1/requests", &body).await;
    }
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0));
    assert!(errors.contains("request answered"), "it says much: {errors}");
    assert!(!errors.contains("tiger") && !errors.contains("elephant"), "{errors}");
}

/// What cannot be written down is not let in; `docs/rules.md#agents-8`
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_lets_nothing_in() {
    let stage = stage("[log]\nformat = \"json\"\n");
    let daemon = stage.serve_limited(&[FILE, ANYWHERE]).await;
    let body = json!({ "tenant": "web:1", "message": "x" });
    assert_eq!(daemon.post("/api/v1/requests", &body).await.status, 200);
    daemon.limit_files(4096);
    let refused = daemon.post("/api/v1/requests", &body).await;
    let code = json(&refused)["code"].clone();
    assert!(code == "storage_full" || code == "storage_failed", "{code}");
    daemon.limit_files(u64::MAX);
    let mut tries = 0;
    while daemon.post("/api/v1/requests", &body).await.status != 200 {
        tries += 1;
        assert!(tries < 500, "it does not come back");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
}

/// Who cancels a request or ends a worker is in the log.
#[tokio::test(flavor = "multi_thread")]
async fn what_people_do_is_audited() {
    let stage = stage("min_workers = 0\n[server]\ntoken = \"lion\"\n");
    let daemon = serve(&stage).await;
    let body = json!({ "tenant": "web:1", "message": "!hang", "wait": false }).to_string();
    let reply = daemon.ask("POST /api/v1/requests", &body, "lion").await;
    let id = json(&reply)["requestId"].as_str().expect("an id").to_owned();
    let cancelled = daemon.ask(&format!("DELETE /api/v1/requests/{id}"), "", "lion").await;
    assert_eq!((cancelled.status.as_u16(), &json(&cancelled)["state"]), (200, &json!("cancelled")));
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("request.cancel") && errors.contains(&id), "{errors}");
    assert!(!errors.contains("audit=\"request\""), "asking is no change: {errors}");
}

#[test]
fn a_program_that_is_not_there_is_found_by_check() {
    let stage = Stage::new();
    let file = |command: &str| format!("[agents]\nenabled = true\ncommand = [{command:?}]\n");
    stage.file("sluicegate.toml", file("no-such-agent"));
    let words = ["sluicegate.toml: agents.command", "no-such-agent", "PATH"];
    stage.run(&["check"]).check(2, &words);
    stage.run(&["check", "--offline"]).check(0, &["agents      no-such-agent (4 at once)"]);
    stage.file("sluicegate.toml", file("./sluicegate.toml"));
    stage.run(&["check"]).check(2, &["./sluicegate.toml is not executable"]);
    stage.file("sluicegate.toml", file("/bin/sh"));
    stage.run(&["check"]).check(0, &["agents      /bin/sh (4 at once)"]);
    stage.file("pool.json", r#"{"maxWorkers": 4}"#);
    let serial = format!("{}worker_pool_json = \"pool.json\"\n", file("/bin/sh"));
    stage.file("sluicegate.toml", serial);
    let words = "agents      /bin/sh (one at a time, because workerPool.enabled is false)";
    stage.run(&["check"]).check(0, &[words]);
    stage.file("pool.json", r#"{"maxWorkers": 0}"#);
    stage.file("sluicegate.toml", "[agents]\nworker_pool_json = \"pool.json\"\n");
    let words = [
        "sluicegate.toml:2:20: agents.worker_pool_json",
        "pool.json: maxWorkers: must be at least 1",
    ];
    stage.run(&["check"]).check(2, &words);
}
