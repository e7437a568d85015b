//! What a daemon says to those who run it: alerts, warnings and the audit.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use crate::stage::{Daemon, Stage, message};

const TOKEN: &str = "tiger-in-the-tank";

fn config(more: &str) -> String {
    format!(
        "{more}\n[server]\nlisten = \"127.0.0.1:0\"\ntoken = \"{TOKEN}\"\n[state]\npath = \"o.db\"\n\
         [log]\nformat = \"json\"\n[[pool]]\ncode = \"TEST\"\nconcurrency = 4\n"
    )
}

/// The audit's lines: action, role, where from, of what, from what to what.
fn audit(errors: &str) -> Vec<(String, Value)> {
    let lines = errors.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let audited = lines.filter(|line| line["audit"].is_string());
    audited
        .map(|line| {
            assert_eq!(line["level"], "INFO", "{line}");
            let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            let peer = if text("peer").starts_with("127.0.0.1:") { "peer" } else { "-" };
            let words = format!("{} {} {peer} {}", text("audit"), text("role"), text("subject"));
            (words, line)
        })
        .collect()
}

async fn warning(daemon: &Daemon, code: &str, is_over: bool) -> Value {
    for _ in 0..2_000 {
        let answer = daemon.get_with("/api/v1/warnings", TOKEN).await;
        let list: Value = serde_json::from_slice(&answer.body).expect("JSON");
        let mut items = list["items"].as_array().expect("a list").iter();
        let fits = |one: &&Value| one["code"] == code && one["resolved"] == is_over;
        if let Some(found) = items.find(fits) {
            return found.clone();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("there is no {code}");
}

/// What the audit says of each change, in their order.
fn wanted(endpoint: &Endpoint, id: &str, replayed: &str, discarded: &str) -> [String; 14] {
    let target = endpoint.url("/");
    [
        "pool.patch operate peer TEST".to_owned(),
        "config.reload operate peer o.toml".to_owned(),
        format!("breaker.reset operate peer {}", endpoint.address()),
        format!("warning.acknowledge operate peer {id}: CONFIGURATION/ERROR {target}"),
        format!("warning.delete operate peer {id}: CONFIGURATION/ERROR {target}"),
        format!("parked.replay operate peer {}", replayed),
        "parked.replay operate peer {\"pool\":\"TEST\"}".to_owned(),
        "parked.replay operate peer code=malformed&limit=5".to_owned(),
        "parked.replay operate peer host=h {\"code\":\"malformed\"}".to_owned(),
        "parked.export operate peer pool=TEST&withSecrets=%74rue".to_owned(),
        format!("parked.discard operate peer {discarded}"),
        "message.ack operate peer a2".to_owned(),
        "config.reload signal - o.toml".to_owned(),
        "config.reload signal - o.toml".to_owned(),
    ]
}

/// What people ask for, and how it is answered.
fn changes(breaker: &str, id: &str, parked: &str) -> Vec<(String, &'static str, u16)> {
    vec![
        ("PATCH /api/v1/pools/TEST".to_owned(), "{\"concurrency\":7}", 200),
        ("PATCH /api/v1/pools/NONE".to_owned(), "{}", 404),
        ("POST /api/v1/config/reload".to_owned(), "", 200),
        (format!("POST /api/v1/breakers/{breaker}/reset"), "", 200),
        (format!("POST /api/v1/warnings/{id}/acknowledge"), "", 200),
        (format!("DELETE /api/v1/warnings/{id}"), "", 204),
        (format!("POST /api/v1/parked/{}/replay", parked), "", 200),
        ("POST /api/v1/parked/replay".to_owned(), "{\"pool\":\"TEST\"}", 200),
        ("POST /api/v1/parked/replay?all=true&dryRun=true".to_owned(), "", 200),
        ("POST /api/v1/parked/replay".to_owned(), "{\"all\":true,\"dryRun\":\"true\"}", 200),
        ("POST /api/v1/parked/replay?pol=TEST".to_owned(), "", 400),
        ("POST /api/v1/parked/replay?code=malformed&limit=5".to_owned(), "", 200),
        ("POST /api/v1/parked/replay?host=h".to_owned(), "{\"code\":\"malformed\"}", 200),
        ("GET /api/v1/parked/export?pool=TEST".to_owned(), "", 200),
        ("GET /api/v1/parked/export?pool=TEST&withSecrets=%74rue".to_owned(), "", 200),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_change_is_logged_with_who_and_what() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::status(404));
    let file = stage.file("o.toml", config(""));
    let mut daemon = stage.serve_json(&["--config", file]).await;
    let ask = async |line: &str, body: &str| daemon.ask(line, body, TOKEN).await;
    ask("POST /api/v1/messages", &message("m1", "g", &endpoint.url("/"))).await;
    ask("POST /api/v1/messages", &message("m2", "g", &endpoint.url("/"))).await;
    let parked = async || -> Vec<String> {
        let list: Value =
            serde_json::from_slice(&ask("GET /api/v1/parked", "").await.body).expect("JSON");
        let items = list["items"].as_array().expect("a list").iter();
        items.map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
    };
    while parked().await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ids = parked().await;
    let raised = warning(&daemon, "CONFIGURATION", false).await;
    let id = raised["id"].as_str().expect("an id");
    let breaker = endpoint.address().to_string().replace(':', "%3A");
    for (line, body, status) in changes(&breaker, id, &ids[0]) {
        assert_eq!(ask(&line, body).await.status, status, "{line}");
    }
    while parked().await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let discarded = parked().await.remove(0);
    assert_eq!(ask(&format!("DELETE /api/v1/parked/{discarded}"), "").await.status, 204);
    endpoint.otherwise(Answer::hang());
    let two = [message("a1", "h", &endpoint.url("/")), message("a2", "h", &endpoint.url("/"))];
    ask("POST /api/v1/messages", &format!("[{}]", two.join(","))).await;
    while ask("POST /api/v1/inflight/a2/ack", "").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    daemon.signal(Signal::SIGHUP);
    daemon.says("reloaded").await;
    stage.file("o.toml", "what");
    daemon.signal(Signal::SIGHUP);
    daemon.says("not reloaded").await;
    daemon.signal(Signal::SIGTERM);
    daemon.says("SIGTERM").await;
    // One that comes within a second is taken for the same.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    daemon.signal(Signal::SIGTERM);
    let (_, errors) = daemon.ended().await;
    let said = audit(&errors);
    let words: Vec<&str> = said.iter().map(|(words, _)| words.as_str()).collect();
    assert_eq!(words, wanted(&endpoint, id, &ids[0], &discarded));
    let json = |at: usize, name: &str| -> Value {
        serde_json::from_str(said[at].1[name].as_str().unwrap_or("null")).expect("JSON")
    };
    let limits =
        |concurrency| serde_json::json!({ "concurrency": concurrency, "rateLimitPerMinute": null });
    assert_eq!((json(0, "old"), json(0, "new")), (limits(4), limits(7)));
    assert_eq!(json(6, "new")["replayed"].as_u64().map(|count| count > 0), Some(true));
    assert!(json(13, "new")["failed"].as_str().is_some_and(|why| why.contains("o.toml:1")));
    assert!(!errors.contains(TOKEN), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_at_sighup_is_warned_of_until_a_good_one_comes() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let alerts = format!("[alerts]\nwebhook = {:?}", endpoint.url("/alerts"));
    let file = stage.file("o.toml", config(&alerts));
    let mut daemon = stage.serve_json(&["--config", file]).await;
    stage.file("o.toml", "[[pool]]\n");
    daemon.signal(Signal::SIGHUP);
    daemon.says("not reloaded").await;
    assert_eq!(warning(&daemon, "CONFIG_INVALID", false).await["severity"], "ERROR");
    endpoint.wait_for(1).await;
    stage.file("o.toml", config(&alerts));
    daemon.signal(Signal::SIGHUP);
    warning(&daemon, "CONFIG_INVALID", true).await;
    endpoint.wait_for(2).await;
    let told: Vec<Value> = endpoint.asked().iter().map(|asked| asked.json()).collect();
    assert_eq!((&told[0]["code"], &told[0]["resolved"]), (&"CONFIG_INVALID".into(), &false.into()));
    assert_eq!((&told[1]["id"], &told[1]["resolved"]), (&told[0]["id"], &true.into()));
    assert_eq!(daemon.terminated().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_cannot_begin_alerts_before_it_ends() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let more = format!(
        "[alerts]\nwebhook = {:?}\n[router]\nconfig_url = [\"http://127.0.0.1:9/config\"]\n\
         sync_attempts = 1\n",
        endpoint.url("/alerts")
    );
    let file = stage.file("o.toml", config(&more));
    stage.run(&["serve", "--config", file]).check(1, &["could not be reached"]);
    let told = endpoint.asked();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].json()["code"], "CONFIG_SYNC_FAILED");
}

/// The disk is full as far as the daemon can tell: its files may not grow. Nothing is published or
/// settled after that: it heals by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_critical_and_heals_by_itself() {
    let stage = Stage::new();
    let file = stage.file("o.toml", config(""));
    let daemon = stage.serve_limited(&["--config", file]).await;
    assert_eq!(daemon.get("/health/ready").await.status, 200);
    daemon.limit_files(64 * 1024);
    let target = "http://127.0.0.1:9/";
    let payload = "x".repeat(10_000);
    let large = serde_json::json!({ "id": "m", "mediationTarget": target, "payload": payload });
    let mut refused = false;
    for at in 0..100 {
        let mut one = large.clone();
        one["id"] = format!("m{at}").into();
        one["delaySeconds"] = 3600.into();
        let answer = daemon.ask("POST /api/v1/messages", &one.to_string(), TOKEN).await;
        refused |= answer.status != 202;
    }
    assert!(refused, "its files did not grow");
    let failed = warning(&daemon, "STATE_FAILED", false).await;
    assert_eq!((&failed["severity"], &failed["subject"]), (&"CRITICAL".into(), &"o.db".into()));
    assert_eq!(daemon.get("/health/ready").await.status, 503);
    daemon.limit_files(u64::MAX);
    warning(&daemon, "STATE_FAILED", true).await;
    assert_eq!(daemon.get("/health/ready").await.status, 200);
    assert_eq!(daemon.terminated().await.0, Some(0));
}

/// A broker that goes is warned of, and so is that it is back: with a log line each.
async fn goes_and_comes_back(kind: Kind, address: fn(&str) -> String) {
    let Some(mut broker) = start_or_skip(kind) else { return };
    let uri = address(broker.url().trim_end_matches('/'));
    let stage = Stage::new();
    let queue = format!("[[queue]]\nname = \"orders\"\nuri = {uri:?}\n");
    let file = stage.file("o.toml", config(&queue));
    let mut daemon = stage.serve_json(&["--config", file]).await;
    let is_ready = async |wanted: u16| {
        for _ in 0..3_000 {
            if daemon.get("/health/ready").await.status == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it is not ready");
    };
    is_ready(200).await;
    broker.crash();
    let down = warning(&daemon, "SOURCE_DOWN", false).await;
    assert_eq!((&down["severity"], &down["subject"]), (&"WARNING".into(), &"orders".into()));
    assert!(!down["message"].to_string().contains("guest:guest"), "{down}");
    tokio::task::block_in_place(|| broker.restart()).unwrap_or_else(|error| panic!("{error}"));
    warning(&daemon, "SOURCE_DOWN", true).await;
    daemon.says("the queue is back").await;
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(errors.matches("has been down for").count(), 2, "that it is, and was: {errors}");
    assert_eq!(errors.matches("the queue is back").count(), 1, "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_goes_and_comes_back() {
    goes_and_comes_back(Kind::Nats, |url| format!("{url}?stream=S&consumer=c&subject=s")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_goes_and_comes_back() {
    goes_and_comes_back(Kind::RabbitMq, |url| format!("{url}?queue=q")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_goes_and_comes_back() {
    goes_and_comes_back(Kind::Postgres, |url| format!("{url}?queue=q")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn activemq_goes_and_comes_back() {
    let address = |url: &str| format!("{}/q", url.replacen("stomp://", "activemq://", 1));
    goes_and_comes_back(Kind::ActiveMq, address).await;
}

/// What follows a parked head is listed after it, whatever it came from.
async fn parks_the_head_first(kind: Kind, address: fn(&str) -> String) {
    let Some(broker) = start_or_skip(kind) else { return };
    let uri = address(broker.url().trim_end_matches('/'));
    let (stage, endpoint) = (Stage::new(), Endpoint::start().await);
    endpoint.otherwise(Answer::ok().body(r#"{"ack":false}"#));
    let strict = "[[pool]]\ncode = \"STRICT\"\nordering = \"strict\"\nmax_attempts = 1\n";
    let queue = format!("[[queue]]\nname = \"orders\"\nuri = {uri:?}\n{strict}");
    let file = stage.file("o.toml", config(&queue));
    let daemon = stage.serve_json(&["--config", file]).await;
    let one = |at: usize| {
        message(&format!("rr-{at}"), "g", &endpoint.url("/")).replace("\"TEST\"", "\"STRICT\"")
    };
    let body = format!("[{}]", (0..6).map(one).collect::<Vec<_>>().join(","));
    for _ in 0..1_000 {
        if daemon.ask("POST /api/v1/messages", &body, TOKEN).await.status == 202 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut listed = Vec::new();
    for _ in 0..2_000 {
        let answer = daemon.get_with("/api/v1/parked", TOKEN).await;
        let list: Value = serde_json::from_slice(&answer.body).expect("JSON");
        let items = list["items"].as_array().expect("a list").iter();
        listed = items.map(|item| item["messageId"].to_string()).collect();
        if listed.len() == 6 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let wanted: Vec<String> = (0..6).map(|at| format!("\"rr-{at}\"")).collect();
    assert_eq!(listed, wanted);
    assert_eq!(endpoint.count(), 1, "only the head was tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_from_rabbitmq_is_parked_head_first() {
    parks_the_head_first(Kind::RabbitMq, |url| format!("{url}?queue=q")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_from_nats_is_parked_head_first() {
    parks_the_head_first(Kind::Nats, |url| format!("{url}?stream=S&consumer=c&subject=s")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_from_postgres_is_parked_head_first() {
    parks_the_head_first(Kind::Postgres, |url| format!("{url}?queue=q")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_from_activemq_is_parked_head_first() {
    let address = |url: &str| format!("{}/q", url.replacen("stomp://", "activemq://", 1));
    parks_the_head_first(Kind::ActiveMq, address).await;
}
