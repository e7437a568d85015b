//! Killed at any moment, a daemon loses nothing and reorders nothing.
//!
//! Fifty times a daemon is killed under load. What it said that it accepted arrives; of each group the
//! messages arrive in order; and none comes again once a later one of its group has come.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use sluicegate::server::fetch::{Ask, Fetch};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{Daemon, PATIENCE, Stage};

const ROUNDS: u32 = 50;
const GROUPS: usize = 12;

const CONFIG: &str = "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"k.db\"\n\
    [[queue]]\nname = \"default\"\nuri = \"sqlite:default\"\nmax_messages = 50\n\
    [http.breaker]\nscope = \"off\"\n\
    [[pool]]\ncode = \"TEST\"\nconcurrency = 8\nordering = \"strict\"\n";

/// A group's publisher.
struct Publisher {
    group: usize,
    /// How many of its messages were accepted. Those whose answer was lost are sent again: their ids
    /// are remembered.
    accepted: u32,
    /// How many may have been.
    sent: u32,
    dice: Dice,
}

/// The same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_fifty_times_it_loses_and_reorders_nothing() {
    let stage = Stage::new();
    let config = stage.file("k.toml", CONFIG);
    let endpoint = Endpoint::start().await;
    // Calls take a while, so that the daemon dies in the middle of some; a few fail.
    let answers = (0..20_000).map(|n| match n % 97 {
        13 => Answer::ok().body(r#"{"ack":false,"delaySeconds":1}"#),
        41 => Answer::status(503),
        n => Answer::ok().after(Duration::from_millis(n % 7)),
    });
    endpoint.then(answers);
    let target = endpoint.url("/");
    let publisher = |group| Publisher { group, accepted: 0, sent: 0, dice: Dice(group as u64) };
    let mut publishers: Vec<Publisher> = (0..GROUPS).map(publisher).collect();
    let fetch = Fetch::new();
    let mut dice = Dice(0x5eed);
    for _ in 0..ROUNDS {
        let daemon = stage.ready(&["--config", config]).await;
        let life = Duration::from_millis(20 + dice.roll(281));
        let url = format!("{}/api/v1/messages", daemon.url);
        let end = Instant::now() + life;
        let published =
            join_all(publishers.iter_mut().map(|one| one.publish(&fetch, &url, &target, end)));
        // Everybody publishes until after the kill: it comes in the middle of their requests.
        let killed = async {
            tokio::time::sleep_until(end).await;
            daemon.kill().await;
        };
        tokio::join!(published, killed);
    }
    let total: u32 = publishers.iter().map(|publisher| publisher.accepted).sum();
    let daemon = stage.ready(&["--config", config]).await;
    drained(&daemon).await;
    let parked = String::from_utf8(daemon.get("/api/v1/parked").await.body.to_vec());
    assert_eq!(parked.expect("text"), r#"{"items":[],"next":null}"#);
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    let delivered: Vec<String> = endpoint.asked().iter().map(|asked| asked.message_id()).collect();
    println!("{total} accepted, {} calls", delivered.len());
    assert!(total > 10 * ROUNDS, "there was no load: {total}");
    check(&delivered, &publishers);
}

impl Publisher {
    /// Publishes one message after the other, until the daemon is gone.
    async fn publish(&mut self, fetch: &Fetch, url: &str, target: &str, end: Instant) {
        loop {
            let some = self.accepted..self.accepted + 1 + self.dice.roll(8) as u32;
            self.sent = self.sent.max(some.end);
            let body = serde_json::Value::from_iter(some.clone().map(|number| {
                serde_json::json!({
                    "id": format!("{}-{number}", self.group), "poolCode": "TEST",
                    "messageGroupId": self.group.to_string(), "mediationTarget": target,
                })
            }));
            let ask = Ask {
                method: Method::POST,
                token: None,
                body: Some(body.to_string().into()),
                timeout: PATIENCE,
                most_bytes: 1 << 16,
            };
            match fetch.ask(url, ask).await {
                Ok(answer) => {
                    assert_eq!(answer.status, 202, "{:?}", answer.body);
                    self.accepted = some.end;
                }
                Err(error) => {
                    assert!(Instant::now() >= end, "it went away by itself: {error}");
                    return;
                }
            }
        }
    }
}

/// Waits until nothing is left to be delivered.
async fn drained(daemon: &Daemon) {
    let empty = async {
        loop {
            let queues = daemon.get("/api/v1/queues").await;
            let queues: serde_json::Value = serde_json::from_slice(&queues.body).expect("JSON");
            let queue = &queues["items"][0];
            if queue["depth"] == 0 && queue["inflight"] == 0 {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, empty).await.expect("it is drained in time");
}

/// Checks what was delivered, in the order in which the calls came.
fn check(delivered: &[String], publishers: &[Publisher]) {
    let mut latest: HashMap<usize, u32> = HashMap::new();
    for (call, id) in delivered.iter().enumerate() {
        let (group, number) = id.split_once('-').expect("an id of ours");
        let group: usize = group.parse().expect("a group of ours");
        let number: u32 = number.parse().expect("a number of ours");
        let next = latest.get(&group).map_or(0, |latest| latest + 1);
        // The next one, or the one before it once more.
        assert!(
            number == next || number + 1 == next,
            "call {call}: {id} came when {next} was next in its group"
        );
        latest.insert(group, number.max(next.saturating_sub(1)));
    }
    for Publisher { group, accepted, sent, .. } in publishers {
        let arrived = latest.get(group).map_or(0, |latest| latest + 1);
        // Some may have been accepted without the publisher hearing of it.
        assert!(
            (*accepted..=*sent).contains(&arrived),
            "group {group}: {accepted} were accepted, {sent} were sent, {arrived} arrived"
        );
    }
}
