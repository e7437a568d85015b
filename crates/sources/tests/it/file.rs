//! The state file itself: who may open it, and what if it is not as it should be.

use std::time::Duration;

use rusqlite::Connection;
use sluicegate_dispatch::{Delivery, Demand, FoundState, Order, ParkedStore, Publication, Source};
use sluicegate_sources::sqlite::{OpenError, ParkedFilter, Store, StoreSettings};
use sluicegate_testkit::conformance::source::{
    of_tenant, publication, publication_in, publication_of,
};

use crate::stage::{Stage, state};

#[tokio::test]
async fn a_file_is_served_once() {
    let stage = Stage::open().await;
    let path = state(&stage.folder);
    let error = Store::open_serving(&path).await.unwrap_err();
    assert!(matches!(&error, OpenError::Served { path: named } if *named == path), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("{} is already served by another process", path.display())
    );
    let link = stage.folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = Store::open_serving(&link).await.unwrap_err();
    assert!(matches!(error, OpenError::Served { .. }), "{error:?}");
    let Stage { store, queue, folder } = stage;
    drop(store);
    assert!(Store::open_serving(&path).await.is_err(), "a queue of it is still in use");
    drop(queue);
    Store::open_serving(state(&folder)).await.unwrap();
}

/// The links were there before the file.
#[tokio::test]
async fn a_file_that_was_made_through_a_link_is_served_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let real = folder.path().join("data/real.db");
    let [link, far] = ["link.db", "far.db"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("data/real.db", &link).unwrap();
    std::os::unix::fs::symlink(&link, &far).unwrap();
    let first = Store::open_serving(&far).await.unwrap();
    for path in [&real, &link, &far] {
        let error = Store::open_serving(path).await.unwrap_err();
        assert!(matches!(error, OpenError::Served { .. }), "{}: {error:?}", path.display());
    }
    drop(first);
    drop(Store::open_serving(&real).await.unwrap());
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused_and_left_alone() {
    let stage = Stage::open().await;
    stage.publish(&["m1"]).await;
    let Stage { store, queue, folder } = stage;
    drop((store, queue));
    let change = |version: i64| {
        let connection = Connection::open(state(&folder)).unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
    };
    change(99);
    for error in [
        Store::open_serving(state(&folder)).await.unwrap_err(),
        Store::open_publishing(state(&folder)).await.unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::Newer { found: 99, known: 6 }), "{error:?}");
        assert!(error.to_string().contains("version 99"), "{error}");
    }
    change(6);
    assert_eq!(Stage::open_in(folder).await.take_ids(9).await, ["m1"]);
}

#[tokio::test]
async fn what_is_no_state_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = state(&folder);
    let foreign = Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (7)").unwrap();
    drop(foreign);
    let before = std::fs::read(&path).unwrap();
    let error = Store::open_serving(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Foreign), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);

    std::fs::write(&path, "this is a text, and a rather long one at that ".repeat(100)).unwrap();
    let error = Store::open_serving(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().starts_with("the state file is damaged"), "{error}");
}

