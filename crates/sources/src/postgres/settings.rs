//! The address of a queue in PostgreSQL.

use std::fmt;
use std::time::Duration;

use sluicegate_postgres_link::Address;

use crate::OpenError;
use crate::network::parameters;

const VISIBILITY: Duration = Duration::from_secs(30);
/// How many connections one source opens for its calls, at most.
const CONNECTIONS: usize = 6;
/// How long the database may work on one statement.
const STATEMENT: Duration = Duration::from_secs(10);
const MAX_QUEUE: usize = 200;
const KNOWN: [&str; 5] = ["ca", "host", "queue", "schema", "sslmode"];

/// Where a queue is, and how to get there.
#[derive(Clone)]
pub struct PostgresSettings {
    pub(crate) address: Address,
    pub(crate) queue: String,
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
        let url = Address::url(uri)?;
        let mut parameters = parameters::read(&url, &KNOWN)?;
        let queue = parameters.remove("queue").ok_or_else(|| wrong("`queue` is missing"))?;
        if queue.is_empty() || queue.len() > MAX_QUEUE || queue.chars().any(char::is_control) {
            return Err(wrong(format!("`queue` must have 1 to {MAX_QUEUE} bytes of text")));
        }
        let mut address = Address::of(&url, &mut parameters)?;
        address.config.application_name("sluicegate").options(format!(
            "-c statement_timeout={} -c idle_in_transaction_session_timeout=30000",
            STATEMENT.as_millis()
        ));
        let (visibility, connections) = (VISIBILITY, CONNECTIONS);
        Ok(Self { address, queue, visibility, connections })
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
            .field("address", &self.address)
            .field("queue", &self.queue)
            .field("visibility", &self.visibility)
            .finish_non_exhaustive()
    }
}

fn wrong(why: impl Into<String>) -> OpenError {
    OpenError::Address(why.into())
}
