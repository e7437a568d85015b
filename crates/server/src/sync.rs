//! Config sync: asking the endpoints of paper 002 for pools and queues.

use std::fmt;
use std::time::Duration;

use sluicegate_tasks::{Context, Interrupt};

use crate::fetch::{Ask, Fetch, FetchError};
use crate::settings::synced::{self, Synced, SyncedProblem};
use crate::settings::{HttpUrl, RouterSettings};

/// Asks endpoints for their documents.
#[derive(Clone, Debug)]
pub struct ConfigSyncer {
    fetch: Fetch,
    urls: Vec<HttpUrl>,
    attempts: u32,
    retry_delay: Duration,
}

/// Why an endpoint gave no document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncError {
    /// It gave no answer.
    Fetch(FetchError),
    /// It answered with this status.
    Status(u16),
    /// Its document cannot be used.
    Document(SyncedProblem),
    /// The daemon is ending.
    Interrupted,
}

/// An endpoint, and why it gave no document, the last time it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailed {
    /// The endpoint, without secrets.
    pub url: String,
    /// Why.
    pub why: SyncError,
    /// How often it was asked.
    pub attempts: u32,
}

/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(10);

impl ConfigSyncer {
    /// Asks the endpoints that the settings name.
    #[must_use]
    pub fn new(fetch: Fetch, settings: &RouterSettings) -> Self {
        Self {
            fetch,
            urls: settings.config_url.clone(),
            attempts: settings.sync_attempts,
            retry_delay: settings.sync_retry_delay,
        }
    }

    /// Whether there is anybody to ask.
    #[must_use]
    pub const fn has_endpoints(&self) -> bool {
        !self.urls.is_empty()
    }

    /// The documents of all endpoints, in their order. All of them or none: what one of them says
    /// alone is not what is wanted.
    ///
    /// `failed` hears of every try that failed.
    ///
    /// # Errors
    /// When one endpoint gave none in all its tries.
    pub async fn documents(
        &self,
        cx: &Context,
        mut failed: impl FnMut(&SyncFailed),
    ) -> Result<Vec<Synced>, SyncFailed> {
        let mut documents = Vec::with_capacity(self.urls.len());
        for url in &self.urls {
            documents.push(self.document(url, cx, &mut failed).await?);
        }
        Ok(documents)
    }

    async fn document(
        &self,
        url: &HttpUrl,
        cx: &Context,
        failed: &mut impl FnMut(&SyncFailed),
    ) -> Result<Synced, SyncFailed> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let asked = cx.until_interrupted(self.ask(url)).await;
            let why = match asked {
                Ok(Ok(document)) => return Ok(document),
                Ok(Err(why)) => why,
                Err(interrupt) => SyncError::from(interrupt),
            };
            let failure = SyncFailed { url: url.to_string(), why, attempts };
            if failure.why == SyncError::Interrupted {
                return Err(failure);
            }
            failed(&failure);
            if attempts >= self.attempts {
                return Err(failure);
            }
            if cx.until_interrupted(tokio::time::sleep(self.retry_delay)).await.is_err() {
                return Err(SyncFailed { why: SyncError::Interrupted, ..failure });
            }
        }
    }

    async fn ask(&self, url: &HttpUrl) -> Result<Synced, SyncError> {
        let ask = Ask::get(PATIENCE, synced::MOST_BYTES);
        let answer = self.fetch.ask(url.expose(), ask).await.map_err(SyncError::Fetch)?;
        if !answer.status.is_success() {
            return Err(SyncError::Status(answer.status.as_u16()));
        }
        synced::parse(&answer.body).map_err(SyncError::Document)
    }
}

impl From<Interrupt> for SyncError {
    fn from(_: Interrupt) -> Self {
        Self::Interrupted
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetch(error) => write!(f, "{error}"),
            Self::Status(status) => write!(f, "answered with status {status}"),
            Self::Document(problem) => write!(f, "gave a document that cannot be used: {problem}"),
            Self::Interrupted => f.write_str("was not asked to the end: the daemon is ending"),
        }
    }
}

impl fmt::Display for SyncFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (try {})", self.url, self.why, self.attempts)
    }
}

impl std::error::Error for SyncFailed {}
