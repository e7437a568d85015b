//! The same load through every broker, while brokers are restarted and daemons are killed.
//!
//! Messages in many groups go through a pool in strict order. Meanwhile the daemon is killed twice and
//! the broker is restarted twice. Every message arrives; of each group the first arrivals are in
//! order; and at the end nothing is left in the queue, in flight or parked.
//!
//! `SLUICEGATE_SOAK=100000` makes it, and the other soaks, that many messages: under `cargo test`, since nextest ends what
//! takes six minutes.

mod equal;
mod ground;
mod pools;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate::dispatch::{Publication, Source};
use sluicegate::sources::wire;
use sluicegate_testkit::brokers::Kind;
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{Daemon, Stage};
use ground::Ground;

const GROUPS: usize = 1_000;
/// How many are published at once.
const LOT: usize = 500;
/// What happens when this part of a hundred has arrived.
const FAULTS: [(usize, Fault); 4] = [
    (15, Fault::DaemonKilled),
    (35, Fault::BrokerRestarted),
    (55, Fault::DaemonKilled),
    (75, Fault::BrokerRestarted),
];

#[derive(Clone, Copy, Debug)]
enum Fault {
    DaemonKilled,
    BrokerRestarted,
}

#[tokio::test(flavor = "multi_thread")]
async fn through_rabbitmq() {
    soak(Kind::RabbitMq).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_nats() {
    soak(Kind::Nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_sqs() {
    soak(Kind::Sqs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_activemq() {
    soak(Kind::ActiveMq).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_postgresql() {
    soak(Kind::Postgres).await;
}

async fn soak(kind: Kind) {
    let count = messages(20_000);
    let Some(mut ground) = Ground::start(kind).await else { return };
    let stage = Stage::new();
    let config = stage.file("soak.toml", config(&ground.uri));
    let endpoint = Endpoint::start().await;
    endpoint.then((0..count).map(|n| match n % 997 {
        13 => Answer::ok().body(r#"{"ack":false,"delaySeconds":1}"#),
        41 => Answer::status(503),
        _ => Answer::ok(),
    }));
    let limit = Duration::from_secs(60) + Duration::from_millis(10) * count as u32;
    let target = endpoint.url("/");
    let source = ground.source().await;
    let run = async {
        let mut daemon = stage.ready_with(&["--config", config], &ground.variables).await;
        let publishing = publish(&*source, count, &target);
        let disturbing = async {
            for (part, fault) in FAULTS {
                arrived(&endpoint, count * part / 100).await;
                println!("{:?}: {fault:?}", Instant::now());
                match fault {
                    Fault::DaemonKilled => {
                        daemon.kill().await;
                        let arguments = &["--config", config];
                        daemon = stage.ready_with(arguments, &ground.variables).await;
                    }
                    Fault::BrokerRestarted => ground.restart(),
                }
            }
            arrived(&endpoint, count).await;
            drained(&daemon).await;
            daemon
        };
        tokio::join!(publishing, disturbing).1
    };
    let Ok(daemon) = timeout(limit, run).await else {
        panic!("{} of {count} arrived within {limit:?}", first_arrivals(&endpoint).len())
    };
    check(&endpoint, count);
    let parked = daemon.get("/api/v1/parked").await;
    assert_eq!(&parked.body[..], br#"{"items":[],"next":null}"#);
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    println!("{} calls for {count} messages", endpoint.count());
}

/// How many messages a soak has.
fn messages(usual: usize) -> usize {
    std::env::var("SLUICEGATE_SOAK").map_or(usual, |number| number.parse().expect("a number"))
}

fn config(uri: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"soak.db\"\n\
         [[queue]]\nname = \"soak\"\nuri = \"{uri}\"\nmax_messages = 100\n\
         visibility_timeout = \"10s\"\nconnections = 2\n\
         [http.breaker]\nscope = \"off\"\n\
         [[pool]]\ncode = \"TEST\"\nconcurrency = 64\nordering = \"strict\"\n"
    )
}

/// The message of a number: the groups take turns.
fn publication(number: usize, target: &str) -> Publication {
    let (group, place) = (number % GROUPS, number / GROUPS);
    let body = json!({
        "id": format!("{group}-{place}"), "poolCode": "TEST",
        "messageGroupId": group.to_string(), "mediationTarget": target,
    });
    wire::publication(&body.to_string()).expect("a message")
}

/// Publishes all of them. What was not accepted, perhaps, is published again.
async fn publish(source: &dyn Source, count: usize, target: &str) {
    let numbers: Vec<usize> = (0..count).collect();
    for lot in numbers.chunks(LOT) {
        let mut last = String::new();
        let accepted = async {
            loop {
                let lot = lot.iter().map(|&number| publication(number, target)).collect();
                match source.publish(lot).await {
                    Ok(_) => return,
                    Err(error) => last = error.to_string(),
                }
                sleep(Duration::from_millis(100)).await;
            }
        };
        let accepted = timeout(Duration::from_secs(60), accepted).await;
        assert!(accepted.is_ok(), "not accepted within a minute: {last}");
    }
}

/// Waits until so many different messages have arrived.
async fn arrived(endpoint: &Endpoint, count: usize) {
    let mut calls = count;
    loop {
        while endpoint.count() < calls {
            sleep(Duration::from_millis(20)).await;
        }
        calls = endpoint.count();
        let missing = count.saturating_sub(first_arrivals(endpoint).len());
        if missing == 0 {
            return;
        }
        calls += missing;
    }
}

/// The ids in the order of their first arrival.
fn first_arrivals(endpoint: &Endpoint) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    let ids = endpoint.asked().into_iter().map(|asked| asked.message_id());
    ids.filter(|id| seen.insert(id.clone())).collect()
}

/// Waits until nothing is left to be delivered.
async fn drained(daemon: &Daemon) {
    loop {
        let queues: Value =
            serde_json::from_slice(&daemon.get("/api/v1/queues").await.body).expect("JSON");
        let queue = &queues["items"][0];
        if queue["depth"] == 0 && queue["inflight"] == 0 {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// All have arrived, and those of a group for the first time in order.
fn check(endpoint: &Endpoint, count: usize) {
    let mut next: HashMap<usize, usize> = HashMap::new();
    for id in first_arrivals(endpoint) {
        let (group, place) = id.split_once('-').expect("an id of ours");
        let (group, place): (usize, usize) =
            (group.parse().expect("a group"), place.parse().expect("a place"));
        let wanted = next.entry(group).or_default();
        assert_eq!(place, *wanted, "{id} arrived when {wanted} was next in its group");
        *wanted += 1;
    }
    assert_eq!(next.values().sum::<usize>(), count);
}
