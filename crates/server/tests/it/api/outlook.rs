//! What an operator is told to do works.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluicegate_dispatch::{Message, Target};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use sluicegate_testkit::scripted::grouped;

use super::stage::{Ask, Reply, Stage};

const STRICT: &str =
    "[[pool]]\ncode = \"P\"\nconcurrency = 2\nordering = \"strict\"\nmax_attempts = 1\n";

async fn publish(stage: &Stage, messages: Value) {
    let reply = stage.post("/api/v1/messages", &messages.to_string()).await;
    assert_eq!(reply.status, 202, "{reply:?}");
}

fn words<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Parks a message of a queue as rejected, which holds no key.
async fn park(stage: &Stage, queue: &str, at: usize, url: &str) {
    let (id, group) = (format!("m{at}"), format!("g{at}"));
    let target = Target::parse(url).expect("a target");
    stage.park(queue, at, Message { target, ..grouped(&id, "P", &group) }).await;
}

/// Of a message behind a parked one the head is named, and what replays both.
#[tokio::test]
async fn a_message_behind_a_parked_one_names_the_head_and_what_works() {
    for (group, said, named) in
        [(json!("order 7"), "'order 7'", "order 7"), (Value::Null, "__DEFAULT__", "__DEFAULT__")]
    {
        let endpoint = Endpoint::start().await;
        endpoint.then([Answer::status(200).body(json!({ "ack": false }).to_string())]);
        let stage = Stage::start(STRICT).await;
        let url = endpoint.url("/in");
        let message = |id: &str| json!({ "id": id, "poolCode": "P", "mediationTarget": url, "messageGroupId": group });
        publish(&stage, json!([message("m1"), message("m2"), message("m3")])).await;
        let parked = stage.until("/api/v1/parked", |reply| reply.items().len() == 3).await.items();
        let head = words(&parked[0], "/id");
        let is_parked = |reply: &Reply| reply.json()["state"] == "parked";
        let why = stage.until("/api/v1/messages/m3", is_parked).await.json();
        let hint = words(&why, "/parked/hint");
        assert!(hint.contains(&format!("{head} (m1)")), "{why}");
        let command = format!("`sluicegate replay --pool P --group {said} --queue default`");
        assert!(hint.contains(&command), "{why}");
        let first = stage.until("/api/v1/messages/m1", is_parked).await.json();
        let alone = format!("`sluicegate replay {head}`");
        assert!(words(&first, "/parked/hint").contains(&alone), "{first}");
        // It is as it says.
        let body = json!({ "pool": "P", "group": named, "queue": "default" }).to_string();
        let replayed = stage.post("/api/v1/parked/replay", &body).await.json();
        assert_eq!(replayed["replayed"], 3, "{replayed}");
        endpoint.wait_for(4).await;
        assert_eq!(endpoint.ids_of("/in"), ["m1", "m1", "m2", "m3"]);
    }
}

/// A message that was replayed and is parked again says why it is now.
#[tokio::test]
async fn a_message_that_is_parked_again_says_why_it_is_now() {
    let endpoint = Endpoint::start().await;
    let no = Answer::status(200).body(json!({ "ack": false }).to_string());
    endpoint.then([Answer::status(400), Answer::status(410), no]);
    let stage = Stage::start(STRICT).await;
    let url = endpoint.url("/in");
    // By its endpoint, and by its attempts: each is replayed once.
    for (id, pool, now) in [("m", "DEFAULT-POOL", 410), ("s", "P", 503)] {
        publish(&stage, json!([{ "id": id, "poolCode": pool, "mediationTarget": url }])).await;
        let is_parked = |reply: &Reply| reply.json()["state"] == "parked";
        let path = format!("/api/v1/messages/{id}");
        let first = stage.until(&path, is_parked).await.json();
        let calls = endpoint.count();
        endpoint.otherwise(Answer::status(now));
        let number = words(&first, "/parked/id");
        assert_eq!(stage.post(&format!("/api/v1/parked/{number}/replay"), "").await.status, 200);
        endpoint.wait_for(calls + 1).await;
        let again = stage.until(&path, is_parked).await.json();
        let parked = stage.get(&format!("/api/v1/parked?pool={pool}")).await.items();
        for (item, reason, error) in [
            (&parked[0], words(&parked[0], "/reason"), &parked[0]["lastError"]),
            (&again, words(&again, "/parked/reason"), &again["lastError"]),
        ] {
            assert!(reason.contains(&now.to_string()), "{item}");
            assert_eq!(error["status"], now, "{item}");
            assert_ne!(reason, words(&first, "/parked/reason"), "{item}");
        }
    }
}

