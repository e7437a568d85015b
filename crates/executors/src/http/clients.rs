//! What makes the calls: HTTP/1.1 by connections that each call drives itself, HTTP/2 by clients whose
//! connections run in tasks.

use std::cell::Cell;
use std::error::Error as _;
use std::iter::successors;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioTimer;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use sluicegate_tasks::{Context, Invalid, TaskGroup};

use super::dial::{Connector, DialError, Dialer, Rules};
use super::lanes::{Lane, Lanes, Unanswered};
use super::reply::{self, Text};
use super::request::Order;
use super::settings::{HttpSettings, HttpVersion, Roots};
use super::verdict::Ended;

type HttpClient = Client<Connector, Full<Bytes>>;
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) const IDLE_FOR: Duration = Duration::from_secs(90);
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const MAX_HEADERS: usize = 64 * 1024;

/// The clients of an executor.
pub(crate) struct Clients {
    lanes: Lanes,
    /// For `http://`.
    plain: Shared,
    /// For `https://`.
    secure: Shared,
    dialer: Dialer,
    crew: Crew,
}

/// Clients whose calls may share a connection; without any, calls go by lanes.
///
/// A client opens one HTTP/2 connection to an origin, whatever the server's limit of streams on it;
/// several clients in turn make it several connections.
struct Shared {
    clients: Vec<HttpClient>,
    next: AtomicUsize,
}

/// A response, read to its end.
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: Text,
}

/// What the connections run in: groups of tasks, one within the other.
///
/// A connection's task may start another, which a group refuses from inside one of its own tasks.
/// So what a task of one group starts goes to the next. Nothing goes deeper than a background
/// connect, its connection, and a stream of that connection.
#[derive(Clone)]
struct Crew {
    groups: Arc<[TaskGroup; DEPTHS]>,
    cx: Context,
}

const DEPTHS: usize = 4;

/// A task of the crew: tells what it starts how deep it is.
struct Job {
    depth: usize,
    cx: Context,
    work: Work,
}

thread_local! {
    /// How deep in the crew the task is that this thread polls right now.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

impl Clients {
    pub(crate) fn new(settings: &HttpSettings) -> Result<Self, Invalid> {
        let crew = Crew::new()?;
        let tls = tls_config(&settings.roots);
        let shards = settings.shards.max(1);
        let wants_h2 = settings.version == HttpVersion::Http2;
        let h2c = wants_h2 && settings.prior_knowledge;
        let dialer = Dialer::new(Rules {
            allow: settings.allow_targets.clone(),
            own: settings.own.clone(),
            resolver: settings.resolver.clone(),
            timeout: settings.connect_timeout,
        });
        let connector = connector(settings, tls, dialer.clone());
        let shared = |is_wanted, only_h2| {
            let client = |_| client(connector.clone(), crew.clone(), only_h2);
            let clients = (0..if is_wanted { shards } else { 0 }).map(client).collect();
            Shared { clients, next: AtomicUsize::new(0) }
        };
        let (plain, secure) = (shared(h2c, true), shared(wants_h2, false));
        Ok(Self { lanes: Lanes::new(connector)?, plain, secure, dialer, crew })
    }

    /// Makes a call, and reads the reply as far as `limit`.
    ///
    /// # Cancel safety
    /// Dropped, the call is given up: its HTTP/1.1 connection is closed, its HTTP/2 stream reset.
    pub(crate) async fn call(&self, order: &Order<'_>, limit: usize) -> Result<Answered, Ended> {
        let shared = if order.target().is_secure() { &self.secure } else { &self.plain };
        match shared.next() {
            Some(client) => Box::pin(self.call_shared(client, order, limit)).await,
            None => self.call_alone(order, limit).await,
        }
    }

    async fn call_alone(&self, order: &Order<'_>, limit: usize) -> Result<Answered, Ended> {
        let origin = order.target().origin();
        let mut unsent = None;
        loop {
            let (mut lane, is_new) = match self.lanes.idle(origin) {
                Some(lane) => (lane, false),
                None => (Box::pin(self.dial(order)).await?, true),
            };
            let request = unsent.take().unwrap_or_else(|| order.request_to_origin(lane.host()));
            let response = match lane.send(request).await {
                Ok(response) => response,
                // Its peer closed it just now. The next one may be sound; a new one is the last.
                Err(Unanswered::Unsent(request)) if !is_new => {
                    unsent = Some(*request);
                    continue;
                }
                Err(Unanswered::Unsent(_)) => {
                    return Err(Ended::BrokeOff("the connection was closed at once".to_owned()));
                }
                Err(Unanswered::Broken(error)) => return Err(Ended::BrokeOff(root(&error))),
            };
            let (head, body) = response.into_parts();
            let text = reply::read(lane.body(body), limit).await.map_err(reply_broke_off)?;
            self.lanes.keep(origin, lane);
            return Ok(Answered { status: head.status, headers: head.headers, text });
        }
    }

    async fn dial(&self, order: &Order<'_>) -> Result<Box<Lane>, Ended> {
        self.lanes.dial(order.target(), order.uri()).await.map_err(|error| not_connected(&error))
    }

    async fn call_shared(
        &self,
        client: &HttpClient,
        order: &Order<'_>,
        limit: usize,
    ) -> Result<Answered, Ended> {
        let request = order.request();
        let uri = request.uri().clone();
        let response = match client.request(request).await {
            Ok(response) => response,
            Err(error) => return Err(self.failed(&error, &uri).await),
        };
        let (head, body) = response.into_parts();
        let text = reply::read(body, limit).await.map_err(reply_broke_off)?;
        Ok(Answered { status: head.status, headers: head.headers, text })
    }

    /// What an error of a client means.
    async fn failed(&self, error: &Error, uri: &Uri) -> Ended {
        match dial_error(error) {
            Some(error) => not_connected(error),
            None if error.is_connect() => not_connected(&self.why_not(uri).await),
            None => Ended::BrokeOff(root(error)),
        }
    }

    /// Why a call has no connection, where its client cannot say: with prior knowledge of HTTP/2 it
    /// waited for another call's, and only that one was told what went wrong.
    async fn why_not(&self, uri: &Uri) -> DialError {
        match self.dialer.forbids(uri).await {
            Some(forbidden) => DialError::Forbidden(forbidden),
            None => DialError::Shared,
        }
    }
}

impl Shared {
    fn next(&self) -> Option<&HttpClient> {
        let turn = match self.clients.len() {
            0 | 1 => 0,
            several => self.next.fetch_add(1, Ordering::Relaxed) % several,
        };
        self.clients.get(turn)
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The connections end with their clients; this is for one that is waiting for its peer.
        self.crew.cx.cancel();
    }
}

fn connector(settings: &HttpSettings, tls: ClientConfig, dialer: Dialer) -> Connector {
    let schemes = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let secure = match settings.version {
        HttpVersion::Http11 => schemes.enable_http1().wrap_connector(dialer),
        HttpVersion::Http2 => schemes.enable_http1().enable_http2().wrap_connector(dialer),
    };
    Connector::new(secure, settings.connect_timeout)
}

fn client(connector: Connector, crew: Crew, only_h2: bool) -> HttpClient {
    Client::builder(crew)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_FOR)
        .pool_max_idle_per_host(usize::MAX)
        .http1_max_buf_size(MAX_HEADERS)
        .http2_only(only_h2)
        .http2_max_header_list_size(MAX_HEADERS as u32)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector)
}

