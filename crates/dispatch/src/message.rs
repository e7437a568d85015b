//! A message: what is to be delivered, to whom, and in order with what.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use http::HeaderValue;
use http::uri::PathAndQuery;

/// A unit of work from a queue.
///
/// It is parsed once, at the border, and cannot be wrong after that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The application's id of it.
    pub id: Arc<str>,
    /// The code of the pool it asks for.
    pub pool: Arc<str>,
    /// What it stays in order with; `None` for a message without a group.
    pub group: Option<Arc<str>>,
    /// Whom to be fair to.
    pub tenant: Option<Arc<str>>,
    /// Whether it goes before the regular ones.
    pub high_priority: bool,
    /// Where it is delivered.
    pub target: Target,
    /// What it is delivered with.
    pub auth_token: Option<AuthToken>,
    /// JSON to deliver, as it was written.
    pub payload: Option<Arc<str>>,
    /// The W3C `traceparent` it came with.
    pub traceparent: Option<Box<str>>,
    /// Names of fields that it came with and nobody knows: a few, and not all of a long one.
    pub unknown_fields: Box<[Box<str>]>,
}

/// A bearer token: sent, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthToken(Arc<str>);

/// The address a message is delivered to: an absolute `http` or `https` URL with a host.
#[derive(Clone, PartialEq, Eq)]
pub struct Target(Arc<Parts>);

/// A target, read once for all of its calls.
#[derive(PartialEq, Eq)]
struct Parts {
    url: Box<str>,
    authority: Range<u16>,
    /// The authority in the one spelling that all others share, where it is written in another.
    respelled: Option<Box<str>>,
    path: PathAndQuery,
    host: HeaderValue,
    is_secure: bool,
}

/// Why a text is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadTarget {
    /// It is not a URL at all.
    NotAUrl,
    /// Its scheme is not `http` or `https`.
    Scheme,
    /// It has no host.
    NoHost,
    /// It carries a user or a password.
    Credentials,
    /// Its port is no number up to 65,535.
    Port,
    /// It is longer than 8,192 bytes.
    TooLong,
}

impl AuthToken {
    /// Wraps a token.
    #[must_use]
    pub fn new(token: impl Into<Arc<str>>) -> Self {
        Self(token.into())
    }

    /// The token itself, for the header and for nothing else.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for AuthToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Target {
    const MAX_BYTES: usize = 8_192;

    /// Reads a target.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, BadTarget> {
        if url.len() > Self::MAX_BYTES {
            return Err(BadTarget::TooLong);
        }
        let uri: http::Uri = url.parse().map_err(|_| BadTarget::NotAUrl)?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(BadTarget::Scheme),
            None => return Err(BadTarget::NotAUrl),
        };
        let authority = uri.authority().ok_or(BadTarget::NoHost)?.as_str();
        if authority.contains('@') {
            return Err(BadTarget::Credentials);
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(BadTarget::NoHost)?;
        let port = match authority[host.len()..].trim_start_matches(':') {
            "" => None,
            port => Some(port.parse::<u16>().map_err(|_| BadTarget::Port)?),
        };
        let respelled = respelled(authority, host, port, is_secure);
        let start = url.find("://").ok_or(BadTarget::NotAUrl)? + 3;
        let range = start as u16..(start + authority.len()) as u16;
        let slash = || PathAndQuery::from_static("/");
        let path = uri.path_and_query().cloned().unwrap_or_else(slash);
        let host = shown_host(authority, is_secure)?;
        let (url, authority) = (url.into(), range);
        Ok(Self(Arc::new(Parts { url, authority, respelled, path, host, is_secure })))
    }

    /// The URL as it was written.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Scheme, host and port, as written: where a connection goes.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0.url[..usize::from(self.0.authority.end)]
    }

    /// What is asked for there.
    #[must_use]
    pub fn path_and_query(&self) -> &PathAndQuery {
        &self.0.path
    }

    /// The value of the header `Host`.
    #[must_use]
    pub fn host(&self) -> &HeaderValue {
        &self.0.host
    }

    /// Whether it is called over TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.0.is_secure
    }

    /// Host and port in one spelling: what pauses and breakers by host go by. The host is in lower
    /// case, and the scheme's own port is left out.
    ///
    /// ```
    /// use sluicegate_dispatch::Target;
    ///
    /// let target = Target::parse("https://API.example.com:443/orders")?;
    /// assert_eq!(target.authority(), "api.example.com");
    /// # Ok::<(), sluicegate_dispatch::BadTarget>(())
    /// ```
    #[must_use]
    pub fn authority(&self) -> &str {
        let Range { start, end } = self.0.authority;
        let written = &self.0.url[usize::from(start)..usize::from(end)];
        self.0.respelled.as_deref().unwrap_or(written)
    }
}

