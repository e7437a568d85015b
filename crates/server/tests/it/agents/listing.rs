//! What an operator sees: requests that wait and run, tenants, the page.

use serde_json::{Value, json};

use super::stage::{AgentStage, QUICK, REQUESTS};
use crate::api::stage::{Reply, Stage};

const ONE: &str = "graceful_shutdown = \"200ms\"\nmax_workers = 1\n";

fn ids(reply: &Reply) -> Vec<String> {
    let id = |one: &Value| one["requestId"].as_str().expect("an id").to_owned();
    reply.items().iter().map(id).collect()
}

/// Oldest first, with why each waits; and what is asked for is nobody's business.
#[tokio::test]
async fn requests_that_wait_and_run_are_listed() {
    let stage = AgentStage::start(ONE).await;
    assert_eq!(stage.stage.get(REQUESTS).await.json(), json!({ "items": [], "next": null }));
    let runs = stage.run("web:1", "!hang tiger").await;
    let body = json!({ "tenant": {"platform": "web", "userId": "2", "chatId": "c"}, "message": "tiger",
        "sessionId": "tiger-s", "priority": "LOW", "wait": false });
    let waits = stage.post(body).await.json()["requestId"].as_str().expect("an id").to_owned();
    let reply = stage.stage.get(REQUESTS).await;
    assert_eq!(ids(&reply), [&*runs, &*waits]);
    let [first, second] = &reply.items()[..] else { panic!("{reply:?}") };
    assert_eq!(
        (&first["state"], &first["workerId"], &first["why"]),
        (&json!("running"), &json!("worker-1"), &json!(null))
    );
    assert!(first["runningMs"].is_u64() && first["ageMs"].is_u64(), "{first}");
    for (field, value) in [
        ("state", json!("queued")),
        ("tenant", json!("web:2")),
        ("priority", json!("LOW")),
        ("sessionId", json!("tiger-s")),
        ("runningMs", json!(null)),
        ("workerId", json!(null)),
    ] {
        assert_eq!(second[field], value, "{field}: {second}");
    }
    assert_eq!(second["why"]["reason"], "no_worker");
    assert!(second["why"]["detail"].as_str().is_some_and(|why| why.starts_with("1 of 1")));
    // The session has it in its name; the prompts had it too.
    assert_eq!(reply.body.matches("tiger").count(), 1, "{reply:?}");
    assert_eq!(stage.delete(&waits).await.status, 200);
    assert_eq!(stage.delete(&runs).await.status, 200);
    assert_eq!(ids(&stage.stage.get(REQUESTS).await), [""; 0], "what is over is not listed");
    stage.end().await;
}

#[tokio::test]
async fn the_list_of_requests_is_filtered_and_comes_in_pages() {
    let limits = "tenant_limits = { max_queued_requests = 10, max_concurrent_requests = 1 }\n";
    let stage = AgentStage::start(&format!("{ONE}{limits}")).await;
    let mut all = vec![stage.run("web:1", "!hang").await];
    for tenant in ["web:2", "web:1", "web:2", "web:1"] {
        all.push(stage.begin(tenant, "x").await);
    }
    let listed = async |query: &str| stage.stage.get(&format!("{REQUESTS}?{query}")).await;
    assert_eq!(ids(&listed("state=running").await), all[..1]);
    assert_eq!(ids(&listed("state=queued").await), all[1..]);
    assert_eq!(ids(&listed("state=queued&tenant=web%3A1").await), [&*all[2], &*all[4]]);
    assert_eq!(ids(&listed("tenant=web%3Anobody").await), [""; 0]);
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = listed(&format!("limit=2{cursor}")).await;
        assert!(page.items().len() <= 2, "{page:?}");
        seen.extend(ids(&page));
        let Some(next) = page.json()["next"].as_str().map(str::to_owned) else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, all);
    for (query, field) in [
        ("state=completed", "state"),
        ("tenant=me", "tenant"),
        ("limit=1001", "limit"),
        ("cursor=%00", "cursor"),
        ("pool=x", "pool"),
    ] {
        assert_eq!(listed(query).await.problem(400, "bad_request")["field"], field, "{query}");
    }
    for id in all.iter().rev() {
        stage.delete(id).await;
    }
    stage.end().await;
}

#[tokio::test]
async fn without_agents_there_is_no_list_of_requests() {
    let stage = Stage::start("").await;
    stage.get(REQUESTS).await.problem(404, "agents_disabled");
}

