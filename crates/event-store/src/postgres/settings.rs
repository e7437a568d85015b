//! The address of a log in PostgreSQL.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use url::{Host, Url};

use super::broken::OpenError;

/// How long it may take to connect.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// How many connections read, at most.
const READERS: usize = 6;
const MAX_SCHEMA: usize = 40;
const KNOWN: [&str; 4] = ["ca", "host", "schema", "sslmode"];

/// Where a log is, how to get there, and how long calls may take.
///
/// Beside the connections that read there is one that appends and one that listens.
#[derive(Clone)]
pub struct PostgresSettings {
    pub(super) config: Config,
    pub(super) schema: String,
    pub(super) ca: Option<PathBuf>,
    pub(super) readers: usize,
    pub(super) batches_in_flight: usize,
    pub(super) append_timeout: Duration,
    pub(super) read_timeout: Duration,
}

impl PostgresSettings {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    ///
    /// | parameter | is |
    /// |---|---|
    /// | `schema` | where the tables are, `sluicegate` unless told |
    /// | `sslmode` | `disable`, `prefer` or `require`; certificates are always checked |
    /// | `ca` | a PEM file with the authority that signed the server's certificate |
    /// | `host` | the folder of a Unix socket, in place of a host |
    ///
    /// ```
    /// use sluicegate_event_store::postgres::PostgresSettings;
    ///
    /// let settings = PostgresSettings::parse("postgres://me:secret@db.internal/shop?schema=log")?;
    /// assert!(!format!("{settings:?}").contains("secret"));
    ///
    /// let error = PostgresSettings::parse("postgres://db/shop?shema=log").unwrap_err();
    /// assert!(error.to_string().contains("no parameter `shema`"));
    /// # Ok::<(), sluicegate_event_store::postgres::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// Names what is wrong, without any secret.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        let url = Url::parse(uri).map_err(|error| wrong(format!("it is no URL: {error}")))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(wrong(format!("the scheme must be `postgres`, not `{}`", url.scheme())));
        }
        let mut parameters = parameters(&url)?;
        let schema = parameters.remove("schema").unwrap_or_else(|| "sluicegate".to_owned());
        if !is_schema(&schema) {
            return Err(wrong(format!(
                "`schema` must have 1 to {MAX_SCHEMA} of a-z, 0-9 and _, and no digit first"
            )));
        }
        let place = Place::of(&url, parameters.remove("host"))?;
        let mut config = Config::new();
        config.ssl_mode(mode(parameters.remove("sslmode").as_deref(), &place)?);
        place.apply(&mut config);
        credentials(&mut config, &url)?;
        config
            .port(url.port().unwrap_or(5432))
            .application_name("sluicegate-events")
            .connect_timeout(CONNECT)
            .keepalives_idle(Duration::from_secs(15))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(20));
        Ok(Self {
            config,
            schema,
            ca: parameters.remove("ca").map(PathBuf::from),
            readers: READERS,
            batches_in_flight: 1,
            append_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(10),
        })
    }

    /// How long an append may take, waiting and all; 5 s unless told.
    #[must_use]
    pub const fn with_append_timeout(mut self, timeout: Duration) -> Self {
        self.append_timeout = timeout;
        self
    }

    /// How long the reading of a page may take; 10 s unless told.
    #[must_use]
    pub const fn with_read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// How many connections read, at most; 6 unless told.
    #[must_use]
    pub fn with_readers(mut self, readers: usize) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// How many batches are on their way at once, each over a connection of its own; 1 unless told, 4 at most. More is
    /// for a slow network only: one batch waits in the database while the answer to the other travels.
    #[must_use]
    pub fn with_batches_in_flight(mut self, batches: usize) -> Self {
        self.batches_in_flight = batches.clamp(1, 4);
        self
    }

    /// The configuration of a connection on whose statements the database may work so long.
    pub(super) fn config(&self, statement: Duration) -> Config {
        let mut config = self.config.clone();
        // Said by the client, so that no default of a role or a database counts.
        config.options(format!(
            "-c statement_timeout={0} -c lock_timeout={0} -c default_transaction_isolation=read\\ committed \
             -c idle_in_transaction_session_timeout=30000",
            statement.as_millis().max(1)
        ));
        config
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("hosts", &self.config.get_hosts())
            .field("ports", &self.config.get_ports())
            .field("database", &self.config.get_dbname())
            .field("schema", &self.schema)
            .field("append_timeout", &self.append_timeout)
            .field("read_timeout", &self.read_timeout)
            .finish_non_exhaustive()
    }
}

/// The parameters by their names. What an address says twice it does not say clearly.
fn parameters(url: &Url) -> Result<BTreeMap<String, String>, OpenError> {
    let mut parameters = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        if !KNOWN.contains(&&*name) {
            let shown: String = name.chars().take(32).collect();
            let known = KNOWN.join(", ");
            return Err(wrong(format!("there is no parameter `{shown}`; known are {known}")));
        }
        if parameters.insert(name.to_string(), value.into_owned()).is_some() {
            return Err(wrong(format!("`{name}` comes twice")));
        }
    }
    Ok(parameters)
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
        return Err(wrong("the database is missing: postgres://HOST/DATABASE"));
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

fn mode(named: Option<&str>, place: &Place) -> Result<SslMode, OpenError> {
    match named {
        None if place.is_here() => Ok(SslMode::Disable),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_or_refused_without_its_secret() {
        let cases = [
            ("postgres://u:s3cret@h/d", "h:5432/d sluicegate Prefer"),
            ("postgresql://h:1/d%20e?schema=a_1&sslmode=require", "h:1/d e a_1 Require"),
            ("postgres://127.0.0.1/d", "127.0.0.1:5432/d sluicegate Disable"),
            ("postgres:///d?host=/tmp/s3cret", "/tmp/s3cret:5432/d sluicegate Disable"),
            ("mysql://u:s3cret@h/d", "the scheme must be `postgres`, not `mysql`"),
            ("postgres://u:s3cret@h/", "the database is missing: postgres://HOST/DATABASE"),
            (
                "postgres://u:s3cret%zz@h/d",
                "an escape in it is not two hexadecimal digits of UTF-8 text",
            ),
            (
                "postgres://u:s3cret@h/d?schema=A",
                "`schema` must have 1 to 40 of a-z, 0-9 and _, and no digit first",
            ),
            ("postgres://u@h/d?schema=a&schema=b", "`schema` comes twice"),
            ("postgres://u@h/d?sslmode=allow", "`sslmode` must be disable, prefer or require"),
            (
                "postgres://u@h/d?host=tmp",
                "`host` must be the folder of a socket, beginning with /",
            ),
        ];
        for (uri, expected) in cases {
            let said = match PostgresSettings::parse(uri) {
                Ok(settings) => {
                    let shown = format!("{settings:?}");
                    assert!(uri.contains("/tmp/") || !shown.contains("s3cret"), "{shown}");
                    let host = match &settings.config.get_hosts()[0] {
                        tokio_postgres::config::Host::Tcp(name) => name.clone(),
                        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
                    };
                    let port = settings.config.get_ports()[0];
                    let database = settings.config.get_dbname().unwrap();
                    let mode = settings.config.get_ssl_mode();
                    format!("{host}:{port}/{database} {} {mode:?}", settings.schema)
                }
                Err(OpenError::Address(why)) => why,
                Err(other) => panic!("{uri}: {other}"),
            };
            assert_eq!(said, expected, "{uri}");
        }
    }
}
