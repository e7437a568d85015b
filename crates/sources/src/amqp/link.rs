//! A connection that is kept up: lost, it is made again, and what was declared is declared again.
//!
//! Each connection is a generation. Whoever works on one of them ends with it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use sluicegate_dispatch::SourceError;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::address::AmqpAddress;
use super::dial::{Dialled, GIVE_UP, classify, dial};
use super::topology::Topology;
use crate::OpenError;
use crate::network::pause::Pauses;

/// How long a connection stands that was no failed attempt.
const STOOD: Duration = Duration::from_secs(1);
/// How often a connection is looked at that says nothing of its end.
const LOOK: Duration = Duration::from_millis(500);

/// A supervised connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: AmqpAddress,
    pub(crate) topology: Topology,
    state: Mutex<State>,
    changed: Notify,
    /// Someone found the connection useless.
    given_up: Notify,
}

#[derive(Debug, Default)]
struct State {
    up: Option<Up>,
    /// Why it is not up.
    cause: Option<String>,
    is_closed: bool,
    generation: u64,
}

/// A connection that stands.
#[derive(Clone, Debug)]
pub(crate) struct Up {
    pub(crate) generation: u64,
    pub(crate) connection: Arc<Dialled>,
}

impl Link {
    pub(crate) fn new(address: AmqpAddress, topology: Topology) -> Self {
        let state = Mutex::new(State {
            cause: Some(String::from("not connected yet")),
            ..State::default()
        });
        Self { address, topology, state, changed: Notify::new(), given_up: Notify::new() }
    }

    /// Connects and declares. What the broker refuses is an error, also in the background.
    pub(crate) async fn connect(&self) -> Result<Up, OpenError> {
        let connecting = async {
            let connection = dial(&self.address, "sluicegate").await?;
            self.declare(&connection).await?;
            Ok::<_, OpenError>(Arc::new(connection))
        };
        match timeout(GIVE_UP * 2, connecting).await {
            Ok(Ok(connection)) => {
                let mut state = self.state.lock();
                state.generation += 1;
                let up = Up { generation: state.generation, connection };
                (state.up, state.cause) = (Some(up.clone()), None);
                drop(state);
                self.changed.notify_waiters();
                Ok(up)
            }
            Ok(Err(error)) => {
                self.lost(error.to_string());
                Err(error)
            }
            Err(_) => {
                let why = format!("{} does not answer", self.address.host());
                self.lost(why.clone());
                Err(OpenError::Unreachable(why))
            }
        }
    }

    /// Declares what must stand.
    pub(crate) async fn declare(&self, connection: &lapin::Connection) -> Result<(), OpenError> {
        let declaring = async {
            let channel = connection.create_channel().await?;
            self.topology.declare(&channel).await?;
            channel.close(200, "done".into()).await
        };
        declaring.await.map_err(|error| classify(&self.address, &error))
    }

    /// Keeps it up for ever. `up` is the connection to begin with.
    pub(crate) async fn keep_up(self: Arc<Self>, mut up: Option<Up>) {
        let mut pauses = Pauses::default();
        loop {
            if let Some(up) = up.take() {
                let begun = Instant::now();
                let cause = self.wait_for_end(&up).await;
                self.lost(cause);
                if begun.elapsed() > STOOD {
                    pauses.reset();
                }
            }
            if self.state.lock().is_closed {
                return;
            }
            // Longer each time, also where the broker lets us in and drops us at once.
            sleep(pauses.next()).await;
            up = self.connect().await.ok();
        }
    }

    async fn wait_for_end(&self, up: &Up) -> String {
        let mut events = std::pin::pin!(up.connection.events_listener());
        let mut cause = None;
        loop {
            let given_up = self.given_up.notified();
            if !up.connection.status().connected() || self.state.lock().is_closed {
                return cause.unwrap_or_else(|| format!("{} went away", self.address.host()));
            }
            tokio::select! {
                event = events.next() => match event {
                    Some(lapin::Event::Error(error)) => cause = Some(error.to_string()),
                    Some(_) => {}
                    // The stream ends with the connection.
                    None => return format!("{} went away", self.address.host()),
                },
                () = given_up => return String::from("the connection was of no use any more"),
                () = sleep_until(Instant::now() + LOOK) => {}
            }
        }
    }

    fn lost(&self, cause: String) {
        let mut state = self.state.lock();
        let up = state.up.take();
        state.cause = Some(cause);
        drop(state);
        self.changed.notify_waiters();
        // Dropped outside of the lock: its end does things.
        drop(up);
    }

    /// The connection that stands now.
    pub(crate) fn up(&self) -> Result<Up, SourceError> {
        let state = self.state.lock();
        match (&state.up, &state.cause) {
            (Some(up), _) => Ok(up.clone()),
            (None, Some(cause)) => Err(SourceError::new(cause)),
            (None, None) => Err(SourceError::new("not connected")),
        }
    }

    /// The next connection that stands.
    pub(crate) async fn stands(&self) -> Up {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Ok(up) = self.up() {
                return up;
            }
            changed.await;
        }
    }

    /// Makes the connection anew, where this one is still the one in use.
    pub(crate) fn give_up(&self, generation: u64) {
        if self.up().is_ok_and(|up| up.generation == generation) {
            self.given_up.notify_waiters();
        }
    }

    /// Ends it for good.
    pub(crate) async fn close(&self) {
        let up = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.cause = Some(String::from("closed"));
            state.up.take()
        };
        self.changed.notify_waiters();
        self.given_up.notify_waiters();
        if let Some(up) = up {
            let close = up.connection.close(200, "bye".into());
            drop(timeout(GIVE_UP, close).await);
        }
    }
}
