//! Pools come and go throughout: nothing is lost, and groups stay in order.
//!
//! The file is changed and read again several times a second: pools are removed, come back and change
//! their size; at times there is only `DEFAULT-POOL`. What is checked is what was put in and what the
//! endpoint saw: every message; of a group one at a time, and never an earlier one after a later one.

use std::collections::HashMap;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluicegate_testkit::brokers::Kind;
use sluicegate_testkit::endpoint::{Answer, Asked, Endpoint};
use tokio::time::{Instant, sleep, timeout};

use super::ground::Ground;
use super::{arrived, drained, first_arrivals, messages};
use crate::stage::{Daemon, Stage};

const POOLS: usize = 4;
const GROUPS: usize = 200;
/// How many are published at once.
const LOT: usize = 200;
/// How long a file is in effect.
const BETWEEN: Duration = Duration::from_millis(150);

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_and_go_over_sqlite() {
    soak("sqlite:soak", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_and_go_over_postgresql() {
    soak_broker(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_and_go_over_rabbitmq() {
    soak_broker(Kind::RabbitMq).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_and_go_over_nats() {
    soak_broker(Kind::Nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_and_go_over_sqs() {
    soak_broker(Kind::Sqs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_and_go_over_activemq() {
    soak_broker(Kind::ActiveMq).await;
}

async fn soak_broker(kind: Kind) {
    let Some(ground) = Ground::start(kind).await else { return };
    soak(&ground.uri, &ground.variables).await;
}

async fn soak(uri: &str, variables: &[(&str, &str)]) {
    let count = messages(2_000);
    let stage = Stage::new();
    let file = stage.file("pools.toml", config(uri, 0));
    let endpoint = Endpoint::start_grouped(group_of).await;
    endpoint.then((0..count).map(|number| match number % 499 {
        13 => Answer::ok().body(r#"{"ack":false,"delaySeconds":1}"#),
        41 => Answer::status(503),
        other => Answer::ok().after(Duration::from_millis(other as u64 % 8)),
    }));
    let limit = Duration::from_secs(60) + Duration::from_millis(10) * count as u32;
    let begun = Instant::now();
    let daemon = stage.ready_with(&["--config", file], variables).await;
    let mut changes = 0;
    let run = async {
        let changing = async {
            loop {
                sleep(BETWEEN).await;
                changes += 1;
                change(&stage, &daemon, &config(uri, changes));
            }
        };
        let working = async {
            publish(&daemon, &endpoint.url("/"), count).await;
            arrived(&endpoint, count).await;
        };
        tokio::select! {
            () = changing => {}
            () = working => {}
        }
        // What a pool left behind when it went is still to be done.
        change(&stage, &daemon, &config(uri, 0));
        drained(&daemon).await;
    };
    let is_done = timeout(limit, run).await.is_ok();
    let (seen, calls) = (first_arrivals(&endpoint).len(), endpoint.count());
    println!("{seen} of {count}, {calls} calls, {changes} changes, {:?}", begun.elapsed());
    check(&endpoint);
    assert!(is_done && seen == count, "{seen} of {count} arrived within {limit:?}");
    let parked = daemon.get("/api/v1/parked").await;
    assert_eq!(&parked.body[..], br#"{"items":[],"next":null}"#);
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(changes >= 5, "only {changes} changes");
}

/// Puts a file in the place of the one before, whole: it may be read at any moment.
fn change(stage: &Stage, daemon: &Daemon, text: &str) {
    let new = stage.path(stage.file("pools.new", text));
    std::fs::rename(new, stage.path("pools.toml")).expect("both are in one folder");
    daemon.signal(Signal::SIGHUP);
}

/// The file of a step. Each step all pools but one or two are there, at other sizes; in every ninth there is none.
fn config(uri: &str, step: usize) -> String {
    let mut text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"pools.db\"\n\
         [[queue]]\nname = \"soak\"\nuri = \"{uri}\"\nmax_messages = 50\n\
         visibility_timeout = \"10s\"\n[http.breaker]\nscope = \"off\"\n"
    );
    let mut pool = |code: &str, concurrency: usize| {
        text += &format!(
            "[[pool]]\ncode = \"{code}\"\nconcurrency = {concurrency}\nordering = \"strict\"\n"
        );
    };
    pool("DEFAULT-POOL", 4 + step % 9);
    for number in 0..POOLS {
        let is_gone = step > 0
            && (step.is_multiple_of(9)
                || step % POOLS == number
                || (step / 3) % (2 * POOLS) == number);
        if !is_gone {
            pool(&format!("P{number}"), 4 + (step * 7 + number * 5) % 17);
        }
    }
    text
}

/// The message of a number: the groups take turns, and each has its pool.
fn message(number: usize, target: &str) -> Value {
    let (group, place) = (number % GROUPS, number / GROUPS);
    json!({
        "id": format!("{group}-{place}"), "poolCode": format!("P{}", group % POOLS),
        "messageGroupId": group.to_string(), "mediationTarget": target,
    })
}

async fn publish(daemon: &Daemon, target: &str, count: usize) {
    let numbers: Vec<usize> = (0..count).collect();
    for lot in numbers.chunks(LOT) {
        let lot: Vec<Value> = lot.iter().map(|&number| message(number, target)).collect();
        let answer = daemon.post("/api/v1/messages", &json!(lot)).await;
        assert_eq!(answer.status, 202, "{:?}", answer.body);
    }
}

/// The group that a call is of.
fn group_of(asked: &Asked) -> String {
    asked.message_id().split('-').next().unwrap_or_default().to_owned()
}

/// Of a group one at a time, and after each the same once more or the next.
fn check(endpoint: &Endpoint) {
    let mut next: HashMap<String, usize> = HashMap::new();
    for id in endpoint.asked().iter().map(Asked::message_id) {
        let (group, place) = id.split_once('-').expect("an id of ours");
        let place: usize = place.parse().expect("a place");
        let next = next.entry(group.to_owned()).or_default();
        assert!(
            place == *next || place + 1 == *next,
            "{id} was called when {next} was next in its group"
        );
        *next = (*next).max(place + 1);
    }
    for group in next.keys() {
        assert_eq!(endpoint.peak_of(group), 1, "group {group} ran beside itself");
    }
}
