//! How the last attempt at a parked message failed, as the file has it: JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sluicegate_dispatch::LastError;

#[derive(Serialize, Deserialize)]
struct Written {
    /// In milliseconds since 1970.
    at: u64,
    status: Option<u16>,
    error: String,
    target: String,
    body: Option<String>,
}

pub(super) fn written(last: &LastError) -> String {
    let at = last.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let written = Written {
        at: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
        status: last.status,
        error: last.error.clone(),
        target: last.target.to_string(),
        body: last.body.as_deref().map(str::to_owned),
    };
    serde_json::to_string(&written).expect("texts and numbers are JSON")
}

/// What can be read of it.
pub(super) fn read(text: Option<&str>) -> Option<LastError> {
    let Written { at, status, error, target, body } = serde_json::from_str(text?).ok()?;
    let at: SystemTime = UNIX_EPOCH.checked_add(Duration::from_millis(at))?;
    Some(LastError { at, status, error, target: target.into(), body: body.map(Into::into) })
}
