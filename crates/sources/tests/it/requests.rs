//! Requests and sessions in the state file: durable, found again, and forgotten in time.

use rusqlite::Connection;
use sluicegate_sources::sqlite::{EndedRequest, NewRequest, Store};

use crate::stage::state;

const DAY: i64 = 24 * 3600 * 1000;

fn new(id: &str, session: &str) -> NewRequest {
    let (owner, admitted) = (format!("owner of {session}"), format!("{{\"of\":\"{id}\"}}"));
    NewRequest { id: id.into(), session: session.into(), owner, admitted }
}

fn ended(id: &str, session: &str, begun: bool) -> EndedRequest {
    EndedRequest {
        id: id.into(),
        session: session.into(),
        begun: Some(begun),
        outcome: "said".into(),
    }
}

fn count(path: &std::path::Path, table: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
}

fn change(path: &std::path::Path, statement: &str) {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    connection.execute(statement, ()).unwrap();
}

#[tokio::test]
async fn what_was_written_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = state(&folder);
    let store = Store::open_serving(&path).await.unwrap();
    assert_eq!(store.request("r1").await.unwrap(), None);
    store.add_request(new("r1", "s")).await.unwrap();
    store.begin_session("s".into()).await.unwrap();
    store.end_request(ended("r1", "s", true)).await.unwrap();
    store
        .add_request(NewRequest { owner: "somebody else".into(), ..new("r2", "s") })
        .await
        .unwrap();
    store.add_request(new("r3", "t")).await.unwrap();
    drop(store);
    let store = Store::open_serving(&path).await.unwrap();
    let known = store.request("r1").await.unwrap().unwrap();
    assert_eq!(
        (known.admitted.as_str(), known.outcome.as_deref()),
        ("{\"of\":\"r1\"}", Some("said"))
    );
    let session = store.session("s").await.unwrap().unwrap();
    assert_eq!((session.owner.as_str(), session.begun), ("owner of s", true));
    assert!(!store.session("t").await.unwrap().unwrap().begun);
    // A request that had no turn leaves its session as it is.
    let of_none = EndedRequest { begun: None, ..ended("r0", "s", false) };
    store.end_request(of_none).await.unwrap();
    assert!(store.session("s").await.unwrap().unwrap().begun);
    assert_eq!(store.end_open_requests("gone".into()).await.unwrap(), 2);
    assert_eq!(store.end_open_requests("gone".into()).await.unwrap(), 0);
    for id in ["r2", "r3"] {
        assert_eq!(store.request(id).await.unwrap().unwrap().outcome.as_deref(), Some("gone"));
    }
    // What is over stays as it ended; a session that failed at its beginning has none.
    store.end_request(ended("r3", "t", false)).await.unwrap();
    assert_eq!(store.request("r3").await.unwrap().unwrap().outcome.as_deref(), Some("gone"));
}

#[tokio::test]
async fn what_is_old_goes_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = state(&folder);
    let store = Store::open_serving(&path).await.unwrap();
    for n in 0..20 {
        let (id, session) = (format!("r{n}"), format!("s{n}"));
        store.add_request(new(&id, &session)).await.unwrap();
        if n != 3 {
            store.end_request(ended(&id, &session, true)).await.unwrap();
        }
    }
    assert_eq!((count(&path, "requests"), count(&path, "sessions")), (20, 20));
    change(&path, &format!("UPDATE requests SET at = at - {0}, ended = ended - {0}", 8 * DAY));
    change(&path, &format!("UPDATE sessions SET at = at - {} WHERE id <> 's5'", 91 * DAY));
    store.add_request(new("new", "new")).await.unwrap();
    assert_eq!((count(&path, "requests"), count(&path, "sessions")), (17, 17));
    for n in 0..10 {
        store.add_request(new(&format!("new{n}"), "new")).await.unwrap();
    }
    // What is not over stays, however old it is.
    assert!(store.request("r3").await.unwrap().is_some());
    assert!(store.request("r19").await.unwrap().is_none());
    assert_eq!((count(&path, "requests"), count(&path, "sessions")), (12, 2));
    let connection = Connection::open(&path).unwrap();
    let bytes: i64 =
        connection.query_row("SELECT bytes FROM requests_kept", (), |row| row.get(0)).unwrap();
    assert_eq!(bytes, 0, "nothing that is over is left");
}

#[tokio::test]
async fn no_more_are_kept_than_so_many_or_so_many_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = state(&folder);
    let store = Store::open_serving(&path).await.unwrap();
    for n in 0..6 {
        let id = format!("r{n}");
        store.add_request(new(&id, "s")).await.unwrap();
        store.end_request(ended(&id, "s", true)).await.unwrap();
    }
    change(&path, "UPDATE sqlite_sequence SET seq = 100002 WHERE name = 'requests'");
    store.add_request(new("far", "s")).await.unwrap();
    assert!(store.request("r2").await.unwrap().is_none(), "beyond the count");
    assert!(store.request("r4").await.unwrap().is_some());
    store.end_request(ended("far", "s", true)).await.unwrap();
    change(&path, "UPDATE requests_kept SET bytes = 5 * 1024 * 1024 * 1024");
    store.add_request(new("last", "s")).await.unwrap();
    assert!(store.request("r4").await.unwrap().is_none(), "beyond the bytes");
    assert!(store.request("last").await.unwrap().is_some());
}
