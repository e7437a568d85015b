//! The document that pools and queues are synced from.
//!
//! 1. Unknown fields are ignored, and `null` is the same as an absent field.
//! 2. A field of the wrong type or out of its range refuses the whole document: what ran before
//!    goes on. So does a document with neither queues nor pools, which is probably no config.
//! 3. A queue that this build cannot serve is left out and listed among the issues; the rest holds.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;

use serde_json::{Map, Value};

use super::pool::MOST_CONCURRENCY;
use super::queue::MOST_CONNECTIONS;
use super::reader::{name_invalid, quoted};
use super::uri::QueueUri;

/// The largest document that is read.
pub const MOST_BYTES: usize = 8 * 1024 * 1024;

/// What one document says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Synced {
    /// The queues, each name once.
    pub queues: Vec<SyncedQueue>,
    /// The pools, each code once.
    pub pools: Vec<SyncedPool>,
    /// What was left out, and why.
    pub issues: Vec<SyncedFault>,
}

/// A queue of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncedQueue {
    /// Its name; one without a name is called by its address, without credentials.
    pub name: String,
    /// Where it is.
    pub uri: QueueUri,
    /// How many receive from it: its own number, or the document's, or one.
    pub connections: u32,
}

/// A pool of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncedPool {
    /// Its code.
    pub code: String,
    /// How many messages run at once. Absent or 0 it follows the rate: a sixtieth, at least one.
    pub concurrency: NonZeroU32,
    /// How many may start in a minute.
    pub rate_limit_per_minute: Option<NonZeroU32>,
}

/// Something wrong at one place of the document.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncedFault {
    /// The place, as in `queues[0].queueUri`.
    pub path: String,
    /// What is wrong. Never shows a secret.
    pub message: String,
}

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyncedProblem {
    /// It is larger than [`MOST_BYTES`].
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// It is not JSON.
    NotJson {
        /// The line at which it stops being JSON.
        line: usize,
        /// The column.
        column: usize,
    },
    /// It has neither queues nor pools.
    NoConfig,
    /// Fields are wrong; there is at least one.
    Wrong(Vec<SyncedFault>),
}

/// Reads a document.
///
/// ```
/// use sluicegate_server::settings::synced;
///
/// let document = br#"{"processingPools": [{"code": "ORDERS", "rateLimitPerMinute": 600}]}"#;
/// let synced = synced::parse(document).unwrap();
/// assert_eq!(synced.pools[0].concurrency.get(), 10);
/// ```
///
/// # Errors
///
/// When nothing of it can be used.
pub fn parse(json: &[u8]) -> Result<Synced, SyncedProblem> {
    if json.len() > MOST_BYTES {
        return Err(SyncedProblem::TooLarge { bytes: json.len() });
    }
    let document: Value = serde_json::from_slice(json)
        .map_err(|error| SyncedProblem::NotJson { line: error.line(), column: error.column() })?;
    let mut walk = Walk::default();
    let Some(document) = walk.object("the document", &document) else {
        return Err(SyncedProblem::Wrong(walk.faults));
    };
    if [QUEUES, POOLS].iter().all(|name| field(document, name).is_none()) {
        return Err(SyncedProblem::NoConfig);
    }
    let connections = walk.connections(document, "connections").unwrap_or(1);
    let queues = walk.list(document, QUEUES);
    let queues =
        queues.into_iter().filter_map(|(path, object)| walk.queue(&path, object, connections));
    let queues: Vec<_> = queues.collect();
    let pools = walk.list(document, POOLS);
    let pools: Vec<_> =
        pools.into_iter().filter_map(|(path, object)| walk.pool(&path, object)).collect();
    if !walk.faults.is_empty() {
        return Err(SyncedProblem::Wrong(walk.faults));
    }
    let queues = walk.last_of_each(queues, |queue| &queue.name);
    let pools = walk.last_of_each(pools, |pool| &pool.code);
    Ok(Synced { queues, pools, issues: walk.issues })
}

const QUEUES: &str = "queues";
const POOLS: &str = "processingPools";

/// What was found on the way through a document.
#[derive(Default)]
struct Walk {
    faults: Vec<SyncedFault>,
    issues: Vec<SyncedFault>,
}

impl Walk {
    fn queue(
        &mut self,
        path: &str,
        object: &Map<String, Value>,
        connections: u32,
    ) -> Option<(String, SyncedQueue)> {
        let uri_path = format!("{path}.queueUri");
        let name = self.text(path, object, "queueName").ok()?;
        let connections =
            self.connections(object, &format!("{path}.connections")).unwrap_or(connections);
        let Some(text) = self.text(path, object, "queueUri").ok()? else {
            return self.issue(uri_path, "is missing".to_owned());
        };
        let uri = match QueueUri::parse(text) {
            Ok(uri) => uri,
            Err(why) => return self.issue(uri_path, format!("{why} ({})", why.help())),
        };
        let name = name.map_or_else(|| uri.to_string(), str::to_owned);
        match name_invalid(&name) {
            Some(why) => self.issue(format!("{path}.queueName"), why),
            None => Some((path.to_owned(), SyncedQueue { name, uri, connections })),
        }
    }

