//! Parked messages whose pool does not exist: where such are parked, a replay would only park them anew.

use std::fmt;

use sluicegate_dispatch::DEFAULT_POOL;
use sluicegate_sources::sqlite::ParkedItem;

use super::problem::{Code, Problem};
use crate::daemon::Daemon;
use crate::names::Names;
use crate::settings::UnknownPool;

/// A parked message that has no pool to go to.
#[derive(Debug)]
pub(super) struct NoPool {
    /// The parked message's number.
    id: String,
    pool: String,
    /// What could be meant.
    instead: String,
}

impl NoPool {
    /// Looks whether there is a pool for a parked message, or one that takes the place of its own.
    pub(super) fn of(daemon: &Daemon, item: &ParkedItem) -> Option<Self> {
        if daemon.settings().router.unknown_pool == UnknownPool::Default {
            return None;
        }
        // What is no message has no pool, and says so itself.
        item.message_id.as_ref()?;
        let pool = item.message["poolCode"].as_str().unwrap_or(DEFAULT_POOL).to_owned();
        let instead = Names::of_pools(daemon.router()).instead_of(&pool)?;
        Some(Self { id: item.id.clone(), pool, instead })
    }

    /// Takes those without a pool out of these parked messages.
    pub(super) async fn sort_out(
        daemon: &Daemon,
        numbers: &mut Vec<i64>,
    ) -> Result<Vec<Self>, Problem> {
        let mut without = Vec::new();
        if daemon.settings().router.unknown_pool == UnknownPool::Default {
            return Ok(without);
        }
        let mut others = Vec::with_capacity(numbers.len());
        for number in numbers.drain(..) {
            let item = daemon.store().parked_item(&number.to_string()).await?;
            match item.and_then(|item| Self::of(daemon, &item)) {
                Some(no_pool) => without.push(no_pool),
                None => others.push(number),
            }
        }
        *numbers = others;
        Ok(without)
    }

    /// What to do about it.
    pub(super) fn words(&self) -> String {
        let Self { pool, instead, .. } = self;
        format!(
            "there is no pool {pool} ({instead}), and router.unknown_pool has its messages parked: add a \
             pool of that code to the configuration and reload it, or set unknown_pool = \"default\""
        )
    }
}

impl fmt::Display for NoPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} would be parked again: {}", self.id, self.words())
    }
}

impl From<NoPool> for Problem {
    fn from(no_pool: NoPool) -> Self {
        let words = no_pool.to_string();
        Self::new(Code::NoPool, words).with("id", no_pool.id).with("pool", no_pool.pool)
    }
}
