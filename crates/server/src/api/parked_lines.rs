//! Parked messages as JSON Lines: out of this daemon, and into it.
//!
//! Neither holds more than a batch of them in memory. What is imported twice is there once, and the order of a
//! group is kept.

use std::collections::BTreeMap;
use std::io;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::StatusCode;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sluicegate_dispatch::ParkedCode;
use sluicegate_sources::sqlite::{Imported, ParkedFilter, ParkedRecord, Store};
use sluicegate_sources::wire;
use tokio::time::{Duration, timeout};

use super::Api;
use super::guard::{Caller, Role};
use super::intake::Query;
use super::last_error::LastErrorShape;
use super::page::{MOST, bad_cursor};
use super::parked::is_known;
use super::parked_which::filter;
use super::problem::{Code, Problem};
use super::reply::{reply, typed};
use super::routes::EXPORTED;
use crate::time::Timestamp;

/// How many messages are read or written at once.
const BATCH: usize = 100;
/// How long a line may be: a message, written with escapes, and what is said of it.
const MOST_LINE: usize = 8 * 1024 * 1024;
/// How many bytes of lines are kept before they are written.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// How many bad lines are named.
const NAMED: usize = 100;
/// How long the next piece of a body may take to come.
const PATIENCE: Duration = Duration::from_secs(30);

const LINES: &str = "application/x-ndjson";

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Line {
    id: String,
    queue: String,
    broker_id: String,
    #[serde(default)]
    pool: Option<String>,
    code: String,
    reason: String,
    #[serde(default)]
    status: Option<u16>,
    attempts: u32,
    parked_at: String,
    holds_key: bool,
    #[serde(default)]
    last_error: Option<LastErrorShape>,
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Box<RawValue>>,
    /// The text of what is no message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
}

impl Line {
    fn of(record: ParkedRecord, with_secrets: bool) -> Self {
        let (message, raw) = if record.is_message() {
            (message_of(&record.body, with_secrets), None)
        } else if with_secrets {
            (None, Some(record.body))
        } else {
            (None, Some(wire::redacted(&record.body).into_owned()))
        };
        let parked_at = Timestamp::from_millisecond(record.parked_at);
        let parked_at = parked_at.unwrap_or(Timestamp::UNIX_EPOCH);
        Self {
            id: record.number.to_string(),
            queue: record.queue,
            broker_id: record.broker_id,
            pool: record.pool,
            code: record.code,
            reason: record.reason,
            status: record.status,
            attempts: record.attempts,
            parked_at: format!("{parked_at:.3}"),
            holds_key: record.holds_key,
            last_error: record.last_error.as_ref().map(Into::into),
            message,
            raw,
        }
    }

    fn record(self) -> Result<ParkedRecord, String> {
        let number = self.id.parse::<i64>().ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| {
            format!("id must be a whole number from 1 to {} in a string", i64::MAX)
        })?;
        let parked_at = self.parked_at.parse::<Timestamp>();
        let parked_at = parked_at.map_err(|_| "parkedAt must be a time as in RFC 3339")?;
        let code = ParkedCode::of_label(&self.code).ok_or_else(|| {
            format!("code must be one of {}", ParkedCode::ALL.map(ParkedCode::label).join(", "))
        })?;
        let body = match (code, self.message, self.raw) {
            (ParkedCode::Malformed, None, Some(raw)) => raw,
            (ParkedCode::Malformed, ..) => return Err("raw must be there, and no message".into()),
            (_, Some(message), None) => {
                // As long as it was kept: that may be longer than it may come.
                let read = wire::parse_stored(message.get());
                let read = read.map_err(|malformed| format!("message: {}", malformed.why))?;
                wire::render(&read.message, Duration::ZERO)
            }
            _ => return Err("message must be there, and no raw".into()),
        };
        if self.queue.is_empty() || self.broker_id.is_empty() {
            return Err("queue and brokerId must not be empty".into());
        }
        if self.holds_key && self.pool.is_none() {
            return Err("what holds its key has a pool".into());
        }
        Ok(ParkedRecord {
            number,
            queue: self.queue,
            broker_id: self.broker_id,
            pool: self.pool,
            code: self.code,
            reason: self.reason,
            status: self.status,
            attempts: self.attempts,
            parked_at: parked_at.as_millisecond(),
            holds_key: self.holds_key,
            last_error: self.last_error.and_then(LastErrorShape::read),
            body,
        })
    }
}

/// The message as it is kept, numbers and all; without its token unless that is asked for.
fn message_of(body: &str, with_secrets: bool) -> Option<Box<RawValue>> {
    if with_secrets {
        return RawValue::from_string(body.to_owned()).ok();
    }
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(body).ok()?;
    fields.remove("authToken");
    serde_json::value::to_raw_value(&fields).ok()
}

