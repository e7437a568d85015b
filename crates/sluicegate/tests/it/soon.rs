//! What can run starts soon, however much waits before it.
//!
//! A daemon as a user would run it has a long backlog. A message for somebody else is put in, and from
//! then to the start of its call no more than the promised time may pass. The same message goes to a
//! daemon with nothing to do at the same moment: what that one needs, on a busy machine, is not counted.
//! Who misses it is looked at once more, from the beginning: a machine may be busy for a moment, and SQS is
//! emulated by a program that needs a second to hand out a thousand messages.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::brokers::{Kind, start_or_skip};
use sluicegate_testkit::endpoint::{Answer, Endpoint};
use tokio::time::{Instant, sleep, timeout};

use crate::outside::{OutsideQueue, VARIABLES};
use crate::stage::{Daemon, PATIENCE, Stage};

/// What a call takes.
const CALL: Duration = Duration::from_millis(100);
/// How many messages wait of the tenant that has many, and for the pool that has.
const OF_A_TENANT: usize = 2_000;
const FOR_A_POOL: usize = 1_200;
/// What is more than the usual window, and a window for it.
const MANY_FOR_A_POOL: usize = 3_000;
const WIDE: &str = "window = 4000";
/// The promises.
const FROM_A_TABLE: Duration = Duration::from_secs(1);
const FROM_A_BROKER: Duration = Duration::from_secs(2);
/// How often it is looked.
const PROBES: usize = 3;

/// A daemon on a queue, and how messages get there.
struct Line {
    stage: Stage,
    daemon: Daemon,
    queue: Option<OutsideQueue>,
}

impl Line {
    async fn start(uri: &str, queue: Option<OutsideQueue>) -> Self {
        Self::start_with(uri, "", queue).await
    }