/// What failed, what was refused, and what somebody gave up, each as what it is.
#[tokio::test]
async fn requests_of_a_tenant_that_fail_are_counted() {
    let limits = "tenant_limits = { rate_limit_requests = 4 }\n";
    let stage = AgentStage::start(&format!("{QUICK}{limits}")).await;
    assert_eq!(stage.ask("web:1", "x").await.status, 200);
    stage.ask("web:1", "!crash").await.problem(502, "worker_crash");
    stage.ask("web:1", "!no-json").await.problem(502, "bad_output");
    let given_up = stage.run("web:1", "!hang").await;
    assert_eq!(stage.delete(&given_up).await.status, 200);
    stage.ask("web:1", "x").await.problem(429, "rate_limited");
    let tenants = stage.stage.get("/api/v1/tenants").await.items();
    let counts = ["served", "failed", "rejected"].map(|name| tenants[0][name].as_u64());
    assert_eq!(counts, [Some(1), Some(2), Some(1)], "{tenants:?}");
    stage.end().await;
}

/// What more there is to see of what a request waits for is said as a command.
#[tokio::test]
async fn why_points_to_what_shows_more() {
    let limits = "max_workers = 2\ntenant_limits = { max_concurrent_requests = 1 }\n";
    let stage = AgentStage::start(&format!("{QUICK}{limits}")).await;
    let runs = stage.run("web:o'brien", "!hang").await;
    let at_limit = stage.begin("web:o'brien", "x").await;
    let other = stage.run("web:2", "!hang").await;
    let no_worker = stage.begin("web:3", "x").await;
    for (id, reason, hint) in [
        (
            &at_limit,
            "tenant_limit",
            r"`sluicegate requests --tenant 'web:o'\''brien'` lists what this tenant has",
        ),
        (&no_worker, "no_worker", "`sluicegate workers` shows what each worker does"),
    ] {
        for path in [format!("/api/v1/messages/{id}"), format!("{REQUESTS}/{id}")] {
            let why = stage.stage.get(&path).await.json()["why"].clone();
            assert_eq!((&why["reason"], &why["hint"]), (&json!(reason), &json!(hint)), "{path}");
        }
    }
    for id in [at_limit, no_worker, other, runs] {
        stage.delete(&id).await;
    }
    stage.end().await;
}

/// What stands between the two, after each of the first.
fn between<'a>(page: &'a str, before: &'a str, after: &'a str) -> Vec<&'a str> {
    page.split(before).skip(1).filter_map(|rest| rest.split(after).next()).collect()
}

/// The tables of the page that are of agents: the paths that it asks for, and the fields that it shows.
fn tables(page: &str) -> Vec<(String, Vec<&str>)> {
    between(page, "{ title: \"Agents: ", "] },").into_iter().map(table).collect()
}

fn table(table: &str) -> (String, Vec<&str>) {
    let path = between(table, "path: \"", "\"")[0];
    let picks = between(table, "(r) => ", "),");
    let names = picks.into_iter().flat_map(|pick| pick.split("r.").skip(1));
    let fields =
        names.map(|name| name.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default());
    (format!("/api/v1/{path}"), fields.collect())
}

/// What the page shows of agents is what the API answers, and nothing that users are called becomes a part of it.
#[tokio::test]
async fn the_dashboard_shows_agents_where_they_are() {
    let stage = AgentStage::start(ONE).await;
    let runs = stage.run("web:<img src=x onerror=alert(1)>", "!hang").await;
    let waits = stage.begin("web:2", "x").await;
    let page = stage.stage.get("/").await;
    assert!(page.body.contains("<html data-agents=\"yes\" "), "{page:?}");
    let tables = tables(&page.body);
    let titles = ["workers", "requests", "tenants"];
    assert_eq!(tables.len(), titles.len(), "{tables:?}");
    for ((path, fields), title) in tables.iter().zip(titles) {
        assert!(path.contains(title) && fields.len() > 6, "{path}: {fields:?}");
        let items = stage.stage.get(path).await.items();
        assert!(!items.is_empty(), "{path}");
        for field in fields {
            assert!(items[0].get(field).is_some(), "{path} has no {field}: {}", items[0]);
        }
    }
    assert!(!page.body.contains("onerror"), "names come with the lists");
    for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
        assert!(!page.body.contains(markup), "{markup} would take a name for markup");
    }
    for id in [waits, runs] {
        assert_eq!(stage.delete(&id).await.status, 200);
    }
    stage.end().await;
}

#[tokio::test]
async fn the_dashboard_says_nothing_of_agents_where_there_are_none() {
    let stage = Stage::start("").await;
    let page = stage.get("/").await;
    assert_eq!((page.status, page.body.contains("<html lang=")), (200, true), "{page:?}");
    assert!(page.body.contains("!table.agents || agents === \"yes\""), "its tables are left out");
}
