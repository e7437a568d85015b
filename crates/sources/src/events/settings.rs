//! Which events a queue has, and where they are delivered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use sluicegate_dispatch::{DEFAULT_POOL, Target};
use sluicegate_event_store::{Query, Read};

use crate::{OpenError, nearest};

const PARAMETERS: [&str; 4] = ["key", "types", "pool", "target"];
const VISIBILITY: Duration = Duration::from_secs(30);
/// How many events are held that are not settled.
const HELD: usize = 50_000;
/// So much of an unknown name is shown.
const SHOWN: usize = 32;

/// A queue of events: which ones, in order by what, and where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsSettings {
    pub(crate) key: Option<Arc<str>>,
    pub(crate) types: Vec<String>,
    pub(crate) pool: Arc<str>,
    pub(crate) target: Option<Target>,
    pub(crate) visibility: Duration,
    pub(crate) held: usize,
}

impl EventsSettings {
    /// Reads `events:?key=TAG&types=A,B&pool=CODE&target=URL`. All may be left out, but the router needs to know the
    /// target. Names and values are percent-encoded, also a comma within a type.
    ///
    /// - `key`: events with the same value of this tag are one group; those without the tag have none.
    /// - `types`: only events of these types; of all types if it is not said.
    /// - `pool`: the pool that delivers them.
    /// - `target`: the URL that they are delivered to.
    ///
    /// ```
    /// use sluicegate_sources::events::EventsSettings;
    ///
    /// EventsSettings::parse("events:?key=order&types=OrderPaid&target=http%3A%2F%2Flocalhost%2Fin")?;
    /// let error = EventsSettings::parse("events:?key=order&type=OrderPaid").unwrap_err();
    /// assert!(error.to_string().contains("did you mean `types`?"), "{error}");
    /// # Ok::<(), sluicegate_sources::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// Names the parameter that is wrong.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        let rest = uri.strip_prefix("events:").ok_or_else(|| wrong("scheme: it is events:"))?;
        let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        if !place.is_empty() {
            return Err(wrong("nothing stands between `events:` and `?`"));
        }
        let mut parameters = read(parameters)?;
        let mut take = |name| match parameters.remove(name) {
            Some(value) if value.is_empty() => Err(wrong(format!("{name}: it is empty"))),
            other => Ok(other),
        };
        let key = take("key")?.map(|key| decoded("key", &key)).transpose()?;
        if key.as_ref().is_some_and(|key| key.contains(':')) {
            return Err(wrong("key: what stands before the colon of a tag has none in it"));
        }
        let types = take("types")?.unwrap_or_default();
        let types = types.split(',').filter(|name| !name.is_empty());
        let types: Vec<String> =
            types.map(|name| decoded("types", name)).collect::<Result<_, _>>()?;
        let pool = take("pool")?.map(|pool| decoded("pool", &pool)).transpose()?;
        let target = take("target")?.map(|url| decoded("target", &url)).transpose()?;
        let target = target.map(|url| Target::parse(&url)).transpose();
        let settings = Self {
            key: key.map(Into::into),
            types,
            pool: pool.as_deref().unwrap_or(DEFAULT_POOL).into(),
            target: target.map_err(|bad| wrong(format!("target {bad}")))?,
            visibility: VISIBILITY,
            held: HELD,
        };
        settings.read().map(|_| settings)
    }

    /// The tag that events are in order by.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The pool that delivers them.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Where they are delivered.
    #[must_use]
    pub const fn target(&self) -> Option<&Target> {
        self.target.as_ref()
    }

    /// What is missing for a router to deliver them, if anything.
    ///
    /// # Errors
    /// [`OpenError::Address`] if there is no target.
    pub fn check_target(&self) -> Result<(), OpenError> {
        let missing = || wrong("target: there is none; it is the URL that events are delivered to");
        self.target.as_ref().map(drop).ok_or_else(missing)
    }

    /// How long a delivery stays out without being extended: 30 s.
    #[must_use]
    pub fn with_visibility(self, visibility: Duration) -> Self {
        Self { visibility, ..self }
    }

    /// How many events may wait that were read and are not settled: 50,000. With more, behind some that fail, nothing
    /// more is read until there are fewer.
    #[must_use]
    pub fn with_held(self, held: usize) -> Self {
        Self { held: held.max(1), ..self }
    }

    /// What is read of the store.
    pub(crate) fn read(&self) -> Result<Read, OpenError> {
        let query = match &self.types[..] {
            [] => Query::all(),
            types => Query::types(types),
        };
        Read::new(query).map_err(|invalid| wrong(format!("types: {}", invalid.message)))
    }
}

fn wrong(why: impl Into<String>) -> OpenError {
    OpenError::Address(why.into())
}

/// The parameters by their names, all of which are known; their values are encoded still.
fn read(text: &str) -> Result<BTreeMap<String, String>, OpenError> {
    let mut parameters = BTreeMap::new();
    for part in text.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let name = decoded("a name", name)?;
        if !PARAMETERS.contains(&&*name) {
            return Err(wrong(unknown(&name)));
        }
        if parameters.insert(name.clone(), value.to_owned()).is_some() {
            return Err(wrong(format!("`{name}` comes twice")));
        }
    }
    Ok(parameters)
}

fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(SHOWN).collect();
    match nearest(name, PARAMETERS) {
        Some(near) => format!("there is no parameter `{shown}`; did you mean `{near}`?"),
        None => format!("there is no parameter `{shown}`; known are {}", PARAMETERS.join(", ")),
    }
}

/// Undoes percent-encoding. A plus is a plus: this is no form.
fn decoded(field: &str, text: &str) -> Result<String, OpenError> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| wrong(format!("{field}: it is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let parse = |uri| EventsSettings::parse(uri).unwrap();
        let all =
            parse("events:?key=k%20%C3%BC&types=A,B%2CC&pool=P+1&target=http%3A%2F%2Fh%2F%3Fa");
        assert_eq!((all.key.as_deref(), &*all.pool), (Some("k \u{fc}"), "P+1"));
        assert_eq!(all.types, ["A", "B,C"]);
        assert_eq!(all.target.as_ref().unwrap().url(), "http://h/?a");
        assert_eq!(all.check_target(), Ok(()));
        for few in ["events:", "events:?"] {
            let few = parse(few);
            assert_eq!((few.key.as_deref(), &*few.pool), (None, DEFAULT_POOL));
            assert!(few.types.is_empty() && few.read().unwrap().query().is_all());
            assert!(few.check_target().unwrap_err().to_string().contains("target"));
        }
    }

    #[test]
    fn wrong_addresses_name_the_field() {
        let long = format!("events:?types={}", "x".repeat(65));
        let cases = [
            ("event:?key=k", "scheme"),
            ("events:x?key=k", "between"),
            ("events://h?key=k", "between"),
            ("events:?keys=k", "did you mean `key`?"),
            ("events:?typ=k", "did you mean `types`?"),
            ("events:?colour=k", "known are key, types, pool, target"),
            ("events:?key=a&key=a", "`key` comes twice"),
            ("events:?key=", "key: it is empty"),
            ("events:?key=%ff", "key: it is not UTF-8"),
            ("events:?key=a:b", "key: what stands before"),
            ("events:?target=ftp%3A%2F%2Fh", "target must begin with http"),
            ("events:?target", "target: it is empty"),
            (&long, "types: "),
        ];
        for (uri, said) in cases {
            let error = EventsSettings::parse(uri).expect_err(uri).to_string();
            assert!(error.contains(said), "{uri}: {error}");
        }
    }
}
