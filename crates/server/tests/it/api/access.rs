//! Who may do what.

use serde_json::json;
use sluicegate_testkit::endpoint::{Answer, Endpoint};

use super::stage::{Ask, Reply, Stage};

const OPERATE: &str = "operate-token-1234567890";
const READ: &str = "read-token-1234567890";
const GUARDED: &str = "[server]\ntoken = \"operate-token-1234567890\"\n\
                       read_token = \"read-token-1234567890\"\n";

async fn asked(stage: &Stage, line: &str, headers: &[(&str, &str)]) -> Reply {
    stage.ask(Ask { line, headers, ..Ask::default() }).await
}

fn outcome(reply: &Reply) -> (u16, Option<String>) {
    let code = (reply.status >= 400).then(|| reply.json()["code"].as_str().map(str::to_owned));
    (reply.status, code.flatten())
}

/// Who asks for what, and what becomes of it.
#[tokio::test]
async fn the_matrix_of_roles() {
    let stage = Stage::start(GUARDED).await;
    let bearer = |token: &str| format!("Bearer {token}");
    let lower = format!("bearer  {OPERATE}");
    let (operate, read) = (bearer(OPERATE), bearer(READ));
    let half = bearer(&OPERATE[..12]);
    let wrong: [&str; 6] = ["Bearer wrong", "Bearer ", &half, "Basic b3BlcmF0ZQ==", "operate", ""];
    let open = ["GET /health", "GET /health/live", "GET /health/ready", "GET /health/startup"];
    let looks = [
        "GET /metrics",
        "GET /openapi.json",
        "GET /api/v1/pools",
        "GET /api/v1/config",
        "HEAD /api/v1/pools",
    ];
    let acts = ["POST /api/v1/config/reload", "PATCH /api/v1/pools/DEFAULT-POOL"];
    let nowhere = ["GET /nothing", "POST /nothing", "GET /api/v1/nothing"];
    for line in open {
        for headers in [&[][..], &[("authorization", wrong[0])], &[("authorization", &read)]] {
            let reply = asked(&stage, line, headers).await;
            assert!(reply.status == 200 || reply.status == 503, "{line}: {reply:?}");
        }
    }
    for line in looks.into_iter().chain(acts).chain(nowhere) {
        let reply = asked(&stage, line, &[]).await;
        assert_eq!(reply.status, 401, "{line}");
        assert_eq!(reply.header("www-authenticate"), Some("bearer realm=\"sluicegate\""), "{line}");
        for wrong in wrong {
            let reply = asked(&stage, line, &[("authorization", wrong)]).await;
            assert_eq!(reply.status, 401, "{line} with {wrong:?}");
        }
    }
    for line in looks {
        for token in [&operate, &read, &lower] {
            let reply = asked(&stage, line, &[("authorization", token)]).await;
            assert_eq!(reply.status, 200, "{line}: {reply:?}");
        }
    }
    for line in acts {
        let reply = asked(&stage, line, &[("authorization", &read)]).await;
        assert_eq!(outcome(&reply), (403, Some("forbidden".to_owned())), "{line}");
        let reply = asked(&stage, line, &[("authorization", &operate)]).await;
        assert_eq!(reply.status, 200, "{line}: {reply:?}");
    }
    // With a token, names and pages do not matter.
    let headers = [("authorization", &*operate), ("host", "gate.example"), ("origin", "http://a")];
    assert_eq!(asked(&stage, "POST /api/v1/config/reload", &headers).await.status, 200);
}

