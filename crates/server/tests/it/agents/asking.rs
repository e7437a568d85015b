//! Asking, polling, following, cancelling.

use serde_json::json;

use super::stage::{AgentStage, QUICK, REQUESTS};

#[tokio::test]
async fn whoever_waits_gets_the_reply() {
    let stage = AgentStage::start(QUICK).await;
    let reply = stage.ask("telegram:42", "hello world").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let json = reply.json();
    assert_eq!(json["text"], "hello world");
    assert_eq!(json["reply"]["result"], "hello world");
    assert_eq!(json["reply"]["session_id"], json["sessionId"]);
    for number in ["queueWaitMs", "executionMs"] {
        assert!(json[number].is_u64(), "{number}: {json}");
    }
    assert_eq!(json["workerId"], "worker-1");
    let id = json["requestId"].as_str().expect("an id");
    let polled = stage.get(id).await;
    assert_eq!((&polled["state"], &polled["text"]), (&json!("completed"), &json!("hello world")));
    assert_eq!((&polled["why"], &polled["tenant"]), (&json!(null), &json!("telegram:42")));
    assert!(polled.get("error").is_none(), "{polled}");
    let body = json!({
        "tenant": {"platform": "max", "userId": "7", "chatId": "c"}, "message": "hi",
        "priority": "ADMIN", "sessionId": "s-1", "timeoutMs": 60_000, "idempotent": true,
        "wait": true, "colour": "red",
    });
    let reply = stage.post(body).await;
    assert_eq!((reply.status, &reply.json()["sessionId"]), (200, &json!("s-1")), "{reply:?}");
    let warnings = stage.stage.get("/api/v1/warnings").await.items();
    let unknown = warnings.iter().find(|one| one["code"] == "UNKNOWN_FIELD");
    assert_eq!(unknown.expect("a warning")["subject"], "requests/colour");
    stage.end().await;
}

/// `docs/rules.md#agents-4`
#[tokio::test]
async fn a_session_begins_and_goes_on() {
    let stage = AgentStage::start(QUICK).await;
    let ask = |message: &str| json!({ "tenant": "web:1", "sessionId": "s", "message": message });
    let first = stage.post(ask("!print-args")).await.json()["text"].to_string();
    let second = stage.post(ask("!print-args")).await.json()["text"].to_string();
    assert!(first.contains("--session-id") && !first.contains("--resume"), "{first}");
    assert!(second.contains("--resume") && !second.contains("--session-id"), "{second}");
    stage.end().await;
}

#[tokio::test]
async fn what_waits_says_why() {
    let stage = AgentStage::start(QUICK).await;
    let first = stage.begin_in("web:1", "!hang", Some("s")).await;
    stage.until(&first, "running").await;
    let second = stage.begin_in("web:1", "x", Some("s")).await;
    let waits = stage.get(&second).await;
    assert_eq!(
        (&waits["state"], &waits["why"]["reason"]),
        (&json!("queued"), &json!("session_busy"))
    );
    assert!(waits["why"]["detail"].as_str().is_some_and(|why| why.contains(&first)), "{waits}");
    let found = stage.stage.get(&format!("/api/v1/messages/{second}")).await;
    let found = found.json();
    assert_eq!((&found["id"], &found["state"]), (&json!(second), &json!("waiting")));
    assert_eq!(
        (&found["why"]["reason"], &found["kind"], &found["pool"]),
        (&json!("session_busy"), &json!("request"), &json!(null))
    );
    let running = stage.stage.get(&format!("/api/v1/messages/{first}")).await.json();
    assert_eq!((&running["state"], &running["why"]), (&json!("running"), &json!(null)));
    stage.stage.get("/api/v1/messages/none").await.problem(404, "unknown_message");
    assert_eq!(stage.delete(&first).await.status, 200);
    assert_eq!(stage.until(&second, "completed").await["text"], "x");
    stage.end().await;
}

