//! Where a broker is and who we are to it, read from a URI.

use std::fmt;
use std::path::PathBuf;

use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::OpenError;
use crate::network::parameters;
use crate::network::tls::Identity;

/// How often each side shows that it lives, in seconds. The broker's own default is a minute, in
/// which a cut line would look alive.
const HEARTBEAT: u16 = 10;

/// Where a broker is: `amqp://USER:PASS@HOST:PORT/VHOST`, or `amqps://` for TLS.
///
/// Parameters: `heartbeat` (seconds, 10), and for TLS `ca` (a PEM file with certificates to trust
/// beside the system's), `cert` and `key` (PEM files with a certificate of our own, for a broker that
/// asks for one). An IPv6 address is in brackets: `amqp://USER:PASS@[::1]:PORT/VHOST`.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpAddress {
    pub(crate) uri: AMQPUri,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) identity: Option<Identity>,
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
        let Some(host) = host_of(&url) else { return wrong("the host is missing".into()) };
        let own = ["heartbeat", "ca", "cert", "key"];
        let mut parameters = parameters::read(&url, &[&own, more].concat())?;
        let values = more.iter().map(|name| parameters.remove(*name)).collect();
        let ca = parameters.remove("ca").map(PathBuf::from);
        let identity = match (parameters.remove("cert"), parameters.remove("key")) {
            (Some(cert), Some(key)) => Some(Identity { cert: cert.into(), key: key.into() }),
            (None, None) => None,
            (Some(_), None) => return wrong("key: the key of `cert` is missing".into()),
            (None, Some(_)) => return wrong("cert: the certificate of `key` is missing".into()),
        };
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
        // It reads an address of numbers as no host at all, and takes its own default.
        uri.authority.host = host;
        if uri.vhost.is_empty() {
            uri.vhost.push('/');
        }
        if uri.vhost.len() > 255 {
            return wrong("the vhost is longer than 255 bytes".into());
        }
        uri.query.heartbeat = Some(heartbeat);
        let of_tls = [("ca", ca.is_some()), ("cert", identity.is_some())];
        if let Some((name, _)) = of_tls.into_iter().find(|(_, is_said)| *is_said)
            && uri.scheme == AMQPScheme::AMQP
        {
            return wrong(format!("{name}: it is of use only with amqps://"));
        }
        Ok((Self { uri, ca, identity }, values))
    }

    /// The host and the port.
    #[must_use]
    pub fn host(&self) -> String {
        let AMQPAuthority { host, port, .. } = &self.uri.authority;
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
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

/// The host as it is looked up: an IPv6 address is without its brackets.
fn host_of(url: &Url) -> Option<String> {
    let host = match url.host()? {
        Host::Domain(name) => percent_decode_str(name).decode_utf8().ok()?.into_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_string(),
    };
    (!host.is_empty()).then_some(host)
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
            .field("cert", &self.identity.as_ref().map(|identity| &identity.cert))
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
            ("amqp://h/?cert=x&key=y", "cert: it is of use only with amqps://"),
            ("amqps://h/?cert=x", "key: the key of `cert` is missing"),
            ("amqps://h/?key=x", "cert: the certificate of `key` is missing"),
            ("amqps://u:p@[2001:db8::7]/?cert=x&key=y", "u@[2001:db8::7]:5671 / tls=true"),
            ("amqp://u:p@[::1]:9/v?queue=q", "u@[::1]:9 v tls=false Some(\"q\")"),
            ("amqp://u:p@[::ffff:10.0.0.1]/", "u@[::ffff:10.0.0.1]:5672 / tls=false"),
            ("amqp://u:p@10.0.0.1/", "u@10.0.0.1:5672 / tls=false"),
            ("amqp://u:p@[::1/", "it is no URI"),
            ("amqp://u:p@/", "it is no URI"),
            ("amqp:///v", "the host is missing"),
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