    /// With a line of settings for the queue.
    async fn start_with(uri: &str, line: &str, queue: Option<OutsideQueue>) -> Self {
        let stage = Stage::new();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"s.db\"\n\
             [[queue]]\nname = \"work\"\nuri = \"{uri}\"\n{line}\n\
             [[pool]]\ncode = \"BUSY\"\nconcurrency = 4\nungrouped = \"parallel\"\n\
             [[pool]]\ncode = \"IDLE\"\nconcurrency = 4\n"
        );
        let config = stage.file("s.toml", config);
        let daemon = stage.ready_with(&["--config", config], &VARIABLES).await;
        Self { stage, daemon, queue }
    }

    /// Publishes as users of this source do: by its own client, or else by the daemon.
    async fn publish(&self, messages: &[Value]) {
        if let Some(queue) = &self.queue {
            let bodies: Vec<String> = messages.iter().map(Value::to_string).collect();
            return queue.publish(&bodies).await;
        }
        let answer = self.daemon.post("/api/v1/messages", &json!(messages)).await;
        assert_eq!(answer.status, 202, "{:?}", answer.body);
    }

    /// Puts a message in: how long it takes until it is called.
    async fn probe(&self, endpoint: &Endpoint, path: &str, mut message: Value) -> Duration {
        message["id"] = path.into();
        message["mediationTarget"] = endpoint.url(path).into();
        let begun = Instant::now();
        self.publish(&[message]).await;
        let called = async {
            loop {
                match endpoint.first_of(path) {
                    Some(at) => return at - begun,
                    None => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(PATIENCE, called).await.unwrap_or(PATIENCE)
    }
}

/// Both daemons of a test; the second has nothing to do.
struct Scene {
    endpoint: Endpoint,
    busy: Line,
    free: Line,
}

impl Scene {
    /// So many messages wait, and some of them run.
    async fn with_backlog(busy: Line, free: Line, count: usize) -> Self {
        let endpoint = Endpoint::start().await;
        endpoint.otherwise(Answer::ok().after(CALL));
        let target = endpoint.url("/backlog");
        let message = |number| {
            json!({
                "id": format!("b{number}"), "poolCode": "BUSY", "tenant": "large",
                "mediationTarget": target,
            })
        };
        let messages: Vec<Value> = (0..count).map(message).collect();
        busy.publish(&messages).await;
        endpoint.wait_for(4).await;
        Self { endpoint, busy, free }
    }

    /// Whether a message starts within the promised time, while the backlog is still there.
    async fn check(self, promised: Duration, message: &Value, backlog: usize) -> Missed {
        let Self { endpoint, busy, free } = self;
        for number in 0..PROBES {
            let [path, beside] = ["busy", "free"].map(|which| format!("/{which}-{number}"));
            let (took, free_took) = tokio::join!(
                busy.probe(&endpoint, &path, message.clone()),
                free.probe(&endpoint, &beside, message.clone()),
            );
            println!("{took:?}, and {free_took:?} where nothing waits");
            if took > promised + free_took {
                return Err(format!("{took:?} beside {free_took:?}, {promised:?} is promised"));
            }
        }
        let done = endpoint.count();
        assert!(done < backlog / 2, "{done} calls: there was no backlog by then");
        for line in [busy, free] {
            line.daemon.kill().await;
            drop(line.stage);
        }
        Ok(())
    }
}

/// What was seen, if it was not what is promised.
type Missed = Result<(), String>;

/// Holds at the second look at the latest. Each look has a number.
async fn holds(look: impl AsyncFn(usize) -> Missed) {
    let Err(first) = look(1).await else { return };
    let Err(second) = look(2).await else { return };
    panic!("{first}; and then {second}");
}

/// Another tenant's message, and one for another pool.
fn for_the_same_pool() -> Value {
    json!({ "poolCode": "BUSY", "tenant": "small" })
}

fn for_another_pool() -> Value {
    json!({ "poolCode": "IDLE", "tenant": "large" })
}

async fn from_sqlite(count: usize, message: &Value) {
    holds(async |_| {
        let busy = Line::start("sqlite:work", None).await;
        let free = Line::start("sqlite:work", None).await;
        let scene = Scene::with_backlog(busy, free, count).await;
        scene.check(FROM_A_TABLE, message, count).await
    })
    .await;
}

async fn from_postgresql(count: usize, message: &Value) {
    let Some(broker) = start_or_skip(Kind::Postgres) else { return };
    holds(async |look| {
        let uri = |queue| format!("{}?queue={queue}{look}", broker.url());
        let busy = Line::start(&uri("busy"), None).await;
        let free = Line::start(&uri("free"), None).await;
        let scene = Scene::with_backlog(busy, free, count).await;
        scene.check(FROM_A_TABLE, message, count).await
    })
    .await;
}

async fn from_a_broker(kind: Kind, count: usize) {
    from_a_broker_with(kind, "", count).await;
}

async fn from_a_broker_with(kind: Kind, line: &str, count: usize) {
    let Some(broker) = start_or_skip(kind) else { return };
    holds(async |look| {
        let busy = OutsideQueue::make(&broker, &format!("busy{look}")).await;
        let free = OutsideQueue::make(&broker, &format!("free{look}")).await;
        let (busy_uri, free_uri) = (busy.uri.clone(), free.uri.clone());
        let busy = Line::start_with(&busy_uri, line, Some(busy)).await;
        let free = Line::start_with(&free_uri, line, Some(free)).await;
        let scene = Scene::with_backlog(busy, free, count).await;
        scene.check(FROM_A_BROKER, &for_another_pool(), count).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_behind_the_backlog_of_another_from_sqlite() {
    from_sqlite(OF_A_TENANT, &for_the_same_pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_behind_the_backlog_of_another_from_postgresql() {
    from_postgresql(OF_A_TENANT, &for_the_same_pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_behind_the_backlog_of_another_from_sqlite() {
    from_sqlite(FOR_A_POOL, &for_another_pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_behind_the_backlog_of_another_from_postgresql() {
    from_postgresql(FOR_A_POOL, &for_another_pool()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_behind_the_backlog_of_another_from_rabbitmq() {
    from_a_broker(Kind::RabbitMq, FOR_A_POOL).await;
}

/// What the broker sends ahead follows the window.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_behind_a_wide_window_of_another_from_rabbitmq() {
    from_a_broker_with(Kind::RabbitMq, WIDE, MANY_FOR_A_POOL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_behind_the_backlog_of_another_from_nats() {
    from_a_broker(Kind::Nats, FOR_A_POOL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_behind_the_backlog_of_another_from_sqs() {
    from_a_broker(Kind::Sqs, FOR_A_POOL).await;
}

/// By its defaults this broker sends some 800 ahead, whatever is asked for: that is its window.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_behind_the_backlog_of_another_from_activemq() {
    from_a_broker(Kind::ActiveMq, 700).await;
}
