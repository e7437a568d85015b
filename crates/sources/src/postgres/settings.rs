//! The address of a queue in PostgreSQL.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use url::{Host, Url};

use crate::OpenError;
use crate::network::parameters;

const VISIBILITY: Duration = Duration::from_secs(30);
/// How many connections one source opens for its calls, at most.
const CONNECTIONS: usize = 6;
/// How long it may take to connect.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// How long the database may work on one statement.
const STATEMENT: Duration = Duration::from_secs(10);
const MAX_QUEUE: usize = 200;
const MAX_SCHEMA: usize = 40;
const KNOWN: [&str; 5] = ["ca", "host", "queue", "schema", "sslmode"];

/// Where a queue is, and how to get there.
#[derive(Clone)]
pub struct PostgresSettings {
    pub(crate) config: Config,
    pub(crate) queue: String,
    pub(crate) schema: String,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) visibility: Duration,
    pub(crate) connections: usize,
}

impl PostgresSettings {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?queue=NAME`.
    ///
    /// | parameter | is |
    /// |---|---|
    /// | `queue` | the queue's name; it is made when it is not there |
    /// | `schema` | where the tables are, `sluicegate` unless told |
    /// | `sslmode` | `disable`, `prefer` or `require`; certificates are always checked |
    /// | `ca` | a PEM file with the authority that signed the server's certificate |
    /// | `host` | the folder of a Unix socket, in place of a host |
    ///
    /// ```
    /// use sluicegate_sources::postgres::PostgresSettings;
    ///
    /// let settings = PostgresSettings::parse("postgres://me:secret@db.internal/shop?queue=orders")?;
    /// assert!(!format!("{settings:?}").contains("secret"));
    ///
    /// let error = PostgresSettings::parse("postgres://db/shop?queu=orders").unwrap_err();
    /// assert!(error.to_string().contains("did you mean `queue`"));
    /// # Ok::<(), sluicegate_sources::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// Names what is wrong, without any secret.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        let url = Url::parse(uri).map_err(|error| wrong(format!("it is no URL: {error}")))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(wrong(format!("the scheme must be `postgres`, not `{}`", url.scheme())));
        }
        let mut parameters = parameters::read(&url, &KNOWN)?;
        let queue = parameters.remove("queue").ok_or_else(|| wrong("`queue` is missing"))?;
        if queue.is_empty() || queue.len() > MAX_QUEUE || queue.chars().any(char::is_control) {
            return Err(wrong(format!("`queue` must have 1 to {MAX_QUEUE} bytes of text")));
        }
        let schema = parameters.remove("schema").unwrap_or_else(|| "sluicegate".to_owned());
        if !is_schema(&schema) {
            return Err(wrong(format!(
                "`schema` must have 1 to {MAX_SCHEMA} of a-z, 0-9 and _, and no digit first"
            )));
        }
        let host = Place::of(&url, parameters.remove("host"))?;
        let mode = mode(parameters.remove("sslmode").as_deref(), &host)?;
        let mut config = Config::new();
        host.apply(&mut config);
        credentials(&mut config, &url)?;
        config
            .ssl_mode(mode)
            .port(url.port().unwrap_or(5432))
            .application_name("sluicegate")
            .connect_timeout(CONNECT)
            .keepalives_idle(Duration::from_secs(15))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(20))
            .options(format!(
                "-c statement_timeout={} -c idle_in_transaction_session_timeout=30000",
                STATEMENT.as_millis()
            ));
        let ca = parameters.remove("ca").map(PathBuf::from);
        let (visibility, connections) = (VISIBILITY, CONNECTIONS);
        Ok(Self { config, queue, schema, ca, visibility, connections })
    }

    /// How long a delivery stays hidden without being extended.
    #[must_use]
    pub const fn with_visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// How many connections its calls may share; one more listens.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(1);
        self
    }

    /// The queue's name.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("hosts", &self.config.get_hosts())
            .field("ports", &self.config.get_ports())
            .field("database", &self.config.get_dbname())
            .field("queue", &self.queue)
            .field("schema", &self.schema)
            .field("visibility", &self.visibility)
            .finish_non_exhaustive()
    }
}

/// Where the server listens.
enum Place {
    Name(String),
    Folder(String),
}

impl Place {
    fn of(url: &Url, folder: Option<String>) -> Result<Self, OpenError> {
        match (url.host(), folder) {
            (_, Some(folder)) if folder.starts_with('/') => Ok(Self::Folder(folder)),
            (_, Some(_)) => Err(wrong("`host` must be the folder of a socket, beginning with /")),
            (Some(Host::Domain(name)), None) if !name.is_empty() => Ok(Self::Name(decoded(name)?)),
            (Some(Host::Ipv4(address)), None) => Ok(Self::Name(address.to_string())),
            (Some(Host::Ipv6(address)), None) => Ok(Self::Name(address.to_string())),
            _ => Err(wrong("the host is missing")),
        }
    }

    fn apply(&self, config: &mut Config) {
        match self {
            Self::Name(name) => config.host(name),
            Self::Folder(folder) => config.host_path(folder),
        };
    }

    /// Whether nobody else can listen on the way.
    fn is_here(&self) -> bool {
        match self {
            Self::Folder(_) => true,
            Self::Name(name) if name == "localhost" => true,
            Self::Name(name) => {
                name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

fn credentials(config: &mut Config, url: &Url) -> Result<(), OpenError> {
    let database = decoded(url.path().trim_start_matches('/'))?;
    if database.is_empty() || database.contains('/') {
        return Err(wrong("the database is missing: postgres://HOST/DATABASE?queue=NAME"));
    }
    config.dbname(database);
    if !url.username().is_empty() {
        config.user(decoded(url.username())?);
    }
    if let Some(password) = url.password() {
        config.password(decoded(password)?);
    }
    Ok(())
}

fn mode(named: Option<&str>, host: &Place) -> Result<SslMode, OpenError> {
    match named {
        None if host.is_here() => Ok(SslMode::Disable),
        None | Some("prefer") => Ok(SslMode::Prefer),
        Some("disable") => Ok(SslMode::Disable),
        Some("require" | "verify-ca" | "verify-full") => Ok(SslMode::Require),
        Some(_) => Err(wrong("`sslmode` must be disable, prefer or require")),
    }
}

fn is_schema(name: &str) -> bool {
    let fits = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_');
    (1..=MAX_SCHEMA).contains(&name.len())
        && name.bytes().all(fits)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("pg_")
}

/// A part of the address without its escapes.
fn decoded(text: &str) -> Result<String, OpenError> {
    let bad = || wrong("an escape in it is not two hexadecimal digits of UTF-8 text");
    let is_escape = |after: &str| {
        after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit())
    };
    if !text.split('%').skip(1).all(is_escape) {
        return Err(bad());
    }
    percent_decode_str(text).decode_utf8().map(Cow::into_owned).map_err(|_| bad())
}

fn wrong(why: impl Into<String>) -> OpenError {
    OpenError::Address(why.into())
}
