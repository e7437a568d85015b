//! Publishing messages, and asking where one is.

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::schema::Document;
use super::stage::{Ask, Reply, Stage, names};

const TOKEN: &str = "tok-secret-1";

fn message(id: &str, target: &str) -> Value {
    json!({ "id": id, "mediationTarget": target, "authToken": TOKEN })
}

#[tokio::test]
async fn a_message_is_delivered_and_gone() {
    let (stage, endpoint) = (Stage::start("").await, Endpoint::start().await);
    let body = json!([message("m1", &endpoint.url("/in")), message("m2", &endpoint.url("/in"))]);
    let reply = stage.post("/api/v1/messages?queue=default", &body.to_string()).await;
    assert_eq!((reply.status, reply.json()), (202, json!({ "accepted": 2 })));
    for id in ["m1", "m2"] {
        let path = format!("/api/v1/messages/{id}");
        stage.until(&path, |reply| reply.status == 404).await.problem(404, "unknown_message");
    }
    let mut ids: Vec<String> = endpoint.asked().iter().map(|asked| asked.message_id()).collect();
    ids.sort();
    assert_eq!(ids, ["m1", "m2"]);
}

#[tokio::test]
async fn one_message_needs_no_array_and_no_queue() {
    let (stage, endpoint) = (Stage::start("").await, Endpoint::start().await);
    let body = message("m1", &endpoint.url("/in")).to_string();
    assert_eq!(stage.post("/api/v1/messages", &body).await.json(), json!({ "accepted": 1 }));
    assert_eq!(stage.post("/api/v1/messages", &body).await.json(), json!({ "accepted": 1 }));
    assert_eq!(stage.post("/api/v1/messages", "[]").await.json(), json!({ "accepted": 0 }));
    stage.until("/api/v1/messages/m1", |reply| reply.status == 404).await;
    assert_eq!(endpoint.asked().len(), 1, "an id is taken in once");
}

#[tokio::test]
async fn a_delayed_message_says_until_when() {
    let stage = Stage::start("").await;
    let body = json!({
        "id": "late", "mediationTarget": "http://127.0.0.1:1/", "delaySeconds": 600,
        "messageGroupId": "g", "tenant": "t", "highPriority": true, "poolCode": "P",
    });
    stage.post("/api/v1/messages", &body.to_string()).await;
    let shown = stage.get("/api/v1/messages/late").await.json();
    let wanted = json!({
        "id": "late", "queue": "default", "pool": "P", "group": "g", "tenant": "t",
        "priority": "HIGH", "state": "delayed", "attempt": 0, "kind": "message",
    });
    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(&shown[name], value, "{name}: {shown}");
    }
    assert_eq!(shown["why"]["reason"], "delayed", "{shown}");
    assert_eq!(shown["why"]["until"], shown["visibleAt"]);
    let time = |value: &Value| -> jiff::Timestamp {
        value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{shown}"))
    };
    let delay = time(&shown["visibleAt"]).as_second() - time(&shown["since"]).as_second();
    assert!((599..=601).contains(&delay), "{shown}");
    assert_eq!(
        names(&shown),
        [
            "attempt",
            "group",
            "id",
            "kind",
            "lastError",
            "pool",
            "priority",
            "queue",
            "since",
            "state",
            "tenant",
            "visibleAt",
            "why"
        ]
    );
}

