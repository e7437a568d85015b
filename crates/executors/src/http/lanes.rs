//! HTTP/1.1 connections, each driven by the call that uses it.
//!
//! A connection has no task of its own: a call polls it until the reply is whole, and leaves it for
//! the next call. So nothing hops from task to task, and what is dropped with a call is its
//! connection too.
//!
//! 1. A connection is in the hands of one call, or idle in here.
//! 2. Only a connection that is ready for a request is left here. If its peer has closed it
//!    meanwhile, that is seen before anything of the next request is sent.
//! 3. A connection knows one waker, its bell, which wakes the call that waits for it. While it is idle, or
//!    its call is at work, that is nobody: the next request would wake whoever used it last, and a call
//!    that reads would wake itself.
//! 4. While any is idle, one task looks now and then for those that were idle for too long.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use futures_util::task::AtomicWaker;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use parking_lot::Mutex;
use sluicegate_dispatch::Target;
use sluicegate_tasks::{Context, Invalid, TaskGroup};
use tokio::time::sleep;
use tower_service::Service;

use super::clients::{IDLE_FOR, MAX_HEADERS};
use super::dial::{Connector, DialError, Stream};

/// How often the idle ones are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(15);
/// How many sweeps one may stay idle for.
const IDLE_SWEEPS: u32 = (IDLE_FOR.as_secs() / SWEEP_EVERY.as_secs()) as u32;

/// The connections that wait for a call.
pub(crate) struct Lanes {
    connector: Connector,
    idle: Arc<Mutex<Idle>>,
    sweepers: TaskGroup,
    cx: Context,
}

#[derive(Default)]
struct Idle {
    /// By origin, the one that was used last at the end.
    by_origin: HashMap<Box<str>, Vec<Parked>, RandomState>,
    sweeps: u32,
    is_swept: bool,
}

struct Parked {
    lane: Box<Lane>,
    /// How many sweeps there had been when it came here.
    since: u32,
}

/// One connection.
pub(crate) struct Lane {
    sender: SendRequest<Full<Bytes>>,
    drive: Drive,
    /// The header `Host` of its calls: a copy, since all calls of all cores would count references to the
    /// target's.
    host: HeaderValue,
}

/// The connection itself, and who is woken when there is something to do.
struct Drive {
    /// `None` once it is over.
    connection: Option<Connection<Stream, Full<Bytes>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Wakes the call that uses a connection.
#[derive(Default)]
struct Bell(AtomicWaker);

/// Why a request got no response.
pub(crate) enum Unanswered {
    /// Nothing of it was sent: the peer had closed the connection before.
    Unsent(Box<Request<Full<Bytes>>>),
    /// It broke off.
    Broken(hyper::Error),
}

/// The body of a response, which comes by driving the connection.
struct Driven<'a> {
    drive: &'a mut Drive,
    body: Incoming,
}

impl Lanes {
    pub(crate) fn new(connector: Connector) -> Result<Self, Invalid> {
        let sweepers = TaskGroup::new("idle http connections", 2)?;
        Ok(Self { connector, idle: Arc::default(), sweepers, cx: Context::new() })
    }

    /// An idle connection to an origin; its peer may have closed it.
    pub(crate) fn idle(&self, origin: &str) -> Option<Box<Lane>> {
        let parked = self.idle.lock().by_origin.get_mut(origin)?.pop()?;
        Some(parked.lane)
    }

    /// A new connection to the origin of a target.
    pub(crate) async fn dial(&self, target: &Target, uri: Uri) -> Result<Box<Lane>, DialError> {
        let host = HeaderValue::from_bytes(target.host().as_bytes()).expect("it is one");
        let stream = self.connector.clone().call(uri).await?;
        let shaken = http1::Builder::new().max_buf_size(MAX_HEADERS).handshake(stream).await;
        let broken = |error: hyper::Error| DialError::Tls { cause: error.to_string() };
        let (sender, connection) = shaken.map_err(broken)?;
        Ok(Box::new(Lane { sender, drive: Drive::new(connection), host }))
    }

    /// Leaves a connection for the next call to its origin, if it can take one.
    pub(crate) fn keep(&self, origin: &str, mut lane: Box<Lane>) {
        if !lane.is_ready() {
            return;
        }
        lane.drive.bell.0.take();
        let mut idle = self.idle.lock();
        // A clock is read for every call often enough; that of the sweeps will do.
        let parked = Parked { lane, since: idle.sweeps };
        match idle.by_origin.get_mut(origin) {
            Some(known) => known.push(parked),
            None => _ = idle.by_origin.insert(origin.into(), vec![parked]),
        }
        if !idle.is_swept {
            idle.is_swept = true;
            drop(idle);
            self.sweep();
        }
    }