#[tokio::test]
async fn without_a_token_only_this_machine_is_served() {
    let stage = Stage::start("").await;
    let port = stage.address.port();
    let own = format!("127.0.0.1:{port}");
    let hosts: [(&str, bool); 14] = [
        (&own, true),
        ("localhost", true),
        ("LOCALHOST:1234", true),
        ("localhost.", true),
        ("gate.localhost:80", true),
        ("127.0.0.9", true),
        ("[::1]:8080", true),
        ("evil.example", false),
        ("localhost.evil.example", false),
        ("evil.example:8080", false),
        ("127.0.0.1.evil.example", false),
        ("10.0.0.1", false),
        ("localhost@evil.example", false),
        ("", false),
    ];
    for (host, served) in hosts {
        for line in ["GET /api/v1/pools", "GET /", "GET /health"] {
            let reply = asked(&stage, line, &[("host", host)]).await;
            let foreign = (403, Some("foreign_host".to_owned()));
            assert_eq!(outcome(&reply) != foreign, served, "{line} {host}: {reply:?}");
        }
    }
    let here = format!("http://{own}");
    let origins: [(&str, bool); 7] = [
        (&here, true),
        ("http://evil.example", false),
        ("http://127.0.0.1", false),
        ("http://localhost:1", false),
        ("null", false),
        ("https://127.0.0.1:1", false),
        ("", false),
    ];
    for (origin, served) in origins {
        for line in ["POST /api/v1/config/reload", "GET /api/v1/pools"] {
            let reply = asked(&stage, line, &[("host", &own), ("origin", origin)]).await;
            let foreign = (403, Some("foreign_origin".to_owned()));
            assert_eq!(outcome(&reply) != foreign, served, "{line} {origin}: {reply:?}");
        }
    }
    let absolute = asked(&stage, "GET http://evil.example/api/v1/pools", &[("host", &own)]).await;
    absolute.problem(403, "foreign_host");
    let twice = [("host", &*own), ("Host", "evil.example")];
    assert_eq!(asked(&stage, "GET /api/v1/pools", &twice).await.status, 400);
}

async fn login(stage: &Stage, token: &str, headers: &[(&str, &str)]) -> Reply {
    let body = format!("token={token}");
    stage.ask(Ask { line: "POST /login", headers, body: &body }).await
}

#[tokio::test]
async fn a_browser_logs_in() {
    let stage = Stage::start(GUARDED).await;
    let page = stage.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.body.contains("action=\"/login\"") && !page.body.contains("fetch("), "{page:?}");
    let wrong = login(&stage, "wrong", &[]).await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, None));
    assert!(wrong.body.contains("This token is wrong."));
    let foreign = [("origin", "http://evil.example")];
    login(&stage, OPERATE, &foreign).await.problem(403, "foreign_origin");
    for (token, patched) in [(OPERATE, 200), (READ, 403)] {
        let reply = login(&stage, token, &[]).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/")));
        let set = reply.header("set-cookie").expect("a cookie");
        assert!(set.contains("; httponly") && set.contains("; samesite=strict"), "{set}");
        let cookie = cookie(&reply);
        let with = |more: &[(&'static str, &'static str)]| {
            let mut headers = vec![("cookie", &*cookie)];
            headers.extend(more);
            headers
        };
        let page = asked(&stage, "GET /", &with(&[])).await;
        assert!(page.body.contains("fetch("), "the dashboard");
        let line = "PATCH /api/v1/pools/DEFAULT-POOL";
        assert_eq!(asked(&stage, "GET /api/v1/pools", &with(&[])).await.status, 200);
        assert_eq!(asked(&stage, line, &with(&[])).await.status, patched);
        let own = with(&[("sec-fetch-site", "same-origin"), ("origin", "http://proxy.example")]);
        assert_eq!(asked(&stage, line, &own).await.status, patched);
        for foreign in [("origin", "http://localhost:1"), ("sec-fetch-site", "same-site")] {
            asked(&stage, line, &with(&[foreign])).await.problem(403, "foreign_origin");
        }
        for foreign in [("origin", "http://localhost:1"), ("sec-fetch-site", "same-site")] {
            let out = asked(&stage, "POST /logout", &with(&[foreign])).await;
            out.problem(403, "foreign_origin");
        }
        // Whoever may only look may also stop looking.
        let out = asked(&stage, "POST /logout", &with(&[])).await;
        assert_eq!((out.status, out.header("location")), (303, Some("/")), "{out:?}");
        assert!(out.header("set-cookie").is_some_and(|set| set.contains("max-age=0")));
        let bearer = format!("Bearer {token}");
        let out = asked(&stage, "POST /logout", &[("authorization", &bearer)]).await;
        assert_eq!(out.status, 303, "{out:?}");
    }
    assert_eq!(asked(&stage, "POST /logout", &[]).await.status, 401);
}

