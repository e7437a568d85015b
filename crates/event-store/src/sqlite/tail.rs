//! The keys of the last events, in memory: an append writes its events only, one after the other at the end of the file.
//! Their keys are filed later, many at once and in their order, because rows that belong all over a long index cost a page
//! each when they are written one by one. What is not filed is read from the events when the file is opened.
//!
//! Invariants:
//! 1. The lists in the file are complete up to `filed`; those in memory have exactly the events after it.
//! 2. What is in memory after `committed` may be taken back. Readers stop there.
//! 3. A generation that has been closed never changes, but for being filed: a reader that holds it needs no lock of the
//!    writer, and none of the file.
//!
//! Everything but reading happens within the file's one writer.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rusqlite::{Connection, params};

use super::search::{tag_key, type_key};
use super::statements::{FILE_KEY, LOAD, SET_FILED};
use crate::event::SEPARATOR;

/// How many events a generation has, give or take those of one transaction.
const GENERATION: usize = 32_768;
/// How many rows are filed together at least: rows that lie beside each other share pages.
const TOGETHER: usize = 256;

/// The keys of the events that the file's lists do not have yet.
#[derive(Debug)]
pub(crate) struct Tail {
    state: Mutex<State>,
    /// How many events a generation has.
    generation: usize,
}

#[derive(Debug)]
struct State {
    filed: i64,
    committed: i64,
    /// The last event here; beyond what is committed, within a transaction.
    last: i64,
    /// Keys that are being filed, and those that come.
    closed: Option<Closed>,
    open: Arc<Lists>,
    /// How many events the open generation has.
    count: usize,
}

#[derive(Debug)]
struct Closed {
    lists: Arc<Lists>,
    /// The last of its events.
    last: i64,
    /// How many rows are filed for each event that is appended, so that it is done before the next one is closed.
    pace: usize,
    /// How many are due.
    due: usize,
    /// Where filing goes on: within a transaction, and once that is committed or taken back.
    next: Progress,
    kept: Progress,
}

/// How far a generation is filed.
#[derive(Clone, Debug)]
enum Progress {
    /// All keys up to this one.
    After(Option<Box<str>>),
    Done,
}

/// Positions by key.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    by_key: RwLock<BTreeMap<Box<str>, Vec<i64>>>,
}

/// What a reader sees, from one moment on.
#[derive(Debug)]
pub(crate) struct View {
    /// Up to which position the lists of the file are asked.
    pub(crate) filed: i64,
    /// Up to which position there is anything.
    pub(crate) up_to: i64,
    generations: [Option<Arc<Lists>>; 2],
}

impl Tail {
    /// The tail of a file, read from its events.
    pub(crate) fn load(connection: &Connection, filed: i64) -> rusqlite::Result<Self> {
        Self::of_size(connection, filed, GENERATION)
    }

    pub(crate) fn of_size(
        connection: &Connection,
        filed: i64,
        generation: usize,
    ) -> rusqlite::Result<Self> {
        let open = Arc::default();
        let state = State { filed, committed: filed, last: filed, closed: None, open, count: 0 };
        let tail = Self { state: Mutex::new(state), generation };
        tail.catch_up(connection, i64::MAX)?;
        tail.commit();
        Ok(tail)
    }

    /// What can be read.
    pub(crate) fn view(&self) -> View {
        let state = self.state.lock();
        state.view(state.committed)
    }

    /// What the writer sees: what its transaction has appended too.
    pub(crate) fn writers_view(&self) -> View {
        self.state.lock().view(i64::MAX)
    }

    pub(crate) fn committed(&self) -> i64 {
        self.state.lock().committed
    }

    /// Takes in events up to the last one of the file that are not here yet. It finds some when the file is opened, and if
    /// another program has put them there.
    pub(crate) fn catch_up(&self, connection: &Connection, last: i64) -> rusqlite::Result<()> {
        let after = self.state.lock().last;
        if after >= last {
            return Ok(());
        }
        let mut load = connection.prepare_cached(LOAD)?;
        let mut rows = load.query([after])?;
        while let Some(row) = rows.next()? {
            let tags = row.get_ref(2)?.as_bytes()?;
            let tags = std::str::from_utf8(tags).map_err(rusqlite::Error::from)?;
            let event_type = row.get_ref(1)?.as_str()?;
            self.add(row.get(0)?, event_type, tags.split(SEPARATOR));
        }
        Ok(())
    }

