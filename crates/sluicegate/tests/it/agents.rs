//! Agents through the real binary: asking, looking, killing.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluicegate_testkit::programs;
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{Daemon, Ended, PATIENCE, Stage};

/// A stage whose agents have its folder among their arguments, by which they are found.
struct Scene {
    stage: Stage,
    tag: String,
}

impl Scene {
    fn new(more: &str) -> Self {
        let stage = Stage::new();
        let tag = stage.path("agents").display().to_string();
        std::fs::create_dir(&tag).expect("a folder");
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"5s\"\n[router]\nenabled = false\n\
             [agents]\nenabled = true\ncommand = [{:?}, \"--model\", {tag:?}]\n\
             env = {{ FAKE_AGENT_FOLDER = {tag:?} }}\ngraceful_shutdown = \"200ms\"\n{more}",
            programs::fake_agent(),
        );
        stage.file("agents.toml", config);
        Self { stage, tag }
    }

    async fn serve(&self) -> Daemon {
        self.stage.ready(&["--config", "agents.toml"]).await
    }

    fn run(&self, daemon: &Daemon, arguments: &[&str]) -> Ended {
        self.stage.run_with(arguments, &[("SLUICEGATE_URL", &daemon.url)], b"")
    }

    fn ask(&self, daemon: &Daemon, tenant: &str, prompt: &str) -> Ended {
        self.run(daemon, &["ask", "--tenant", tenant, prompt])
    }

    /// Asks in the background, and goes on when the request is in the state.
    async fn asks(
        &self,
        daemon: &Daemon,
        tenant: &str,
        prompt: &str,
        state: &str,
    ) -> (Daemon, String) {
        let asks = ["ask", "--server", &daemon.url, "--tenant", tenant, prompt];
        let before = requests(daemon).await;
        let asking = self.stage.launch(&asks);
        let found = async {
            loop {
                let now = requests(daemon).await;
                if let Some((id, _)) =
                    now.iter().find(|one| one.1 == state && !before.contains(one))
                {
                    return id.clone();
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let id = timeout(PATIENCE, found).await.expect("it is asked");
        (asking, id)
    }

    /// The processes of the agents.
    fn running(&self) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").expect("a list of processes").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|argument| argument == self.tag.as_bytes())
        })
        .collect()
    }

    async fn emptied(&self, within: Duration) {
        let empty = async {
            while !self.running().is_empty() {
                sleep(Duration::from_millis(2)).await;
            }
        };
        assert!(timeout(within, empty).await.is_ok(), "{:?} are left", self.running());
    }
}

