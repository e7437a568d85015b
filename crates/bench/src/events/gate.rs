//! A thousand callers at a limit of a hundred: who is refused, how fast, and what is left of it.

use std::time::{Duration, Instant};

use sluicegate_event_store::{
    Append, AppendError, BoxFuture, Engine, EngineError, EventStore, MemoryEngine, NewEvent, Page,
    Position, ProjectError, Query, Read, ReadError, Settings, fold,
};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::report::{Promise, Report, Row};

const CALLERS: usize = 1_000;
const LIMIT: u32 = 100;

/// An engine whose readers wait until it is opened.
struct Shut {
    events: MemoryEngine,
    opened: watch::Receiver<bool>,
}

impl Engine for Shut {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Position, AppendError>> {
        self.events.append(append)
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move {
            let opened = self.opened.clone().wait_for(|is_open| *is_open).await.map(drop);
            opened.map_err(|_| EngineError::new("it was never opened"))?;
            self.events.read(read).await
        })
    }

    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
        self.events.head()
    }

    fn changed(&self, after: Position) -> BoxFuture<'_, ()> {
        self.events.changed(after)
    }
}

pub(super) fn run(report: &mut Report, runtime: &Runtime) -> Result<(), String> {
    eprintln!("{CALLERS} callers at a limit of {LIMIT} …");
    let (open, opened) = watch::channel(false);
    let engine = Shut { events: MemoryEngine::new(), opened };
    let limit = Settings { max_concurrent_projections: LIMIT, ..Settings::default() };
    let store = EventStore::with_settings(engine, limit).map_err(|error| error.to_string())?;
    let (let_in, refusals) = runtime.block_on(callers(&store, open))?;
    let row = |what: &str, unit, figure: f64, most| {
        Row::new(format!("{CALLERS} callers at a limit of {LIMIT}: {what}"), unit, figure)
            .promised(Promise::AtMost(most))
    };
    let excess = CALLERS - LIMIT as usize;
    let slowest = refusals.iter().max().copied().unwrap_or_default();
    let running = store.stats().projections_running;
    report.rows.extend([
        // Together they are all: so each is exact.
        row("let in", "callers", let_in as f64, f64::from(LIMIT)),
        row("refused", "callers", refusals.len() as f64, excess as f64),
        row("the slowest refusal", "us", slowest.as_secs_f64() * 1e6, 1_000.0),
        row("projecting after it", "callers", f64::from(running), 0.0),
    ]);
    Ok(())
}

/// How many were let in, and how long each of the others waited for its refusal.
async fn callers(
    store: &EventStore,
    open: watch::Sender<bool>,
) -> Result<(usize, Vec<Duration>), String> {
    store.append([NewEvent::of("A").tag("k", "v")]).await.map_err(|error| error.to_string())?;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            let begun = Instant::now();
            let answer = store.project(fold::count(Query::all()), Position::START).await;
            (answer, begun.elapsed())
        });
    }
    // Nobody who is let in comes to an end before all have asked.
    while asked(store) < CALLERS as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    open.send(true).map_err(|error| error.to_string())?;
    let (mut let_in, mut refusals) = (0, Vec::new());
    while let Some(joined) = callers.join_next().await {
        match joined.map_err(|error| error.to_string())? {
            (Ok(_), _) => let_in += 1,
            (Err(ProjectError::TooManyProjections(_)), took) => refusals.push(took),
            (Err(error), _) => return Err(error.to_string()),
        }
    }
    Ok((let_in, refusals))
}

fn asked(store: &EventStore) -> u64 {
    let stats = store.stats();
    u64::from(stats.projections_running) + stats.projections_refused
}
