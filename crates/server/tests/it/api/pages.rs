//! Lists in parts.

use std::collections::BTreeSet;

use serde_json::json;

use super::stage::Stage;

const POOLS: usize = 25;

fn pools() -> String {
    (0..POOLS).map(|at| format!("[[pool]]\ncode = \"P{at:02}\"\n")).collect()
}

#[tokio::test]
async fn a_list_comes_in_parts_and_each_item_once() {
    let stage = Stage::start(&pools()).await;
    for size in [1, 7, 25, 26] {
        let (mut codes, mut cursor, mut parts) = (Vec::new(), String::new(), 0);
        loop {
            let reply = stage.get(&format!("/api/v1/pools?limit={size}&cursor={cursor}")).await;
            let items = reply.items();
            assert!(items.len() <= size);
            codes.extend(items.iter().map(|pool| pool["code"].as_str().unwrap().to_owned()));
            parts += 1;
            match reply.json()["next"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(parts, POOLS.div_ceil(size));
        let once: BTreeSet<&String> = codes.iter().collect();
        assert_eq!((once.len(), codes.len()), (POOLS, POOLS), "{codes:?}");
        assert!(codes.is_sorted(), "{codes:?}");
    }
}

#[tokio::test]
async fn messages_in_flight_come_in_parts_and_each_once() {
    let stage = Stage::start("[[pool]]\ncode = \"P\"\nconcurrency = 1\n").await;
    let (endpoint, body) = hanging(30).await;
    stage.post("/api/v1/messages", &body).await;
    endpoint.wait_for(1).await;
    let path = "/api/v1/queues";
    stage.until(path, |reply| reply.items()[0]["inflight"] == 30).await;
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let reply = stage.get(&format!("/api/v1/inflight?pool=P&limit=7&cursor={cursor}")).await;
        ids.extend(reply.items().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        match reply.json()["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    let once: BTreeSet<&String> = ids.iter().collect();
    assert_eq!((once.len(), ids.len()), (30, 30), "{ids:?}");
    assert!(stage.get("/api/v1/inflight?pool=DEFAULT-POOL").await.items().is_empty());
    assert_eq!(stage.get("/api/v1/groups?pool=P&limit=1000").await.items().len(), 30);
    assert!(stage.get("/api/v1/groups?pool=DEFAULT-POOL").await.items().is_empty());
}

async fn hanging(count: usize) -> (sluicegate_testkit::endpoint::Endpoint, String) {
    use sluicegate_testkit::endpoint::{Answer, Endpoint};
    let endpoint = Endpoint::start().await;
    endpoint.otherwise(Answer::hang());
    let url = endpoint.url("/in");
    let message = |at| {
        json!({
            "id": format!("m{at}"), "mediationTarget": url, "poolCode": "P",
            "messageGroupId": format!("g{at}"),
        })
    };
    let body: Vec<_> = (0..count).map(message).collect();
    (endpoint, json!(body).to_string())
}

#[tokio::test]
async fn a_wrong_part_is_named() {
    let stage = Stage::start("").await;
    let lists = [
        "queues", "pools", "groups", "inflight", "tenants", "workers", "breakers", "warnings",
        "parked",
    ];
    for list in lists {
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=-1", "limit"),
            ("limit=ten", "limit"),
            ("cursor=%21%21", "cursor"),
            ("unknown=1", "unknown"),
        ] {
            let reply = stage.get(&format!("/api/v1/{list}?{query}")).await;
            assert_eq!(reply.problem(400, "bad_request")["field"], field, "{list} {query}");
        }
        let reply = stage.get(&format!("/api/v1/{list}?limit=1000")).await;
        assert!(reply.json()["next"].is_null(), "{reply:?}");
        reply.items();
    }
    let reply = stage.get("/api/v1/warnings?severity=LOUD").await;
    assert_eq!(reply.problem(400, "bad_request")["field"], "severity");
}
