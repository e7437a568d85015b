//! What is known of requests and sessions after a restart: a journal that is only added to.
//!
//! The pool writes before it tells: a request is admitted once that is durable, and over once that is. What was
//! admitted and is not over when the service starts again was interrupted; nothing runs again by itself.
//!
//! `docs/rules.md#agents-8`.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{Outcome, Owner, Priority, SessionId, Tenant};

/// A future on the heap.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where it is written down what happens to requests.
pub trait Journal: Send + Sync + 'static {
    /// A request was let in. Durable once it resolves.
    ///
    /// # Errors
    /// It is not written down: the request is refused.
    fn admitted<'a>(
        &'a self,
        request: &'a AdmittedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// A session is about to have its first turn. Durable once it resolves.
    ///
    /// # Errors
    /// It is not written down: the request fails.
    fn began<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>>;

    /// A request is over. Durable once it resolves.
    ///
    /// # Errors
    /// It is not written down.
    fn finished<'a>(
        &'a self,
        request: &'a FinishedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>>;

    /// What is known of a request.
    ///
    /// # Errors
    /// It cannot be read.
    fn request<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Recorded>, JournalError>>;

    /// What is known of a session.
    ///
    /// # Errors
    /// It cannot be read.
    fn session<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<KnownSession>, JournalError>>;
}

/// A request that was let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmittedRecord {
    /// Its id.
    pub request_id: String,
    /// Whose it is.
    pub tenant: Tenant,
    /// Its session.
    pub session_id: SessionId,
    /// To whom the session belongs.
    pub owner: Owner,
    /// How urgent it is.
    pub priority: Priority,
}

/// A request that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRecord {
    /// Its id.
    pub request_id: String,
    /// Its session.
    pub session_id: SessionId,
    /// Whether the session can be gone on with; `false` takes back that it [began](Journal::began). `None` for a
    /// request that had no turn: it leaves the session as it is.
    pub session_begun: Option<bool>,
    /// What came of it.
    pub outcome: Arc<Outcome>,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// How it was let in.
    pub admitted: AdmittedRecord,
    /// What came of it, if it is over.
    pub outcome: Option<Arc<Outcome>>,
}

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSession {
    /// To whom it belongs.
    pub owner: Owner,
    /// Whether it had a turn.
    pub begun: bool,
}

/// Why something is not written down, or cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalError {
    /// What happened.
    pub cause: String,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for JournalError {}

/// A journal in memory: it survives the pool, not the process. It keeps everything, so it is for tests and trials.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    state: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    requests: HashMap<String, Recorded>,
    sessions: HashMap<SessionId, KnownSession>,
}

impl MemoryJournal {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Journal for MemoryJournal {
    fn admitted<'a>(
        &'a self,
        request: &'a AdmittedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let mut state = self.state.lock();
        let known = || KnownSession { owner: request.owner.clone(), begun: false };
        state.sessions.entry(request.session_id.clone()).or_insert_with(known);
        let recorded = Recorded { admitted: request.clone(), outcome: None };
        state.requests.insert(request.request_id.clone(), recorded);
        Box::pin(std::future::ready(Ok(())))
    }

    fn began<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        if let Some(known) = self.state.lock().sessions.get_mut(session) {
            known.begun = true;
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn finished<'a>(
        &'a self,
        request: &'a FinishedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        let mut state = self.state.lock();
        if let Some(known) = state.sessions.get_mut(&request.session_id) {
            known.begun = request.session_begun.unwrap_or(known.begun);
        }
        if let Some(recorded) = state.requests.get_mut(&request.request_id) {
            recorded.outcome = Some(Arc::clone(&request.outcome));
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn request<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Recorded>, JournalError>> {
        let recorded = self.state.lock().requests.get(id).cloned();
        Box::pin(std::future::ready(Ok(recorded)))
    }

    fn session<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<KnownSession>, JournalError>> {
        let known = self.state.lock().sessions.get(session).cloned();
        Box::pin(std::future::ready(Ok(known)))
    }
}
