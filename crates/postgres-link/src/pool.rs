//! Connections that are lent.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::CONNECT;

/// How long it takes to see whether an idle connection still works.
const RECYCLE: Duration = Duration::from_secs(3);

/// At most so many connections, for whose turn is waited so long. They are looked at in that way before they are lent.
///
/// # Panics
/// Never: it has the runtime that its timeouts need.
#[must_use]
pub fn pool(
    config: Config,
    tls: MakeRustlsConnect,
    (most, wait): (usize, Duration),
    recycling_method: RecyclingMethod,
) -> Pool {
    let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method });
    Pool::builder(manager)
        .max_size(most)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(wait))
        .create_timeout(Some(CONNECT))
        .recycle_timeout(Some(RECYCLE))
        .build()
        .expect("timeouts have their runtime")
}