fn dial_error(error: &Error) -> Option<&DialError> {
    let mut causes = successors(error.source(), |error| (*error).source());
    causes.find_map(|cause| cause.downcast_ref())
}

fn not_connected(error: &DialError) -> Ended {
    match error {
        DialError::Forbidden(forbidden) => Ended::Forbidden(forbidden.to_string()),
        error => Ended::NotConnected(error.to_string()),
    }
}

fn reply_broke_off(error: hyper::Error) -> Ended {
    Ended::BrokeOff(format!("the reply broke off: {}", root(&error)))
}

/// The words of the innermost cause, which says most.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = successors(Some(error), |error| (*error).source());
    causes.last().map_or_else(String::new, ToString::to_string)
}

/// Where the system has no certificates, `https://` targets fail one by one, and say why.
fn tls_config(roots: &Roots) -> ClientConfig {
    let mut store = RootCertStore::empty();
    let certificates = match roots {
        Roots::System => rustls_native_certs::load_native_certs().certs,
        Roots::Only(ders) => ders.iter().map(|der| CertificateDer::from(der.clone())).collect(),
    };
    store.add_parsable_certificates(certificates);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for the default versions of TLS")
        .with_root_certificates(store)
        .with_no_client_auth()
}

impl Crew {
    /// Calls are bounded where they are made; this is far above what a machine has sockets for.
    const MAX_TASKS: u32 = 1 << 20;

    fn new() -> Result<Self, Invalid> {
        let group = |name: &str| TaskGroup::new(name, Self::MAX_TASKS);
        let groups = [
            group("http connections")?,
            group("http connections, inner")?,
            group("http streams")?,
            group("http streams, inner")?,
        ];
        Ok(Self { groups: Arc::new(groups), cx: Context::new() })
    }
}

impl hyper::rt::Executor<Work> for Crew {
    fn execute(&self, work: Work) {
        let depth = DEPTH.get();
        let Some(group) = self.groups.get(depth) else { return };
        // What is refused is dropped, and whoever waits for it sees a connection that is gone.
        drop(group.try_submit(&self.cx, move |cx| Job { depth: depth + 1, cx, work }));
    }
}

impl Future for Job {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<()> {
        struct Restore(usize);
        impl Drop for Restore {
            fn drop(&mut self) {
                DEPTH.set(self.0);
            }
        }
        if self.cx.is_cancelled() {
            return Poll::Ready(());
        }
        let _restore = Restore(DEPTH.replace(self.depth));
        self.work.as_mut().poll(poller)
    }
}
