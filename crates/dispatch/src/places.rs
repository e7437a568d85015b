//! The places of a pool: how many more messages it may take from its queues, and who waits for that.
//!
//! A message has a place from its admission until its settlement is durable. So what is done and not settled yet is
//! bounded by what the pool may hold: docs/rules.md#settle-5.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering as Memory};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How often those who wait are told of room that is not much.
pub(crate) const BETWEEN_SMALL_ROOMS: Duration = Duration::from_millis(10);

/// The places of one pool.
#[derive(Debug)]
pub(crate) struct Places {
    /// How many may wait.
    capacity: AtomicU32,
    /// How many may run.
    concurrency: AtomicU32,
    waiting: AtomicU32,
    /// Those that wait, run, or are being settled.
    unsettled: AtomicU32,
    /// Those that a receive has taken and not filled yet.
    reserved: Mutex<u32>,
    is_awaited: AtomicBool,
    awaiting: Mutex<Vec<Waiting>>,
    told: Mutex<Option<Instant>>,
    /// Whether it was said that there will be room.
    is_announced: AtomicBool,
}

/// Who wants to hear of room.
pub(crate) trait AwaitsRoom: Send + Sync {
    /// A pool has room, which messages of this code go to.
    fn has_room(self: Arc<Self>, code: &Arc<str>);

    /// A pool has a little room, and tells of it when it is looked at after a while.
    fn will_have_room(&self);
}

struct Waiting {
    who: Arc<dyn AwaitsRoom>,
    code: Arc<str>,
}

impl Places {
    pub(crate) fn new(concurrency: u32, capacity: u32) -> Arc<Self> {
        Arc::new(Self {
            capacity: AtomicU32::new(capacity),
            concurrency: AtomicU32::new(concurrency),
            waiting: AtomicU32::new(0),
            unsettled: AtomicU32::new(0),
            reserved: Mutex::new(0),
            is_awaited: AtomicBool::new(false),
            awaiting: Mutex::default(),
            told: Mutex::default(),
            is_announced: AtomicBool::new(false),
        })
    }

    pub(crate) fn resize(&self, concurrency: u32, capacity: u32) {
        self.capacity.store(capacity, Memory::SeqCst);
        self.concurrency.store(concurrency, Memory::SeqCst);
        self.tell();
    }

    /// How many more messages may come, beside so many that are on their way.
    fn free(&self, reserved: u32) -> u32 {
        let capacity = self.capacity.load(Memory::Relaxed);
        let all = capacity.saturating_add(self.concurrency.load(Memory::Relaxed));
        let to_wait = capacity.saturating_sub(self.waiting.load(Memory::SeqCst));
        let to_settle = all.saturating_sub(self.unsettled.load(Memory::SeqCst));
        to_wait.min(to_settle).saturating_sub(reserved)
    }

    /// How many more messages may come.
    pub(crate) fn room(&self) -> u32 {
        self.free(*self.reserved.lock())
    }

    /// Takes a place for a message that is on its way.
    pub(crate) fn take(&self) -> bool {
        let mut reserved = self.reserved.lock();
        let is_free = self.free(*reserved) > 0;
        *reserved += u32::from(is_free);
        is_free
    }

    /// Gives back places of messages that came, or did not.
    pub(crate) fn release(&self, count: u32) {
        let mut reserved = self.reserved.lock();
        *reserved = reserved.saturating_sub(count);
        drop(reserved);
        self.tell_if_awaited();
    }

    /// Has someone told once there is room. Look again afterwards: it may have come meanwhile.
    pub(crate) fn tell_of_room(&self, who: &Arc<dyn AwaitsRoom>, code: &Arc<str>) {
        let mut awaiting = self.awaiting.lock();
        let same = |other: &Waiting| Arc::ptr_eq(&other.who, who) && other.code == *code;
        if !awaiting.iter().any(same) {
            awaiting.push(Waiting { who: Arc::clone(who), code: Arc::clone(code) });
        }
        self.is_awaited.store(true, Memory::SeqCst);
    }

    /// So many messages were let in.
    pub(crate) fn entered(&self, count: u32) {
        self.unsettled.fetch_add(count, Memory::SeqCst);
        self.waiting.fetch_add(count, Memory::SeqCst);
    }

    /// A message that waited started, or was taken out.
    pub(crate) fn started(&self) {
        self.waiting.fetch_sub(1, Memory::SeqCst);
        self.tell_if_awaited();
    }

    /// How many are done and not settled, where they are why there is no room.
    pub(crate) fn full_of_done(&self, running: u32) -> Option<u32> {
        let waiting = self.waiting.load(Memory::SeqCst);
        let done = self.unsettled.load(Memory::SeqCst).saturating_sub(waiting + running);
        let may_wait = waiting < self.capacity.load(Memory::Relaxed);
        (done > 0 && may_wait && self.room() == 0).then_some(done)
    }

    /// Whether all are settled, durably.
    pub(crate) fn is_empty(&self) -> bool {
        self.unsettled.load(Memory::SeqCst) == 0
    }

    /// Whether none waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.load(Memory::SeqCst) == 0
    }

    /// A message that had started waits again.
    pub(crate) fn waits_again(&self) {
        self.waiting.fetch_add(1, Memory::SeqCst);
    }

    /// A message is settled, durably.
    pub(crate) fn settled(&self) {
        self.unsettled.fetch_sub(1, Memory::SeqCst);
        self.tell_if_awaited();
    }

    /// Tells those who wait, but not for every single place where they come fast.
    fn tell_if_awaited(&self) {
        if !self.is_awaited.load(Memory::SeqCst) {
            return;
        }
        let room = self.room();
        if room == 0 {
            return;
        }
        if room < self.capacity.load(Memory::Relaxed) / 16 {
            let now = Instant::now();
            let mut told = self.told.lock();
            if told.is_some_and(|told| now - told < BETWEEN_SMALL_ROOMS) {
                drop(told);
                return self.announce();
            }
            *told = Some(now);
        }
        self.tell();
    }

    /// Says once that there will be room.
    fn announce(&self) {
        if !self.is_announced.swap(true, Memory::SeqCst) {
            self.awaiting.lock().iter().for_each(|waiting| waiting.who.will_have_room());
        }
    }

    /// Tells those who wait if there is any room: for whoever looks from time to time.
    pub(crate) fn tell_of_any(&self) {
        if self.is_awaited.load(Memory::SeqCst) && self.room() > 0 {
            self.tell();
        }
    }

    /// Tells all who wait.
    pub(crate) fn tell(&self) {
        let awaiting = {
            let mut awaiting = self.awaiting.lock();
            self.is_awaited.store(false, Memory::SeqCst);
            self.is_announced.store(false, Memory::SeqCst);
            std::mem::take(&mut *awaiting)
        };
        for Waiting { who, code } in awaiting {
            who.has_room(&code);
        }
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("code", &self.code).finish_non_exhaustive()
    }
}
