//! The connection that stays: it listens for hints, takes in what services published within their own
//! transactions, shows that this instance lives, and clears up behind those that died.
//!
//! An instance holds a session lock on its number. One that does not, and has not been seen for a
//! while, is dead, and what it had claimed ends at once. A live one that lost this connection takes
//! the lock again before that while is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluicegate_dispatch::SourceError;
use sluicegate_postgres_link::{Broken, Wire, within};
use sluicegate_tasks::Context;
use tokio::time::{interval, sleep};
use tokio_postgres::Client;

use super::publish::{Swept, sweep, take_in};
use super::shared::Shared;
use crate::OpenError;
use crate::network::pause::Pauses;

/// How often it shows that it lives, and looks after the others.
const PERIOD: Duration = Duration::from_secs(2);
/// The notification that something was published within a transaction of somebody's own, in `sql/outbox.sql`.
const OUTBOX: &str = "outbox";
/// How long one statement of it may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps a connection until the context ends.
pub(crate) async fn run(cx: Context, shared: Arc<Shared>) {
    tokio::select! {
        _ = cx.cancelled() => {}
        () = keep(&shared) => {}
    }
}

async fn keep(shared: &Shared) {
    let mut pauses = Pauses::default();
    loop {
        let error = match shared.prepare().await {
            Ok(queue) => stay(shared, queue, &mut pauses).await,
            Err(error) => error,
        };
        // While there is none, that is what keeps the source from working.
        shared.link.note(Some(&SourceError::new(error)));
        sleep(pauses.next()).await;
    }
}

/// One connection, to its end.
async fn stay(shared: &Shared, queue: i32, pauses: &mut Pauses) -> OpenError {
    let mut wire = match Wire::connect(&shared.settings.address.config, &shared.tls).await {
        Ok(wire) => wire,
        Err(broken) => return broken.into(),
    };
    let (client, connection) = wire.listening(|note| match note.payload() {
        OUTBOX => shared.hinted.notify_one(),
        _ => shared.wake.notify_one(),
    });
    let work = async {
        let Err(broken) = live(shared, client, queue, pauses).await;
        broken
    };
    tokio::select! {
        broken = connection => broken.into(),
        broken = work => broken.into(),
    }
}

/// What is done over the connection. It never ends well.
async fn live(
    shared: &Shared,
    client: &Client,
    queue: i32,
    pauses: &mut Pauses,
) -> Result<std::convert::Infallible, Broken> {
    let channel = shared.names.channel(queue);
    within(PATIENCE, client.batch_execute(&format!("LISTEN \"{channel}\""))).await?;
    register(shared, client).await?;
    pauses.reset();
    shared.link.note(None);
    // What came meanwhile was told to nobody.
    shared.wake.notify_one();
    shared.hinted.notify_one();
    let tell = format!("SELECT pg_notify('{channel}', '')");
    let bury =
        within(PATIENCE, client.prepare(&shared.names.write("SELECT {s}.bury_the_dead()"))).await?;
    let mut ticks = interval(PERIOD);
    let mut swept = Swept::default();
    loop {
        tokio::select! {
            // Hints that come while one is on its way become one.
            () = shared.tell.notified() => {
                within(PATIENCE, client.batch_execute(&tell)).await?;
            }
            // What is not taken in now is at the next tick: the source's health says why.
            () = shared.hinted.notified() => take_in(shared).await.unwrap_or_default(),
            _ = ticks.tick() => {
                register(shared, client).await?;
                let row = within(PATIENCE, client.query_one(&bury, &[])).await?;
                if row.get::<_, i64>(0) > 0 {
                    shared.wake.notify_one();
                }
                // What is not forgotten now is forgotten later.
                sweep(shared, &mut swept).await.ok();
                shared.hinted.notify_one();
            }
        }
    }
}

/// Takes a number, and shows that its holder lives.
async fn register(shared: &Shared, client: &Client) -> Result<(), Broken> {
    if shared.instance.load(Ordering::Acquire) == 0 {
        let next = shared.names.write("SELECT nextval('{s}.instance_numbers')::int");
        let row = within(PATIENCE, client.query_one(&next, &[])).await?;
        shared.instance.store(row.get(0), Ordering::Release);
    }
    let id = shared.instance.load(Ordering::Acquire);
    // The lock first: from then on nobody takes it for dead. It is taken once, however often it is
    // asked for.
    let lock = shared.names.write(
        "SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' \
           AND pid = pg_backend_pid() AND classid::bigint::bit(32)::int = {life}) \
         THEN pg_try_advisory_lock({life}, $1) END",
    );
    within(PATIENCE, client.query_one(&lock, &[&id])).await?;
    let show = shared.names.write(
        "INSERT INTO {s}.instances (id, seen) VALUES ($1, clock_timestamp()) \
         ON CONFLICT (id) DO UPDATE SET seen = excluded.seen",
    );
    within(PATIENCE, client.execute(&show, &[&id])).await?;
    Ok(())
}