/// Requests that workers have, and their state.
async fn requests(daemon: &Daemon) -> Vec<(String, String)> {
    let workers = daemon.get("/api/v1/workers").await.body;
    let workers: Value = serde_json::from_slice(&workers).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = workers["items"].as_array().expect("a list");
    items.iter().map(|worker| (text(&worker["requestId"]), text(&worker["state"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_answers() {
    let scene = Scene::new("");
    let daemon = scene.serve().await;
    let first = scene.ask(&daemon, "web:1", "hello  you");
    first.check(0, &[]);
    assert_eq!(first.stdout, "hello you\n");
    let named = |name: &str| first.stderr.lines().find_map(|line| line.strip_prefix(name));
    let session = named("session ").expect("its session").to_owned();
    let request = named("request ").expect("its id");
    assert_eq!(daemon.get(&format!("/api/v1/requests/{request}")).await.status, 200);
    let again = ["ask", "--tenant", "web:1", "--session", &session, "--json", "again"];
    let again = scene.run(&daemon, &again);
    again.check(0, &[]);
    assert!(again.stderr.starts_with("request ") && !again.stderr.contains("session"), "{again:?}");
    let answer: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(
        (&answer["text"], &answer["sessionId"]),
        (&"again".into(), &session.as_str().into())
    );
    assert_eq!(answer["reply"]["num_turns"], 2, "it is resumed: {answer}");
    for field in ["requestId", "queueWaitMs", "executionMs", "workerId"] {
        assert!(!answer[field].is_null(), "no {field}: {answer}");
    }
    // From standard input, and somebody else's session.
    let input = [("SLUICEGATE_URL", daemon.url.as_str())];
    let piped = scene.stage.run_with(&["ask", "--tenant", "web:2", "-"], &input, b"from a pipe");
    assert_eq!(piped.stdout, "from a pipe\n");
    let foreign = ["ask", "--tenant", "web:2", "--session", &session, "mine?"];
    scene.run(&daemon, &foreign).check(1, &["session_forbidden"]);
    let tenants = scene.run(&daemon, &["tenants"]);
    tenants.check(0, &["web:1", "web:2", "served"]);
    assert_eq!(daemon.terminated().await.0, Some(0));
    scene.emptied(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_has_its_exit_code() {
    let scene = Scene::new(
        "max_workers = 1\nexecution_timeout = \"1500ms\"\nmax_queue_depth_global = 2\n\
         [agents.tenant_limits]\nmax_queued_requests = 1\nrate_limit_requests = 3\n\
         [[agents.tenant]]\nid = \"web:often\"\nrate_limit_requests = 100\n\
         [[agents.tenant]]\nid = \"web:also\"\nrate_limit_requests = 100\n",
    );
    let daemon = scene.serve().await;
    let often = |prompt| scene.ask(&daemon, "web:often", prompt);
    often("!stderr alas !crash 3").check(15, &["worker_crash: ", "code 3", "alas"]);
    often("!signal SEGV").check(15, &["SIGSEGV"]);
    often("!hang").check(14, &["execution_timeout: The response took too long"]);
    often("!error oh").check(1, &["agent_error", "oh"]);
    often("!no-json").check(1, &["bad_output"]);
    often("!flood").check(1, &["output_limit"]);
    let with = |words: &[&str]| scene.run(&daemon, &[&["ask", "-t", "web:often"], words].concat());
    with(&["--priority", "URGENT", "x"]).check(2, &["priority", "NORMAL"]);
    with(&["--session", "a b", "x"]).check(2, &["sessionId"]);
    with(&["--timeout", "5", "x"]).check(2, &["--timeout", "30s"]);
    with(&[""]).check(2, &["message"]);
    scene.ask(&daemon, "nobody", "x").check(2, &["platform:userId"]);
    scene.stage.run(&["ask", "-t", "web:1", "-s", "http://127.0.0.1:9", "x"]).check(3, &[]);
    for code in [0, 0, 0, 12] {
        scene.ask(&daemon, "web:1", "hello").check(code, &[]);
    }
    // One runs, one waits, and another one of another tenant: then all is full.
    let (running, _) = scene.asks(&daemon, "web:often", "!sleep 1200ms", "BUSY").await;
    with(&["--timeout", "100ms", "late"])
        .check(13, &["queue_timeout: Your request waited too long"]);
    let waits = scene.stage.launch(&["ask", "-s", &daemon.url, "-t", "web:often", "second"]);
    queued(&daemon, 1).await;
    often("third").check(10, &["tenant_queue_full: You have too many pending requests"]);
    let also = scene.stage.launch(&["ask", "-s", &daemon.url, "-t", "web:also", "second"]);
    queued(&daemon, 2).await;
    scene
        .ask(&daemon, "web:2", "x")
        .check(11, &["global_queue_full: The system is currently busy"]);
    for asked in [running, waits, also] {
        assert_eq!(asked.ended().await.0, Some(0));
    }
}

/// Waits until so many requests wait.
async fn queued(daemon: &Daemon, count: u64) {
    let wait = async {
        loop {
            let metrics = daemon.get("/api/v1/agents/metrics").await.body;
            let metrics: Value = serde_json::from_slice(&metrics).expect("JSON");
            if metrics["queueDepth"] == count {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("they wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_is_cancelled_at_the_server() {
    let scene = Scene::new("");
    let daemon = scene.serve().await;
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let (asking, id) = scene.asks(&daemon, "web:1", "!fork 2 !hang", "BUSY").await;
        asking.signal(signal);
        let (code, said) = asking.ended().await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("request {id} is cancelled")), "{said}");
        let found = daemon.get(&format!("/api/v1/requests/{id}")).await;
        let found: Value = serde_json::from_slice(&found.body).unwrap();
        assert_eq!(found["state"], "cancelled");
        scene.emptied(PATIENCE).await;
    }
}

/// A server that is started anew says what became of a request; one that does not know it says that.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_lost_is_asked_again() {
    let scene = Scene::new("");
    for (forgets, words) in [(false, "interrupted: "), (true, "may go on: ")] {
        let daemon = scene.serve().await;
        let (asking, id) = scene.asks(&daemon, "web:1", "!hang", "BUSY").await;
        let listen = format!("--listen={}", daemon.url.trim_start_matches("http://"));
        daemon.kill().await;
        if forgets {
            for name in ["sluicegate.db", "sluicegate.db-wal", "sluicegate.db-shm"] {
                std::fs::remove_file(scene.stage.path(name)).ok();
            }
        }
        let again = scene.stage.ready(&["--config", "agents.toml", &listen]).await;
        let (code, said) = asking.ended().await;
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(words) && said.contains(&id), "{said}");
        drop(again);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_seen_and_killed() {
    let scene = Scene::new("max_workers = 1\n");
    let daemon = scene.serve().await;
    scene.run(&daemon, &["workers"]).check(0, &["no workers"]);
    let (asking, id) = scene.asks(&daemon, "web:1", "!daemonize !hang", "BUSY").await;
    let waiting = scene.stage.launch(&["ask", "-s", &daemon.url, "-t", "web:2", "second"]);
    queued(&daemon, 1).await;
    let seen = scene.run(&daemon, &["workers", "--json"]);
    let seen: Value = serde_json::from_str(&seen.stdout).unwrap();
    let worker = &seen["items"][0];
    assert_eq!((&worker["state"], &worker["tenant"]), (&"BUSY".into(), &"web:1".into()));
    assert_eq!(worker["requestId"], id.as_str());
    scene.run(&daemon, &["workers"]).check(0, &["BUSY", "web:1"]);
    scene.run(&daemon, &["tenants"]).check(0, &["web:1", "web:2", "failed"]);
    let words = "1 of 1 workers busy, 1 request waiting, the first since ";
    scene.run(&daemon, &["status"]).check(0, &[words]);
    scene.run(&daemon, &["why", &id]).check(0, &[&id, "runs"]);
    let worker = worker["id"].as_str().unwrap();
    scene.run(&daemon, &["workers", "--kill", worker]).check(0, &["is gone"]);
    let (code, said) = asking.ended().await;
    assert_eq!(code, Some(15), "{said}");
    assert!(said.contains("SIGKILL"), "{said}");
    assert_eq!(waiting.ended().await.0, Some(0));
    scene.run(&daemon, &["workers", "--kill", worker]).check(2, &["there is no worker"]);
    scene.run(&daemon, &["why", &id]).check(0, &["worker_crash"]);
    scene.emptied(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_and_run_are_seen() {
    let scene = Scene::new("max_workers = 1\n");
    let daemon = scene.serve().await;
    scene.run(&daemon, &["requests"]).check(0, &["no requests that wait or run"]);
    let prompt = "!hang the secret of the tiger";
    let (asking, runs) = scene.asks(&daemon, "web:1", prompt, "BUSY").await;
    let body = serde_json::json!({"tenant": "web:2", "message": "a secret too", "wait": false});
    let ticket = daemon.post("/api/v1/requests", &body).await;
    let ticket: Value = serde_json::from_slice(&ticket.body).unwrap();
    let waits = ticket["requestId"].as_str().unwrap();
    let all = scene.run(&daemon, &["requests"]);
    let words = ["web:1", "running", "worker-1", "web:2", "queued", "1 of 1 workers have requests"];
    all.check(0, &words).check(0, &[&runs, waits]);
    assert!(!all.stdout.contains("secret"), "{}", all.stdout);
    for (filter, shown, hidden) in [
        (["--state", "queued"], waits, &*runs),
        (["--state", "running"], &runs, waits),
        (["--tenant", "web:2"], waits, &runs),
    ] {
        let some = scene.run(&daemon, &[&["requests"], &filter[..]].concat());
        some.check(0, &[shown]);
        assert!(!some.stdout.contains(hidden), "{filter:?}: {}", some.stdout);
    }
    scene.run(&daemon, &["requests", "--state", "over"]).check(2, &["queued or running"]);
    scene.run(&daemon, &["requests", "--tenant", "me"]).check(2, &["platform:userId"]);
    asking.signal(Signal::SIGINT);
    assert_eq!(asking.ended().await.0, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn why_says_what_a_request_waits_for() {
    let scene = Scene::new("max_workers = 1\n");
    let daemon = scene.serve().await;
    let (asking, _) = scene.asks(&daemon, "web:1", "!hang", "BUSY").await;
    let body = serde_json::json!({"tenant": "web:2", "message": "x", "wait": false});
    let ticket = daemon.post("/api/v1/requests", &body).await;
    let ticket: Value = serde_json::from_slice(&ticket.body).unwrap();
    let id = ticket["requestId"].as_str().unwrap();
    let words = format!("request {id} waits for an agent: 1 of 1 workers have requests (since ");
    let said = scene.run(&daemon, &["why", id]);
    said.check(0, &[&words, "`sluicegate workers` shows what each worker does"]);
    let json = scene.run(&daemon, &["why", id, "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["why"]["reason"], "no_worker");
    assert_eq!((&json["kind"], &json["pool"]), (&"request".into(), &Value::Null));
    asking.signal(Signal::SIGINT);
    assert_eq!(asking.ended().await.0, Some(1));
}

/// What waits is refused, what runs may finish, and the daemon ends with 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_ends_lets_running_requests_finish() {
    let scene = Scene::new("max_workers = 1\n");
    let daemon = scene.serve().await;
    let (running, _) = scene.asks(&daemon, "web:1", "!sleep 700ms done", "BUSY").await;
    let mut waiting = scene.stage.launch(&["ask", "-s", &daemon.url, "-t", "web:2", "second"]);
    queued(&daemon, 1).await;
    // Its session is told as soon as it is let in.
    waiting.says("session ").await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(waiting.ended().await.0, Some(16));
    assert_eq!(running.ended().await.0, Some(0));
    assert_eq!(daemon.ended().await.0, Some(0));
    scene.emptied(PATIENCE).await;
}

/// Whatever the agents do just then.
#[tokio::test(flavor = "multi_thread")]
async fn no_agent_survives_a_daemon_that_is_killed() {
    let scene = Scene::new("[agents.tenant_limits]\nrate_limit_requests = 1000\n");
    for round in 0..20 {
        let daemon = scene.serve().await;
        let prompts = ["!fork 2 !hang", "!daemonize !hang", "!ignore-term !fork 1 !hang", "!hang"];
        for (user, prompt) in prompts.iter().enumerate() {
            let tenant = format!("web:{user}");
            let body = serde_json::json!({"tenant": tenant, "message": prompt, "wait": false});
            assert_eq!(daemon.post("/api/v1/requests", &body).await.status, 202);
        }
        // From when they start to when all have what they start.
        let wanted = [1, 4, 7, 8][round % 4];
        let begun = Instant::now();
        while scene.running().len() < wanted {
            assert!(begun.elapsed() < PATIENCE, "{:?}", scene.running());
            sleep(Duration::from_millis(2)).await;
        }
        daemon.kill().await;
        scene.emptied(Duration::from_secs(10)).await;
    }
}

#[test]
fn the_demo_shows_ten_users_who_share_four_agents() {
    let stage = Stage::new();
    let shown = stage.run(&["demo", "--agents"]);
    shown.check(0, &["web:10", "fairness 0.9", "session overlaps 0\n", "processes left 0\n"]);
    assert_eq!(std::fs::read_dir(stage.path("tmp")).unwrap().count(), 0, "it leaves nothing");
}