#[tokio::test]
async fn who_cancels_is_told_and_so_is_who_waits() {
    let stage = AgentStage::start(QUICK).await;
    let asks = stage.post(json!({ "tenant": "web:1", "sessionId": "s", "message": "!hang" }));
    let cancels = async {
        let tenants = |reply: &crate::api::stage::Reply| !reply.items().is_empty();
        let workers = stage.stage.until("/api/v1/workers", tenants).await.items();
        let id = workers[0]["requestId"].as_str().expect("it has one").to_owned();
        (stage.delete(&id).await, id)
    };
    let (waited, (cancelled, id)) = tokio::join!(asks, cancels);
    let problem = waited.problem(409, "cancelled");
    assert_eq!((&problem["requestId"], &problem["sessionId"]), (&json!(id), &json!("s")));
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (200, &json!("cancelled")));
    // Cancelled twice, it stays what it is; and what is over is not cancelled.
    assert_eq!(stage.delete(&id).await.json()["state"], "cancelled");
    let done =
        stage.ask("web:1", "x").await.json()["requestId"].as_str().expect("an id").to_owned();
    assert_eq!(stage.delete(&done).await.json()["state"], "completed");
    stage.delete("none").await.problem(404, "unknown_request");
    stage.stage.get(&format!("{REQUESTS}/none")).await.problem(404, "unknown_request");
    stage.stage.get(&format!("{REQUESTS}/none/stream")).await.problem(404, "unknown_request");
    stage.end().await;
}

#[tokio::test]
async fn answers_are_as_the_document_says() {
    let stage = AgentStage::start(QUICK).await;
    let document = crate::api::schema::Document::of(&stage.stage).await;
    let reply = stage.ask("web:1", "x").await;
    document.check("post", REQUESTS, &reply);
    let path = format!("{REQUESTS}/{}", reply.json()["requestId"].as_str().expect("an id"));
    document.check("get", "/api/v1/requests/{id}", &stage.stage.get(&path).await);
    document.check(
        "get",
        "/api/v1/requests/{id}/stream",
        &stage.stage.get(&format!("{path}/stream")).await,
    );
    for (message, status) in [("!crash", 502), ("!no-json", 502), (" ", 422)] {
        let reply = stage.ask("web:1", message).await;
        assert_eq!(reply.status, status);
        document.check("post", REQUESTS, &reply);
    }
    let body = json!({ "tenant": "web:1", "sessionId": "s", "message": "!hang", "wait": false });
    let ticket = stage.post(body.clone()).await;
    document.check("post", REQUESTS, &ticket);
    let waits = stage.post(body).await.json()["requestId"].as_str().expect("an id").to_owned();
    let path = format!("{REQUESTS}/{waits}");
    document.check("get", "/api/v1/requests/{id}", &stage.stage.get(&path).await);
    document.check(
        "get",
        "/api/v1/messages/{id}",
        &stage.stage.get(&format!("/api/v1/messages/{waits}")).await,
    );
    for path in ["/api/v1/workers", "/api/v1/tenants", "/api/v1/agents/metrics", REQUESTS] {
        document.check("get", path, &stage.stage.get(path).await);
    }
    for id in [&waits, ticket.json()["requestId"].as_str().expect("an id")] {
        document.check("delete", "/api/v1/requests/{id}", &stage.delete(id).await);
    }
    stage.end().await;
}

/// `docs/rules.md#agents-5`
#[tokio::test]
async fn processes_that_stay_are_started_ahead_and_used_again() {
    let stage = AgentStage::of(&persistent("min_workers = 1\nmax_silence = \"300ms\"\n")).await;
    let idle =
        |reply: &crate::api::stage::Reply| reply.items().iter().any(|one| one["state"] == "IDLE");
    let workers = stage.stage.until("/api/v1/workers", idle).await.items();
    assert_eq!(workers.len(), 1);
    let first = stage.ask("web:1", "x").await.json();
    assert_eq!(first["workerId"], workers[0]["id"]);
    let body = json!({ "tenant": "web:1", "sessionId": first["sessionId"], "message": "y" });
    let second = stage.post(body).await.json();
    assert_eq!((&second["workerId"], &second["text"]), (&first["workerId"], &json!("y")));
    // One that says nothing for too long is given up.
    let silent = stage.ask("web:2", "!hang").await.problem(504, "execution_timeout");
    assert_eq!(silent["timeoutMs"], 300);
    stage.end().await;
}

/// A file with processes that stay.
fn persistent(agents: &str) -> String {
    let program = sluicegate_testkit::programs::fake_agent();
    format!(
        "[agents]\nenabled = true\nmode = \"persistent\"\n\
         command = [{:?}, \"--input-format\", \"stream-json\", \"--output-format\", \"stream-json\"]\n{QUICK}{agents}",
        program.to_str().expect("a path"),
    )
}

/// Names and data of server-sent events.
fn events(body: &str) -> Vec<(String, serde_json::Value)> {
    let lines: Vec<&str> = body.lines().collect();
    let named = |pair: &[&str]| {
        let (name, data) = (pair[0].strip_prefix("event: ")?, pair[1].strip_prefix("data: ")?);
        Some((name.to_owned(), serde_json::from_str(data).expect("JSON on one line")))
    };
    lines.windows(2).filter_map(named).collect()
}

