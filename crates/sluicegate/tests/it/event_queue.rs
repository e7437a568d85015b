//! Append once, and it is delivered: events that are appended over HTTP reach an endpoint, in order by their key, over
//! daemons that are killed.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Asked, Endpoint};
use tokio::time::{sleep, timeout};

use crate::stage::{PATIENCE, Stage};

const LIVES: u64 = 8;
const EACH: u64 = 60;
const KEYS: u64 = 7;

fn config(target: &str) -> String {
    let target = target.replace(':', "%3A").replace('/', "%2F");
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[state]\npath = \"e.db\"\n[http.breaker]\nscope = \"off\"\n\
         [[queue]]\nname = \"paid\"\nuri = \"events:?key=order&types=Paid&pool=OUT&target={target}\"\n\
         [[pool]]\ncode = \"OUT\"\nconcurrency = 8\nordering = \"strict\"\n"
    )
}

/// Which order a call is about, and which of its payments.
fn payment(call: &Asked) -> (u64, u64) {
    let body = call.json();
    let (payload, number) = (&body["payload"], body["payload"]["data"]["number"].as_u64());
    assert_eq!(body["messageId"], json!(format!("paid:{}", payload["position"])), "{body}");
    assert_eq!((&payload["type"], payload["time"].is_string()), (&json!("Paid"), true), "{body}");
    let tag = payload["tags"][0].as_str().expect("a tag");
    (tag.strip_prefix("order:").expect("an order").parse().expect("a number"), number.expect("it"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_appended_is_delivered_in_order_over_daemons_that_are_killed() {
    let stage = Stage::new();
    let endpoint = Endpoint::start().await;
    let answers = (0..10_000).map(|n| match n % 23 {
        5 => Answer::ok().body(r#"{"ack":false,"delaySeconds":1}"#),
        n => Answer::ok().after(Duration::from_millis(n % 5)),
    });
    endpoint.then(answers);
    let file = stage.file("e.toml", config(&endpoint.url("/in")));
    for life in 0..LIVES {
        let daemon = stage.ready(&["--config", file]).await;
        for number in life * EACH..(life + 1) * EACH {
            let event = |event_type: &str| {
                let (order, number) = (number % KEYS, number / KEYS);
                json!({"type": event_type, "tags": [format!("order:{order}")], "data": {"number": number}})
            };
            let body = json!({"events": [event("Paid"), event("Unheard")]});
            assert_eq!(daemon.post("/api/v1/events", &body).await.status, 201);
        }
        sleep(Duration::from_millis(life * 37 % 150)).await;
        daemon.kill().await;
    }
    let daemon = stage.ready(&["--config", file]).await;
    let drained = async {
        loop {
            let queues: Value =
                serde_json::from_slice(&daemon.get("/api/v1/queues").await.body).expect("JSON");
            let queue = &queues["items"][0];
            if queue["depth"] == 0 && queue["inflight"] == 0 {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, drained).await.expect("it is drained in time");
    assert_eq!(daemon.terminated().await.0, Some(0));
    let mut next: HashMap<u64, u64> = HashMap::new();
    let calls = endpoint.asked();
    for (order, number) in calls.iter().map(payment) {
        let next = next.entry(order).or_default();
        // The next one, or the one before it once more.
        assert!(number == *next || number + 1 == *next, "{number} came when {next} was next");
        *next = (*next).max(number + 1);
    }
    assert_eq!(next.values().sum::<u64>(), LIVES * EACH);
    println!("{} calls for {} events over {LIVES} kills", calls.len(), LIVES * EACH);
}