    /// Starts the task that looks after the idle ones until there are none.
    fn sweep(&self) {
        let idle = Arc::clone(&self.idle);
        let begun = self.sweepers.try_submit(&self.cx, move |cx| async move {
            loop {
                tokio::select! {
                    () = sleep(SWEEP_EVERY) => {}
                    _ = cx.cancelled() => return,
                }
                let (gone, is_empty) = idle.lock().sweep();
                // Closing is work; it is done without the lock.
                drop(gone);
                if is_empty {
                    return;
                }
            }
        });
        if begun.is_err() {
            self.idle.lock().is_swept = false;
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.cx.cancel();
    }
}

impl Idle {
    /// Takes out what was idle for too long or is closed; says whether nothing is left.
    fn sweep(&mut self) -> (Vec<Parked>, bool) {
        self.sweeps += 1;
        let (mut gone, now) = (Vec::new(), self.sweeps);
        for parked in self.by_origin.values_mut() {
            let is_over =
                |parked: &mut Parked| now - parked.since > IDLE_SWEEPS || !parked.lane.is_open();
            gone.extend(parked.extract_if(.., is_over));
        }
        self.by_origin.retain(|_, parked| !parked.is_empty());
        self.is_swept = !self.by_origin.is_empty();
        (gone, !self.is_swept)
    }
}

impl Lane {
    /// The header `Host` of its calls.
    pub(crate) fn host(&self) -> HeaderValue {
        self.host.clone()
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Cancel safety
    /// Dropped, the connection must be dropped too.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let mut response = Box::pin(self.sender.try_send_request(request));
        let answered = poll_fn(|poller| {
            let is_over = self.drive.poll(poller);
            match response.as_mut().poll(&mut blind()) {
                // With the connection gone, whatever waits for it is told.
                Poll::Pending if is_over => response.as_mut().poll(poller),
                polled => polled,
            }
        });
        answered.await.map_err(|mut failed: TrySendError<_>| match failed.take_message() {
            Some(request) => Unanswered::Unsent(Box::new(request)),
            None => Unanswered::Broken(failed.into_error()),
        })
    }

    /// The body of a response, to be read before the next request is sent.
    pub(crate) const fn body(
        &mut self,
        body: Incoming,
    ) -> impl Body<Data = Bytes, Error = hyper::Error> + Unpin {
        Driven { drive: &mut self.drive, body }
    }

    fn is_open(&mut self) -> bool {
        !self.drive.go_on()
    }

    fn is_ready(&mut self) -> bool {
        self.sender.is_ready() || self.is_open() && self.sender.is_ready()
    }
}

impl Drive {
    fn new(connection: Connection<Stream, Full<Bytes>>) -> Self {
        let bell = Arc::<Bell>::default();
        Self { connection: Some(connection), waker: Arc::clone(&bell).into(), bell }
    }

    /// Goes on for a call, which is woken when there is more to do; says whether it has ended.
    fn poll(&mut self, poller: &Poller<'_>) -> bool {
        self.bell.0.register(poller.waker());
        self.go_on()
    }

    /// Goes on as far as that is possible now, and drops the connection at its end.
    fn go_on(&mut self) -> bool {
        let is_over = match &mut self.connection {
            // What went wrong is told to the call whose request it was.
            Some(connection) => {
                Pin::new(connection).poll(&mut Poller::from_waker(&self.waker)).is_ready()
            }
            None => return true,
        };
        if is_over {
            self.connection = None;
        }
        is_over
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake();
    }
}

/// For what only moves when the connection is driven, and is asked after that: nobody is to be woken.
const fn blind() -> Poller<'static> {
    Poller::from_waker(Waker::noop())
}

impl Body for Driven<'_> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        poller: &mut Poller<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Asking for more is what lets the connection read more, and rings for that; it is driven anyway.
        self.drive.bell.0.take();
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(&mut blind()) {
            return Poll::Ready(frame);
        }
        let is_over = self.drive.poll(poller);
        match Pin::new(&mut self.body).poll_frame(&mut blind()) {
            Poll::Pending if is_over => Pin::new(&mut self.body).poll_frame(poller),
            polled => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
