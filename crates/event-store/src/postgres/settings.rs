//! The address of a log in PostgreSQL.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use sluicegate_postgres_link::Address;
use tokio_postgres::Config;
use url::Url;

use super::open_error::OpenError;

/// How many connections read, at most.
const READERS: usize = 6;
const KNOWN: [&str; 4] = ["ca", "host", "schema", "sslmode"];

/// Where a log is, how to get there, and how long calls may take.
///
/// Beside the connections that read there is one that appends and one that listens.
#[derive(Clone)]
pub struct PostgresSettings {
    pub(super) address: Address,
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
        let url = Address::url(uri)?;
        let mut parameters = parameters(&url)?;
        let mut address = Address::of(&url, &mut parameters)?;
        address.config.application_name("sluicegate-events");
        Ok(Self {
            address,
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
        let mut config = self.address.config.clone();
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
            .field("address", &self.address)
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
                    let host = match &settings.address.config.get_hosts()[0] {
                        tokio_postgres::config::Host::Tcp(name) => name.clone(),
                        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
                    };
                    let port = settings.address.config.get_ports()[0];
                    let database = settings.address.config.get_dbname().unwrap();
                    let mode = settings.address.config.get_ssl_mode();
                    format!("{host}:{port}/{database} {} {mode:?}", settings.address.schema)
                }
                Err(OpenError::Address(why)) => why,
                Err(other) => panic!("{uri}: {other}"),
            };
            assert_eq!(said, expected, "{uri}");
        }
    }
}
