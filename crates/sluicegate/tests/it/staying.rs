//! What does not fit a full pool and its queue's window stays at the broker, where others can have it;
//! and a daemon that has ended hides nothing.
//!
//! Looked at from outside, by the broker's own client.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::{Instant, sleep, timeout};

use crate::outside::{OutsideQueue, VARIABLES};
use crate::stage::{PATIENCE, Stage};

const MESSAGES: usize = 700;
/// What the pool runs and what waits in it, and how much is read ahead of it.
const RUNNING: usize = 2;
const WAITING: usize = 50;
const WINDOW: usize = 50;
/// What a daemon may hold at most.
const MOST: usize = RUNNING + WAITING + WINDOW;
/// How much a broker sends ahead by default that hides what it has sent.
const AHEAD: usize = WINDOW + 500;
/// How soon after the end of a daemon nothing is hidden any more.
const SOON: Duration = Duration::from_secs(5);

fn config(uri: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"s.db\"\n\
         [[queue]]\nname = \"work\"\nuri = \"{uri}\"\nwindow = {WINDOW}\nmax_messages = 10\n\
         visibility_timeout = \"120s\"\n\
         [[pool]]\ncode = \"SLOW\"\nconcurrency = {RUNNING}\nungrouped = \"parallel\"\n"
    )
}

/// A queue that has all of the messages, and the endpoint that they are for.
async fn filled(broker: &Broker) -> (OutsideQueue, Endpoint) {
    let queue = OutsideQueue::make(broker, "work").await;
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::ok().after(Duration::from_millis(300)));
    let target = endpoint.url("/");
    let message = |number| json!({ "id": format!("m{number}"), "poolCode": "SLOW", "mediationTarget": target });
    let bodies: Vec<String> = (0..MESSAGES).map(|number| message(number).to_string()).collect();
    queue.publish(&bodies).await;
    (queue, endpoint)
}

async fn check(kind: Kind, parameter: Option<&str>, most: usize) {
    let Some(broker) = start_or_skip(kind) else { return };
    let (queue, endpoint) = filled(&broker).await;
    let uri = parameter.map_or(queue.uri.clone(), |parameter| queue.uri_with(parameter));
    let stage = Stage::new();
    let file = stage.file("s.toml", config(&uri));
    let daemon = stage.ready_with(&["--config", file], &VARIABLES).await;
    endpoint.wait_for(10).await;
    // Whatever is read ahead has been by now.
    sleep(Duration::from_secs(2)).await;
    let counts = queue.counts().await;
    let called = endpoint.count();
    println!("{counts:?} after {called} calls");
    assert!(counts.visible + called + most >= MESSAGES, "{counts:?} after {called} calls");
    assert!(counts.hidden.is_none_or(|hidden| (1..=most).contains(&hidden)), "{counts:?}");

    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    let ended = Instant::now();
    let called = endpoint.count();
    let mut available = queue.available().await;
    while available + called < MESSAGES && ended.elapsed() < SOON {
        available = queue.available().await;
    }
    println!("{available} available {:?} after the end, {called} calls", ended.elapsed());
    assert_eq!(available + called, MESSAGES, "{:?}", queue.counts().await);

    // All of them are there, and none twice.
    endpoint.otherwise(Answer::ok());
    let daemon = stage.ready_with(&["--config", file], &VARIABLES).await;
    let all = async {
        while endpoint.count() < MESSAGES {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(PATIENCE, all).await.is_ok(), "{} of {MESSAGES} came", endpoint.count());
    let (code, errors) = daemon.terminated().await;
    assert_eq!(code, Some(0), "{errors}");
    let mut seen: HashMap<String, usize> = HashMap::new();
    endpoint.asked().iter().for_each(|asked| *seen.entry(asked.message_id()).or_default() += 1);
    seen.retain(|_, times| *times > 1);
    assert_eq!((endpoint.count(), seen.len()), (MESSAGES, 0), "{seen:?}");
    assert_eq!(queue.available().await, 0);
}

/// What is hidden at this broker is what it sends ahead, `prefetch`.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_stays_at_rabbitmq() {
    check(Kind::RabbitMq, Some("prefetch=100"), MOST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rabbitmq_sends_ahead_follows_the_window() {
    check(Kind::RabbitMq, None, AHEAD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_stays_at_nats() {
    check(Kind::Nats, None, MOST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_stays_at_sqs() {
    check(Kind::Sqs, None, MOST).await;
}

/// What is hidden at this broker is what it sends ahead, `prefetch`.
#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_stays_at_activemq() {
    check(Kind::ActiveMq, Some("prefetch=100"), MOST).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_activemq_sends_ahead_follows_the_window() {
    check(Kind::ActiveMq, None, AHEAD).await;
}
