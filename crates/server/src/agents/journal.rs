//! What is known of requests and sessions after a restart: rows of the state file.
//!
//! `docs/rules.md#agents-8`.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluicegate_agents::{
    AdmittedRecord, BoxFuture, FinishedRecord, Journal, JournalError, KnownSession, Outcome,
    Recorded, RequestError, SessionId,
};
use sluicegate_dispatch::SourceError;
use sluicegate_sources::sqlite::{EndedRequest, NewRequest, Store};

pub(super) struct StoredJournal {
    store: Store,
}

impl StoredJournal {
    pub(super) const fn new(store: Store) -> Self {
        Self { store }
    }

    /// Ends what was let in and is not over: whoever ran it is gone. Where that cannot be written, it is known by its
    /// lack of an outcome.
    pub(super) async fn interrupt(&self) {
        let interrupted: Outcome = Err(RequestError::Interrupted);
        let ended = async {
            let outcome = written(&interrupted)?;
            self.store.end_open_requests(outcome).await.map_err(failed)
        };
        match ended.await {
            Ok(0) => {}
            Ok(count) => {
                tracing::warn!(target: "sluicegate", count, "requests were interrupted by the last end");
            }
            Err(JournalError { cause }) => {
                tracing::error!(target: "sluicegate", cause, "requests of the last run were not ended");
            }
        }
    }
}

fn failed(error: SourceError) -> JournalError {
    JournalError { cause: error.cause }
}

fn written(value: &impl Serialize) -> Result<String, JournalError> {
    serde_json::to_string(value).map_err(|error| JournalError { cause: error.to_string() })
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, JournalError> {
    serde_json::from_str(text)
        .map_err(|error| JournalError { cause: format!("what was written is not known: {error}") })
}

impl Journal for StoredJournal {
    fn admitted<'a>(
        &'a self,
        request: &'a AdmittedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            let new = NewRequest {
                id: request.request_id.clone(),
                session: request.session_id.to_string(),
                owner: written(&request.owner)?,
                admitted: written(request)?,
            };
            self.store.add_request(new).await.map_err(failed)
        })
    }

    fn began<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move { self.store.begin_session(session.to_string()).await.map_err(failed) })
    }

    fn finished<'a>(
        &'a self,
        request: &'a FinishedRecord,
    ) -> BoxFuture<'a, Result<(), JournalError>> {
        Box::pin(async move {
            let ended = EndedRequest {
                id: request.request_id.clone(),
                session: request.session_id.to_string(),
                begun: request.session_begun,
                outcome: written(&*request.outcome)?,
            };
            self.store.end_request(ended).await.map_err(failed)
        })
    }

    fn request<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Recorded>, JournalError>> {
        Box::pin(async move {
            let Some(stored) = self.store.request(id).await.map_err(failed)? else {
                return Ok(None);
            };
            let outcome = stored.outcome.as_deref().map(read::<Outcome>).transpose()?;
            let admitted = read(&stored.admitted)?;
            Ok(Some(Recorded { admitted, outcome: outcome.map(Into::into) }))
        })
    }

    fn session<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Option<KnownSession>, JournalError>> {
        Box::pin(async move {
            let stored = self.store.session(&session.to_string()).await.map_err(failed)?;
            let known = stored.map(|stored| {
                Ok(KnownSession { owner: read(&stored.owner)?, begun: stored.begun })
            });
            known.transpose()
        })
    }
}
