//! What is to be read from the file, and what was.
//!
//! One reader at a time goes with a [`Fetch`] and comes back with [`Fetched`]. It reads from one
//! snapshot that is younger than the fetch.

use std::sync::Arc;

use sluicegate_dispatch::Ordered;

use super::super::hash::{Map, Set};
use super::super::row::{Content, Key, Raised, Row, Touched};
use super::lane::{Class, HIGH, Lane, REGULAR, Rank, rank};
use super::pool::Pool;
use super::{AHEAD_BYTES, Lanes, ReadAhead};

/// How many rows of a lane are read at once, at most, while they bring nothing.
const MOST_PASSED: usize = 512;

/// What is to be read.
#[derive(Debug, Default)]
pub(crate) struct Fetch {
    epoch: u64,
    /// All lanes of the queue.
    pub(crate) opens: bool,
    /// Which lanes the messages beyond this number touch.
    pub(crate) beyond: Option<i64>,
    /// What is next of these lanes.
    pub(crate) lanes: Vec<LaneFetch>,
    /// The next of these keys.
    pub(crate) choosing: Vec<Choice>,
    /// What time it is.
    pub(crate) now: i64,
    /// How long the bodies that it brings may be, together.
    pub(crate) room: usize,
}

/// A key whose next message is looked up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) key: Key,
    /// How far its lane is read: the bodies of regular messages beyond are read when the lane comes to them.
    pub(crate) read: i64,
    /// One of it that was out, though the file may not say so.
    pub(crate) tried: Option<i64>,
}

/// What is to be read of a lane.
#[derive(Debug)]
pub(crate) struct LaneFetch {
    pub(crate) pool: i64,
    pub(crate) code: Arc<str>,
    pub(crate) ordered: Ordered,
    pub(crate) lane: i64,
    /// Bodies of these.
    pub(crate) bare: Vec<Rank>,
    /// Messages of each class beyond these numbers.
    pub(crate) cursors: [Option<i64>; 2],
    /// The first regular ones of them, if they are known.
    pub(crate) numbers: Vec<i64>,
    /// Messages in order of their times, beyond this one and up to now.
    pub(crate) due: Option<(i64, i64)>,
    /// How many messages of either kind.
    pub(crate) limit: usize,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Fetched {
    /// Lanes that have messages.
    pub(crate) touched: Vec<Touched>,
    /// The last number of which that is known now.
    pub(crate) known: i64,
    /// Whether there may be more beyond it.
    pub(crate) more: bool,
    /// In the order in which they were asked for.
    pub(crate) lanes: Vec<LaneFetched>,
    pub(crate) chosen: Vec<(Key, Option<Found>)>,
}

/// What was read of a lane.
#[derive(Debug, Default)]
pub(crate) struct LaneFetched {
    pub(crate) loaded: Vec<(Rank, Option<Content>)>,
    pub(crate) rows: [Vec<Found>; 2],
    /// Whether there are no more of a class.
    pub(crate) ended: [bool; 2],
    /// The last number of a regular message that was looked for.
    pub(crate) passed: i64,
    /// The numbers of those that come next.
    pub(crate) numbers: Vec<i64>,
    /// The next of each key that is kept in order and is among the rows, where it may be another
    /// than the first of these.
    pub(crate) first: Map<Arc<str>, Row>,
    pub(crate) due: Vec<Row>,
    /// The first time that has not come.
    pub(crate) next_due: Option<i64>,
    /// Whether there may be more whose time has come.
    pub(crate) more_due: bool,
}

/// A message that was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) row: Row,
    /// Read at once where it will be needed, most likely.
    pub(crate) content: Option<Content>,
}

