//! The parked list: durable over all lives of the router, and not always there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_dispatch::{BoxFuture, DEFAULT_GROUP, Parked, ParkedStore, SourceError};
use sluicegate_schedule::Moment;

use super::world::{Life, World};
use crate::oracles::router::{Fact, KeyName};

/// The queue and the broker's id of a message that was put aside.
type Delivered = (Arc<str>, Arc<str>);

/// The list itself. What is parked twice is there once.
#[derive(Debug, Default)]
pub(super) struct List {
    /// By queue and the source's id; with its key where that is parked too.
    parked: Mutex<BTreeMap<Delivered, Option<KeyName>>>,
}

impl List {
    /// The keys that are parked, in order.
    pub(super) fn keys(&self) -> Vec<KeyName> {
        let keys: BTreeSet<KeyName> = self.parked.lock().values().flatten().cloned().collect();
        keys.into_iter().collect()
    }

    /// Somebody looked at a key: its messages are off the list.
    pub(super) fn free(&self, key: &KeyName) {
        self.parked.lock().retain(|_, held| held.as_ref() != Some(key));
    }
}

/// The list as one life of the router sees it.
pub(super) struct Aside {
    pub(super) world: Arc<World>,
    pub(super) life: Arc<Life>,
    pub(super) list: Arc<List>,
}

impl Aside {
    async fn park_all(&self, parked: Vec<Parked>) -> Result<(), SourceError> {
        self.world.called();
        self.life.live(self.world.delay(Moment::ZERO)).await;
        if self.world.now() < self.world.parked_fails_until() {
            return Err(SourceError::new("the list is not there"));
        }
        for parked in parked {
            let key = held_key(&parked);
            let name = (Arc::clone(&parked.queue), Arc::clone(&parked.broker_id));
            self.list.parked.lock().entry(name).or_insert_with(|| key.clone());
            let number = parked.broker_id.parse().expect("a simulated source numbers its messages");
            let (queue, code) = (Arc::clone(&parked.queue), parked.code);
            self.world.see(Fact::Parked { queue, number, code, key });
        }
        self.life.live(self.world.delay(Moment::ZERO)).await;
        Ok(())
    }
}

/// The key that a parked message holds, if it holds one: by the code that it was published with.
fn held_key(parked: &Parked) -> Option<KeyName> {
    let message = parked.message.as_ref().ok().filter(|_| parked.holds_key)?;
    let group = message.group.clone().unwrap_or_else(|| DEFAULT_GROUP.into());
    Some((Arc::clone(&parked.queue), Arc::clone(&message.pool), group))
}

impl ParkedStore for Aside {
    fn park(&self, parked: Vec<Parked>) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(self.park_all(parked))
    }

    fn holds_key(&self, queue: &str, pool: &str, group: &str) -> bool {
        let parked = self.list.parked.lock();
        parked.values().flatten().any(|(q, p, g)| (&**q, &**p, &**g) == (queue, pool, group))
    }
}
