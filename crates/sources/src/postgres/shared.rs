//! What the parts of one source share.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{Order, SourceError};
use sluicegate_postgres_link::connector;
use tokio::sync::Notify;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::link::Link;
use super::schema::{self, Names};
use super::settings::PostgresSettings;
use crate::OpenError;

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
    /// Somebody may have published within a transaction of their own.
    pub(crate) hinted: Notify,
    order: Mutex<Arc<Order>>,
    /// How many ids to look at, to forget old ones.
    pub(crate) to_sweep: AtomicUsize,
}

/// The statements, with their names put in.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) claim: String,
    pub(crate) settle: String,
    pub(crate) extend: String,
    pub(crate) rest: String,
    pub(crate) publish: String,
    pub(crate) put_back: String,
    pub(crate) take_in: String,
    pub(crate) depth: String,
    pub(crate) find: String,
    pub(crate) discard: String,
    pub(crate) sweep: String,
    pub(crate) sweep_keys: String,
}

impl Sql {
    fn new(names: &Names) -> Self {
        Self {
            claim: names.write(super::claimer::CLAIM),
            settle: names.write("SELECT * FROM {s}.settle($1, $2, $3, $4, $5, $6)"),
            extend: names.write("SELECT * FROM {s}.extend($1, $2, $3)"),
            rest: names.write("SELECT * FROM {s}.rest($1, $2, $3, $4, $5, $6)"),
            publish: names.write("SELECT {s}.publish($1, $2, $3, $4, $5, $6, $7, $8)"),
            put_back: names.write("SELECT {s}.put_back($1, $2, $3, $4, $5, $6, $7, $8)"),
            take_in: names.write("SELECT {s}.take_in($1, $2)"),
            depth: names.write(super::find::DEPTH),
            find: names.write(super::find::FIND),
            discard: names.write(super::find::DISCARD),
            sweep: names.write(super::publish::SWEEP),
            sweep_keys: names.write("SELECT * FROM {s}.sweep_keys($1, $2, $3, $4)"),
        }
    }
}

impl Shared {
    pub(crate) fn new(settings: PostgresSettings) -> Result<Self, OpenError> {
        let tls = connector(settings.address.ca.as_deref())?;
        let names = Names::new(&settings.address.schema);
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
            hinted: Notify::new(),
            order: Mutex::default(),
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

    /// What stays in order from now on: the next claim goes by it.
    pub(crate) fn keep_order(&self, order: &Arc<Order>) {
        *self.order.lock() = Arc::clone(order);
        self.wake.notify_one();
    }

    pub(crate) fn order(&self) -> Arc<Order> {
        Arc::clone(&self.order.lock())
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