impl ReadAhead {
    /// What is to be read now, if anything and if nobody is at it. Whoever gets one must end
    /// with [`ReadAhead::bring`] or [`ReadAhead::not_brought`].
    pub(crate) fn fetch(&mut self, now: i64) -> Option<Fetch> {
        if self.fetching {
            return None;
        }
        self.wake(now);
        let opens = self.lanes == Lanes::Unknown;
        let lanes = self.lanes_to_read();
        if !opens && !self.fresh && lanes.is_empty() && self.choosing.is_empty() {
            return None;
        }
        self.fetching = true;
        if opens {
            self.lanes = Lanes::Looking;
        }
        // From here on it says what came since.
        let is_fresh = std::mem::take(&mut self.fresh);
        Some(Fetch {
            epoch: self.epoch,
            opens,
            beyond: (is_fresh && !opens).then_some(self.known),
            lanes,
            choosing: self.choices(),
            now,
            room: AHEAD_BYTES.saturating_sub(self.bytes),
        })
    }

    fn choices(&mut self) -> Vec<Choice> {
        let keys = std::mem::take(&mut self.choosing);
        let choice = |key: Key| {
            self.begin_choosing(&key);
            let (lane, tried) = (self.lane_of_head(&key), self.tried_of(&key));
            Choice { read: lane.map_or(i64::MAX, |lane| lane.reach(REGULAR)), tried, key }
        };
        keys.into_iter().map(choice).collect()
    }

    /// The lanes of pools to read for that are next, as many as there is room for.
    fn lanes_to_read(&mut self) -> Vec<LaneFetch> {
        if self.bytes >= AHEAD_BYTES {
            for id in self.shut.values().copied().collect::<Vec<_>>() {
                self.change(id, Pool::unload);
            }
        }
        let mut lanes = Vec::new();
        let mut room = self.ahead;
        while room > 0
            && let Some(id) = self.hungry.pop_front()
        {
            let share = self.share();
            let Some(pool) = self.pools.get_mut(&id) else { continue };
            pool.is_hungry = false;
            if !pool.is_shut {
                // What was read may all come after the next.
                let least = if pool.must_read() { share.div_ceil(4) } else { 0 };
                let of_pool = share.saturating_sub(pool.loaded).max(least).min(room);
                room -= pool.lanes_to_read(id, of_pool, &mut lanes);
            }
        }
        lanes
    }

    /// Takes in what was read.
    pub(crate) fn bring(&mut self, fetch: &Fetch, fetched: Fetched) {
        self.fetching = false;
        let raised = std::mem::take(&mut self.raised);
        let came_back = std::mem::take(&mut self.came_back);
        let delayed_back = std::mem::take(&mut self.delayed_back);
        if fetch.epoch != self.epoch {
            return;
        }
        if fetch.opens {
            self.lanes = Lanes::Known;
        }
        if fetch.opens || fetch.beyond.is_some() {
            self.known = self.known.max(fetched.known);
            self.fresh |= fetched.more;
        }
        for touched in &fetched.touched {
            self.touch(touched);
        }
        let mut lanes = fetch.lanes.iter().zip(fetched.lanes).peekable();
        while let Some((asked, fetched)) = lanes.next() {
            self.bring_lane(asked, fetched, &came_back);
            // Lanes of a pool stand together: it takes its place when all are brought.
            if lanes.peek().is_none_or(|(next, _)| next.pool != asked.pool) {
                self.place(asked.pool);
            }
        }
        for (key, row) in delayed_back {
            self.bring_passed(key, row);
        }
        for (key, next) in fetched.chosen {
            let (row, content) = next.map(|next| (next.row, next.content)).unzip();
            let place = row.as_ref().map(|row| (row.lane, rank(row.seq, row.high)));
            self.chosen(&key, row);
            if let Some(((lane, rank), content)) = place.zip(content.flatten()) {
                self.change(key.pool, |pool| pool.load(lane, rank, content));
            }
        }
        // Those that the snapshot did not have yet.
        for (key, raised) in raised {
            self.raise(key, raised);
        }
    }