    fn pool(&mut self, path: &str, object: &Map<String, Value>) -> Option<(String, SyncedPool)> {
        let code = self.text(path, object, "code").ok()?;
        let rate = self.count(path, object, "rateLimitPerMinute", u32::MAX);
        let concurrency = self.count(path, object, "concurrency", MOST_CONCURRENCY);
        let wrong = match code {
            None => Some("is missing".to_owned()),
            Some(code) => name_invalid(code),
        };
        if let Some(why) = wrong {
            self.fault(format!("{path}.code"), why);
        }
        let by_rate = || {
            let per_second = rate.map_or(0, NonZeroU32::get) / 60;
            NonZeroU32::new(per_second.min(MOST_CONCURRENCY)).unwrap_or(NonZeroU32::MIN)
        };
        let pool = SyncedPool {
            code: code?.to_owned(),
            concurrency: concurrency.unwrap_or_else(by_rate),
            rate_limit_per_minute: rate,
        };
        Some((path.to_owned(), pool))
    }

    fn connections(&mut self, object: &Map<String, Value>, path: &str) -> Option<u32> {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        self.count(parent, object, name, MOST_CONNECTIONS).map(NonZeroU32::get)
    }

    /// The objects of a list, with their paths.
    fn list<'v>(
        &mut self,
        document: &'v Map<String, Value>,
        name: &str,
    ) -> Vec<(String, &'v Map<String, Value>)> {
        let Some(value) = field(document, name) else { return Vec::new() };
        let Value::Array(values) = value else {
            self.mistyped(name.to_owned(), "a list", value);
            return Vec::new();
        };
        let objects = values.iter().enumerate().filter_map(|(at, value)| {
            let path = format!("{name}[{at}]");
            let object = self.object(&path, value)?;
            Some((path, object))
        });
        objects.collect()
    }

    fn object<'v>(&mut self, path: &str, value: &'v Value) -> Option<&'v Map<String, Value>> {
        if value.as_object().is_none() {
            self.mistyped(path.to_owned(), "an object", value);
        }
        value.as_object()
    }

    /// A text, or `None` if there is none; `Err` if there is something else.
    fn text<'v>(
        &mut self,
        path: &str,
        object: &'v Map<String, Value>,
        name: &str,
    ) -> Result<Option<&'v str>, Faulted> {
        match field(object, name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                self.mistyped(format!("{path}.{name}"), "a string", other);
                Err(Faulted)
            }
        }
    }

    /// A number above 0; `None` if there is none, or 0, or something else, which is a fault.
    fn count(
        &mut self,
        path: &str,
        object: &Map<String, Value>,
        name: &str,
        most: u32,
    ) -> Option<NonZeroU32> {
        let value = field(object, name)?;
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let Some(number) = value.as_number() else {
            self.mistyped(path, "a whole number", value);
            return None;
        };
        match number.as_u64() {
            Some(number) if number > u64::from(most) => {
                self.fault(path, format!("must be at most {most}"));
                None
            }
            Some(number) => u32::try_from(number).ok().and_then(NonZeroU32::new),
            None => {
                self.fault(path, "must be a whole number, not below 0".to_owned());
                None
            }
        }
    }

    /// One of each name. Where there are more, the last one holds, and the others are an issue.
    fn last_of_each<T>(&mut self, all: Vec<(String, T)>, name: impl Fn(&T) -> &String) -> Vec<T> {
        let mut last: HashMap<String, usize> = HashMap::new();
        for (at, (_, one)) in all.iter().enumerate() {
            last.insert(name(one).clone(), at);
        }
        let mut kept = Vec::with_capacity(last.len());
        for (at, (path, one)) in all.into_iter().enumerate() {
            if last.get(name(&one)) == Some(&at) {
                kept.push(one);
            } else {
                let message = format!("{} comes again: the last one holds", quoted(name(&one)));
                self.issues.push(SyncedFault { path, message });
            }
        }
        kept
    }

    fn issue<T>(&mut self, path: String, message: String) -> Option<T> {
        self.issues.push(SyncedFault { path, message });
        None
    }

    fn fault(&mut self, path: String, message: String) {
        self.faults.push(SyncedFault { path, message });
    }

    fn mistyped(&mut self, path: String, wanted: &str, found: &Value) {
        let found = match found {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        };
        self.fault(path, format!("must be {wanted}, not {found}"));
    }
}

/// The fault was noted already.
struct Faulted;

/// A field that is there and not `null`.
fn field<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    object.get(name).filter(|value| !value.is_null())
}

impl fmt::Display for SyncedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl fmt::Display for SyncedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The rest is only counted: this goes into one line of a warning.
        const MOST_SAID: usize = 10;
        match self {
            Self::TooLarge { bytes } => {
                write!(f, "the document has {bytes} bytes, more than {MOST_BYTES}")
            }
            Self::NotJson { line, column } => {
                write!(f, "the document is not JSON from line {line}, column {column} on")
            }
            Self::NoConfig => write!(f, "the document has neither `{QUEUES}` nor `{POOLS}`"),
            Self::Wrong(faults) => {
                for (at, fault) in faults.iter().take(MOST_SAID).enumerate() {
                    let between = if at == 0 { "" } else { "; " };
                    write!(f, "{between}{fault}")?;
                }
                match faults.len().saturating_sub(MOST_SAID) {
                    0 => Ok(()),
                    more => write!(f, "; and {more} more"),
                }
            }
        }
    }
}

impl std::error::Error for SyncedProblem {}
