//! What calls over HTTP are told.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use sluicegate_dispatch::{BoxFuture, BreakerSettings};

use super::address::OwnAddresses;
use crate::BreakerScope;

/// The settings of an [`HttpExecutor`](super::HttpExecutor).
#[derive(Clone)]
pub struct HttpSettings {
    /// How long one call may take, from asking for a connection to the end of the reply.
    pub timeout: Duration,
    /// How long connecting may take: looking the name up, TCP and TLS.
    pub connect_timeout: Duration,
    /// The newest version of HTTP to speak.
    pub version: HttpVersion,
    /// Whether to speak HTTP/2 to `http://` targets, which must know it. Only with
    /// [`HttpVersion::Http2`].
    pub prior_knowledge: bool,
    /// Which statuses are a success.
    pub success: Success,
    /// Ranges that a target may resolve to beside public addresses.
    pub allow_targets: Vec<IpNet>,
    /// Where the caller itself listens, which is never called.
    pub own: OwnAddresses,
    /// What shares a circuit breaker.
    pub breaker_scope: BreakerScope,
    /// When a circuit breaker opens and closes.
    pub breaker: BreakerSettings,
    /// How long to wait before each further call of an attempt.
    pub retry_delays: Vec<Duration>,
    /// How much of a reply is read.
    pub max_reply: usize,
    /// How many connections an HTTP/2 origin may get.
    pub shards: usize,
    /// Whom to trust.
    pub roots: Roots,
    /// Looks names up; `None` for the system's resolver.
    pub resolver: Option<Arc<dyn Resolve>>,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1 only.
    Http11,
    /// HTTP/2 where TLS agrees on it, or both sides know, else HTTP/1.1.
    #[default]
    Http2,
}

/// Which statuses are a success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Success {
    /// All from 200 to 299.
    #[default]
    Any2xx,
    /// 200 alone.
    Only200,
}

impl Success {
    /// Whether a status is one.
    pub(crate) fn is(self, status: http::StatusCode) -> bool {
        status == http::StatusCode::OK || (self == Self::Any2xx && status.is_success())
    }
}

/// The certificates that TLS trusts.
#[derive(Clone, Default)]
pub enum Roots {
    /// Those of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    #[default]
    System,
    /// These alone, in DER.
    Only(Vec<Vec<u8>>),
}

/// Looks names up. Addresses in a URL are not names and are not asked for.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of a host, best first.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(15 * 60),
            connect_timeout: Duration::from_secs(30),
            version: HttpVersion::default(),
            prior_knowledge: false,
            success: Success::default(),
            allow_targets: Vec::new(),
            own: OwnAddresses::default(),
            breaker_scope: BreakerScope::default(),
            breaker: BreakerSettings::default(),
            retry_delays: vec![Duration::from_secs(1), Duration::from_secs(2)],
            max_reply: 1 << 20,
            shards: 4,
            roots: Roots::default(),
            resolver: None,
        }
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("version", &self.version)
            .field("prior_knowledge", &self.prior_knowledge)
            .field("success", &self.success)
            .field("allow_targets", &self.allow_targets)
            .field("own", &self.own)
            .field("breaker_scope", &self.breaker_scope)
            .field("breaker", &self.breaker)
            .field("retry_delays", &self.retry_delays)
            .field("max_reply", &self.max_reply)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}