/// The spelling that an authority shares with all others of that host and port; `None` if it is
/// written like that.
fn respelled(authority: &str, host: &str, port: Option<u16>, is_secure: bool) -> Option<Box<str>> {
    let default = if is_secure { 443 } else { 80 };
    let mut spelled = host.to_ascii_lowercase();
    if let Some(port) = port.filter(|port| *port != default) {
        spelled.push(':');
        spelled.push_str(&port.to_string());
    }
    (spelled != authority).then(|| spelled.into())
}

/// An authority as a `Host` header has it: a port that goes without saying is not said.
fn shown_host(authority: &str, is_secure: bool) -> Result<HeaderValue, BadTarget> {
    let default = if is_secure { ":443" } else { ":80" };
    let shortened = authority.strip_suffix(default).or_else(|| authority.strip_suffix(':'));
    HeaderValue::from_str(shortened.unwrap_or(authority)).map_err(|_| BadTarget::NotAUrl)
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url())
    }
}

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAUrl => "is not an absolute URL",
            Self::Scheme => "must begin with http:// or https://",
            Self::NoHost => "has no host",
            Self::Credentials => "must not carry a user or password; use authToken",
            Self::Port => "has a port that is no number up to 65,535",
            Self::TooLong => "is longer than 8,192 bytes",
        })
    }
}

impl std::error::Error for BadTarget {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let long = format!("http://h/{}", "x".repeat(8_192));
        #[rustfmt::skip]
        let cases: &[(&str, Result<&str, BadTarget>)] = &[
            ("http://h", Ok("h")),
            ("https://api.example.com/a/b?c=d#e", Ok("api.example.com")),
            ("http://127.0.0.1:9000/x", Ok("127.0.0.1:9000")),
            ("http://[::1]:80/x", Ok("[::1]")),
            ("http://[2001:DB8::1]:81/x", Ok("[2001:db8::1]:81")),
            // One place, one spelling.
            ("https://API.Example.com:443/A?B", Ok("api.example.com")),
            ("HTTP://h:80", Ok("h")),
            ("http://h:/", Ok("h")),
            ("http://h:0080/", Ok("h")),
            ("http://h:08080/", Ok("h:8080")),
            ("http://h:443/", Ok("h:443")),
            ("https://h:80/", Ok("h:80")),
            ("https://H:80?q", Ok("h:80")),
            ("http://[::1]/x", Ok("[::1]")),
            ("http://h:65535/", Ok("h:65535")),
            ("http://h:65536/", Err(BadTarget::Port)),
            ("http://h:99999999/", Err(BadTarget::Port)),
            ("", Err(BadTarget::NotAUrl)),
            ("h/x", Err(BadTarget::NotAUrl)),
            ("/x", Err(BadTarget::NotAUrl)),
            ("http://", Err(BadTarget::NotAUrl)),
            ("ftp://h/", Err(BadTarget::Scheme)),
            ("http://u:p@h/", Err(BadTarget::Credentials)),
            (&long, Err(BadTarget::TooLong)),
        ];
        for (url, wanted) in cases {
            let parsed = Target::parse(url);
            assert_eq!(
                parsed.as_ref().map(Target::authority).map_err(|bad| *bad),
                *wanted,
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_called_is_what_was_written() {
        let target = Target::parse("https://API.example.com:443/A?B").expect("a target");
        assert_eq!(target.url(), "https://API.example.com:443/A?B");
        assert_eq!(target.origin(), "https://API.example.com:443");
        assert_eq!(target.host(), "API.example.com");
    }

    #[test]
    fn a_token_is_not_shown() {
        assert_eq!(format!("{:?}", AuthToken::new("tiger")), "***");
    }
}
