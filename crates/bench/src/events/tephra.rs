//! The other embeddable store, used as its documentation says: a thread for each writer.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tephra::{Position, Query, QueryItem, SegmentConfig, SegmentSet};
use tephra::{WriteCoordinator, WriteHandle, WriterConfig};

use super::load;
use super::turns::Crowd;

/// How large a file of its log is.
const SEGMENT: u32 = 256 << 20;

/// A folder of its own.
pub(super) struct Theirs {
    handle: WriteHandle,
    coordinator: Option<WriteCoordinator>,
}

impl Theirs {
    pub(super) fn filled(path: &Path, count: u64) -> Result<Self, String> {
        let set = SegmentSet::open(path, SegmentConfig::new(SEGMENT as _));
        let set = set.map_err(|error| error.to_string())?;
        let started = WriteCoordinator::start(set, WriterConfig::default());
        let (coordinator, handle) = started.map_err(|error| error.to_string())?;
        let theirs = Self { handle, coordinator: Some(coordinator) };
        let mut left = count;
        while left > 0 {
            let events = load::some(left.min(1_000));
            left -= events.len() as u64;
            let events = events.iter().map(load::Plain::theirs).collect::<Result<_, _>>()?;
            theirs.handle.append(events, None).map_err(|error| error.to_string())?;
        }
        Ok(theirs)
    }

    /// Appends under conditions for a while; answers how many events a second.
    pub(super) fn append_if(&self, crowd: Crowd, turn: Duration) -> Result<f64, String> {
        let begun = Instant::now();
        let end = begun + turn;
        let counts: Result<Vec<u64>, String> = thread::scope(|scope| {
            let writer = |_| scope.spawn(move || self.write(crowd.batch, end));
            let writers: Vec<_> = (0..crowd.writers).map(writer).collect();
            let joined = writers.into_iter().map(|it| it.join());
            joined.map(|count| count.map_err(|_| "a writer panicked".to_owned())?).collect()
        });
        Ok(counts?.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64())
    }

    fn write(&self, batch: u64, end: Instant) -> Result<u64, String> {
        let mut head = self.handle.head();
        let mut count = 0;
        while Instant::now() < end {
            let events = load::some(batch);
            let condition = load::their_condition(&events, head)?;
            let events = events.iter().map(load::Plain::theirs).collect::<Result<_, _>>()?;
            let appended = self.handle.append(events, Some(condition));
            appended.map_err(|error| error.to_string())?;
            head = self.handle.head();
            count += batch;
        }
        Ok(count)
    }

    /// Folds so many events of a type; answers how long that took.
    pub(super) fn project(&self, event_type: &str, count: u64) -> Result<Duration, String> {
        let begun = Instant::now();
        let mut reads = self.handle.read(&of_type(event_type)?, Position::ZERO, Some(count));
        let (mut seen, mut bytes) = (0, 0);
        while let Some(read) = reads.next() {
            let read = read.map_err(|error| error.to_string())?;
            seen += 1;
            bytes += read.event.data().len();
        }
        took(begun, seen, bytes, count)
    }

    /// The same as one who follows the log, from its beginning.
    pub(super) fn follow(&self, event_type: &str, count: u64) -> Result<Duration, String> {
        let begun = Instant::now();
        let mut following = self.handle.subscribe(of_type(event_type)?, Position::ZERO);
        let (mut seen, mut bytes) = (0, 0);
        while seen < count {
            let batch = following.next_batch().ok_or("the log has ended")?;
            for (_, event) in batch.map_err(|error| error.to_string())? {
                seen += 1;
                bytes += event.data().len();
            }
        }
        took(begun, seen, bytes, count)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            drop(coordinator.shutdown());
        }
    }
}

fn of_type(name: &str) -> Result<Query, String> {
    Ok(Query::item(QueryItem::of_types(vec![load::their_type(name)?])))
}

fn took(begun: Instant, seen: u64, bytes: usize, count: u64) -> Result<Duration, String> {
    match seen >= count && bytes > 0 {
        true => Ok(begun.elapsed()),
        false => Err(format!("{seen} events were read, not {count}")),
    }
}
