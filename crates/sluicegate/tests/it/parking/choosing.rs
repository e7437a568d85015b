//! Parked messages are chosen by what they have in common, looked at before they go, and let go slowly.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::scene::{On, Scene, ask};
use crate::stage::Daemon;

/// One parked message for each of these groups at each of two hosts: `a1 a2 … b1 b2 …`; and something that is no
/// message.
async fn several(scene: &Scene, other: &Endpoint) -> Daemon {
    let daemon = scene.serve().await;
    scene.endpoint.otherwise(Answer::status(404).body("no such order"));
    other.otherwise(Answer::ok().body(r#"{"ack":false}"#));
    let mut published = 0;
    for (host, target) in [("a", scene.endpoint.url("/")), ("b", other.url("/"))] {
        for group in ["1", "2"] {
            let message = json!({
                "id": format!("{host}{group}"), "poolCode": "TEST", "messageGroupId": group,
                "mediationTarget": target,
            });
            scene.post(&daemon, "/api/v1/messages?queue=orders", &message, 202).await;
            published += 1;
            while scene.parked(&daemon).await.len() < published {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_replays_are_filtered() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let other = Endpoint::start().await;
    let daemon = several(&scene, &other).await;
    let (host, port) = (other.address().to_string(), other.address().ip().to_string());
    let cases: [(&[&str], &[&str]); 9] = [
        (&["--code", "rejected"], &["a1", "a2"]),
        (&["--code", "exhausted"], &["b1", "b2"]),
        (&["--host", &host], &["b1", "b2"]),
        (&["--host", &port], &["a1", "a2", "b1", "b2"]),
        (&["--group", "2"], &["a2", "b2"]),
        (&["--group", "2", "--code", "exhausted"], &["b2"]),
        (&["--after", "1h", "--queue", "orders"], &["a1", "a2", "b1", "b2"]),
        (&["--before", "1h"], &[]),
        (&["--after", "2126-01-01T00:00:00Z"], &[]),
    ];
    for (filters, expected) in cases {
        let said = scene.run(&daemon, &[&["parked", "--json"], filters].concat());
        said.check(0, &[]);
        let list: Value = serde_json::from_str(&said.stdout).expect("JSON");
        let items = list["items"].as_array().expect("a list");
        let ids: Vec<&str> = items.iter().filter_map(|item| item["messageId"].as_str()).collect();
        assert_eq!(ids, expected, "{filters:?}");
        let planned = scene.run(&daemon, &[&["replay", "--dry-run"], filters].concat());
        planned.check(0, &[&format!("would replay {}", expected.len())]);
    }
    assert_eq!(scene.parked(&daemon).await.len(), 4, "nothing has changed");
    assert_eq!((scene.endpoint.count(), other.count()), (2, 2));
    let bad: [(&[&str], &str); 4] = [
        (&["--code", "gone"], "code must be one of malformed, rejected, exhausted, key_parked"),
        (&["--after", "yesterday"], "after must be a time"),
        (&["--pool", "TSET"], "did you mean `TEST`?"),
        (&["--queue", "odrers"], "did you mean `orders`?"),
    ];
    for (filters, words) in bad {
        scene.run(&daemon, &[&["parked"], filters].concat()).check(2, &[words]);
        scene.run(&daemon, &[&["replay"], filters].concat()).check(2, &[words]);
    }
    other.otherwise(Answer::ok());
    scene.run(&daemon, &["replay", "--host", &host]).check(0, &["replayed 2"]);
    other.wait_for(4).await;
    scene.is_parked(&daemon, &["a1", "a2"]).await;
    let query = "/api/v1/parked/replay?group=1&code=rejected";
    scene.endpoint.otherwise(Answer::ok());
    let replayed = scene.post(&daemon, query, &json!({}), 200).await;
    assert_eq!(replayed["replayed"], 1, "{replayed}");
    scene.is_parked(&daemon, &["a2"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_nothing_says_why_of_each() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    let ids: Vec<String> = (1..=9).map(|n| format!("m{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    scene.park(&daemon, &ids).await;
    let said = scene.run(&daemon, &["replay", "--code", "key_parked"]);
    said.check(1, &["replayed 0", "left 8", "behind_earlier: 2 would overtake 1", "and 3 more"]);
    assert_eq!(said.stderr.matches("would overtake").count(), 6, "{}", said.stderr);
    let planned = scene.run(&daemon, &["replay", "--code", "key_parked", "--dry-run"]);
    planned.check(1, &["would replay 0", "left 8", "would overtake"]);
    let planned = scene.run(&daemon, &["replay", "1", "2", "--dry-run"]);
    planned.check(0, &["would replay 2: 1 2"]);
    scene.run(&daemon, &["replay", "2", "--dry-run"]).check(1, &["behind_earlier"]);
    let whole = scene.run(&daemon, &["replay", "--all", "--dry-run", "--json"]);
    whole.check(0, &["\"wouldReplay\":9"]);
    scene.is_parked(&daemon, &ids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_keeps_to_its_rate() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    let ids: Vec<String> = (1..=12).map(|n| format!("m{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    scene.park(&daemon, &ids).await;
    let begun = Instant::now();
    scene.run(&daemon, &["replay", "--all", "--rate", "5"]).check(0, &["replayed 12"]);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1_500), "12 at 5 a second took {took:?}");
    scene.endpoint.wait_for(13).await;
    assert_eq!(scene.called()[1..], ids);
}

/// A server that ends in between leaves nobody in the dark about what was replayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_is_cut_off_says_how_many_went() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    let ids: Vec<String> = (1..=40).map(|n| format!("m{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    scene.park(&daemon, &ids).await;
    // One request replays for two seconds.
    let arguments = ["replay", "--all", "--rate", "10", "--server", &daemon.url];
    let mut replay = scene.stage.launch(&arguments);
    while scene.parked(&daemon).await.len() > 36 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    daemon.terminated().await;
    let line = replay.line().await;
    let count = line.trim_start_matches("replayed ").trim_start_matches("at least ");
    let count: String = count.chars().take_while(char::is_ascii_digit).collect();
    let count: usize = count.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(line != format!("replayed {count}"), "it says that it was cut off: {line}");
    let daemon = scene.serve().await;
    let left = scene.parked(&daemon).await.len();
    assert!(count >= 4 && count <= 40 - left, "{line}, and {left} are left");
}

/// What fails again is parked again, behind all that was parked before.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_of_what_fails_again_goes_over_each_once() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.endpoint.otherwise(Answer::status(404));
    let ids: Vec<String> = (1..=5).map(|n| format!("m{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    scene.publish(&daemon, &ids).await;
    scene.is_parked(&daemon, &ids).await;
    scene.run(&daemon, &["replay", "--all", "--rate", "2"]).check(0, &["replayed 5"]);
    scene.is_parked(&daemon, &ids).await;
    scene.run(&daemon, &["replay", "--code", "rejected"]).check(0, &["replayed 5"]);
    scene.is_parked(&daemon, &ids).await;
    assert_eq!(scene.called().len(), 15);
}

/// What came from a queue that is not configured any more can be seen and discarded.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_queue_leaves_its_parked_messages() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2"]).await;
    daemon.terminated().await;
    scene.configure("[[queue]]\nname = \"others\"\nuri = \"sqlite:others\"\n");
    let daemon = scene.serve().await;
    scene.is_parked(&daemon, &["m1", "m2"]).await;
    let problem = scene.post(&daemon, "/api/v1/parked/1/replay", &json!({}), 409).await;
    assert_eq!((&problem["code"], &problem["queue"]), (&json!("no_queue"), &json!("orders")));
    let detail = problem["detail"].as_str().expect("words");
    assert!(detail.contains("add a queue of that name again"), "{detail}");
    let said = scene.run(&daemon, &["replay", "--all"]);
    said.check(1, &["no_queue: 1 came from the queue orders", "or discard it"]);
    scene.run(&daemon, &["parked", "--queue", "orders"]).check(0, &["m1", "m2"]);
    scene.run(&daemon, &["discard", "1"]).check(0, &["discarded 1"]);
    scene.is_parked(&daemon, &["m2"]).await;
    daemon.terminated().await;
    scene.configure(&scene.queue());
    let daemon = scene.serve().await;
    scene.run(&daemon, &["replay", "--all"]).check(0, &["replayed 1"]);
    scene.endpoint.wait_for(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_message_says_everything_of_itself() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2"]).await;
    let fetched = ask(&daemon, Method::GET, "/api/v1/messages/m2", None).await;
    let message: Value = serde_json::from_slice(&fetched.body).expect("JSON");
    assert_eq!(message["state"], "parked");
    let parked = &message["parked"];
    assert_eq!((&parked["code"], &parked["place"]), (&json!("key_parked"), &json!(2)));
    assert_eq!((&parked["status"], &parked["attempts"]), (&Value::Null, &json!(0)));
    assert!(parked["parkedAt"].is_string() && parked["reason"].is_string(), "{parked}");
    let places: Vec<Value> =
        scene.parked(&daemon).await.iter().map(|item| item["place"].clone()).collect();
    assert_eq!(places, [1, 2]);
    let words =
        ["m2 is parked in pool TEST: key_parked: ", "number 2 of its group's parked messages"];
    scene.run(&daemon, &["why", "m2"]).check(0, &words);
    scene
        .run(&daemon, &["why", "m1"])
        .check(0, &["m1 is parked in pool TEST: exhausted (HTTP 200): 1 of 1 attempts"]);
    scene.run(&daemon, &["why", "m77"]).check(1, &["unknown_message"]);
}
