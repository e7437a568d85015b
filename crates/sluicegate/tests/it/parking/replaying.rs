//! Replay reaches every source by the queue's name, and nothing overtakes a key that is replayed.
//! docs/rules.md#strict-4, docs/rules.md#park-2

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use sluicegate::sources::sqlite::Store;
use sluicegate_testkit::brokers::Kind;
use sluicegate_testkit::endpoint::Answer;
use tokio::time::sleep;

use super::scene::{On, Scene};

/// All of a key goes back, in its order and with its tokens, and then the key is free.
async fn a_key_is_replayed_in_its_order(on: On) {
    let Some(scene) = Scene::new(on).await else { return };
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2", "m3"]).await;
    scene.calls(&["m1"]).await;
    let answer = scene.post(&daemon, "/api/v1/parked/replay", &json!({"all": true}), 200).await;
    assert_eq!((&answer["replayed"], &answer["left"]), (&json!(3), &json!(0)), "{answer}");
    scene.calls(&["m1", "m1", "m2", "m3"]).await;
    for asked in scene.endpoint.asked() {
        assert_eq!(asked.header("authorization"), Some("Bearer hush-hush"));
        assert_eq!(asked.json()["payload"]["of"], asked.message_id());
    }
    scene.publish(&daemon, &["m4"]).await;
    scene.calls(&["m1", "m1", "m2", "m3", "m4"]).await;
    scene.is_parked(&daemon, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_the_embedded_queue_is_replayed_in_its_order() {
    a_key_is_replayed_in_its_order(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_rabbitmq_is_replayed_in_its_order() {
    a_key_is_replayed_in_its_order(On::Broker(Kind::RabbitMq)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_nats_is_replayed_in_its_order() {
    a_key_is_replayed_in_its_order(On::Broker(Kind::Nats)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_postgres_is_replayed_in_its_order() {
    a_key_is_replayed_in_its_order(On::Broker(Kind::Postgres)).await;
}

/// A message that was replayed and waits for its pool is found by its id, with what it waits for.
async fn a_replayed_message_that_waits_is_found(on: On) {
    let Some(scene) = Scene::new(on).await else { return };
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1"]).await;
    scene.endpoint.otherwise(Answer::hang());
    let others: Vec<Value> = (0..120)
        .map(|number| {
            let mut message = scene.message(&format!("other-{number}"));
            message["messageGroupId"] = format!("other-{number}").into();
            message
        })
        .collect();
    scene.post(&daemon, "/api/v1/messages?queue=orders", &json!(others), 202).await;
    scene.endpoint.wait_for(5).await;
    sleep(Duration::from_secs(1)).await;
    let answer = scene.post(&daemon, "/api/v1/parked/replay", &json!({"all": true}), 200).await;
    assert_eq!(answer["replayed"], 1, "{answer}");
    let said = scene.run(&daemon, &["why", "m1"]);
    said.check(0, &["m1 waits in pool TEST: pool TEST at 4 of 4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_message_that_waits_in_the_embedded_queue_is_found() {
    a_replayed_message_that_waits_is_found(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_message_that_waits_in_postgres_is_found() {
    a_replayed_message_that_waits_is_found(On::Broker(Kind::Postgres)).await;
}

/// What arrives while a key is replayed comes after it, by itself, and the key is free again.
async fn what_arrives_meanwhile_comes_after(on: On) {
    let Some(scene) = Scene::new(on).await else { return };
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2"]).await;
    scene.endpoint.otherwise(Answer::ok().after(Duration::from_millis(700)));
    let answer = scene.post(&daemon, "/api/v1/parked/replay", &json!({"all": true}), 200).await;
    assert_eq!(answer["replayed"], 2, "{answer}");
    scene.publish(&daemon, &["m3"]).await;
    sleep(Duration::from_millis(400)).await;
    scene.publish(&daemon, &["m4"]).await;
    scene.endpoint.wait_for(3).await;
    // What a broker hands out while m2 is on its way is parked for a moment.
    let said = scene.run(&daemon, &["why", "m3"]);
    let is_parked = said.stdout.contains("m3 is parked");
    assert_eq!(said.stdout.contains("it goes back to its queue by itself"), is_parked, "{said:?}");
    assert!(!said.stdout.contains("sluicegate replay"), "{said:?}");
    scene.publish(&daemon, &["m5"]).await;
    scene.calls(&["m1", "m1", "m2", "m3", "m4", "m5"]).await;
    scene.is_parked(&daemon, &[]).await;
    scene.publish(&daemon, &["m6"]).await;
    scene.endpoint.wait_for(7).await;
    assert_eq!(scene.endpoint.peak(), 1, "one of a key at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_in_the_embedded_queue_meanwhile_comes_after() {
    what_arrives_meanwhile_comes_after(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_in_rabbitmq_meanwhile_comes_after() {
    what_arrives_meanwhile_comes_after(On::Broker(Kind::RabbitMq)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_in_nats_meanwhile_comes_after() {
    what_arrives_meanwhile_comes_after(On::Broker(Kind::Nats)).await;
}

/// A message that waits in the file stays behind those of its key that are replayed.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_queue_gives_a_replayed_message_its_old_place() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.endpoint.then([Answer::ok().body(r#"{"ack":false}"#)]);
    let mut later = scene.message("m3");
    later["delaySeconds"] = json!(3);
    let all = json!([scene.message("m1"), scene.message("m2"), later]);
    scene.post(&daemon, "/api/v1/messages?queue=orders", &all, 202).await;
    scene.is_parked(&daemon, &["m1", "m2"]).await;
    scene.endpoint.otherwise(Answer::ok().after(Duration::from_secs(2)));
    let answer = scene.post(&daemon, "/api/v1/parked/replay", &json!({"all": true}), 200).await;
    assert_eq!(answer["replayed"], 2, "{answer}");
    scene.calls(&["m1", "m1", "m2", "m3"]).await;
    scene.is_parked(&daemon, &[]).await;
}

/// One that is later in its key is not replayed before an earlier one.
async fn a_later_one_is_refused(on: On) {
    let Some(scene) = Scene::new(on).await else { return };
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2", "m3"]).await;
    let ids: Vec<Value> =
        scene.parked(&daemon).await.iter().map(|item| item["id"].clone()).collect();
    let path = format!("/api/v1/parked/{}/replay", ids[1].as_str().expect("a text"));
    let problem = scene.post(&daemon, &path, &json!({}), 409).await;
    assert_eq!((&problem["code"], &problem["earlier"]), (&json!("behind_earlier"), &ids[0]));
    let first = format!("/api/v1/parked/{}/replay", ids[0].as_str().expect("a text"));
    assert_eq!(scene.post(&daemon, &first, &json!({}), 200).await["replayed"], 1);
    scene.calls(&["m1", "m1"]).await;
    scene.publish(&daemon, &["m4"]).await;
    scene.is_parked(&daemon, &["m2", "m3", "m4"]).await;
    let rest = scene.post(&daemon, "/api/v1/parked/replay", &json!({"pool": "TEST"}), 200).await;
    assert_eq!(rest["replayed"], 3, "{rest}");
    scene.calls(&["m1", "m1", "m2", "m3", "m4"]).await;
    scene.is_parked(&daemon, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_one_of_the_embedded_queue_is_refused() {
    a_later_one_is_refused(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_one_of_rabbitmq_is_refused() {
    a_later_one_is_refused(On::Broker(Kind::RabbitMq)).await;
}

/// A replayed head that fails again is the head again, and those behind it are behind it again.
async fn a_head_that_fails_again_is_the_head_again(on: On) {
    let Some(scene) = Scene::new(on).await else { return };
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2", "m3"]).await;
    scene.endpoint.then([Answer::ok().body(r#"{"ack":false}"#)]);
    scene.post(&daemon, "/api/v1/parked/replay", &json!({"all": true}), 200).await;
    scene.calls(&["m1", "m1"]).await;
    scene.is_parked(&daemon, &["m1", "m2", "m3"]).await;
    scene.post(&daemon, "/api/v1/parked/replay", &json!({"all": true}), 200).await;
    scene.calls(&["m1", "m1", "m1", "m2", "m3"]).await;
    scene.is_parked(&daemon, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_of_the_embedded_queue_that_fails_again_is_the_head_again() {
    a_head_that_fails_again_is_the_head_again(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_of_rabbitmq_that_fails_again_is_the_head_again() {
    a_head_that_fails_again_is_the_head_again(On::Broker(Kind::RabbitMq)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_of_nats_that_fails_again_is_the_head_again() {
    a_head_that_fails_again_is_the_head_again(On::Broker(Kind::Nats)).await;
}

/// A daemon that is killed right after a replay goes on with it: nothing is lost, and the key is free
/// in the end.
async fn a_replay_survives_a_kill(on: On) {
    let Some(scene) = Scene::new(on).await else { return };
    let daemon = scene.serve().await;
    let ids: Vec<String> = (10..30).map(|n| format!("m{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    scene.park(&daemon, &ids).await;
    scene.endpoint.otherwise(Answer::ok().after(Duration::from_millis(50)));
    scene.post(&daemon, "/api/v1/parked/replay", &json!({"all": true}), 200).await;
    scene.endpoint.wait_for(6).await;
    daemon.kill().await;
    let daemon = scene.serve().await;
    scene.publish(&daemon, &["m30"]).await;
    scene.endpoint.wait_for(22).await;
    scene.is_parked(&daemon, &[]).await;
    for _ in 0..100 {
        if scene.called().last().is_some_and(|id| id == "m30") {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    let mut called = scene.called().split_off(1);
    called.dedup();
    let mut expected: Vec<&str> = ids.clone();
    expected.push("m30");
    assert_eq!(called, expected, "in order, and one of them perhaps twice");
    scene.publish(&daemon, &["m31"]).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(scene.called().last().map(String::as_str), Some("m31"), "the key is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_into_the_embedded_queue_survives_a_kill() {
    a_replay_survives_a_kill(On::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_into_rabbitmq_survives_a_kill() {
    a_replay_survives_a_kill(On::Broker(Kind::RabbitMq)).await;
}

/// A replayed message that somebody else took out of its queue does not hold its key for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_message_that_is_gone_frees_its_key() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2"]).await;
    daemon.terminated().await;
    let store = Store::open_serving(scene.stage.path("p.db")).await.expect("the file");
    let queues = HashSet::from(["orders".to_owned()]);
    drop(store.begin_replay(&[1, 2], &queues, true).await.expect("it is noted"));
    store.end_replay(&[1, 2]).await.expect("it is noted");
    drop(store);
    let daemon = scene.serve().await;
    scene.publish(&daemon, &["m3"]).await;
    scene.is_parked(&daemon, &["m3"]).await;
    scene.calls(&["m1", "m3"]).await;
    scene.publish(&daemon, &["m4"]).await;
    scene.calls(&["m1", "m3", "m4"]).await;
}

/// The same while the queue is never empty: something else waits in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_message_that_is_gone_frees_its_key_though_others_wait() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2"]).await;
    let mut late = scene.message("late");
    (late["messageGroupId"], late["delaySeconds"]) = (json!("other"), json!(3600));
    scene.post(&daemon, "/api/v1/messages?queue=orders", &late, 202).await;
    daemon.terminated().await;
    let store = Store::open_serving(scene.stage.path("p.db")).await.expect("the file");
    let queues = HashSet::from(["orders".to_owned()]);
    drop(store.begin_replay(&[1, 2], &queues, true).await.expect("it is noted"));
    store.end_replay(&[1, 2]).await.expect("it is noted");
    drop(store);
    let daemon = scene.serve().await;
    scene.publish(&daemon, &["m3"]).await;
    scene.is_parked(&daemon, &["m3"]).await;
    scene.calls(&["m1", "m3"]).await;
}

/// What comes while a group is replayed at a rate follows it, and then the group is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_replayed_at_a_rate_is_free_afterwards() {
    let scene = Scene::new(On::Embedded).await.expect("it needs no broker");
    let daemon = scene.serve().await;
    scene.park(&daemon, &["m1", "m2", "m3"]).await;
    let arguments = ["replay", "--all", "--rate", "1", "--server", &daemon.url];
    let mut replay = scene.stage.launch(&arguments);
    scene.endpoint.wait_for(2).await;
    scene.publish(&daemon, &["m4"]).await;
    assert_eq!(replay.line().await, "replayed 3");
    scene.calls(&["m1", "m1", "m2", "m3", "m4"]).await;
    scene.is_parked(&daemon, &[]).await;
}