/// A message in a queue that was taken out of the file is neither gone nor about to come.
#[tokio::test]
async fn a_message_of_a_removed_queue_is_not_said_to_be_gone() {
    let queue = |name: &str| format!("[[queue]]\nname = \"{name}\"\nuri = \"sqlite:{name}\"\n");
    let stage = Stage::start(&format!("{}{}", queue("old"), queue("new"))).await;
    let body = json!({ "id": "m", "mediationTarget": "http://127.0.0.1:9/", "delaySeconds": 600 });
    assert_eq!(stage.post("/api/v1/messages?queue=old", &body.to_string()).await.status, 202);
    park(&stage, "old", 1, "http://127.0.0.1:9/").await;
    stage.rewrite(&queue("new"));
    assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
    let reply = stage.get("/api/v1/messages/m").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let why = reply.json();
    assert_eq!((&why["queue"], &why["state"]), (&json!("old"), &json!("waiting")), "{why}");
    assert!(words(&why, "/why/detail").contains("queue old is not configured"), "{why}");
    let parked = stage.get("/api/v1/messages/m1").await.json();
    let hint = words(&parked, "/parked/hint");
    assert!(hint.contains("queue old is not configured"), "{parked}");
    assert!(hint.contains("`sluicegate discard 1`"), "{parked}");
    stage.get("/api/v1/messages/never").await.problem(404, "unknown_message");
}

/// However many requests it takes, a replay goes no faster than it was told to.
#[tokio::test]
async fn a_rate_holds_across_requests() {
    let (endpoint, stage) = (Endpoint::start().await, Stage::start("").await);
    let url = endpoint.url("/in");
    for at in 1..=60 {
        park(&stage, "default", at, &url).await;
    }
    let (begun, mut replayed) = (Instant::now(), 0);
    let mut asked = json!({ "all": true, "rate": 20, "limit": 10 });
    loop {
        let answer = stage.post("/api/v1/parked/replay", &asked.to_string()).await.json();
        replayed += answer["replayed"].as_u64().expect("a number");
        let took = begun.elapsed().as_secs_f64();
        // What goes at once, and the rest at the rate.
        assert!(replayed as f64 <= 8.0 + 20.0 * took, "{replayed} after {took} s");
        let Some(next) = answer["next"].as_str() else { break };
        asked["cursor"] = next.into();
    }
    assert_eq!(replayed, 60);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2_700), "60 at 20 a second took {took:?}");
}

/// A parameter that there is not is named, on every route that takes some or changes something.
#[tokio::test]
async fn parameters_that_there_are_not_are_named() {
    let stage = Stage::start("").await;
    let body = json!({ "id": "m", "mediationTarget": "http://127.0.0.1:9/", "delaySeconds": 600 });
    let body = body.to_string();
    let cases = [
        ("GET /api/v1/queues?limt=5", "limt", "did you mean `limit`?"),
        ("GET /api/v1/pools?pool=P", "pool", "there are limit, cursor"),
        ("GET /api/v1/groups?pol=P", "pol", "did you mean `pool`?"),
        ("GET /api/v1/inflight?poool=P", "poool", "did you mean `pool`?"),
        ("GET /api/v1/tenants?x=1", "x", "there are limit, cursor"),
        ("GET /api/v1/workers?x=1", "x", "there are limit, cursor"),
        ("GET /api/v1/pauses?host=a", "host", "there are limit, cursor"),
        ("GET /api/v1/breakers?name=a", "name", "there are limit, cursor"),
        ("GET /api/v1/warnings?severty=ERROR", "severty", "did you mean `severity`?"),
        ("GET /api/v1/parked?pol=P", "pol", "did you mean `pool`?"),
        ("POST /api/v1/messages?queu=q", "queu", "did you mean `queue`?"),
        ("POST /api/v1/parked/1/replay?dryRun=true", "dryRun", "there are none here"),
        ("POST /api/v1/inflight/m/ack?queue=q", "queue", "there are none here"),
    ];
    for (line, field, hint) in cases {
        let body = if line.contains("messages") { body.as_str() } else { "" };
        let problem =
            stage.ask(Ask { line, body, ..Ask::default() }).await.problem(400, "bad_request");
        assert_eq!(problem["field"], field, "{line}");
        let detail = words(&problem, "/detail");
        assert!(
            detail.contains(&format!("`{field}`")) && detail.contains(hint),
            "{line}: {detail}"
        );
    }
    stage.get("/api/v1/messages/m").await.problem(404, "unknown_message");
    assert_eq!(stage.get("/api/v1/pools?limit=5").await.status, 200);
    let other = Ask { line: "PUT /api/v1/pools?limt=5", ..Ask::default() };
    stage.ask(other).await.problem(405, "method_not_allowed");
}

