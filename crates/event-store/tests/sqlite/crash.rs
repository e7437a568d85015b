//! A process that is killed while it appends, on a disk that fails now and then and forgets what it did not sync.
//!
//! The process is this test's own program, started again to run [`appends_until_it_is_killed`].
//!
//! `docs/rules.md#events-2`, `docs/rules.md#events-3`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sluicegate_event_store::{AppendCondition, Position, Query, SqliteEngine};
use tempfile::TempDir;

use crate::stage::{about, all, append, at_once, file};

/// Where the process that is killed keeps its file.
const FOLDER: &str = "APPEND_IN";
/// How many append at once.
const CALLERS: usize = 8;
/// How many events each append has.
const PARTS: usize = 3;

/// What the process said before it was killed: which appends were acknowledged, and which were refused.
#[derive(Default)]
struct Said {
    acknowledged: Vec<String>,
    refused: Vec<String>,
}

/// Run by the tests below, in a process of its own: appends until it is killed, and says what came of it. Run by itself,
/// it does not do so for long.
#[tokio::test(flavor = "multi_thread")]
async fn appends_until_it_is_killed() {
    let own = tempfile::tempdir().unwrap();
    let told = std::env::var_os(FOLDER).map(PathBuf::from);
    let rounds = told.as_ref().map_or(3, |_| 100_000);
    let path = told.unwrap_or_else(|| own.path().to_owned()).join("events.db");
    let engine = SqliteEngine::open(&path).await.unwrap();
    let caller = |n: usize| {
        let engine = engine.clone();
        async move {
            for round in 0..rounds {
                let id = format!("{n}-{round}");
                let events = (0..PARTS).map(|part| about("id", &id).tag("part", part));
                let condition = AppendCondition::none(Query::tagged("id", &id));
                match append(&engine, events.collect(), Some(condition)).await {
                    Ok(_) => say("acknowledged", &id),
                    Err(_) => say("refused", &id),
                }
            }
        }
    };
    at_once((0..CALLERS).map(caller)).await;
    assert_eq!(all(&engine, Query::types(["Said"])).await.len(), CALLERS * 3 * PARTS);
}

/// Says it in one piece: standard error is not buffered, and the process may be killed between two pieces.
fn say(what: &str, id: &str) {
    std::io::stderr().write_all(format!("{what} {id}\n").as_bytes()).unwrap();
}

/// Lets a process append and kills it once it has said so many lines.
fn killed_after(lines: usize, folder: &Path, preload: Option<(&Path, u32)>) -> Said {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::appends_until_it_is_killed", "--exact", "--nocapture"]);
    command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some((shim, every)) = preload {
        command.env("LD_PRELOAD", shim).env("FAIL_EVERY_SYNC", every.to_string());
    }
    let mut child = command.spawn().unwrap();
    let mut said = Said::default();
    let output = BufReader::new(child.stderr.take().unwrap());
    let mut left = Some(lines);
    for line in output.lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            Some(("acknowledged", id)) => said.acknowledged.push(id.to_owned()),
            Some(("refused", id)) => said.refused.push(id.to_owned()),
            _ => panic!("the process said: {line}"),
        }
        // What it had said by then is in the pipe, and is read to its end.
        left = left.and_then(|left| left.checked_sub(1));
        if left == Some(0) {
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success());
    assert!(said.acknowledged.len() + said.refused.len() >= lines);
    said
}

/// All that was acknowledged is there, and of everything all or nothing.
async fn check(path: &Path, said: &Said) {
    let engine = SqliteEngine::open(path).await.unwrap();
    let mut parts = HashMap::<String, usize>::new();
    let events = all(&engine, Query::all()).await;
    for event in &events {
        *parts.entry(event.tag("id").unwrap().to_owned()).or_default() += 1;
    }
    for id in &said.acknowledged {
        assert!(parts.contains_key(id), "{id} was acknowledged and is gone");
    }
    for (id, count) in &parts {
        assert_eq!(*count, PARTS, "{id}");
        // By its keys too.
        assert_eq!(all(&engine, Query::tagged("id", id)).await.len(), PARTS, "{id}");
    }
    let at = append(&engine, vec![about("id", "after")], None).await.unwrap();
    let last = events.last().map_or(Position::START, sluicegate_event_store::Event::position);
    assert!(at > last);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_kill_and_the_rest_is_whole_or_not_there() {
    for lines in [1, 20, 90, 200, 333] {
        let folder = tempfile::tempdir().unwrap();
        let said = killed_after(lines, folder.path(), None);
        assert!(said.refused.is_empty());
        check(&file(&folder), &said).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_failing_syncs_and_the_loss_of_all_that_was_not_synced() {
    let tools = tempfile::tempdir().unwrap();
    let shim = shim(&tools);
    for (lines, every) in [(60, 2), (200, 5), (200, 17)] {
        let folder = tempfile::tempdir().unwrap();
        let said = killed_after(lines, folder.path(), Some((&shim, every)));
        assert!(!said.acknowledged.is_empty(), "every {every}");
        // Where each is tried again by itself after a sync that failed for all, few fail twice.
        assert!(every > 2 || !said.refused.is_empty(), "every {every}");
        // What is on the disk once the power was gone: the files as they were when they were last synced.
        let lost = tempfile::tempdir().unwrap();
        for name in ["events.db", "events.db-wal"] {
            let synced = folder.path().join(format!("{name}.synced"));
            if synced.exists() {
                std::fs::copy(synced, lost.path().join(name)).unwrap();
            }
        }
        check(&file(&lost), &said).await;
        check(&file(&folder), &said).await;
    }
}

fn shim(folder: &TempDir) -> PathBuf {
    let shim = folder.path().join("failing_sync.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sqlite/failing_sync.c");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source);
    assert!(compile.status().unwrap().success());
    shim
}
