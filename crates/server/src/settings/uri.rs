//! Where a queue is: one address per broker, read far enough that a mistake is found early.
//!
//! Addresses hold passwords, so what is shown of them, in errors too, is never the text itself.

use std::fmt;

use sluicegate_sources::nearest;

use super::available;
use super::secret::MASK;
use crate::brokers;

/// The address of a queue.
///
/// ```
/// use sluicegate_server::settings::QueueUri;
///
/// let uri = QueueUri::parse("sqlite:orders").unwrap();
/// assert_eq!(uri, QueueUri::Sqlite { queue: "orders".into() });
/// assert_eq!(uri.to_string(), "sqlite:orders");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueUri {
    /// A queue in the daemon's own state file.
    Sqlite {
        /// Its name there.
        queue: String,
    },
    /// A queue in PostgreSQL.
    Postgres(BrokerUri),
    /// RabbitMQ, or another broker that speaks AMQP 0-9-1.
    Amqp(BrokerUri),
    /// A stream of NATS JetStream.
    Nats(BrokerUri),
    /// AWS SQS.
    Sqs(BrokerUri),
    /// ActiveMQ Classic.
    ActiveMq(BrokerUri),
    /// The event store as a source.
    Events(BrokerUri),
}

/// An address with whatever credentials are in it; `Display` and `Debug` show it without them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BrokerUri(String);

impl BrokerUri {
    /// The whole address, credentials included.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// How the addresses of one scheme look.
struct Scheme {
    name: &'static str,
    wrap: fn(BrokerUri) -> QueueUri,
    /// An example, shown when an address is wrong.
    example: &'static str,
    /// What the query must have.
    required: &'static [&'static str],
    shape: Shape,
}

/// What stands between the scheme and the query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `//HOST…`
    Host,
    /// `//HOST/PATH`
    HostAndPath,
    /// Nothing.
    Nothing,
}

const POSTGRES: &str = "postgres://USER:PASS@HOST/DB?queue=NAME";
const AMQP: &str = "amqp://USER:PASS@HOST:PORT/VHOST?queue=NAME";
const NATS: &str = "nats://HOST:PORT?stream=S&consumer=C";
const SQS: &str = "sqs+https://HOST/ACCOUNT/NAME?region=R";
const ACTIVEMQ: &str = "activemq://USER:PASS@HOST:PORT/QUEUE";
const EVENTS: &str = "events:?key=TAG&types=A,B&target=URL";

const BROKERS: &[Scheme] = &[
    broker("postgres", QueueUri::Postgres, POSTGRES, &["queue"], Shape::Host),
    broker("postgresql", QueueUri::Postgres, POSTGRES, &["queue"], Shape::Host),
    broker("amqp", QueueUri::Amqp, AMQP, &["queue"], Shape::Host),
    broker("amqps", QueueUri::Amqp, AMQP, &["queue"], Shape::Host),
    broker("nats", QueueUri::Nats, NATS, &["stream", "consumer"], Shape::Host),
    broker("sqs+https", QueueUri::Sqs, SQS, &[], Shape::HostAndPath),
    broker("sqs+http", QueueUri::Sqs, SQS, &[], Shape::HostAndPath),
    broker("activemq", QueueUri::ActiveMq, ACTIVEMQ, &[], Shape::HostAndPath),
    broker("activemqs", QueueUri::ActiveMq, ACTIVEMQ, &[], Shape::HostAndPath),
    broker("events", QueueUri::Events, EVENTS, &["target"], Shape::Nothing),
];

const fn broker(
    name: &'static str,
    wrap: fn(BrokerUri) -> QueueUri,
    example: &'static str,
    required: &'static [&'static str],
    shape: Shape,
) -> Scheme {
    Scheme { name, wrap, example, required, shape }
}

impl QueueUri {
    /// Reads an address that this build can serve.
    ///
    /// # Errors
    ///
    /// Says what is wrong, without the text: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, QueueUriInvalid> {
        Self::parse_served(text, available::QUEUE_SCHEMES)
    }

    fn parse_served(text: &str, served: &'static [&'static str]) -> Result<Self, QueueUriInvalid> {
        let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let (name, rest) = text
            .split_once(':')
            .filter(|(name, _)| !name.is_empty() && name.chars().all(in_scheme))
            .ok_or(QueueUriInvalid::NoScheme)?;
        let broker = BROKERS.iter().find(|broker| broker.name == name);
        if broker.is_none() && name != "sqlite" {
            let nearest = nearest(name, known_schemes());
            return Err(QueueUriInvalid::UnknownScheme { scheme: name.to_owned(), nearest });
        }
        if !served.contains(&name) {
            return Err(QueueUriInvalid::NotServed { scheme: name.to_owned(), served });
        }
        match broker {
            None => embedded(rest),
            Some(broker) => {
                broker.check(rest)?;
                let uri = (broker.wrap)(BrokerUri(text.to_owned()));
                match brokers::fault(&uri) {
                    Some(what) => Err(QueueUriInvalid::Wrong { what, example: broker.example }),
                    None => Ok(uri),
                }
            }
        }
    }

    /// The whole address, by which two can be told apart.
    pub(super) fn exposed(&self) -> String {
        match self.broker() {
            Ok(uri) => uri.expose().to_owned(),
            Err(queue) => format!("sqlite:{queue}"),
        }
    }

    /// The broker's address, or the name of the embedded queue.
    fn broker(&self) -> Result<&BrokerUri, &str> {
        match self {
            Self::Sqlite { queue } => Err(queue),
            Self::Postgres(uri)
            | Self::Amqp(uri)
            | Self::Nats(uri)
            | Self::Sqs(uri)
            | Self::ActiveMq(uri)
            | Self::Events(uri) => Ok(uri),
        }
    }
}

