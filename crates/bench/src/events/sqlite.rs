//! The embedded engine, beside bare INSERTs of the same rows and beside another embeddable store.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sluicegate_event_store::{EventStore, Position, Query, SqliteEngine, fold};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::bare::Bare;
use super::load::TENTH;
use super::tephra::Theirs;
use super::turns::{CROWDS, Crowd, Extent, fill, median, medians, ours};
use crate::report::{Promise, Report, Row};

/// What one that has few events has.
const FEW: u64 = 1_000;

/// All three with the same number of events.
struct Scene {
    store: EventStore,
    bare: RefCell<Bare>,
    theirs: Theirs,
    _folder: TempDir,
}

impl Scene {
    fn filled(runtime: &Runtime, present: u64) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let store = open(runtime, &folder.path().join("ours.db"))?;
        fill(runtime, &store, present)?;
        let bare = Bare::filled(&folder.path().join("bare.db"), present)?;
        let theirs = Theirs::filled(&folder.path().join("theirs"), present)?;
        Ok(Self { store, bare: RefCell::new(bare), theirs, _folder: folder })
    }
}

fn open(runtime: &Runtime, path: &Path) -> Result<EventStore, String> {
    let engine = runtime.block_on(SqliteEngine::open(path)).map_err(|error| error.to_string())?;
    Ok(EventStore::new(engine))
}

/// Appends under conditions, and then projects, for a profiler.
pub(super) fn spin(
    runtime: &Runtime,
    crowd: Crowd,
    present: u64,
    turn: Duration,
) -> Result<f64, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let store = open(runtime, &folder.path().join("ours.db"))?;
    let begun = Instant::now();
    fill(runtime, &store, present)?;
    eprintln!("filled in {:?}", begun.elapsed());
    if crowd.writers > 0 {
        return ours(runtime, &store, crowd, turn, true);
    }
    let begun = Instant::now();
    let mut rates = Vec::new();
    while begun.elapsed() < turn {
        let count = present / 10;
        rates.push(count as f64 / runtime.block_on(project(&store, count))?.as_secs_f64());
    }
    Ok(median(rates))
}

pub(super) fn run(report: &mut Report, runtime: &Runtime, extent: Extent) -> Result<(), String> {
    for (n, present) in extent.present.iter().enumerate() {
        eprintln!("SQLite: {present} events …");
        let scene = Scene::filled(runtime, *present)?;
        for crowd in CROWDS {
            append_if(report, runtime, extent, &scene, *present, crowd)?;
        }
        if n + 1 == extent.present.len() {
            cost(report, runtime, extent, &scene.store)?;
            reading(report, runtime, extent, &scene)?;
        }
    }
    Ok(())
}

fn append_if(
    report: &mut Report,
    runtime: &Runtime,
    extent: Extent,
    scene: &Scene,
    present: u64,
    crowd: Crowd,
) -> Result<(), String> {
    let [own, bare, theirs] = medians(
        extent,
        crowd,
        [
            &|crowd, turn| ours(runtime, &scene.store, crowd, turn, true),
            &|crowd, turn| scene.bare.borrow_mut().insert(crowd, turn),
            &|crowd, turn| scene.theirs.append_if(crowd, turn),
        ],
    )?;
    let what = super::named("SQLite append_if", crowd, present);
    let row = Row::new(&what, "/s", own);
    let beside_bare = match crowd.batch {
        1 => row.beside("bare, transactions of 64", bare),
        10 => row.beside("bare, transactions of 640", bare),
        _ => row.beside("bare, transactions of 1000", bare),
    };
    let least = |least| Promise::RatioAtLeast(least);
    let beside_theirs = Row::new(what, "/s", own).beside("tephra", theirs);
    let (beside_bare, beside_theirs) = match (crowd.writers, crowd.batch) {
        (64, 1) => (beside_bare.promised(least(0.5)), beside_theirs.promised(least(0.9))),
        (64, 64) => (beside_bare.promised(least(0.5)), beside_theirs.promised(least(0.4))),
        _ => (beside_bare, beside_theirs),
    };
    report.rows.extend([beside_bare, beside_theirs]);
    Ok(())
}

/// What an event costs in a long log, beside a short one.
fn cost(
    report: &mut Report,
    runtime: &Runtime,
    extent: Extent,
    long: &EventStore,
) -> Result<(), String> {
    for writers in [1, 64] {
        // One that is short again: it grows while it is measured.
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let short = open(runtime, &folder.path().join("short.db"))?;
        fill(runtime, &short, FEW)?;
        super::cost(report, runtime, extent, "SQLite", writers, [long, &short])?;
    }
    Ok(())
}

/// Projecting and following, beside the other store.
fn reading(
    report: &mut Report,
    runtime: &Runtime,
    extent: Extent,
    scene: &Scene,
) -> Result<(), String> {
    // Every tenth event; a short log has fewer of them.
    let last = extent.present.last().copied().unwrap_or_default();
    let count = extent.projected.min(last / 10);
    let rate = |took: Duration| count as f64 / took.as_secs_f64();
    let [mut projected, mut theirs, mut followed, mut theirs_followed] = [const { Vec::new() }; 4];
    for _ in 0..extent.rounds.max(3) {
        projected.push(rate(runtime.block_on(project(&scene.store, count))?));
        theirs.push(rate(scene.theirs.project(TENTH, count)?));
        followed.push(rate(runtime.block_on(follow(&scene.store, count))?));
        theirs_followed.push(rate(scene.theirs.follow(TENTH, count)?));
    }
    let (projected, theirs) = (median(projected), median(theirs));
    let (followed, theirs_followed) = (median(followed), median(theirs_followed));
    let what = format!("SQLite projection of {count} events");
    let row = Row::new(&what, "/s", projected);
    report.rows.push(row.promised(Promise::AtLeast(500_000.0)));
    let row = |what: String, own, theirs| {
        Row::new(what, "/s", own).beside("tephra", theirs).promised(Promise::RatioAtLeast(1.0))
    };
    report.rows.push(row(what, projected, theirs));
    report.rows.push(row(format!("SQLite tail, {count} events"), followed, theirs_followed));
    Ok(())
}

/// Folds the first so many events of a type.
async fn project(store: &EventStore, count: u64) -> Result<Duration, String> {
    let begun = Instant::now();
    let folded = fold::of(Query::types([TENTH]), (0_u64, 0_usize), |(seen, bytes), event| {
        *seen += 1;
        *bytes += event.data().len();
    });
    let projected = store.project(folded, Position::START).await;
    let ((seen, _), _) = projected.map_err(|error| error.to_string())?;
    // Those that the turns have appended are among them: what counts is the time of each.
    let took = begun.elapsed();
    Ok(took.mul_f64(count as f64 / seen.max(1) as f64))
}

/// The same as one who follows the log, from its beginning.
async fn follow(store: &EventStore, count: u64) -> Result<Duration, String> {
    let begun = Instant::now();
    let tail = store.tail(Query::types([TENTH]), Position::START);
    let mut tail = tail.map_err(|error| error.to_string())?;
    let (mut seen, mut bytes) = (0, 0);
    while seen < count {
        let event = tail.next().await.ok_or("the log has ended")?;
        bytes += event.map_err(|error| error.to_string())?.data().len();
        seen += 1;
    }
    match bytes {
        0 => Err("the events have no data".to_owned()),
        _ => Ok(begun.elapsed()),
    }
}
