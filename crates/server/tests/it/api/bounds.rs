//! What is too much, too long, or too late.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::stage::{Ask, Stage};

const TARGET: &str = "http://127.0.0.1:1/";

fn message(id: &str, payload: usize) -> String {
    json!({
        "id": id, "mediationTarget": TARGET, "delaySeconds": 600, "payload": "x".repeat(payload),
    })
    .to_string()
}

#[tokio::test]
async fn too_much_is_refused() {
    const MIB: usize = 1024 * 1024;
    let stage = Stage::start("").await;
    let large = message("m", 17 * MIB);
    let many = format!("[{}]", vec!["{}"; 10_001].join(","));
    let long = format!("[{},{}]", message("a", 10), message("b", MIB));
    let cases = [
        ("a body of 17 MiB", large, json!(16 * MIB)),
        ("10,001 messages", many, json!(10_000)),
        ("a message of more than 1 MiB", message("m", MIB), json!(MIB)),
        ("one of several that is too long", long, json!(MIB)),
    ];
    for (what, body, limit) in cases {
        let problem = stage.post("/api/v1/messages", &body).await.problem(413, "too_large");
        assert_eq!(problem["limit"], limit, "{what}");
    }
    stage.get("/api/v1/messages/a").await.problem(404, "unknown_message");
    let full = vec![message("a", 10); 10_000].join(",");
    let reply = stage.post("/api/v1/messages", &format!("[{full}]")).await;
    assert_eq!(reply.json(), json!({ "accepted": 10_000 }), "the bound itself is fine");
    let other = "x".repeat(2 * MIB);
    let line = "PATCH /api/v1/pools/DEFAULT-POOL";
    let reply = stage.ask(Ask { line, body: &other, ..Ask::default() }).await;
    assert_eq!(reply.problem(413, "too_large")["limit"], json!(MIB));
}

/// The same without saying how much will come.
#[tokio::test]
async fn too_much_in_chunks_is_refused() {
    let stage = Stage::start("").await;
    let mut request =
        format!("POST /api/v1/messages HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n", stage.address).into_bytes();
    for _ in 0..17 {
        request.extend(b"100000\r\n");
        request.extend(vec![b' '; 0x10_0000]);
        request.extend(b"\r\n");
    }
    request.extend(b"0\r\n\r\n");
    stage.say(&request).await.problem(413, "too_large");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let stage = Stage::start("").await;
    let most = "x".repeat(60 * 1024);
    let reply =
        stage.ask(Ask { line: "GET /health/live", headers: &[("x", &most)], body: "" }).await;
    assert_eq!(reply.status, 200);
    let more = "x".repeat(65 * 1024);
    let reply =
        stage.ask(Ask { line: "GET /health/live", headers: &[("x", &more)], body: "" }).await;
    reply.problem(431, "head_too_large");
    let much_more = "x".repeat(200 * 1024);
    let headers = [("x", &*much_more)];
    let reply = stage.ask(Ask { line: "GET /health/live", headers: &headers, body: "" }).await;
    assert_eq!(reply.status, 431, "not even read to its end");
    let path = format!("/{}", "x".repeat(64 * 1024));
    assert_eq!(stage.get(&path).await.status, 414);
    assert_eq!(stage.get("/health/live").await.status, 200);
}

/// A connection, and what was sent on it.
async fn sent(stage: &Stage, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(stage.address).await.expect("it listens");
    socket.write_all(bytes).await.expect("it reads");
    socket
}

/// Time is paused: it runs on when everybody waits.
#[tokio::test(start_paused = true)]
async fn who_is_too_slow_is_cut_off() {
    let stage = Stage::open("").await;
    let unfinished =
        b"POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
    let cases: [(&str, &[u8], u64, &str); 4] = [
        ("nothing", b"", 10, ""),
        ("half a line", b"GET /hea", 10, ""),
        ("half a head", b"GET /health HTTP/1.1\r\nhost: localhost\r\n", 10, ""),
        ("half a body", unfinished, 30, "HTTP/1.1 408"),
    ];
    for (what, bytes, seconds, begins) in cases {
        let begun = Instant::now();
        let mut socket = sent(&stage, bytes).await;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.expect("it is closed in order");
        let took = begun.elapsed();
        let about = Duration::from_secs(seconds)..Duration::from_secs(seconds + 15);
        assert!(about.contains(&took), "{what}: {took:?}");
        assert!(answer.starts_with(begins), "{what}: {answer}");
    }
}

#[tokio::test]
async fn a_running_request_may_end_and_then_nobody_is_served() {
    let stage = Stage::start("").await;
    let body = message("m", 10);
    let (first, rest) = body.as_bytes().split_at(10);
    let head = format!(
        "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut running = sent(&stage, &[head.as_bytes(), first].concat()).await;
    // Answered: from now on it idles.
    let mut idle = sent(&stage, b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut some = [0; 12];
    idle.read_exact(&mut some).await.unwrap();
    stage.serving.cancel();
    let mut left = Vec::new();
    timeout(Duration::from_secs(3), idle.read_to_end(&mut left)).await.expect("closed").ok();
    running.write_all(rest).await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(3), running.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    assert!(TcpStream::connect(stage.address).await.is_err(), "nobody listens any more");
}

/// What a stranger sends who has no token and all the time in the world.
const STRANGER: &[u8] =
    b"POST /login HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\nt\r\n";

#[tokio::test]
async fn slow_strangers_take_nobodys_place() {
    let stage = Stage::start("[server]\ntoken = \"operate-token-1234567890\"\n").await;
    let mut strangers = Vec::new();
    for _ in 0..32 {
        strangers.push(sent(&stage, STRANGER).await);
    }
    // Answered behind them: the strangers are being read by now.
    assert_eq!(stage.get("/health/live").await.status, 200);
    let body = message("m", 400_000);
    let token = [("authorization", "Bearer operate-token-1234567890")];
    let publish = Ask { line: "POST /api/v1/messages", headers: &token, body: &body };
    let reply = timeout(Duration::from_secs(1), stage.ask(publish)).await.expect("at once");
    assert_eq!(reply.json(), json!({ "accepted": 1 }));
    drop(strangers);
}

#[tokio::test(start_paused = true)]
async fn a_slow_login_is_cut_off_soon() {
    let stage = Stage::open("[server]\ntoken = \"operate-token-1234567890\"\n").await;
    let begun = Instant::now();
    let mut socket = sent(&stage, STRANGER).await;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("it is closed in order");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_login_is_small() {
    let stage = Stage::start("[server]\ntoken = \"operate-token-1234567890\"\n").await;
    let body = format!("token={}", "x".repeat(4096));
    assert_eq!(stage.post("/login", &body).await.problem(413, "too_large")["limit"], json!(4096));
    let mut request = STRANGER.to_vec();
    for _ in 0..5 {
        request.extend(b"400\r\n");
        request.extend([b'x'; 0x400]);
        request.extend(b"\r\n");
    }
    request.extend(b"0\r\n\r\n");
    let request =
        String::from_utf8(request).unwrap().replacen("host", "connection: close\r\nhost", 1);
    stage.say(request.as_bytes()).await.problem(413, "too_large");
}
