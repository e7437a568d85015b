//! Where a database is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use url::{Host, Url};

use crate::CONNECT;

const MAX_SCHEMA: usize = 40;

/// Where a database is, how to get there, and in which schema the tables are.
#[derive(Clone)]
pub struct Address {
    /// How to connect.
    pub config: Config,
    /// Where the tables are.
    pub schema: String,
    /// A PEM file with the authority that signed the server's certificate.
    pub ca: Option<PathBuf>,
}

/// What is wrong with an address, without any secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(pub String);

impl Wrong {
    fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl Address {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE` as far as it is an address: parameters are for [`Self::of`].
    ///
    /// # Errors
    /// It is no URL, or one of something else.
    pub fn url(uri: &str) -> Result<Url, Wrong> {
        let url = Url::parse(uri).map_err(|error| Wrong(format!("it is no URL: {error}")))?;
        match url.scheme() {
            "postgres" | "postgresql" => Ok(url),
            other => Err(Wrong(format!("the scheme must be `postgres`, not `{other}`"))),
        }
    }

    /// The place that a URL names, with what its parameters `ca`, `host`, `schema` and `sslmode` say, which are taken out.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn of(url: &Url, parameters: &mut BTreeMap<String, String>) -> Result<Self, Wrong> {
        let schema = parameters.remove("schema").unwrap_or_else(|| "sluicegate".to_owned());
        if !is_schema(&schema) {
            return Err(Wrong(format!(
                "`schema` must have 1 to {MAX_SCHEMA} of a-z, 0-9 and _, and no digit first"
            )));
        }
        let place = Place::of(url, parameters.remove("host"))?;
        let mut config = Config::new();
        config.ssl_mode(mode(parameters.remove("sslmode").as_deref(), &place)?);
        place.apply(&mut config);
        credentials(&mut config, url)?;
        config
            .port(url.port().unwrap_or(5432))
            .connect_timeout(CONNECT)
            .keepalives_idle(Duration::from_secs(15))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(20));
        Ok(Self { config, schema, ca: parameters.remove("ca").map(PathBuf::from) })
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("hosts", &self.config.get_hosts())
            .field("ports", &self.config.get_ports())
            .field("database", &self.config.get_dbname())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// Where the server listens.
enum Place {
    Name(String),
    Folder(String),
}

impl Place {
    fn of(url: &Url, folder: Option<String>) -> Result<Self, Wrong> {
        match (url.host(), folder) {
            (_, Some(folder)) if folder.starts_with('/') => Ok(Self::Folder(folder)),
            (_, Some(_)) => {
                Err(Wrong::new("`host` must be the folder of a socket, beginning with /"))
            }
            (Some(Host::Domain(name)), None) if !name.is_empty() => Ok(Self::Name(decoded(name)?)),
            (Some(Host::Ipv4(address)), None) => Ok(Self::Name(address.to_string())),
            (Some(Host::Ipv6(address)), None) => Ok(Self::Name(address.to_string())),
            _ => Err(Wrong::new("the host is missing")),
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

fn credentials(config: &mut Config, url: &Url) -> Result<(), Wrong> {
    let database = decoded(url.path().trim_start_matches('/'))?;
    if database.is_empty() || database.contains('/') {
        return Err(Wrong::new("the database is missing: postgres://HOST/DATABASE"));
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

fn mode(named: Option<&str>, place: &Place) -> Result<SslMode, Wrong> {
    match named {
        None if place.is_here() => Ok(SslMode::Disable),
        None | Some("prefer") => Ok(SslMode::Prefer),
        Some("disable") => Ok(SslMode::Disable),
        Some("require" | "verify-ca" | "verify-full") => Ok(SslMode::Require),
        Some(_) => Err(Wrong::new("`sslmode` must be disable, prefer or require")),
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
fn decoded(text: &str) -> Result<String, Wrong> {
    let bad = || Wrong::new("an escape in it is not two hexadecimal digits of UTF-8 text");
    let is_escape = |after: &str| {
        after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit())
    };
    if !text.split('%').skip(1).all(is_escape) {
        return Err(bad());
    }
    percent_decode_str(text).decode_utf8().map(Cow::into_owned).map_err(|_| bad())
}
