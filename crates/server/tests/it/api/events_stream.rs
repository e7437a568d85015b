//! Events, followed.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::events::append;
use super::stage::{Ask, Stage};
use super::stream::Follower;

const STREAM: &str = "/api/v1/events/stream";

/// What came so far: the id of each event, and what it holds.
fn events(follower: &Follower) -> Vec<(u64, Value)> {
    let lines: Vec<&str> = follower.text.lines().collect();
    let pair = |pair: &[&str]| {
        let id = pair[0].strip_prefix("id: ")?.parse().expect("a position");
        let data = pair[1].strip_prefix("data: ")?;
        Some((id, serde_json::from_str(data).expect("JSON on one line")))
    };
    lines.windows(2).filter_map(pair).collect()
}

fn ids(follower: &Follower) -> Vec<u64> {
    events(follower).into_iter().map(|(id, _)| id).collect()
}

#[tokio::test]
async fn what_is_there_comes_and_then_what_is_appended() {
    let stage = Stage::start("").await;
    for n in 0..150 {
        append(&stage, "A", "k:v", json!({ "n": n })).await;
    }
    let mut follower = Follower::at(&stage, STREAM, "").await;
    follower.until("id: 150\n").await;
    assert_eq!(append(&stage, "B\nC", "k:ü", json!({})).await, 151);
    follower.until("id: 151\n").await;
    append(&stage, "A", "k:v", json!({})).await;
    follower.until("id: 152\n").await;
    follower.until("}\n\n").await;
    assert_eq!(ids(&follower)[..151], (1..=151).collect::<Vec<u64>>());
    let (_, event) = &events(&follower)[150];
    assert_eq!((&event["type"], &event["tags"]), (&json!("B\nC"), &json!(["k:ü"])));
    assert_eq!(event["position"], 151);
}

#[tokio::test]
async fn who_comes_again_goes_on_where_it_was() {
    let stage = Stage::start("").await;
    for of in ["A", "B", "A", "C"] {
        append(&stage, of, "k:v", json!({})).await;
    }
    let cases = [
        ("?after=2", "", vec![3, 4]),
        ("?after=2", "last-event-id: 3\r\n", vec![4]),
        ("", "last-event-id: 1\r\n", vec![2, 3, 4]),
        ("?type=A&type=C", "", vec![1, 3, 4]),
        ("?type=C&tag=k%3Av", "", vec![4]),
    ];
    for (query, header, wanted) in cases {
        let mut follower = Follower::at(&stage, &format!("{STREAM}{query}"), header).await;
        follower.until("id: 4\n").await;
        follower.until("}\n\n").await;
        assert_eq!(ids(&follower), wanted, "{query} {header}");
    }
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused() {
    let stage = Stage::start("").await;
    for (query, field) in [("?after=x", "after"), ("?tag=k", "tag"), ("?types=A", "types")] {
        let problem = stage.get(&format!("{STREAM}{query}")).await.problem(400, "bad_request");
        assert_eq!(problem["field"], field, "{problem}");
    }
    let line = format!("GET {STREAM}");
    let headers = [("last-event-id", "x")];
    let reply = stage.ask(Ask { line: &line, headers: &headers, body: "" }).await;
    reply.problem(400, "bad_request");
}

#[tokio::test]
async fn the_stream_ends_with_the_daemon_and_with_the_server() {
    for by_daemon in [true, false] {
        let stage = Stage::start("").await;
        append(&stage, "A", "k:v", json!({})).await;
        let mut follower = Follower::at(&stage, STREAM, "").await;
        follower.until("id: 1\n").await;
        if by_daemon {
            stage.daemon.shutdown().await;
        } else {
            stage.serving.cancel();
        }
        let end = async { while follower.read().await > 0 {} };
        timeout(Duration::from_secs(4), end).await.expect("it ends");
        assert!(follower.raw.ends_with(b"0\r\n\r\n"), "in order: {}", follower.text);
    }
}

#[tokio::test]
async fn a_follower_that_goes_leaves_its_place() {
    let stage = Stage::start("").await;
    let mut followers = Vec::new();
    for _ in 0..64 {
        followers.push(Follower::at(&stage, STREAM, "").await);
    }
    stage.get(STREAM).await.problem(503, "overloaded");
    drop(followers);
    let mut tries = 0;
    while !Follower::at(&stage, STREAM, "").await.text.starts_with("HTTP/1.1 200") {
        tries += 1;
        assert!(tries < 2_000, "no place is free");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
