//! How the last attempt at a message failed, as it is shown.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sluicegate_dispatch::LastError;

use crate::time::Timestamp;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LastErrorShape {
    at: String,
    status: Option<u16>,
    error: String,
    target: String,
    body: Option<String>,
}

impl From<&LastError> for LastErrorShape {
    fn from(last: &LastError) -> Self {
        let at = Timestamp::try_from(last.at).unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            at: format!("{at:.3}"),
            status: last.status,
            error: last.error.clone(),
            target: last.target.to_string(),
            body: last.body.as_deref().map(str::to_owned),
        }
    }
}

impl LastErrorShape {
    /// As it was; `None` if its time is none.
    pub(crate) fn read(self) -> Option<LastError> {
        let at = SystemTime::from(self.at.parse::<Timestamp>().ok()?);
        let (target, body) = (self.target.into(), self.body.map(Into::into));
        Some(LastError { at, status: self.status, error: self.error, target, body })
    }
}
