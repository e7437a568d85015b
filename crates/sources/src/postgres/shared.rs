//! What the parts of one source share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use tokio::sync::Notify;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::link::Link;
use super::schema::{self, Names};
use super::settings::PostgresSettings;
use crate::OpenError;
use crate::network::tls::client_config;

/// No window is longer: the database's clock goes no further for ever.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A source without what it holds in its hands.
pub(crate) struct Shared {
    pub(crate) settings: PostgresSettings,
    pub(crate) tls: MakeRustlsConnect,
    pub(crate) link: Link,
    pub(crate) names: Names,
    pub(crate) sql: Sql,
    queue: OnceLock<i32>,
    /// One prepares, the others wait for it.
    preparing: tokio::sync::Mutex<()>,
    /// The number of this instance, and zero before it has one.
    pub(crate) instance: AtomicI32,
    /// There may be something to claim.
    pub(crate) wake: Notify,
    /// Others are to be told of messages that came.
    pub(crate) tell: Notify,
    order: Mutex<Strict>,
    /// How many ids to look at, to forget old ones.
    pub(crate) to_sweep: AtomicUsize,
}

/// Which pools keep order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strict {
    pub(crate) pools: Vec<Arc<str>>,
    pub(crate) version: u64,
}

/// The statements, with their names put in.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) claim: String,
    pub(crate) settle: String,
    pub(crate) extend: String,
    pub(crate) reorder: String,
    pub(crate) publish: String,
    pub(crate) depth: String,
    pub(crate) find: String,
    pub(crate) sweep: String,
}

impl Sql {
    fn new(names: &Names) -> Self {
        Self {
            claim: names.write("SELECT * FROM {s}.claim($1, $2, $3, $4, $5, $6)"),
            settle: names.write("SELECT * FROM {s}.settle($1, $2, $3, $4, $5, $6)"),
            extend: names.write("SELECT * FROM {s}.extend($1, $2, $3)"),
            reorder: names.write("SELECT {s}.reorder($1, $2, $3)"),
            publish: names.write(super::publish::PUBLISH),
            depth: names.write(super::find::DEPTH),
            find: names.write(super::find::FIND),
            sweep: names.write(super::publish::SWEEP),
        }
    }
}

impl Shared {
    pub(crate) fn new(settings: PostgresSettings) -> Result<Self, OpenError> {
        let tls = MakeRustlsConnect::new(client_config(settings.ca.as_deref())?);
        let names = Names::new(&settings.schema);
        Ok(Self {
            link: Link::new(&settings, tls.clone()),
            tls,
            sql: Sql::new(&names),
            settings,
            names,
            queue: OnceLock::new(),
            preparing: tokio::sync::Mutex::new(()),
            instance: AtomicI32::new(0),
            wake: Notify::new(),
            tell: Notify::new(),
            // The first claim fits the tables to it, told or not.
            order: Mutex::new(Strict { pools: Vec::new(), version: 1 }),
            to_sweep: AtomicUsize::new(0),
        })
    }

    /// Makes what is missing, once. Dropped, the transaction is rolled back.
    pub(crate) async fn prepare(&self) -> Result<i32, OpenError> {
        if let Some(queue) = self.queue.get() {
            return Ok(*queue);
        }
        let _one = self.preparing.lock().await;
        if let Some(queue) = self.queue.get() {
            return Ok(*queue);
        }
        let mut client = self.link.connect().await?;
        let queue = schema::prepare(&mut client, &self.names, &self.settings.queue).await?;
        Ok(*self.queue.get_or_init(|| queue))
    }

    /// The queue's number.
    pub(crate) async fn queue(&self) -> Result<i32, SourceError> {
        let queue = self.prepare().await.map_err(SourceError::new);
        if let Err(error) = &queue {
            self.link.note(Some(error));
        }
        queue
    }

    pub(crate) fn keep_order_for(&self, pools: &[Arc<str>]) {
        let mut order = self.order.lock();
        let (old, new): (HashSet<_>, HashSet<_>) =
            (order.pools.iter().collect(), pools.iter().collect());
        if old == new {
            return;
        }
        order.pools = new.into_iter().cloned().collect();
        order.version += 1;
        drop(order);
        self.wake.notify_one();
    }

    pub(crate) fn order(&self) -> Strict {
        self.order.lock().clone()
    }

    pub(crate) fn keeps_order_for(&self, pool: &[u8]) -> bool {
        self.order.lock().pools.iter().any(|known| known.as_bytes() == pool)
    }

    /// That so many ids more are old or will be.
    pub(crate) fn has_aged(&self, count: usize) {
        self.to_sweep.fetch_add(count, Ordering::Relaxed);
    }
}

/// A span as the database takes it.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}