#[tokio::test]
async fn what_is_wrong_is_named_and_nothing_is_taken_in() {
    let stage = Stage::start("").await;
    let good = r#"{"id":"good","mediationTarget":"http://127.0.0.1:1/"}"#;
    let cases = [
        ("{", 400, "malformed_json", json!(null)),
        ("", 400, "malformed_json", json!(null)),
        ("[{\"id\":\"a\"},", 400, "malformed_json", json!(null)),
        ("[] []", 400, "malformed_json", json!(null)),
        ("7", 422, "invalid_messages", json!([[0, null]])),
        ("[7]", 422, "invalid_messages", json!([[0, null]])),
        ("{}", 422, "invalid_messages", json!([[0, "id"]])),
        (r#"{"id":7,"mediationTarget":"http://a/"}"#, 422, "invalid_messages", json!([[0, "id"]])),
        (
            &format!(
                r#"[{good},{{"id":"x"}},{{"id":"y","mediationTarget":"ftp://a/"}},{{"id":""}}]"#
            ),
            422,
            "invalid_messages",
            json!([[1, "mediationTarget"], [2, "mediationTarget"], [3, "id"]]),
        ),
        (
            &format!(
                r#"[{good},{{"id":"x","mediationTarget":"http://10.0.0.1/"}},
                    {{"id":"y","mediationTarget":"http://169.254.169.254/"}}]"#
            ),
            422,
            "forbidden_target",
            json!([[1, "mediationTarget"], [2, "mediationTarget"]]),
        ),
    ];
    for (body, status, code, faults) in cases {
        let problem = stage.post("/api/v1/messages", body).await.problem(status, code);
        let named = problem["errors"].as_array().map(|errors| {
            errors.iter().map(|error| json!([error["index"], error["field"]])).collect::<Value>()
        });
        assert_eq!(named.unwrap_or_default(), faults, "{body}: {problem}");
    }
    stage.get("/api/v1/messages/good").await.problem(404, "unknown_message");
    let unknown = stage.post("/api/v1/messages?queue=none", good).await;
    assert_eq!(unknown.problem(404, "unknown_queue")["field"], "queue");
}

#[tokio::test]
async fn the_trace_of_a_request_goes_on_in_messages_without_one() {
    const OURS: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01";
    let cases = [
        (OURS, json!(null), Some("0af7651916cd43dd8448eb211c80319c")),
        (OURS, json!(OTHER), Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")),
        ("nonsense", json!(null), None),
    ];
    let (stage, endpoint) = (Stage::start("").await, Endpoint::start().await);
    for (at, (header, own, trace)) in cases.into_iter().enumerate() {
        let mut body = message(&format!("m{at}"), &endpoint.url("/in"));
        body["traceparent"] = own;
        body["payload"] = json!({ "n": 1.5 });
        let (headers, body) = ([("traceparent", header)], body.to_string());
        let ask = Ask { line: "POST /api/v1/messages", headers: &headers, body: &body };
        assert_eq!(stage.ask(ask).await.status, 202);
        endpoint.wait_for(at + 1).await;
        let asked = endpoint.asked()[at].clone();
        let sent = asked.headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned());
        let sent_trace = sent.as_deref().and_then(|sent| sent.split('-').nth(1));
        match trace {
            Some(trace) => assert_eq!(sent_trace, Some(trace), "{header}"),
            None => assert_ne!(sent_trace, Some("0af7651916cd43dd8448eb211c80319c")),
        }
        assert_eq!(asked.headers["authorization"], format!("Bearer {TOKEN}"));
        assert!(asked.body.ends_with(br#""payload":{"n":1.5}}"#), "{:?}", asked.body);
    }
}

#[tokio::test]
async fn a_waiting_message_says_what_it_waits_for() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 1\n").await;
    let body: Vec<Value> = [("m1", "g"), ("m2", "g"), ("m3", "h")]
        .map(|(id, group)| {
            let mut body = message(id, &endpoint.url("/in"));
            body["poolCode"] = "P".into();
            body["messageGroupId"] = group.into();
            body
        })
        .into();
    stage.post("/api/v1/messages", &json!(body).to_string()).await;
    endpoint.wait_for(1).await;
    let cases = [
        ("m1", "running", None),
        ("m2", "waiting", Some("group_busy")),
        ("m3", "waiting", Some("pool_full")),
    ];
    for (id, state, reason) in cases {
        let shown = stage
            .until(&format!("/api/v1/messages/{id}"), |reply| reply.json()["state"] == state)
            .await
            .json();
        assert_eq!(shown["why"]["reason"].as_str(), reason, "{shown}");
    }
    let shown = stage.get("/api/v1/messages/m2").await.json();
    assert_eq!(shown["why"]["detail"], "group head m1 is running");
}

/// A group in strict order is held by its head, wherever its other messages are.
#[tokio::test]
async fn a_message_behind_a_retrying_head_says_until_when() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(200).body(r#"{"ack":false,"delaySeconds":600}"#));
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nordering = \"strict\"\n").await;
    let send = async |id: &str| {
        let mut body = message(id, &endpoint.url("/in"));
        body["poolCode"] = "P".into();
        body["messageGroupId"] = "g".into();
        assert_eq!(stage.post("/api/v1/messages", &body.to_string()).await.status, 202);
    };
    send("m1").await;
    let delayed = |reply: &Reply| reply.json()["state"] == "delayed";
    let head = stage.until("/api/v1/messages/m1", delayed).await.json();
    assert_eq!(
        (&head["why"]["reason"], &head["attempt"]),
        (&json!("delayed"), &json!(1)),
        "{head}"
    );
    send("m2").await;
    let behind = stage.get("/api/v1/messages/m2").await.json();
    assert_eq!(behind["state"], "waiting", "{behind}");
    assert_eq!(behind["why"]["reason"], "group_retrying", "{behind}");
    let detail = behind["why"]["detail"].as_str().unwrap();
    assert!(detail.starts_with("group head m1 retries at 20"), "{behind}");
    assert!(behind["why"]["until"].is_string() && behind["visibleAt"].is_null(), "{behind}");
    let group = stage.get("/api/v1/groups").await.items().remove(0);
    assert_eq!(group["head"], "m1");
    assert!(group["blockedUntil"].is_string(), "{group}");
}