    /// It could not be read: it is to be read again.
    pub(crate) fn not_brought(&mut self, fetch: Fetch, why: String) {
        self.fetching = false;
        self.raised.clear();
        self.came_back.clear();
        self.delayed_back.clear();
        self.read_error = Some(why);
        if fetch.epoch != self.epoch {
            return;
        }
        if fetch.opens {
            self.lanes = Lanes::Unknown;
        }
        self.fresh |= fetch.beyond.is_some();
        self.choosing.extend(fetch.choosing.into_iter().map(|choice| choice.key));
        for asked in fetch.lanes {
            self.fetched(&asked, |lane| {
                for class in [HIGH, REGULAR] {
                    lane.unread[class] |= asked.cursors[class].is_some();
                }
                lane.has_due |= asked.due.is_some();
            });
        }
    }

    /// Nobody reads for this lane any more.
    fn fetched(&mut self, asked: &LaneFetch, change: impl FnOnce(&mut Lane)) {
        self.change(asked.pool, |pool| {
            pool.awaits_reading = false;
            pool.change(asked.lane, |lane| {
                lane.is_fetched = false;
                lane.reading = [false; 2];
                change(lane);
            });
        });
    }

    /// A pool, which is made if it is not there.
    pub(super) fn pool(&mut self, id: i64, code: &Arc<str>) -> &mut Pool {
        let (order, base) = (&self.order, self.base);
        let pool = self.pools.entry(id);
        pool.or_insert_with(|| Pool::new(Arc::clone(code), order.of(code), base))
    }

    /// A lane has messages that were not read.
    pub(super) fn touch(&mut self, touched: &Touched) {
        self.pool(touched.pool, &touched.code);
        if let Some(due) = touched.due {
            self.await_due(touched.pool, touched.lane, due);
        }
        self.change(touched.pool, |pool| {
            pool.change(touched.lane, |lane| {
                lane.unread[HIGH] |= touched.unread[HIGH];
                lane.unread[REGULAR] |= touched.unread[REGULAR];
            });
        });
    }

    fn bring_lane(&mut self, asked: &LaneFetch, fetched: LaneFetched, came_back: &Set<i64>) {
        if asked.ordered == Ordered::Nothing && fetched.loaded.is_empty() && fetched.due.is_empty()
        {
            return self.bring_unordered(asked, fetched, came_back);
        }
        let LaneFetched {
            loaded,
            rows,
            ended,
            passed,
            numbers,
            mut first,
            due,
            next_due,
            more_due,
        } = fetched;
        let (before, count_due) = (self.ready_in(asked), due.len());
        for (rank, content) in loaded {
            match content {
                Some(content) => {
                    self.change(asked.pool, |pool| pool.load(asked.lane, rank, content));
                }
                None => self.vanished(asked, rank),
            }
        }
        let is_current =
            |ahead: &Self, seq: i64| !ahead.out.contains_key(&seq) && !came_back.contains(&seq);
        for row in due {
            self.bring_due(asked, row, is_current);
        }
        if let Some(next) = next_due {
            self.await_due(asked.pool, asked.lane, next);
        }
        let count = count_due + rows.iter().map(Vec::len).sum::<usize>();
        for (class, rows) in rows.into_iter().enumerate() {
            let Some(last) = rows.last().map(|found| found.row.seq) else { continue };
            for found in rows {
                self.bring_row(asked, found, is_current, &mut first);
            }
            self.change(asked.pool, |pool| {
                pool.change(asked.lane, |lane| lane.pass(class, last));
            });
        }
        let brought = self.ready_in(asked) > before;
        self.fetched(asked, |lane| {
            lane.pass(REGULAR, passed);
            lane.numbers.extend(numbers);
            for class in [HIGH, REGULAR] {
                lane.unread[class] |= asked.cursors[class].is_some() && !ended[class];
            }
            lane.has_due |= more_due;
            lane.passed = if brought { 0 } else { (2 * count).min(MOST_PASSED) };
        });
    }