#[tokio::test]
async fn a_damaged_file_is_named_as_such() {
    let stage = Stage::open().await;
    let ids: Vec<String> = (0..2000).map(|n| format!("m{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    stage.publish(&ids).await;
    let Stage { store, queue, folder } = stage;
    drop((store, queue));
    let path = state(&folder);
    let log = folder.path().join("state.db-wal");
    if log.exists() {
        Connection::open(&path).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    // The first pages stay: the tables are there, what is in them is not.
    for byte in bytes.iter_mut().skip(16 * 4096) {
        *byte = 0xA5;
    }
    std::fs::write(&path, bytes).unwrap();
    let error = match Store::open_serving(&path).await {
        Err(error) => error.to_string(),
        Ok(store) => {
            let queue = store.queue("orders", Duration::from_secs(30)).await.unwrap();
            queue.receive(Demand::any(1000)).await.unwrap_err().to_string()
        }
    };
    assert!(error.contains("the state file is damaged"), "{error}");
}

#[tokio::test]
async fn nobody_else_can_read_it() {
    use std::os::unix::fs::PermissionsExt;

    let stage = Stage::open().await;
    stage.publish(&["m1"]).await;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(stage.folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["state.db", "state.db-shm", "state.db-wal", "state.db.lock"]);
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing").join("state.db");
    for error in [
        Store::open_serving(&path).await.unwrap_err(),
        Store::open_publishing(&path).await.unwrap_err(),
    ] {
        let OpenError::Io { path: named, .. } = &error else { panic!("{error:?}") };
        assert!(named.starts_with(folder.path().join("missing")), "{error}");
    }
}

/// A message of about 2 KiB, so that a file fills up soon.
fn fat(id: &str) -> Publication {
    let mut sent = publication(id);
    let payload = format!("\"{}\"", "x".repeat(2000));
    sent.body = format!("{},\"payload\":{payload}}}", &sent.body[..sent.body.len() - 1]).into();
    sent
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_nothing_is_lost() {
    let mut settings = StoreSettings::default();
    settings.max_pages = Some(100);
    let stage = Stage::open_with(tempfile::tempdir().unwrap(), settings).await;
    let mut accepted = Vec::new();
    let refused = loop {
        let id = format!("m{}", accepted.len());
        match stage.queue.publish(vec![fat(&id)]).await {
            Ok(_) => accepted.push(id),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.to_string(), "could not store the messages: the disk is full");
    assert!(accepted.len() > 20, "{} were accepted", accepted.len());
    assert_eq!(stage.queue.health().unwrap_err().cause, "the disk is full");
    assert_eq!(stage.queue.depth().await.unwrap().waiting, accepted.len() as u64);

    // A batch that does not fit is refused as a whole; those that wait with it are not.
    let large = (0..50).map(|n| fat(&format!("large{n}"))).collect();
    let received = stage.take(5).await;
    let (large, settled) = tokio::join!(stage.queue.publish(large), stage.done(&received[0]));
    assert!(large.is_err());
    let () = settled;

    // Room appears as messages go, and then it goes on.
    for delivery in &received[1..] {
        stage.done(delivery).await;
    }
    assert!(stage.queue.health().is_ok());
    stage.queue.publish(vec![fat("late")]).await.unwrap();
    let mut left = stage.take_ids(1000).await;
    assert_eq!(left.pop().as_deref(), Some("late"));
    assert_eq!(left, accepted[5..]);
}

#[tokio::test]
async fn a_full_disk_leaves_what_is_out_as_it_was() {
    let mut settings = StoreSettings::default();
    settings.max_pages = Some(60);
    let stage = Stage::open_with(tempfile::tempdir().unwrap(), settings).await;
    stage.publish(&["m1"]).await;
    let received = stage.take(1).await;
    let parked = sluicegate_dispatch::Parked {
        queue: "orders".into(),
        broker_id: "1".into(),
        pool: None,
        code: sluicegate_dispatch::ParkedCode::Malformed,
        reason: "x".repeat(400_000),
        status: None,
        attempts: 0,
        holds_key: false,
        last_error: None,
        message: Err("raw".to_owned()),
    };
    let park = sluicegate_dispatch::ParkedStore::park(&stage.store, vec![parked]);
    assert_eq!(park.await.unwrap_err().cause, "the disk is full");
    assert_eq!(stage.store.parked_count(), 0);
    stage.done(&received[0]).await;
}

#[tokio::test]
async fn the_log_does_not_grow_for_ever() {
    let stage = Stage::open().await;
    let body = |n: usize| (0..100).map(|m| fat(&format!("{n}/{m}"))).collect::<Vec<_>>();
    for n in 0..120 {
        stage.queue.publish(body(n)).await.unwrap();
        stage.all_done(stage.take(100).await).await;
    }
    let size = |name: &str| std::fs::metadata(stage.folder.path().join(name)).unwrap().len();
    // 24 MB went through.
    assert!(size("state.db-wal") < 24 * 1024 * 1024, "{}", size("state.db-wal"));
    assert!(size("state.db") < 8 * 1024 * 1024, "{}", size("state.db"));
}

/// The tables as version 1 had them, and how it wrote messages.
const VERSION_1: &str = "
    CREATE TABLE queues (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, next INTEGER NOT NULL,
        stored INTEGER NOT NULL
    );
    CREATE TABLE messages (
        seq INTEGER PRIMARY KEY, queue INTEGER NOT NULL, pool TEXT NOT NULL, grp TEXT NOT NULL,
        high INTEGER NOT NULL, attempts INTEGER NOT NULL, due INTEGER, reason TEXT,
        at INTEGER NOT NULL, body TEXT NOT NULL
    );
    CREATE INDEX messages_key ON messages (pool, grp, high);
    CREATE INDEX messages_high ON messages (queue) WHERE high;
    CREATE INDEX messages_due ON messages (queue, due) WHERE due IS NOT NULL;
    CREATE TABLE ids (
        queue INTEGER NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (queue, id)
    ) WITHOUT ROWID;
    CREATE TABLE parked (
        number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, broker_id TEXT NOT NULL,
        pool TEXT, grp TEXT, code TEXT NOT NULL, reason TEXT NOT NULL, status INTEGER,
        attempts INTEGER NOT NULL, holds INTEGER NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL,
        UNIQUE (queue, broker_id)
    );
    CREATE INDEX parked_pool ON parked (pool);
    CREATE INDEX parked_key ON parked (queue, pool, grp) WHERE holds;
    CREATE TABLE replays (seq INTEGER PRIMARY KEY, number INTEGER NOT NULL);
    PRAGMA user_version = 1;
    PRAGMA application_id = 0x534C4754;
";

/// A file of version 1 with messages of two tenants in a pool that keeps order and one that does not, and with what
/// is no message.
fn old_file(path: &std::path::Path) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.execute_batch(VERSION_1).unwrap();
    let base = 1i64 << 47;
    let sent = [
        of_tenant(publication_in("s1", "STRICT", Some("g"), false), "a"),
        of_tenant(publication_in("s2", "STRICT", Some("g"), false), "b"),
        of_tenant(publication_in("s3", "STRICT", Some("g"), false), " "),
        publication_of("p1", "PLAIN", "a"),
        publication_of("p2", "PLAIN", "a"),
        publication_of("p3", "PLAIN", "b"),
        publication("raw"),
    ];
    for (n, sent) in sent.iter().enumerate() {
        let (seq, message) = (base + 1 + n as i64, &sent.message);
        let body = if &*message.id == "raw" { "no message" } else { &sent.body };
        let group = message.group.as_deref().unwrap_or(sluicegate_dispatch::DEFAULT_GROUP);
        let row = rusqlite::params![seq, &*message.pool, group, u32::from(n == 4), body];
        let insert = "INSERT INTO messages (seq, queue, pool, grp, high, attempts, due, reason, at, body) \
                      VALUES (?1, 1, ?2, ?3, 0, ?4, NULL, NULL, 1, ?5)";
        connection.execute(insert, row).unwrap();
        let insert = "INSERT INTO ids (queue, id, seq, at) VALUES (1, ?1, ?2, 1)";
        connection.execute(insert, rusqlite::params![&*message.id, seq]).unwrap();
    }
    let queue = "INSERT INTO queues (id, name, next, stored) VALUES (1, 'orders', ?1, ?2)";
    connection.execute(queue, [base + 1 + sent.len() as i64, sent.len() as i64]).unwrap();
}

#[tokio::test]
async fn a_file_of_version_1_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    old_file(&state(&folder));
    let stage = Stage::open_in(folder).await;
    let order = Order::of_pools(["STRICT"]);
    stage.queue.keep_order(&std::sync::Arc::new(order));
    assert_eq!(stage.queue.depth().await.unwrap().waiting, 7);
    let mut received = stage.take(9).await;
    received.sort_by_key(|delivery| delivery.receipt.tag);
    let id = |delivery: &Delivery| match &delivery.message {
        Ok(message) => message.id.to_string(),
        Err(malformed) => malformed.raw.clone(),
    };
    let ids: Vec<String> = received.iter().map(id).collect();
    assert_eq!(ids, ["s1", "p1", "p2", "p3", "no message"]);
    assert_eq!(received[2].attempts, 1);
    let behind = stage.queue.find("s3").await.unwrap().unwrap();
    assert_eq!(behind.state, FoundState::Behind("s1".into()));
    stage.done(&received[0]).await;
    assert_eq!(stage.take_ids(9).await, ["s2"]);
    stage.publish(&["p4"]).await;
    assert_eq!(stage.take_ids(9).await, ["p4"]);
    let connection = Connection::open(state(&stage.folder)).unwrap();
    let mut lanes = connection.prepare("SELECT code, tenant FROM lanes ORDER BY 1, 2").unwrap();
    let lanes = lanes.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let lanes: Vec<(String, String)> = lanes.collect::<Result<_, _>>().unwrap();
    let expected = [
        ("PLAIN", "a"),
        ("PLAIN", "b"),
        ("POOL", ""),
        ("STRICT", ""),
        ("STRICT", "a"),
        ("STRICT", "b"),
    ];
    assert_eq!(lanes, expected.map(|(code, tenant)| (code.to_owned(), tenant.to_owned())));
}

#[tokio::test]
async fn a_publisher_leaves_an_old_file_alone_while_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = state(&folder);
    old_file(&path);
    // As an older program does.
    let lock = std::fs::File::create(folder.path().join("state.db.lock")).unwrap();
    lock.try_lock().unwrap();
    let error = Store::open_publishing(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Older { found: 1, known: 6 }), "{error:?}");
    assert!(error.to_string().contains("restart"), "{error}");
    let version = || {
        let connection = Connection::open(&path).unwrap();
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(version(), 1);
    drop(lock);
    let publisher = Store::open_publishing(&path).await.unwrap();
    publisher.publish("orders", vec![publication("late")]).await.unwrap();
    assert_eq!(version(), 6);
    let stage = Stage::open_in(folder).await;
    assert_eq!(stage.queue.depth().await.unwrap().waiting, 8);
}

#[tokio::test]
async fn lanes_without_messages_are_forgotten() {
    let stage = Stage::open().await;
    for round in 0..20 {
        let sent = (0..50)
            .map(|n| publication_of(&format!("{round}/{n}"), "POOL", &format!("{round}-{n}")));
        stage.queue.publish(sent.collect()).await.unwrap();
        stage.all_done(stage.take(50).await).await;
    }
    let connection = Connection::open(state(&stage.folder)).unwrap();
    let lanes: i64 =
        connection.query_row("SELECT count(*) FROM lanes", (), |row| row.get(0)).unwrap();
    assert!(lanes <= 250, "{lanes} lanes");
}

/// A file of the first version keeps its parked messages, and what was replayed.
#[tokio::test]
async fn a_file_of_the_first_version_is_brought_up() {
    let folder = tempfile::tempdir().unwrap();
    let old = Connection::open(state(&folder)).unwrap();
    old.execute_batch(VERSION_1).unwrap();
    let body = |id: &str, target: &str| {
        format!(
            "{{\"id\":\"{id}\",\"poolCode\":\"P\",\"mediationTarget\":\"{target}\",\"messageGroupId\":\"g\"}}"
        )
    };
    let mut park = old
        .prepare(
            "INSERT INTO parked (number, queue, broker_id, pool, grp, code, reason, attempts, holds, at, body) \
             VALUES (?1, 'orders', ?1, 'P', 'g', ?2, 'why', 1, ?3, 5, ?4)",
        )
        .unwrap();
    park.execute((2, "key_parked", true, body("m2", "http://Host.example:8080/in"))).unwrap();
    park.execute((3, "rejected", false, body("m3", "https://other.example"))).unwrap();
    park.execute((4, "malformed", false, "{")).unwrap();
    park.execute((5, "rejected", false, body("m5", "http://[2001:db8::1]/x"))).unwrap();
    park.execute((6, "rejected", false, body("m6", "http://plain.example?x=1:80"))).unwrap();
    park.execute((7, "rejected", false, body("m7", "https://secure.example:443#x"))).unwrap();
    park.execute((8, "rejected", false, body("m8", "http://[2001:db8::2]:8080?x"))).unwrap();
    old.execute(
        "INSERT INTO queues (id, name, next, stored) VALUES (1, 'orders', (1 << 47) + 9, 1)",
        (),
    )
    .unwrap();
    old.execute(
        "INSERT INTO messages (seq, queue, pool, grp, high, attempts, at, body) \
         VALUES ((1 << 47) + 8, 1, 'P', 'g', 0, 0, 5, ?1)",
        [body("m1", "http://h/")],
    )
    .unwrap();
    old.execute("INSERT INTO replays (seq, number) VALUES ((1 << 47) + 8, 1)", ()).unwrap();
    drop(park);
    drop(old);
    let stage = Stage::open_in(folder).await;
    assert_eq!(stage.store.parked_count(), 7);
    let found = stage.store.parked_message("m2").await.unwrap().expect("it is parked");
    assert_eq!((found.id.as_str(), found.place), ("2", Some(1)));
    let hosts = [
        ("host.example", 2),
        ("host.example:8080", 2),
        ("other.example", 3),
        ("other.example:443", 3),
        ("[2001:db8::1]", 5),
        ("[2001:db8::1]:80", 5),
        ("2001:db8::1", 5),
        ("plain.example", 6),
        ("plain.example:80", 6),
        ("secure.example", 7),
        ("secure.example:443", 7),
        ("[2001:db8::2]", 8),
        ("[2001:db8::2]:8080", 8),
    ];
    for (host, number) in hosts {
        let filter = ParkedFilter { host: Some(host.to_owned()), ..ParkedFilter::default() };
        assert_eq!(stage.store.parked_numbers(&filter, 0, 9).await.unwrap(), [number], "{host}");
    }
    assert!(stage.store.holds_key("orders", "P", "g"));
    assert!(stage.store.lets_pass("orders", "m1"), "it was replayed");
    assert_eq!(stage.take_ids(9).await, ["m1"]);
}