    /// Takes in an event that was appended.
    pub(crate) fn add<'a>(
        &self,
        position: i64,
        event_type: &str,
        tags: impl Iterator<Item = &'a str>,
    ) {
        let mut state = self.state.lock();
        (state.last, state.count) = (position, state.count + 1);
        let mut lists = state.open.by_key.write();
        let mut put = |key: &str| match lists.get_mut(key) {
            Some(list) => list.push(position),
            None => drop(lists.insert(key.into(), vec![position])),
        };
        put(&type_key(event_type));
        tags.for_each(|tag| put(tag_key(tag)));
    }

    /// What was appended is on the disk.
    pub(crate) fn commit(&self) {
        let mut state = self.state.lock();
        state.committed = state.last;
        if let Some(mut closed) = state.closed.take() {
            closed.kept = closed.next.clone();
            match closed.kept {
                Progress::Done => state.filed = closed.last,
                Progress::After(_) => state.closed = Some(closed),
            }
        }
        if state.closed.is_none() && state.count >= self.generation {
            state.close();
        }
    }

    /// What was appended and is not committed has been taken back.
    pub(crate) fn undo(&self) {
        let mut state = self.state.lock();
        if let Some(closed) = &mut state.closed {
            closed.next = closed.kept.clone();
        }
        let committed = state.committed;
        if state.last == committed {
            return;
        }
        state.last = committed;
        state.open.by_key.write().retain(|_, list| {
            list.truncate(list.partition_point(|position| *position <= committed));
            !list.is_empty()
        });
    }

    /// Files what is due once so many events were appended.
    pub(crate) fn file(&self, connection: &Connection, events: usize) -> rusqlite::Result<()> {
        let mut state = self.state.lock();
        let Some(closed) = &mut state.closed else { return Ok(()) };
        closed.due += events * closed.pace;
        if closed.due < TOGETHER {
            return Ok(());
        }
        let due = mem::take(&mut closed.due);
        let Progress::After(after) = &closed.next else { return Ok(()) };
        closed.next = closed.lists.file(connection, after.as_deref(), due)?;
        if matches!(closed.next, Progress::Done) {
            connection.prepare_cached(SET_FILED)?.execute([closed.last])?;
        }
        Ok(())
    }
}

impl State {
    fn view(&self, up_to: i64) -> View {
        let closed = self.closed.as_ref().map(|closed| Arc::clone(&closed.lists));
        let generations = [closed, Some(Arc::clone(&self.open))];
        View { filed: self.filed, up_to, generations }
    }

    /// Nothing is under way: what is here is committed.
    fn close(&mut self) {
        let lists = mem::take(&mut self.open);
        let rows = lists.by_key.read().values().map(Vec::len).sum::<usize>();
        let next = Progress::After(None);
        let pace = 2 * rows.div_ceil(self.count.max(1));
        self.closed =
            Some(Closed { lists, last: self.last, pace, due: 0, kept: next.clone(), next });
        self.count = 0;
    }
}

impl Lists {
    /// Writes lists after a key to the file, until so many rows are written. Some of them may be there already: filing had
    /// not ended when the file was closed.
    fn file(
        &self,
        connection: &Connection,
        after: Option<&str>,
        rows: usize,
    ) -> rusqlite::Result<Progress> {
        let mut file_key = connection.prepare_cached(FILE_KEY)?;
        let lists = self.by_key.read();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut written = 0;
        for (key, list) in lists.range::<str, _>((begin, Bound::Unbounded)) {
            for position in list {
                file_key.execute(params![key, position])?;
            }
            written += list.len();
            if written >= rows {
                return Ok(Progress::After(Some(key.clone())));
            }
        }
        Ok(Progress::Done)
    }
}

impl View {
    /// Puts positions of a key that are not before `from` behind those that a vector has, until it has so many.
    pub(crate) fn seek(&self, key: &str, from: i64, count: usize, into: &mut Vec<i64>) {
        for lists in self.generations.iter().flatten() {
            let by_key = lists.by_key.read();
            let list = by_key.get(key).map_or(&[][..], Vec::as_slice);
            let begin = list.partition_point(|position| *position < from);
            let left = count - into.len();
            let found = list[begin..].iter().take(left).take_while(|at| **at <= self.up_to);
            into.extend(found);
        }
    }
}