fn known_schemes() -> impl Iterator<Item = &'static str> {
    std::iter::once("sqlite").chain(BROKERS.iter().map(|broker| broker.name))
}

fn embedded(name: &str) -> Result<QueueUri, QueueUriInvalid> {
    const MOST: usize = 128;
    let allowed = |c: char| c.is_alphanumeric() || "._:-".contains(c);
    if name.is_empty() || name.len() > MOST || !name.chars().all(allowed) {
        let what = "the name of an embedded queue is 1 to 128 letters, digits, `.`, `_`, `:`, `-`";
        return Err(QueueUriInvalid::Malformed { what, example: "sqlite:orders" });
    }
    Ok(QueueUri::Sqlite { queue: name.to_owned() })
}

impl Scheme {
    fn check(&self, rest: &str) -> Result<(), QueueUriInvalid> {
        let malformed = |what| QueueUriInvalid::Malformed { what, example: self.example };
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(malformed("an address has no blanks"));
        }
        if self.shape == Shape::Nothing {
            if !address.is_empty() {
                return Err(malformed("nothing may stand before the `?`"));
            }
        } else {
            let address = address.strip_prefix("//").ok_or_else(|| malformed("`//` is missing"))?;
            let (authority, path) = address.split_once('/').unwrap_or((address, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            if host.is_empty() || host.starts_with(':') {
                return Err(malformed("the host is missing"));
            }
            if self.shape == Shape::HostAndPath && path.is_empty() {
                return Err(malformed("the queue is missing after the host"));
            }
        }
        for name in self.required {
            let given =
                |pair: &str| pair.split_once('=').is_some_and(|(n, v)| n == *name && !v.is_empty());
            if !query.split('&').any(given) {
                let (example, name) = (self.example, *name);
                return Err(QueueUriInvalid::MissingParameter { name, example });
            }
        }
        Ok(())
    }
}

/// The text without user, password, and whatever in the query may be a secret.
pub(super) fn redacted(text: &str) -> String {
    // Up to the last `@` of all: a password that was not encoded may hold `@`, `/` or `?` itself.
    let shown = match (text.split_once(':'), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{MASK}@{rest}"),
        (None, Some((_, rest))) => format!("{MASK}@{rest}"),
        _ => text.to_owned(),
    };
    let Some((address, query)) = shown.split_once('?') else {
        return shown;
    };
    let parameters = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    });
    format!("{address}?{}", parameters.collect::<Vec<_>>().join("&"))
}

fn is_secret(parameter: &str) -> bool {
    let parameter = parameter.to_lowercase();
    ["pass", "secret", "token", "auth", "cred"].iter().any(|word| parameter.contains(word))
}

impl fmt::Display for BrokerUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.0))
    }
}

impl fmt::Debug for BrokerUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for QueueUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.broker() {
            Ok(uri) => uri.fmt(f),
            Err(queue) => write!(f, "sqlite:{queue}"),
        }
    }
}

impl fmt::Debug for QueueUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is no address of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueUriInvalid {
    /// No scheme before a colon.
    NoScheme,
    /// A scheme that nobody knows.
    UnknownScheme {
        /// The scheme.
        scheme: String,
        /// The one that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A scheme that this build does not serve.
    NotServed {
        /// The scheme.
        scheme: String,
        /// Those that it serves.
        served: &'static [&'static str],
    },
    /// The rest is not as the scheme wants it.
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// How it should look.
        example: &'static str,
    },
    /// The broker's own part of it is wrong.
    Wrong {
        /// What is wrong, without any secret.
        what: String,
        /// How it should look.
        example: &'static str,
    },
    /// A parameter of the query is missing.
    MissingParameter {
        /// Its name.
        name: &'static str,
        /// How the address should look.
        example: &'static str,
    },
}

impl QueueUriInvalid {
    /// What would be right.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NoScheme | Self::UnknownScheme { nearest: None, .. } => {
                format!("known schemes: {}", known_schemes().collect::<Vec<_>>().join(", "))
            }
            Self::UnknownScheme { nearest: Some(nearest), .. } => {
                format!("did you mean `{nearest}`?")
            }
            Self::NotServed { served, .. } => format!("available here: {}", served.join(", ")),
            Self::Malformed { example, .. }
            | Self::Wrong { example, .. }
            | Self::MissingParameter { example, .. } => {
                format!("as in {example}")
            }
        }
    }
}

impl fmt::Display for QueueUriInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScheme => write!(f, "must begin with a scheme, as in `sqlite:orders`"),
            Self::UnknownScheme { scheme, .. } => write!(f, "`{scheme}` is no scheme of a queue"),
            Self::NotServed { scheme, .. } => {
                write!(f, "`{scheme}` {}", available::NOT_YET)
            }
            Self::Malformed { what, .. } => f.write_str(what),
            Self::Wrong { what, .. } => f.write_str(what),
            Self::MissingParameter { name, .. } => {
                write!(f, "`{name}=` is missing after the `?`")
            }
        }
    }
}

impl std::error::Error for QueueUriInvalid {}

#[cfg(test)]
mod tests;