#[tokio::test]
async fn an_id_may_be_any_text() {
    let stage = Stage::start("").await;
    for (id, path) in [("a/b", "a%2Fb"), ("ü ?#%", "%C3%BC%20%3F%23%25"), ("..", "%2E%2E")] {
        let mut body = message(id, "http://127.0.0.1:1/");
        body["delaySeconds"] = 600.into();
        stage.post("/api/v1/messages", &body.to_string()).await;
        let shown = stage.get(&format!("/api/v1/messages/{path}")).await.json();
        assert_eq!(shown["id"], id);
    }
}

#[tokio::test]
async fn before_the_first_configuration_there_is_no_queue_yet() {
    let stage = Stage::open("").await;
    let body = message("m", "http://127.0.0.1:1/").to_string();
    let reply = stage.post("/api/v1/messages", &body).await;
    reply.problem(503, "starting");
    assert_eq!(reply.header("retry-after"), Some("1"));
}

/// A source that cannot look, and one that is down: neither says that a message is gone.
#[tokio::test]
async fn queues_that_could_not_be_asked_are_named() {
    let stage = Stage::start("").await;
    stage.get("/api/v1/messages/m").await.problem(404, "unknown_message");
    let broker = crate::scene::Stock::of([]);
    let settings = sluicegate_dispatch::QueueSettings::new(1, 10);
    stage.daemon.router().add_queue("orders", settings, broker.clone()).await.expect("a queue");
    let reply = stage.get("/api/v1/messages/m").await;
    let problem = reply.problem(404, "unknown_message");
    Document::of(&stage).await.check("get", "/api/v1/messages/{id}", &reply);
    let not_asked = &problem["notAsked"];
    assert_eq!(not_asked[0]["queue"], "orders", "{problem}");
    assert!(not_asked[0]["why"].as_str().is_some_and(|why| !why.is_empty()), "{problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("orders") && !detail.contains("gone for good"), "{problem}");
    *broker.trouble.lock() = Some("connection refused");
    let reply = stage.get("/api/v1/messages/m").await;
    let problem = reply.problem(503, "queues_not_asked");
    Document::of(&stage).await.check("get", "/api/v1/messages/{id}", &reply);
    let down = json!([{ "queue": "orders", "why": "connection refused" }]);
    assert_eq!(problem["notAsked"], down, "{problem}");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("orders") && detail.contains("connection refused"), "{problem}");
    // What is found is found.
    let mut late = message("late", "http://127.0.0.1:1/");
    late["delaySeconds"] = 600.into();
    stage.post("/api/v1/messages?queue=default", &late.to_string()).await;
    assert_eq!(stage.get("/api/v1/messages/late").await.json()["state"], "delayed");
}