/// `GET /api/v1/parked/export`: one line for each, in order, as far as they are meant.
pub(crate) async fn export(
    State(api): State<Api>,
    Extension(Caller(role)): Extension<Caller>,
    query: Query,
) -> Result<Response, Problem> {
    query.only(EXPORTED)?;
    let with_secrets = match query.get("withSecrets") {
        None | Some("false") => false,
        Some("true") if role == Some(Role::Operate) => true,
        Some("true") => {
            let detail = "this token may only look, and tokens of messages are not for that";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        Some(_) => return Err(Problem::parameter("withSecrets", "must be true or false")),
    };
    let filter = filter(&query)?;
    let after = query.get("cursor").map_or(Ok(0), str::parse).map_err(|_| bad_cursor())?;
    let left = match query.get("limit") {
        None => usize::MAX,
        Some(_) => super::page::limit(&query)?.min(MOST),
    };
    let store = api.daemon.store().clone();
    let nothing = store.parked_numbers(&filter, 0, 1).await?.is_empty();
    is_known(&api, &filter, nothing)?;
    let pages = Pages { store, filter, after, left, with_secrets };
    let pages = stream::unfold(pages, |mut pages| async move {
        let page = pages.next().await.transpose()?;
        Some((page, pages))
    });
    Ok(typed(StatusCode::OK, LINES, Body::from_stream(pages)))
}

/// What is still to be exported.
struct Pages {
    store: Store,
    filter: ParkedFilter,
    after: i64,
    left: usize,
    with_secrets: bool,
}

impl Pages {
    async fn next(&mut self) -> Result<Option<Bytes>, io::Error> {
        let most = self.left.min(BATCH);
        if most == 0 {
            return Ok(None);
        }
        let records = self.store.parked_records(&self.filter, self.after, most).await;
        // The answer breaks off: nobody takes it for whole.
        let records = records.map_err(io::Error::other)?;
        let Some(last) = records.last() else { return Ok(None) };
        self.after = last.number;
        self.left -= records.len();
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, &Line::of(record, self.with_secrets))?;
            lines.push(b'\n');
        }
        Ok(Some(lines.into()))
    }
}

/// `POST /api/v1/parked/import?behind=N`: good lines are taken in, bad ones are named.
pub(crate) async fn import(
    State(api): State<Api>,
    query: Query,
    body: Body,
) -> Result<Response, Problem> {
    query.only(&["behind"])?;
    let behind = query.get("behind").map_or(Ok(0), str::parse);
    let behind = behind.map_err(|_| {
        Problem::parameter("behind", "behind must be the `last` of the import before")
    })?;
    let mut import = Import {
        store: api.daemon.store().clone(),
        batch: Vec::new(),
        bytes: 0,
        lines: 0,
        all: Imported { last: behind, ..Imported::default() },
        refused: 0,
        errors: Vec::new(),
    };
    let read = import.read(body).await;
    // What came before is in.
    read.map_err(|problem| problem.with("added", import.all.added))?;
    let Import { all, refused, errors, .. } = import;
    let answer = json!({
        "added": all.added, "present": all.present, "refused": refused, "errors": errors,
        "last": all.last.to_string(),
    });
    Ok(reply(StatusCode::OK, &answer))
}

/// Lines that come in.
struct Import {
    store: Store,
    batch: Vec<ParkedRecord>,
    /// How long the batch is.
    bytes: usize,
    lines: u64,
    all: Imported,
    refused: u64,
    errors: Vec<Value>,
}

impl Import {
    /// Takes in all lines of a body.
    ///
    /// # Cancel safety
    /// Dropped, whole batches of lines are in, and the rest is not.
    async fn read(&mut self, mut body: Body) -> Result<(), Problem> {
        let mut text = BytesMut::new();
        loop {
            let Ok(frame) = timeout(PATIENCE, body.frame()).await else {
                return Err(Problem::new(Code::SlowRequest, "the body did not come in time"));
            };
            let Some(frame) = frame else { break };
            let broken = |_| Problem::new(Code::BadRequest, "the body broke off before its end");
            let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
            text.extend_from_slice(&data);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line = text.split_to(end + 1);
                self.line(&line).await?;
            }
            if text.len() > MOST_LINE {
                let detail = format!("line {} has more than {MOST_LINE} bytes", self.lines + 1);
                return Err(Problem::new(Code::TooLarge, detail).with("limit", MOST_LINE));
            }
        }
        self.line(&text).await?;
        self.flush().await
    }

    async fn line(&mut self, line: &[u8]) -> Result<(), Problem> {
        self.lines += 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(());
        }
        let read = serde_json::from_slice::<Line>(line).map_err(|error| error.to_string());
        match read.and_then(Line::record) {
            Ok(record) => {
                self.bytes += record.body.len();
                self.batch.push(record);
            }
            Err(why) => {
                self.refused += 1;
                if self.errors.len() < NAMED {
                    self.errors.push(json!({ "line": self.lines, "message": why }));
                }
            }
        }
        if self.batch.len() >= BATCH || self.bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Problem> {
        self.bytes = 0;
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        let imported = self.store.import_parked(batch, self.all.last).await?;
        self.all.added += imported.added;
        self.all.present += imported.present;
        self.all.last = imported.last;
        Ok(())
    }
}