    /// The same in one step, for rows of which each can be handed out once its time has come.
    fn bring_unordered(
        &mut self,
        asked: &LaneFetch,
        mut fetched: LaneFetched,
        came_back: &Set<i64>,
    ) {
        let out = &self.out;
        let is_current = |seq: &i64| !out.contains_key(seq) && !came_back.contains(seq);
        let cursor = |rows: &Vec<Found>| rows.last().map(|found| found.row.seq);
        let cursors = [cursor(&fetched.rows[HIGH]), cursor(&fetched.rows[REGULAR])];
        for rows in &mut fetched.rows {
            rows.retain(|found| is_current(&found.row.seq));
        }
        let pools = &self.pools;
        let lane = || pools.get(&asked.pool).and_then(|pool| pool.lanes.get(&asked.lane));
        let due_of = |found: &Found| {
            let Row { due, seq, .. } = found.row;
            due.filter(|_| lane().is_some_and(|lane| !lane.is_due(due, seq)))
        };
        let next_due = fetched.rows.iter().flatten().filter_map(due_of).min();
        if let Some(due) = next_due.into_iter().chain(fetched.next_due).min() {
            self.await_due(asked.pool, asked.lane, due);
        }
        let Some(pool) = self.pools.get_mut(&asked.pool) else { return };
        let (loaded, bytes) = (pool.loaded, pool.bytes);
        pool.awaits_reading = false;
        pool.add(asked.lane, fetched.rows.into_iter().flatten(), |lane| {
            lane.pass(REGULAR, fetched.passed);
            for class in [HIGH, REGULAR] {
                lane.pass(class, cursors[class].unwrap_or(0));
                let is_asked = asked.cursors[class].is_some();
                lane.unread[class] |= is_asked && !fetched.ended[class];
            }
            lane.numbers.extend(fetched.numbers);
            lane.has_due |= fetched.more_due;
            (lane.is_fetched, lane.reading, lane.passed) = (false, [false; 2], 0);
        });
        self.loaded = self.loaded - loaded + pool.loaded;
        self.bytes = self.bytes - bytes + pool.bytes;
    }

    fn ready_in(&self, asked: &LaneFetch) -> usize {
        let lane = self.pools.get(&asked.pool).and_then(|pool| pool.lanes.get(&asked.lane));
        lane.map_or(0, |lane| lane.ready.len())
    }

    fn bring_due(&mut self, asked: &LaneFetch, row: Row, is_current: impl Fn(&Self, i64) -> bool) {
        let (seq, at) = (row.seq, (row.due.unwrap_or(i64::MIN), row.seq));
        let rank = rank(seq, row.high);
        let is_read = self.change(asked.pool, |pool| {
            let lane = pool.lane(asked.lane);
            lane.due_cursor = lane.due_cursor.max(at);
            seq <= lane.cursors[rank.0]
        });
        if !is_current(self, seq) {
            return;
        }
        let key = Key { pool: asked.pool, group: Arc::clone(&row.group) };
        if self.keeps(&key) {
            self.head_due(key, row);
        } else if is_read == Some(true) {
            // What lies beyond the cursor is found, and taken for due, when it is read.
            self.make_ready(seq, row.high, key, asked.lane);
        }
    }

    /// The time of a message that came back while someone read may have been passed by that.
    fn bring_passed(&mut self, key: Key, row: Row) {
        let lane = self.pools.get(&key.pool).and_then(|pool| pool.lanes.get(&row.lane));
        if !lane.is_some_and(|lane| lane.is_due(row.due, row.seq)) {
            return;
        }
        if self.keeps(&key) {
            self.head_due(key, row);
        } else {
            self.make_ready(row.seq, row.high, key, row.lane);
        }
    }

