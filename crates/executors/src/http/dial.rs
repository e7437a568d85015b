//! Connecting: look the name up once, check every address, dial one that was checked.
//!
//! The check is made here, after looking up and right before dialling, and not on the URL: an
//! address in a URL never meets a resolver, and a name may mean something else at the next lookup.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use sluicegate_dispatch::BoxFuture;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tower_service::Service;

use super::address::{Forbidden, OwnAddresses, forbidden, host_of, literal};
use super::settings::Resolve;

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The name could not be looked up, or has no address.
    Dns { host: String, cause: String },
    /// The target has an address that is not allowed.
    Forbidden(Forbidden),
    /// No address could be dialled.
    Refused { address: SocketAddr, cause: io::Error },
    /// It took too long, all in all.
    Timeout(Duration),
    /// TLS was not agreed on.
    Tls { cause: String },
    /// It was to be another call's connection, which was not made.
    Shared,
}

type Tcp = TokioIo<TcpStream>;

/// A connection, with TLS or without.
pub(crate) type Stream = MaybeHttpsStream<Tcp>;

/// The whole way to a connection, within one time limit.
#[derive(Clone)]
pub(crate) struct Connector {
    secure: HttpsConnector<Dialer>,
    timeout: Duration,
}

/// The way to a TCP connection.
#[derive(Clone)]
pub(crate) struct Dialer {
    rules: Arc<Rules>,
}

pub(crate) struct Rules {
    pub(crate) allow: Vec<IpNet>,
    pub(crate) own: OwnAddresses,
    pub(crate) resolver: Option<Arc<dyn Resolve>>,
    pub(crate) timeout: Duration,
}

impl Connector {
    pub(crate) const fn new(secure: HttpsConnector<Dialer>, timeout: Duration) -> Self {
        Self { secure, timeout }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, limit) = (self.secure.call(uri), self.timeout);
        Box::pin(async move {
            match timeout(limit, connecting).await {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(error)) => Err(match error.downcast::<DialError>() {
                    Ok(error) => *error,
                    // All that the dialer does not say comes from TLS.
                    Err(error) => DialError::Tls { cause: error.to_string() },
                }),
                Err(_) => Err(DialError::Timeout(limit)),
            }
        })
    }
}

impl Dialer {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules: Arc::new(rules) }
    }

    /// What is wrong with the addresses of a target, as far as that can be said in time.
    pub(crate) async fn forbids(&self, uri: &Uri) -> Option<Forbidden> {
        match timeout(self.rules.timeout, self.rules.addresses_of(uri)).await {
            Ok(Err(DialError::Forbidden(forbidden))) => Some(forbidden),
            _ => None,
        }
    }
}

impl Service<Uri> for Dialer {
    type Response = Tcp;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<Tcp, DialError>>;

    fn poll_ready(&mut self, _: &mut Poller<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let rules = Arc::clone(&self.rules);
        Box::pin(async move {
            let addresses = rules.addresses_of(&uri).await?;
            rules.dial(&addresses).await
        })
    }
}

impl Rules {
    async fn addresses_of(&self, uri: &Uri) -> Result<Vec<SocketAddr>, DialError> {
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        self.addresses(host_of(authority), uri.port_u16().unwrap_or(default)).await
    }

    /// All addresses of a host, none of them forbidden, and at least one.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
        let failed = |cause: String| DialError::Dns { host: host.to_owned(), cause };
        let found = match (literal(host), &self.resolver) {
            (Some(address), _) => Ok(vec![SocketAddr::new(address, port)]),
            (None, Some(resolver)) => resolver.resolve(host, port).await,
            (None, None) => tokio::net::lookup_host((host, port)).await.map(Iterator::collect),
        };
        let addresses = found.map_err(|error| failed(error.to_string()))?;
        if addresses.is_empty() {
            return Err(failed("it has no address".to_owned()));
        }
        let wrong =
            addresses.iter().find_map(|address| forbidden(*address, &self.allow, &self.own));
        wrong.map_or(Ok(addresses), |wrong| Err(DialError::Forbidden(wrong)))
    }

    /// Dials one after the other. Each but the last gets its share of the time only, so that one
    /// that never answers does not hide the others.
    async fn dial(&self, addresses: &[SocketAddr]) -> Result<Tcp, DialError> {
        let end = Instant::now() + self.timeout;
        let mut last = DialError::Timeout(self.timeout);
        for (index, address) in addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    self.is_not_own(&stream, *address)?;
                    // Requests are written in one piece; waiting for more only delays them.
                    if let Err(cause) = stream.set_nodelay(true) {
                        last = DialError::Refused { address: *address, cause };
                        continue;
                    }
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(cause)) => last = DialError::Refused { address: *address, cause },
                Err(_) => last = DialError::Timeout(self.timeout),
            }
        }
        Err(last)
    }

    /// Nothing has been sent yet: whoever listens sees a connection that comes and goes.
    fn is_not_own(&self, stream: &TcpStream, address: SocketAddr) -> Result<(), DialError> {
        match (stream.local_addr(), stream.peer_addr()) {
            (Ok(near), Ok(far)) if self.own.have(near, far) => {
                Err(DialError::Forbidden(Forbidden::Own(address)))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns { host, cause } => write!(f, "could not look up {host}: {cause}"),
            Self::Forbidden(forbidden) => forbidden.fmt(f),
            Self::Refused { address, cause } => {
                write!(f, "could not connect to {address}: {cause}")
            }
            Self::Timeout(limit) => write!(f, "no connection within {limit:?}"),
            Self::Tls { cause } => write!(f, "no TLS: {cause}"),
            Self::Shared => f.write_str("the connection of another call was not made"),
        }
    }
}

impl std::error::Error for DialError {}