/// A host that asked for a pause is named, with until when and what ends it.
#[tokio::test]
async fn a_message_of_a_paused_host_says_until_when_and_what_ends_it() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(429).header("retry-after", "600")]);
    let strict = "[[pool]]\ncode = \"P\"\nconcurrency = 2\nordering = \"strict\"\n";
    let stage = Stage::start(strict).await;
    let host = endpoint.address().to_string();
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "poolCode": "P", "mediationTarget": url, "messageGroupId": id });
    publish(&stage, json!([message("asked")])).await;
    endpoint.wait_for(1).await;
    stage.until("/api/v1/pauses", |reply| !reply.items().is_empty()).await;
    publish(&stage, json!([message("waits")])).await;
    let lift = format!("`sluicegate pauses --lift {host} --pool P`");
    for id in ["asked", "waits"] {
        let is_paused = |reply: &Reply| reply.json()["why"]["reason"] == "rate_limited";
        let why = stage.until(&format!("/api/v1/messages/{id}"), is_paused).await.json();
        assert!(words(&why, "/why/detail").contains(&host), "{why}");
        assert!(why["why"]["until"].is_string(), "{why}");
        assert!(words(&why, "/why/hint").contains(&lift), "{why}");
    }
    // Where its own answer put it back into its queue, lifting does not bring it sooner.
    endpoint.then([Answer::status(429).header("retry-after", "600")]);
    publish(&stage, json!([{ "id": "back", "mediationTarget": url }])).await;
    endpoint.wait_for(2).await;
    let is_delayed = |reply: &Reply| reply.json()["state"] == "delayed";
    let why = stage.until("/api/v1/messages/back", is_delayed).await.json();
    assert!(words(&why, "/why/detail").contains(&host), "{why}");
    assert!(words(&why, "/why/hint").contains("not bring it sooner"), "{why}");
}

/// Times that are to come do not read as if something had happened then.
#[tokio::test]
async fn a_message_that_follows_another_of_its_batch_reads_well() {
    let endpoint = Endpoint::start().await;
    endpoint
        .then([Answer::status(200).body(json!({ "ack": false, "delaySeconds": 600 }).to_string())]);
    let stage = Stage::start("").await;
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "mediationTarget": url, "messageGroupId": "g" });
    publish(&stage, json!([message("m1"), message("m2")])).await;
    let is_delayed = |reply: &Reply| reply.status == 200 && reply.json()["state"] == "delayed";
    let why = stage.until("/api/v1/messages/m2", is_delayed).await.json();
    let (detail, until) = (words(&why, "/why/detail"), words(&why, "/why/until"));
    let wanted = format!("a message of its batch before it failed; it comes again at {until}");
    assert_eq!(detail, wanted, "{why}");
    let first = stage.get("/api/v1/messages/m1").await.json();
    let until = words(&first, "/why/until");
    assert_eq!(words(&first, "/why/detail"), format!("an attempt failed; it waits until {until}"));
}

/// What an open breaker puts off was not tried, so it was not retried.
#[tokio::test]
async fn what_an_open_breaker_puts_off_is_not_retried() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(500));
    let stage = Stage::start("[http.breaker]\nvolume = 1\nopen_for = \"10m\"\n").await;
    let url = endpoint.url("/in");
    publish(&stage, json!([{ "id": "first", "mediationTarget": url }])).await;
    let open = |reply: &Reply| reply.items().iter().any(|breaker| breaker["state"] == "open");
    stage.until("/api/v1/breakers", open).await;
    stage.until("/api/v1/messages/first", |reply| reply.json()["state"] == "delayed").await;
    let retried = async || {
        let pools = stage.get("/api/v1/pools").await.items();
        let pool =
            pools.iter().find(|pool| pool["code"] == "DEFAULT-POOL").expect("the pool").clone();
        pool["retried"].as_u64().expect("a count")
    };
    let before = retried().await;
    let others: Vec<Value> =
        (0..5).map(|at| json!({ "id": format!("m{at}"), "mediationTarget": url, "messageGroupId": format!("g{at}") })).collect();
    publish(&stage, json!(others)).await;
    for at in 0..5 {
        let put_off = |reply: &Reply| reply.json()["why"]["reason"] == "breaker_open";
        stage.until(&format!("/api/v1/messages/m{at}"), put_off).await;
    }
    assert_eq!(retried().await, before);
}