/// The cookie of a login, as a browser sends it back.
fn cookie(reply: &Reply) -> String {
    let line = reply.raw.lines().find(|line| line.starts_with("set-cookie: ")).expect("a cookie");
    line["set-cookie: ".len()..].split(';').next().expect("a pair").to_owned()
}

#[tokio::test]
async fn a_cookie_cannot_be_made_up() {
    let (stage, other) = (Stage::start(GUARDED).await, Stage::start(GUARDED).await);
    let real = cookie(&login(&stage, READ, &[]).await);
    let (name, value) = real.split_once('=').unwrap();
    let (claim, code) = value.rsplit_once('.').unwrap();
    let until: i64 = claim.split_once('.').unwrap().1.parse().unwrap();
    let foreign = cookie(&login(&other, READ, &[]).await);
    let foreign = foreign.split_once('=').unwrap().1;
    let made_up = [
        format!("{name}=operate.{until}.{code}"),
        format!("{name}=read.{}.{code}", until + 1),
        format!("{name}={claim}.AAAA"),
        format!("{name}={claim}."),
        format!("{name}={claim}"),
        format!("{name}="),
        format!("{name}={foreign}"),
        format!("sluicegate_1={value}"),
    ];
    for cookie in &made_up {
        let reply = asked(&stage, "GET /api/v1/pools", &[("cookie", cookie)]).await;
        assert_eq!(reply.status, 401, "{cookie}");
    }
    let among = format!("a=b; {real}; c=d");
    assert_eq!(asked(&stage, "GET /api/v1/pools", &[("cookie", &among)]).await.status, 200);
}

/// Nothing that comes back shows a token: neither the server's nor a message's.
#[tokio::test]
async fn no_answer_shows_a_token() {
    const MESSAGE: &str = "message-token-1234567890";
    let endpoint = Endpoint::start().await;
    let echo = format!("{{\"message\":\"{MESSAGE} is no token\"}}");
    endpoint.then([Answer::status(400).body(echo)]);
    endpoint.otherwise(Answer::hang());
    let stage = Stage::start(GUARDED).await;
    let bearer = format!("Bearer {OPERATE}");
    let headers = [("authorization", &*bearer)];
    let mut replies = Vec::new();
    let url = endpoint.url("/in");
    let message = |id: &str| json!({ "id": id, "mediationTarget": url, "authToken": MESSAGE, "messageGroupId": "g" });
    let mut bad = message("bad");
    bad["highPriority"] = json!(MESSAGE);
    for body in [message("rejected"), message("runs"), message("waits"), bad] {
        let body = body.to_string();
        let ask = Ask { line: "POST /api/v1/messages", headers: &headers, body: &body };
        replies.push(stage.ask(ask).await);
    }
    endpoint.wait_for(2).await;
    let document: serde_json::Value = asked(&stage, "GET /openapi.json", &headers).await.json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|_| !path.ends_with("stream")) {
            for id in ["rejected", "runs", "waits", "1", OPERATE] {
                let at = path.replace("{id}", id).replace("{code}", id).replace("{name}", id);
                if at.contains(OPERATE) && method != "get" {
                    continue;
                }
                let line = format!("{} {at}", method.to_uppercase());
                if !at.contains(OPERATE) {
                    replies.push(asked(&stage, &line, &headers).await);
                }
                replies.push(asked(&stage, &line, &[("authorization", "Bearer wrong")]).await);
            }
        }
    }
    replies.push(login(&stage, OPERATE, &[]).await);
    replies.push(login(&stage, "wrong", &[]).await);
    assert!(replies.len() > 100);
    for reply in &replies {
        for token in [OPERATE, READ, MESSAGE] {
            assert!(!reply.raw.contains(token), "{reply:?}");
        }
    }
}