    fn bring_row(
        &mut self,
        asked: &LaneFetch,
        found: Found,
        is_current: impl Fn(&Self, i64) -> bool,
        first: &mut Map<Arc<str>, Row>,
    ) {
        let Found { row, content } = found;
        let is_current = |ahead: &Self, seq| is_current(ahead, seq);
        let (seq, rank) = (row.seq, rank(row.seq, row.high));
        let key = Key { pool: asked.pool, group: Arc::clone(&row.group) };
        let lane = self.pools.get(&asked.pool).and_then(|pool| pool.lanes.get(&asked.lane));
        let due = row.due.filter(|_| lane.is_some_and(|lane| !lane.is_due(row.due, seq)));
        if self.keeps(&key) {
            self.bring_in_order(key, row, due, is_current, first);
        } else if let Some(due) = due {
            self.await_due(asked.pool, asked.lane, due);
        } else if is_current(self, seq) {
            self.make_ready(seq, row.high, key, asked.lane);
        }
        if let Some(content) = content.filter(|_| is_current(self, seq)) {
            self.change(asked.pool, |pool| pool.load(asked.lane, rank, content));
        }
    }

    /// Takes in a message of a pool that keeps order, and when its time comes if that is not yet. Where what was read is out
    /// of date, the next of its key is looked up.
    fn bring_in_order(
        &mut self,
        key: Key,
        row: Row,
        due: Option<i64>,
        is_current: impl Fn(&Self, i64) -> bool,
        first: &mut Map<Arc<str>, Row>,
    ) {
        if row.high
            && let Some(due) = due
        {
            // Then it may go before others.
            self.await_due(key.pool, row.lane, due);
        }
        if !self.has_head(&key) {
            let head = first.remove(&key.group).unwrap_or(row);
            match is_current(self, head.seq) {
                true => self.crown(key.pool, head),
                false => self.choose_without_head(&key, head.seq, head.lane, head.high),
            }
        } else if row.high && due.is_none() {
            self.raise(key, Raised::of(&row));
        }
    }

    /// A message that should be in the file is not: someone else deleted it.
    fn vanished(&mut self, asked: &LaneFetch, rank: Rank) {
        let lane = self.pools.get(&asked.pool).and_then(|pool| pool.lanes.get(&asked.lane));
        let Some(ready) = lane.and_then(|lane| lane.ready.get(&rank)) else { return };
        let key = Key { pool: asked.pool, group: Arc::clone(&ready.group) };
        if self.keeps(&key) {
            self.choose_again(&key);
        }
        self.change(asked.pool, |pool| pool.unready(asked.lane, rank));
    }
}

impl Pool {
    /// Says what is to be read of the lanes that are next, for so many messages; answers for how many it is.
    fn lanes_to_read(&mut self, id: i64, room: usize, lanes: &mut Vec<LaneFetch>) -> usize {
        let each = (room / self.turns.len().max(1)).max(1);
        let next: Vec<i64> = self.turns.unread().take(room.div_ceil(each)).collect();
        let mut left = room;
        for lane in next {
            let limit = each.min(left);
            left -= limit;
            let (code, ordered) = (Arc::clone(&self.code), self.ordered());
            lanes.push(self.change(lane, |state| {
                let limit = limit.max(state.passed).max(1);
                let bare: Vec<Rank> = state.bare_in_reach().take(limit).collect();
                let limit = limit - bare.len();
                let cursor = |class: Class| {
                    (state.unread[class] && limit > 0).then_some(state.cursors[class])
                };
                let cursors = [cursor(HIGH), cursor(REGULAR)];
                let numbers = state.numbers.iter().copied().take(limit).collect();
                let due = (state.has_due && limit > 0).then_some(state.due_cursor);
                // From here on they say what came since.
                for class in [HIGH, REGULAR] {
                    state.reading[class] = cursors[class].is_some();
                    state.unread[class] &= cursors[class].is_none();
                }
                state.has_due &= due.is_none();
                state.is_fetched = true;
                LaneFetch { pool: id, code, ordered, lane, bare, cursors, numbers, due, limit }
            }));
        }
        room - left
    }
}
