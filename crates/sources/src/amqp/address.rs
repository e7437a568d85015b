//! Where a broker is and who we are to it, read from a URI.

use std::fmt;
use std::path::PathBuf;

use lapin::uri::{AMQPScheme, AMQPUri};
use url::Url;

use crate::OpenError;
use crate::network::parameters;

/// How often each side shows that it lives, in seconds. The broker's own default is a minute, in
/// which a cut line would look alive.
const HEARTBEAT: u16 = 10;

/// Where a broker is: `amqp://USER:PASS@HOST:PORT/VHOST`, or `amqps://` for TLS.
///
/// Parameters: `heartbeat` (seconds, 10), and for TLS `ca` (a PEM file with certificates to trust
/// beside the system's).
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpAddress {
    pub(crate) uri: AMQPUri,
    pub(crate) ca: Option<PathBuf>,
}

impl AmqpAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// Names the part that is wrong, and for an unknown parameter the nearest known one.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        let (address, _) = Self::parse_with(uri, &[])?;
        Ok(address)
    }

    /// The same with further parameters, whose values are answered in the order of their names.
    pub(crate) fn parse_with(
        uri: &str,
        more: &[&str],
    ) -> Result<(Self, Vec<Option<String>>), OpenError> {
        let wrong = |what: String| Err(OpenError::Address(what));
        let Ok(url) = Url::parse(uri) else {
            return wrong(
                "it is no URI such as amqp://USER:PASS@HOST:PORT/VHOST?queue=NAME".into(),
            );
        };
        if !matches!(url.scheme(), "amqp" | "amqps") {
            return wrong(format!("the scheme is {}, not amqp or amqps", url.scheme()));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return wrong("the host is missing".into());
        }
        let mut parameters = parameters::read(&url, &[&["heartbeat", "ca"], more].concat())?;
        let values = more.iter().map(|name| parameters.remove(*name)).collect();
        let ca = parameters.remove("ca").map(PathBuf::from);
        let heartbeat = match parameters.remove("heartbeat").map(|value| (value.parse(), value)) {
            None => HEARTBEAT,
            Some((Ok(seconds @ 1..), _)) => seconds,
            Some((_, value)) => {
                return wrong(format!("heartbeat: {value:?} is no number of seconds"));
            }
        };
        let mut plain = url;
        plain.set_query(None);
        // Its own message may quote the address, and with it the password.
        let Ok(mut uri) = plain.as_str().parse::<AMQPUri>() else {
            return wrong("user, password, host, port or vhost cannot be read".into());
        };
        if uri.vhost.is_empty() {
            uri.vhost.push('/');
        }
        if uri.vhost.len() > 255 {
            return wrong("the vhost is longer than 255 bytes".into());
        }
        uri.query.heartbeat = Some(heartbeat);
        if ca.is_some() && uri.scheme == AMQPScheme::AMQP {
            return wrong("ca: it is of use only with amqps://".into());
        }
        Ok((Self { uri, ca }, values))
    }

    /// The host and the port.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}:{}", self.uri.authority.host, self.uri.authority.port)
    }

    /// The virtual host.
    #[must_use]
    pub fn vhost(&self) -> &str {
        &self.uri.vhost
    }

    /// The user.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }

    pub(crate) const fn is_tls(&self) -> bool {
        matches!(self.uri.scheme, AMQPScheme::AMQPS)
    }
}

/// Without the password.
impl fmt::Debug for AmqpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpAddress")
            .field("user", &self.user())
            .field("host", &self.host())
            .field("vhost", &self.vhost())
            .field("is_tls", &self.is_tls())
            .field("ca", &self.ca)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(uri: &str) -> String {
        match AmqpAddress::parse_with(uri, &["queue", "prefetch"]) {
            Ok((address, values)) => format!(
                "{}@{} {} tls={} {:?}",
                address.user(),
                address.host(),
                address.vhost(),
                address.is_tls(),
                values[0]
            ),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn addresses_are_read_or_refused_by_field() {
        let cases = [
            ("amqp://u:p@h:1/v?queue=q", "u@h:1 v tls=false Some(\"q\")"),
            ("amqp://h?queue=a%2Fb", "guest@h:5672 / tls=false Some(\"a/b\")"),
            ("amqps://u%40x:p@h/%2f", "u@x@h:5671 / tls=true None"),
            ("amqp://h/?quue=q", "there is no parameter `quue`; did you mean `queue`?"),
            ("amqp://h/?hartbeat=q", "`hartbeat`; did you mean `heartbeat`?"),
            ("amqp://h/?heartbeat=0", "heartbeat: \"0\" is no number of seconds"),
            ("amqp://h/?ca=x", "ca: it is of use only with amqps://"),
            ("http://h/", "the scheme is http, not amqp or amqps"),
            ("nonsense", "it is no URI"),
        ];
        for (uri, expected) in cases {
            assert!(seen(uri).contains(expected), "{uri}: {}", seen(uri));
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        for uri in ["amqp://u:s3cret@h/?queue=q", "amqp://u:s3cret@h/?x=1", "amqp://u:s3cret@:x/"] {
            let shown = format!("{:?}", AmqpAddress::parse_with(uri, &["queue"]));
            assert!(!shown.contains("s3cret"), "{shown}");
        }
    }
}
