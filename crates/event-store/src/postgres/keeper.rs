//! The connection that listens. It knows the head, or will within a second.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use sluicegate_postgres_link::{Broken, Wire, within};
use sluicegate_tasks::Context;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::engine::Head;
use super::schema::Names;

/// Without a notification it looks after this, and then less often.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// How long one statement may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before it connects again; twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Others are told no more often than this: what comes meanwhile is told together.
const BETWEEN: Duration = Duration::from_millis(5);

/// What is kept.
pub(super) struct Keeper {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) names: Names,
    pub(super) head: Arc<Head>,
}

/// Keeps a connection until the context ends.
pub(super) async fn run(cx: Context, keeper: Keeper) {
    tokio::select! {
        _ = cx.cancelled() => {}
        () = keep(&keeper) => {}
    }
}

async fn keep(keeper: &Keeper) {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Ok(mut wire) = Wire::connect(&keeper.config, &keeper.tls).await {
            let begun = Instant::now();
            let (told, own) = (Notify::new(), AtomicI32::new(0));
            let (client, connection) = wire.listening(|note| {
                // What we told ourselves we know.
                if note.process_id() != own.load(Ordering::Relaxed) {
                    told.notify_one();
                }
            });
            // Errors are for those who ask; here they only mean another connection.
            tokio::select! {
                _ = connection => {}
                _ = live(keeper, client, &told, &own) => {}
            }
            if begun.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What is done over the connection. It never ends well.
async fn live(
    keeper: &Keeper,
    client: &Client,
    told: &Notify,
    own: &AtomicI32,
) -> Result<Infallible, Broken> {
    let pid = within(PATIENCE, client.query_one("SELECT pg_backend_pid()", &[])).await?;
    own.store(pid.get(0), Ordering::Relaxed);
    let channel = keeper.names.channel();
    within(PATIENCE, client.batch_execute(&format!("LISTEN \"{channel}\""))).await?;
    let tell = format!("NOTIFY \"{channel}\"");
    let look = keeper.names.write("SELECT {s}.head_of_events()");
    let look = within(PATIENCE, client.prepare(&look)).await?;
    let mut after = FIRST_LOOK;
    let mut last_told = Instant::now();
    loop {
        let row = within(PATIENCE, client.query_one(&look, &[])).await?;
        if keeper.head.reaches(row.get(0)) {
            after = FIRST_LOOK;
        }
        let next = Instant::now() + after;
        loop {
            tokio::select! {
                () = told.notified() => break,
                // Appends that come while one notification is on its way become one.
                () = keeper.head.appended() => {
                    sleep_until(last_told + BETWEEN).await;
                    within(PATIENCE, client.batch_execute(&tell)).await?;
                    last_told = Instant::now();
                }
                // While nobody waits, nobody has to know.
                () = sleep_until(next), if keeper.head.is_watched() => {
                    after = (after * 2).min(LAST_LOOK);
                    break;
                }
                () = keeper.head.watched(), if !keeper.head.is_watched() => {
                    after = FIRST_LOOK;
                    break;
                }
            }
        }
    }
}