#[tokio::test]
async fn a_request_is_followed_to_its_end() {
    let stage = AgentStage::of(&persistent("min_workers = 0\n")).await;
    let id = stage.begin("web:1", "!unknown !sleep 50ms said").await;
    let followed = stage.stage.get(&format!("{REQUESTS}/{id}/stream")).await;
    assert_eq!(followed.header("content-type"), Some("text/event-stream"));
    let heard = events(&followed.body);
    let names: Vec<&str> = heard.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"stage"), "{names:?}");
    let lines: Vec<_> = heard.iter().filter(|(name, _)| name == "line").collect();
    assert!(lines.iter().any(|(_, data)| data["line"]["type"] == "weather"), "{heard:?}");
    let (last, outcome) = heard.last().expect("an end");
    assert_eq!((last.as_str(), &outcome["state"]), ("outcome", &json!("completed")));
    assert_eq!((&outcome["text"], &outcome["requestId"]), (&json!("said"), &json!(id)));
    // Who comes late hears the end.
    let late = events(&stage.stage.get(&format!("{REQUESTS}/{id}/stream")).await.body);
    assert_eq!((late.len(), late[0].0.as_str()), (1, "outcome"));
    stage.end().await;
}

/// `docs/rules.md#agents-12`
#[tokio::test]
async fn a_caller_who_goes_away_leaves_the_request_to_itself() {
    use tokio::io::AsyncWriteExt;
    let stage = AgentStage::start(QUICK).await;
    let body = json!({ "tenant": "web:1", "message": "!sleep 1000ms done" }).to_string();
    let mut socket = tokio::net::TcpStream::connect(stage.stage.address).await.expect("it listens");
    let request = format!(
        "POST {REQUESTS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.expect("it reads");
    let busy = |reply: &crate::api::stage::Reply| !reply.items().is_empty();
    let workers = stage.stage.until("/api/v1/workers", busy).await.items();
    drop(socket);
    let id = workers[0]["requestId"].as_str().expect("it has one").to_owned();
    assert_eq!(stage.until(&id, "completed").await["text"], "done");
    stage.end().await;
}

#[tokio::test]
async fn a_trace_goes_on_in_the_program() {
    let stage = AgentStage::start(QUICK).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let body = json!({ "tenant": "web:1", "message": "!print-env" }).to_string();
    let line = format!("POST {REQUESTS}");
    let reply = stage.with_header(&line, ("traceparent", parent), &body).await;
    assert!(reply.json()["text"].as_str().is_some_and(|env| env.contains(parent)), "{reply:?}");
    let reply = stage.with_header(&line, ("traceparent", "$(x)"), &body).await;
    assert!(!reply.body.contains("TRACEPARENT"), "{reply:?}");
    stage.end().await;
}

#[tokio::test]
async fn workers_and_tenants_are_seen_and_a_worker_is_ended() {
    let stage = AgentStage::start(QUICK).await;
    let id = stage.run("web:1", "!hang").await;
    let workers = stage.stage.get("/api/v1/workers").await.items();
    let [worker] = &workers[..] else { panic!("{workers:?}") };
    assert_eq!((&worker["state"], &worker["tenant"]), (&json!("BUSY"), &json!("web:1")));
    assert_eq!(worker["requestId"], json!(id));
    assert!(worker["pid"].is_u64() && worker["session"].is_string(), "{worker}");
    let tenants = stage.stage.get("/api/v1/tenants").await.items();
    assert_eq!((&tenants[0]["id"], &tenants[0]["running"]), (&json!("web:1"), &json!(1)));
    assert_eq!((&tenants[0]["served"], &tenants[0]["weight"]), (&json!(0), &json!(1)));
    let metrics = stage.stage.get("/api/v1/agents/metrics").await.json();
    assert_eq!((&metrics["workersBusy"], &metrics["activeTenants"]), (&json!(1), &json!(1)));
    assert!(
        metrics["timestamp"].as_u64().is_some_and(|time| time > 1_700_000_000_000),
        "{metrics}"
    );
    let path = format!("/api/v1/workers/{}", worker["id"].as_str().expect("an id"));
    assert_eq!(stage.stage.delete(&path).await.status, 204);
    let failed = stage.until(&id, "failed").await;
    assert_eq!(
        (&failed["error"]["code"], &failed["error"]["signal"]),
        (&json!("worker_crash"), &json!("SIGKILL"))
    );
    assert_eq!(failed["error"]["status"], 502);
    stage.stage.delete(&path).await.problem(404, "unknown_worker");
    assert_eq!(stage.stage.get("/api/v1/workers").await.items(), Vec::<serde_json::Value>::new());
    stage.end().await;
}
