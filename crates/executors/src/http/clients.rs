//! The clients that make the calls, and the tasks that their connections run in.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::TokioTimer;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use sluicegate_tasks::{Context, Invalid, Overload, TaskGroup};

use super::dial::{Connector, Dialer, Rules};
use super::settings::{HttpSettings, HttpVersion, Roots};

type HttpClient = Client<Connector, Full<Bytes>>;
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

const IDLE_FOR: Duration = Duration::from_secs(90);
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_HEADERS: usize = 64 * 1024;

/// The clients of an executor.
///
/// A client opens one HTTP/2 connection to an origin, whatever the server's limit of streams on it;
/// several clients in turn make it several connections.
pub(crate) struct Clients {
    /// For `http://`.
    plain: Vec<HttpClient>,
    /// For `https://`.
    secure: Vec<HttpClient>,
    next: AtomicUsize,
    crew: Crew,
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
        let client = |only_h2| client(settings, &tls, &crew, only_h2);
        let plain = (0..if h2c { shards } else { 1 }).map(|_| client(h2c)).collect();
        let secure = (0..if wants_h2 { shards } else { 1 }).map(|_| client(false)).collect();
        Ok(Self { plain, secure, next: AtomicUsize::new(0), crew })
    }

    /// Makes a call.
    ///
    /// # Cancel safety
    /// Dropped, the call is given up: its HTTP/1.1 connection is closed, its HTTP/2 stream reset.
    pub(crate) fn call(&self, request: Request<Full<Bytes>>) -> ResponseFuture {
        self.client_for(request.uri()).request(request)
    }

    fn client_for(&self, uri: &Uri) -> &HttpClient {
        let clients = if uri.scheme_str() == Some("https") { &self.secure } else { &self.plain };
        let turn = match clients.len() {
            1 => 0,
            several => self.next.fetch_add(1, Ordering::Relaxed) % several,
        };
        &clients[turn]
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // The connections end with their clients; this is for one that is waiting for its peer.
        self.crew.cx.cancel();
    }
}

fn client(settings: &HttpSettings, tls: &ClientConfig, crew: &Crew, only_h2: bool) -> HttpClient {
    let dialer = Dialer::new(Rules {
        allow: settings.allow_targets.clone(),
        resolver: settings.resolver.clone(),
        timeout: settings.connect_timeout,
    });
    let schemes = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
    let secure = match settings.version {
        HttpVersion::Http11 => schemes.enable_http1().wrap_connector(dialer),
        HttpVersion::Http2 => schemes.enable_http1().enable_http2().wrap_connector(dialer),
    };
    Client::builder(crew.clone())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_FOR)
        .pool_max_idle_per_host(usize::MAX)
        .http1_max_buf_size(MAX_HEADERS)
        .http2_only(only_h2)
        .http2_max_header_list_size(MAX_HEADERS as u32)
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(Connector::new(secure, settings.connect_timeout))
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
        let group = |name: &str| {
            TaskGroup::builder(name, Self::MAX_TASKS).overload(Overload::FailFast).build()
        };
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
