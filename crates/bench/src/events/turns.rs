//! Turns: one side appends for a while with so many writers, then the next one does.

use std::time::{Duration, Instant};

use sluicegate_event_store::{EventStore, Position};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::load;

/// How much is measured.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) rounds: usize,
    /// How long a turn takes.
    pub(super) turn: Duration,
    /// How many events are there before it begins, by turns.
    pub(super) present: &'static [u64],
    /// How many events are projected.
    pub(super) projected: u64,
}

impl Extent {
    pub(super) const fn of(quick: bool) -> Self {
        if quick {
            let turn = Duration::from_millis(100);
            return Self { rounds: 1, turn, present: &[1_000], projected: 1_000 };
        }
        let turn = Duration::from_millis(400);
        Self { rounds: 5, turn, present: &[0, 1_000_000], projected: 100_000 }
    }
}

/// How many append at once, and how many events each time.
#[derive(Clone, Copy)]
pub(super) struct Crowd {
    pub(super) writers: u64,
    pub(super) batch: u64,
}

/// All that are measured.
pub(super) const CROWDS: [Crowd; 9] = {
    const fn of(writers: u64, batch: u64) -> Crowd {
        Crowd { writers, batch }
    }
    [
        of(1, 1),
        of(16, 1),
        of(64, 1),
        of(1, 10),
        of(16, 10),
        of(64, 10),
        of(1, 64),
        of(16, 64),
        of(64, 64),
    ]
};

/// How a side appends: for so long, with so many; answers how many events a second.
pub(super) type Side<'a> = &'a dyn Fn(Crowd, Duration) -> Result<f64, String>;

/// The medians of all sides, which take turns.
pub(super) fn medians<const N: usize>(
    extent: Extent,
    crowd: Crowd,
    sides: [Side<'_>; N],
) -> Result<[f64; N], String> {
    let mut rates = [const { Vec::new() }; N];
    for round in 0..extent.rounds {
        // Each round begins with another, so that none always follows the same one.
        for n in 0..N {
            let n = (n + round) % N;
            rates[n].push(sides[n](crowd, extent.turn)?);
        }
    }
    Ok(rates.map(median))
}

pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

/// Writers that are tasks: each appends until its time is over, and says how many events it has appended.
pub(super) fn tasks<W>(
    runtime: &Runtime,
    crowd: Crowd,
    turn: Duration,
    write: impl Fn(u64, Instant) -> W,
) -> Result<f64, String>
where
    W: Future<Output = Result<u64, String>> + Send + 'static,
{
    runtime.block_on(async {
        let begun = Instant::now();
        let mut writers = JoinSet::new();
        for writer in 0..crowd.writers {
            writers.spawn(write(writer, begun + turn));
        }
        let mut count = 0;
        while let Some(joined) = writers.join_next().await {
            count += joined.map_err(|error| error.to_string())??;
        }
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    })
}

/// Our side: appends, under a condition or without one.
pub(super) fn ours(
    runtime: &Runtime,
    store: &EventStore,
    crowd: Crowd,
    turn: Duration,
    is_conditional: bool,
) -> Result<f64, String> {
    tasks(runtime, crowd, turn, |_, end| {
        let store = store.clone();
        async move {
            let mut head = store.head().await.map_err(|error| error.to_string())?;
            let mut count = 0;
            while Instant::now() < end {
                head = append(&store, crowd.batch, is_conditional.then_some(head)).await?;
                count += crowd.batch;
            }
            Ok(count)
        }
    })
}

async fn append(
    store: &EventStore,
    batch: u64,
    after: Option<Position>,
) -> Result<Position, String> {
    let events = load::some(batch);
    let appended = match after {
        Some(after) => {
            let condition = load::condition(&events, after);
            store.append_if(events.iter().map(load::Plain::event), condition).await
        }
        None => store.append(events.iter().map(load::Plain::event)).await,
    };
    appended.map_err(|error| error.to_string())
}

/// Fills a store with so many events.
pub(super) fn fill(runtime: &Runtime, store: &EventStore, count: u64) -> Result<(), String> {
    const TOGETHER: u64 = 1_000;
    /// So many that a transaction is full.
    const AT_ONCE: u64 = 8;
    runtime.block_on(async {
        let mut left = count;
        let mut filling = JoinSet::new();
        while left > 0 || !filling.is_empty() {
            while left > 0 && filling.len() < AT_ONCE as usize {
                let batch = left.min(TOGETHER);
                left -= batch;
                let store = store.clone();
                filling.spawn(async move { append(&store, batch, None).await });
            }
            if let Some(joined) = filling.join_next().await {
                joined.map_err(|error| error.to_string())??;
            }
        }
        Ok(())
    })
}
