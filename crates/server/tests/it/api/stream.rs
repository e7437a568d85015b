//! What happens, followed.

use std::time::Duration;

use serde_json::{Value, json};
use sluicegate_testkit::endpoint::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::stage::Stage;

/// Somebody who follows the stream.
pub(super) struct Follower {
    socket: TcpStream,
    pub(super) raw: Vec<u8>,
    /// The head, and what the chunks so far hold.
    pub(super) text: String,
}

impl Follower {
    async fn of(stage: &Stage) -> Self {
        Self::at(stage, "/api/v1/stream", "").await
    }

    /// Follows what is at a path, with headers of its own.
    pub(super) async fn at(stage: &Stage, path: &str, headers: &str) -> Self {
        let mut socket = TcpStream::connect(stage.address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        socket.write_all(request.as_bytes()).await.expect("it reads");
        let mut follower = Self { socket, raw: Vec::new(), text: String::new() };
        follower.until("\r\n\r\n").await;
        follower
    }

    /// Reads until it has said that.
    pub(super) async fn until(&mut self, what: &str) {
        while !self.text.contains(what) {
            let read = timeout(Duration::from_secs(60), self.read()).await.expect("in time");
            assert!(read > 0, "it ended: {}", self.text);
        }
    }

    pub(super) async fn read(&mut self) -> usize {
        let mut some = [0; 4096];
        let count = self.socket.read(&mut some).await.unwrap_or(0);
        self.raw.extend_from_slice(&some[..count]);
        self.text = decoded(&self.raw).unwrap_or_default();
        count
    }

    /// The events so far: their names and what they hold.
    fn events(&self) -> Vec<(String, Value)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let named = |pair: &[&str]| {
            let name = pair[0].strip_prefix("event: ")?;
            let data = pair[1].strip_prefix("data: ")?;
            Some((name.to_owned(), serde_json::from_str(data).expect("JSON on one line")))
        };
        lines.windows(2).filter_map(named).collect()
    }
}

/// The head, and what the whole chunks behind it hold.
fn decoded(raw: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(raw);
    let (head, mut chunks) = text.split_once("\r\n\r\n")?;
    let mut decoded = format!("{head}\r\n\r\n");
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("the size of a chunk");
        let Some(chunk) = rest.get(..size).filter(|_| rest.len() >= size + 2) else { break };
        decoded += chunk;
        chunks = &rest[size + 2..];
    }
    Some(decoded)
}

#[tokio::test]
async fn what_happens_is_heard() {
    let (stage, endpoint) = (Stage::start("").await, Endpoint::start().await);
    let mut follower = Follower::of(&stage).await;
    assert!(follower.text.starts_with("HTTP/1.1 200"), "{}", follower.text);
    assert!(follower.text.contains("content-type: text/event-stream"), "{}", follower.text);
    let body = json!({
        "id": "m1", "mediationTarget": endpoint.url("/in"), "authToken": "tok-secret-1",
    });
    stage.post("/api/v1/messages", &body.to_string()).await;
    follower.until("event: message.settled").await;
    let events = follower.events();
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["message.admitted", "message.started", "message.called", "message.completed"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for (name, data) in &events {
        assert_eq!(data["type"].as_str(), Some(name.as_str()));
        assert!(data["timestamp"].is_i64(), "{data}");
    }
    assert!(!follower.text.contains("secret"), "{}", follower.text);
}

#[tokio::test]
async fn the_stream_ends_with_the_daemon_and_with_the_server() {
    for by_daemon in [true, false] {
        let stage = Stage::start("").await;
        let mut follower = Follower::of(&stage).await;
        if by_daemon {
            stage.daemon.shutdown().await;
        } else {
            stage.serving.cancel();
        }
        let end = async { while follower.read().await > 0 {} };
        timeout(Duration::from_secs(4), end).await.expect("it ends");
        assert!(follower.raw.ends_with(b"0\r\n\r\n"), "in order: {}", follower.text);
        assert_eq!(stage.daemon.record().feed.listeners(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn while_nothing_happens_it_says_so() {
    let stage = Stage::open("").await;
    let mut follower = Follower::of(&stage).await;
    let begun = Instant::now();
    follower.until(": still here\n\n").await;
    let took = begun.elapsed().as_secs();
    assert!((14..=16).contains(&took), "{took}");
}

#[tokio::test]
async fn a_follower_that_goes_leaves_its_place() {
    let stage = Stage::start("").await;
    let mut followers = Vec::new();
    for _ in 0..64 {
        followers.push(Follower::of(&stage).await);
    }
    let refused = stage.get("/api/v1/stream").await;
    refused.problem(503, "overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(stage.daemon.record().feed.listeners(), 64);
    drop(followers);
    while stage.daemon.record().feed.listeners() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Follower::of(&stage).await;
}

#[tokio::test]
async fn who_is_too_slow_is_told_how_much_it_missed() {
    let stage = Stage::start("").await;
    let mut follower = Follower::of(&stage).await;
    // One thread, and no await in between: nobody reads meanwhile.
    for at in 0..2_000 {
        let fields = json!({ "at": at });
        stage.daemon.record().feed.tell(|| Some(("test", fields.as_object()?.clone())));
    }
    follower.until("event: lagged").await;
    let events = follower.events();
    let (_, lagged) = events.iter().find(|(name, _)| name == "lagged").expect("it is told");
    assert_eq!(lagged["missed"], 2_000 - 1_024, "{lagged}");
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_lull() {
    let stage = Stage::start("").await;
    let mut follower = Follower::of(&stage).await;
    // One thread, and no await in between: all of it is there before anybody is served.
    for _ in 0..1_000 {
        stage.daemon.record().feed.tell(|| Some(("test", serde_json::Map::new())));
    }
    stage.serving.cancel();
    timeout(Duration::from_secs(4), async { while follower.read().await > 0 {} }).await.unwrap();
    assert!(follower.events().len() < 1_000);
}