/// What a `PATCH` cannot change is named.
#[tokio::test]
async fn what_cannot_be_patched_is_named() {
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 5\n").await;
    for (body, field) in [
        (r#"{"ordering":"none"}"#, "ordering"),
        (r#"{"concurency":7}"#, "concurency"),
        (r#"{"concurrency":0}"#, "concurrency"),
        (r#"{"rateLimitPerMinute":"6"}"#, "rateLimitPerMinute"),
    ] {
        let ask = Ask { line: "PATCH /api/v1/pools/P", body, ..Ask::default() };
        let problem = stage.ask(ask).await.problem(422, "invalid_field");
        assert!(words(&problem, "/detail").starts_with(field), "{problem}");
    }
}

/// A pool that is removed and added again is another one: both are shown while the old one's calls last.
#[tokio::test]
async fn a_pool_that_comes_again_is_shown_beside_the_old_one() {
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let pool = "[[pool]]\ncode = \"P\"\nconcurrency = 1\n";
    let stage = Stage::start(pool).await;
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "poolCode": "P", "mediationTarget": url, "messageGroupId": id });
    publish(&stage, json!([message("old")])).await;
    endpoint.wait_for(1).await;
    for toml in ["", pool] {
        stage.rewrite(toml);
        assert_eq!(stage.post("/api/v1/config/reload", "").await.status, 200);
    }
    publish(&stage, json!([message("new")])).await;
    endpoint.wait_for(2).await;
    let pools = stage.get("/api/v1/pools").await.items();
    let shown: Vec<(&Value, &Value)> = pools
        .iter()
        .filter(|pool| pool["code"] == "P")
        .map(|pool| (&pool["phase"], &pool["running"]))
        .collect();
    assert_eq!(shown, [(&json!("running"), &json!(1)), (&json!("draining"), &json!(1))]);
}

/// Names that a shell would take apart are printed as it takes them; and only the group of its queue is replayed.
#[tokio::test]
async fn a_command_can_be_typed_as_it_is_printed() {
    let endpoint = Endpoint::start().await;
    endpoint.then([Answer::status(429).header("retry-after", "600")]);
    let pool = "[[pool]]\ncode = \"BIG POOL\"\nordering = \"strict\"\nmax_attempts = 1\n";
    let block = "[[pool]]\ncode = \"B\"\nordering = \"strict\"\nmax_attempts = 1\non_exhausted = \"block\"\n";
    let stage = Stage::start(&format!("{pool}{block}")).await;
    let url = endpoint.url("/in");
    let message = |id: &str, pool: &str, group: &str| json!({ "id": id, "poolCode": pool, "mediationTarget": url, "messageGroupId": group });
    publish(&stage, json!([message("m", "BIG POOL", "g")])).await;
    let hint = async |path: &str, pointer: &str| {
        let reply = stage
            .until(path, |reply| reply.status == 200 && reply.json().pointer(pointer).is_some())
            .await;
        words(&reply.json(), pointer).to_owned()
    };
    let host = endpoint.address();
    let lift = hint("/api/v1/messages/m", "/why/hint").await;
    assert!(
        lift.contains(&format!("`sluicegate pauses --lift {host} --pool 'BIG POOL'`")),
        "{lift}"
    );
    assert_eq!(stage.delete(&format!("/api/v1/pauses/{host}")).await.status, 204);
    endpoint.wait_for(2).await;
    // A head that waits for a person, whose id begins like an option.
    endpoint.otherwise(Answer::status(200).body(json!({ "ack": false }).to_string()));
    publish(&stage, json!([message("-x y", "B", "g"), message("b2", "B", "g")])).await;
    let ack = "`sluicegate ack -- '-x y'`";
    for id in ["-x%20y", "b2"] {
        let said = hint(&format!("/api/v1/messages/{id}"), "/why/hint").await;
        assert!(said.contains(ack), "{id}: {said}");
    }
    let blocked = |reply: &Reply| reply.body.contains("GROUP_BLOCKED");
    let warnings = stage.until("/api/v1/warnings", blocked).await.items();
    let warning = warnings.iter().find(|one| one["code"] == "GROUP_BLOCKED").expect("a warning");
    assert!(words(warning, "/message").contains(ack), "{warning}");
    // A group that is parked, behind its head.
    publish(&stage, json!([message("p1", "BIG POOL", "-g"), message("p2", "BIG POOL", "-g")]))
        .await;
    let replay = hint("/api/v1/messages/p2", "/parked/hint").await;
    let command = "`sluicegate replay --pool 'BIG POOL' --group=-g --queue default`";
    assert!(replay.contains(command), "{replay}");
    let parked = |reply: &Reply| reply.items().iter().any(|one| one["code"] == "PARKED");
    let warnings = stage.until("/api/v1/warnings", parked).await.items();
    let warning = warnings.iter().find(|one| one["code"] == "PARKED").expect("a warning");
    assert!(
        words(warning, "/message").contains("`sluicegate parked --pool 'BIG POOL'`"),
        "{warning}"
    );
}
