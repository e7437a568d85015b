//! A daemon with one strict pool, on a queue of some kind, and what is asked of it.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use sluicegate::server::fetch::{Ask, Fetch, Fetched};
use sluicegate_testkit::brokers::{Broker, Kind, start_or_skip};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::sleep;

use crate::stage::{Daemon, Ended, PATIENCE, Stage};

/// The kinds of queues that every promise is tried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// The embedded queue, under another name than in its file.
    Embedded,
    /// A broker's queue.
    Broker(Kind),
}

/// A daemon, its queue `orders`, and its endpoint.
pub(super) struct Scene {
    pub(super) stage: Stage,
    pub(super) endpoint: Endpoint,
    broker: Option<Broker>,
}

impl Scene {
    /// Nothing where the broker is not installed.
    pub(super) async fn new(on: On) -> Option<Self> {
        let broker = match on {
            On::Embedded => None,
            On::Broker(kind) => Some(start_or_skip(kind)?),
        };
        let scene = Self { stage: Stage::new(), endpoint: Endpoint::start().await, broker };
        scene.configure(&scene.queue());
        Some(scene)
    }

    /// The table of the queue in the configuration.
    pub(super) fn queue(&self) -> String {
        let uri = match &self.broker {
            None => "sqlite:in-the-file".to_owned(),
            Some(broker) => {
                let url = broker.url().trim_end_matches('/');
                match broker.kind() {
                    Kind::Nats => format!("{url}?stream=ORDERS&consumer=router&subject=orders"),
                    _ => format!("{url}?queue=orders"),
                }
            }
        };
        format!("[[queue]]\nname = \"orders\"\nuri = \"{uri}\"\nvisibility_timeout = \"5s\"\n")
    }

    /// Writes the configuration, with these queues.
    pub(super) fn configure(&self, queues: &str) {
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"p.db\"\n{queues}\
             [[pool]]\ncode = \"TEST\"\nconcurrency = 4\nordering = \"strict\"\nmax_attempts = 1\n"
        );
        self.stage.file("p.toml", text);
    }

    pub(super) async fn serve(&self) -> Daemon {
        self.stage.ready(&["--config", "p.toml"]).await
    }

    /// Messages of the group `g`, in this order.
    pub(super) async fn publish(&self, daemon: &Daemon, ids: &[&str]) {
        let messages: Vec<Value> = ids.iter().map(|id| self.message(id)).collect();
        self.post(daemon, "/api/v1/messages?queue=orders", &json!(messages), 202).await;
    }

    pub(super) fn message(&self, id: &str) -> Value {
        json!({
            "id": id, "poolCode": "TEST", "messageGroupId": "g", "authToken": "hush-hush",
            "mediationTarget": self.endpoint.url("/"), "payload": {"of": id},
        })
    }

    pub(super) async fn post(
        &self,
        daemon: &Daemon,
        path: &str,
        body: &Value,
        status: u16,
    ) -> Value {
        let fetched = ask(daemon, Method::POST, path, Some(body.to_string())).await;
        assert_eq!(fetched.status.as_u16(), status, "{path}: {:?}", fetched.body);
        serde_json::from_slice(&fetched.body).expect("JSON")
    }

    /// The parked list.
    pub(super) async fn parked(&self, daemon: &Daemon) -> Vec<Value> {
        let fetched = daemon.get("/api/v1/parked?limit=1000").await;
        let list: Value = serde_json::from_slice(&fetched.body).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    }

    /// The ids of the parked messages, in order.
    pub(super) async fn parked_ids(&self, daemon: &Daemon) -> Vec<String> {
        let id = |item: &Value| item["messageId"].as_str().unwrap_or("-").to_owned();
        self.parked(daemon).await.iter().map(id).collect()
    }

    /// Waits until these are parked, in this order, and nothing else.
    pub(super) async fn is_parked(&self, daemon: &Daemon, ids: &[&str]) {
        let mut parked = Vec::new();
        for _ in 0..300 {
            parked = self.parked_ids(daemon).await;
            if parked == ids {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{parked:?} are parked, not {ids:?}; called were {:?}", self.called());
    }

    /// A key that is parked as a whole: its first message failed, the others came after it.
    pub(super) async fn park(&self, daemon: &Daemon, ids: &[&str]) {
        self.endpoint.then([Answer::ok().body(r#"{"ack":false}"#)]);
        self.publish(daemon, ids).await;
        self.is_parked(daemon, ids).await;
    }

    /// The messages that were called, in order.
    pub(super) fn called(&self) -> Vec<String> {
        self.endpoint.asked().iter().map(|asked| asked.message_id()).collect()
    }

    /// Waits for so many calls, and checks that nothing more comes for a while.
    pub(super) async fn calls(&self, expected: &[&str]) {
        for _ in 0..600 {
            if self.called().len() >= expected.len() {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        sleep(Duration::from_millis(300)).await;
        assert_eq!(self.called(), expected);
    }

    /// A command of a person.
    pub(super) fn run(&self, daemon: &Daemon, arguments: &[&str]) -> Ended {
        self.stage.run(&[arguments, &["--server", &daemon.url]].concat())
    }
}

pub(super) async fn ask(
    daemon: &Daemon,
    method: Method,
    path: &str,
    body: Option<String>,
) -> Fetched {
    let body = body.map(Into::into);
    let ask = Ask { method, token: None, body, timeout: PATIENCE, most_bytes: 1 << 24 };
    Fetch::new().ask(&format!("{}{path}", daemon.url), ask).await.expect("it answers")
}
