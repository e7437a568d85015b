//! Keys that are parked while messages of them wait: docs/rules.md#strict-4.
//!
//! The parked list knows of a message when it is kept, durably. What is known before that is here, and so is who waited
//! when a message of its key was parked: it is parked too, whatever becomes of the list meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering as Memory;

use parking_lot::Mutex;

use crate::Message;
use crate::pool::{Pool, default_group};

/// By queue, the code that its messages were published with, and group, as in the parked list: what is parked holds up its
/// own queue only, and no messages of another code that this pool serves too.
type Key = (Arc<str>, Arc<str>, Arc<str>);

fn key_of(queue: &Arc<str>, message: &Message, group: &Arc<str>) -> Key {
    (Arc::clone(queue), Arc::clone(&message.pool), Arc::clone(group))
}

/// Whom a message that is parked with its key holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HoldsUp {
    /// It is parked behind another: it comes after what was replayed and may pass, wherever that waits. Were that parked
    /// again, it would come behind the next newcomer, and so on.
    Newcomers,
    /// It was tried. Until it is kept the list does not know that it comes before what was replayed.
    All,
}

/// The keys of a pool that are being parked, or were.
#[derive(Debug, Default)]
pub(crate) struct ParkingKeys {
    under_way: Mutex<HashMap<Key, UnderWay>>,
    /// The keys that were parked while messages of them waited here.
    tails: Mutex<HashMap<Key, Tail>>,
}

/// How many messages of a key are being parked, and are not durably.
#[derive(Debug, Default)]
struct UnderWay {
    all: u32,
    /// Those among them that hold up all.
    heads: u32,
}

/// The numbers that those let in later have.
#[derive(Debug, Default)]
struct Tail {
    /// Than the last that holds up anybody.
    all: u64,
    /// Than the last that holds up all.
    heads: u64,
}

/// A message of a key that is being parked. Dropped, it is so durably, or not at all. Each has its
/// own: those of other queues may be kept later than the head.
#[derive(Debug)]
pub(crate) struct ParkingKey {
    key: Key,
    holds_up: HoldsUp,
    keys: Arc<ParkingKeys>,
}

impl Pool {
    /// Says that a message of a queue is being parked with its key, until what is returned is
    /// dropped.
    pub(crate) fn park_key(
        &self,
        queue: &Arc<str>,
        message: &Message,
        group: &Arc<str>,
        holds_up: HoldsUp,
    ) -> ParkingKey {
        let key = key_of(queue, message, group);
        let is_head = holds_up == HoldsUp::All;
        {
            let mut under_way = self.parking.under_way.lock();
            let those = under_way.entry(key.clone()).or_default();
            those.all += 1;
            those.heads += u32::from(is_head);
        }
        let mut tails = self.parking.tails.lock();
        let tail = tails.entry(key.clone()).or_default();
        tail.all = self.admitted.load(Memory::Relaxed);
        if is_head {
            tail.heads = tail.all;
        }
        let most = 2 * self.settings().capacity() as usize;
        if tails.len() > most {
            let waiting = self.sluice.waiting(usize::MAX);
            let keys: HashSet<&str> =
                waiting.iter().filter_map(|item| item.key.as_deref()).collect();
            tails.retain(|known, _| *known == key || keys.contains(&*known.2));
        }
        ParkingKey { key, holds_up, keys: Arc::clone(&self.parking) }
    }

    /// Whom messages of a key hold up that are being parked.
    pub(crate) fn parks_key(
        &self,
        queue: &Arc<str>,
        message: &Message,
        group: &Arc<str>,
    ) -> Option<HoldsUp> {
        let under_way = self.parking.under_way.lock();
        // Nearly always there is none, and then no names are copied.
        if under_way.is_empty() {
            return None;
        }
        let those = under_way.get(&key_of(queue, message, group))?;
        Some(if those.heads > 0 { HoldsUp::All } else { HoldsUp::Newcomers })
    }

    /// The group of a message that waited here when another of its key was parked, and whom that holds up: also
    /// if somebody has freed the key or changed the settings since.
    pub(crate) fn tail_of(
        &self,
        queue: &Arc<str>,
        message: &Message,
        number: u64,
    ) -> Option<(Arc<str>, HoldsUp)> {
        let mut tails = self.parking.tails.lock();
        if tails.is_empty() {
            return None;
        }
        let group = message.group.clone().unwrap_or_else(default_group);
        let holds_up = match tails.get(&key_of(queue, message, &group)) {
            Some(tail) if number < tail.heads => Some(HoldsUp::All),
            Some(tail) if number < tail.all => Some(HoldsUp::Newcomers),
            _ => None,
        };
        if self.places.is_idle() {
            tails.clear();
        }
        holds_up.map(|holds_up| (group, holds_up))
    }
}

impl Drop for ParkingKey {
    fn drop(&mut self) {
        let mut under_way = self.keys.under_way.lock();
        if let Some(those) = under_way.get_mut(&self.key) {
            those.all -= 1;
            those.heads -= u32::from(self.holds_up == HoldsUp::All);
            if those.all == 0 {
                under_way.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolSettings, Target};

    /// What is remembered of parked keys is bounded also in a pool in which something always waits: a head that is
    /// blocked, or one that is tried again tomorrow.
    #[tokio::test]
    async fn the_keys_that_were_parked_are_forgotten() {
        let pool = Pool::new(PoolSettings::new("S", 1)).expect("sound");
        pool.places.entered(1);
        let queue: Arc<str> = "q".into();
        for n in 0..100_000 {
            let key: Arc<str> = format!("k{n}").into();
            let target = Target::parse("http://127.0.0.1:9/").expect("a target");
            let message = Message {
                id: "m".into(),
                pool: "S".into(),
                group: Some(Arc::clone(&key)),
                tenant: None,
                high_priority: false,
                target,
                auth_token: None,
                payload: None,
                traceparent: None,
                unknown_fields: Box::default(),
            };
            // Its parking is durable at once.
            drop(pool.park_key(&queue, &message, &key, HoldsUp::All));
            pool.tail_of(&queue, &message, u64::MAX);
        }
        let known = pool.parking.tails.lock().len();
        assert!(
            known < 10_000,
            "{known} keys are remembered, of a pool of {}",
            pool.settings().capacity()
        );
    }
}
