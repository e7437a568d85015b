//! The HTTP API: what SURFACE names, over one daemon.
//!
//! A request walks: accept (bounded) → guard (token, host, origin) → audit → route → answer. Everything that
//! is read is bounded in size and time; every error is a problem as RFC 9457 has it.

mod ack;
mod audited;
mod connections;
mod dashboard;
mod errors;
mod event_errors;
mod event_fields;
mod event_pages;
mod event_shapes;
mod event_tail;
mod events;
mod find;
mod guard;
mod impatient;
mod in_effect;
mod intake;
mod known;
mod last_error;
mod messages;
mod openapi;
mod operate;
mod page;
mod parked;
mod parked_lines;
mod parked_pools;
mod parked_which;
mod probes;
mod problem;
mod reply;
mod request_ask;
mod request_errors;
mod request_routes;
mod request_shapes;
mod request_stream;
mod requests;
mod routes;
mod schemas;
mod shapes;
mod stream;
mod views;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use sluicegate_tasks::{Context, Permits, TaskGroup};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::daemon::Daemon;
use connections::Site;
use guard::Guard;
use intake::Intake;

/// What every handler can reach. Clones are the same.
#[derive(Clone)]
pub(crate) struct Api(Arc<Shared>);

/// What handlers share.
pub(crate) struct Shared {
    pub(crate) daemon: Daemon,
    pub(crate) guard: Guard,
    pub(crate) intake: Intake,
    /// Places of those who follow the stream.
    pub(crate) streams: Arc<Permits>,
    /// Places of those who follow a request.
    pub(crate) followers: Arc<Permits>,
    /// Places of those who follow the event store.
    pub(crate) tails: Arc<Permits>,
    /// Places of those who read many events.
    pub(crate) readers: Arc<Permits>,
    /// Places of those who wait for a reply: others can ask beside them.
    pub(crate) waiting: Arc<Permits>,
    /// What must not end with the connection that asked for it.
    pub(crate) errands: TaskGroup,
    /// Ends when the server does.
    pub(crate) cx: Context,
    /// When it began.
    pub(crate) since: Instant,
}

const ERRANDS: u32 = 8;

impl Deref for Api {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Api {
    fn new(daemon: Daemon, local: SocketAddr, cx: &Context) -> io::Result<Self> {
        let shared = Shared {
            guard: Guard::new(&daemon.settings().server, local)?,
            daemon,
            intake: Intake::new(),
            streams: places(stream::MOST)?,
            followers: places(request_stream::MOST)?,
            tails: places(event_tail::MOST)?,
            readers: places(event_pages::MOST)?,
            waiting: places(requests::MOST_WAITING)?,
            errands: TaskGroup::new("api errands", ERRANDS).map_err(io::Error::other)?,
            cx: cx.clone(),
            since: Instant::now(),
        };
        Ok(Self(Arc::new(shared)))
    }
}

fn places(most: u32) -> io::Result<Arc<Permits>> {
    Ok(Arc::new(Permits::new(most).map_err(io::Error::other)?))
}

/// Serves until the context ends, and then a few seconds longer, so that running requests can end.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(daemon: Daemon, listener: TcpListener, cx: &Context) -> io::Result<()> {
    let bound = listener.local_addr()?;
    daemon.listens_at(bound);
    let api = Api::new(daemon, bound, cx)?;
    let errands = api.errands.clone();
    let routes = routes::router(api.clone());
    connections::accept(Site { api, routes }, listener, cx, connections::MOST).await?;
    // Those who asked are gone, and the daemon is ending: what still runs is cut off.
    drop(errands.drain(Instant::now()).await);
    Ok(())
}
