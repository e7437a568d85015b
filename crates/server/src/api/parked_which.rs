//! Which parked messages are meant: by their ids, or by what they have in common.

use serde_json::{Map, Value};
use sluicegate_dispatch::ParkedCode;
use sluicegate_sources::sqlite::ParkedFilter;

use super::intake::Query;
use super::problem::{Code, Problem};
use crate::time::Timestamp;

/// What a list, an export or a replay is filtered by.
pub(crate) const FILTERS: [&str; 7] = ["queue", "pool", "group", "code", "host", "after", "before"];

/// The most messages a second that a replay may be held to.
const MOST_RATE: u64 = 1_000_000;

/// The most ids that are replayed at once, all or none.
const MOST_IDS: usize = 10_000;

/// What is to be replayed, and how.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Which {
    /// These, all or none; else those that the filter means.
    pub(crate) ids: Option<Vec<String>>,
    pub(crate) filter: ParkedFilter,
    /// Only say what would be done.
    pub(crate) dry_run: bool,
    /// So many a second.
    pub(crate) rate: Option<u64>,
    /// At most so many.
    pub(crate) limit: Option<usize>,
    /// Those behind this one.
    pub(crate) cursor: i64,
}

impl Which {
    /// Reads the fields of a body and the parameters of a query, which mean the same.
    pub(crate) fn read(fields: &Map<String, Value>, query: &Query) -> Result<Self, Problem> {
        let mut which = Self::default();
        if let Some(name) = fields.keys().find(|name| query.get(name).is_some()) {
            return Err(wrong(name, "must be in the body or in the query, not in both"));
        }
        let (mut is_all, mut is_filtered) = (false, false);
        let named = query.all().map(|(name, value)| (name, Value::from(value)));
        let fields = fields.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in named.chain(fields) {
            if FILTERS.contains(&name) {
                let value = value.as_str().ok_or_else(|| wrong(name, "must be a string"))?;
                if value.is_empty() {
                    return Err(wrong(name, "must not be empty"));
                }
                set(&mut which.filter, name, value, Timestamp::now())?;
                is_filtered = true;
                continue;
            }
            match name {
                "ids" => which.ids = Some(ids(&value)?),
                "all" if flag(name, &value)? => is_all = true,
                "all" => return Err(wrong(name, "must be true")),
                "dryRun" => which.dry_run = flag(name, &value)?,
                "rate" => which.rate = Some(number(name, &value, MOST_RATE)?),
                "limit" => which.limit = Some(number(name, &value, u32::MAX.into())? as usize),
                "cursor" => {
                    let cursor =
                        value.as_str().and_then(place).ok_or_else(super::page::bad_cursor)?;
                    (which.cursor, which.filter.last) = cursor;
                }
                _ => {
                    let known = FILTERS.join(", ");
                    let detail =
                        format!("there are ids, all, {known}; dryRun, rate, limit, cursor");
                    return Err(Problem::field(name, detail));
                }
            }
        }
        let said = [which.ids.is_some(), is_all, is_filtered];
        if said.into_iter().filter(|is_said| *is_said).count() != 1 {
            let detail = "say which ones: ids, or all, or what they have in common";
            return Err(Problem::new(Code::InvalidField, detail));
        }
        Ok(which)
    }
}

/// The place behind which a replay goes on, and the last one that it goes to: `17-40`, or the first alone.
fn place(cursor: &str) -> Option<(i64, Option<i64>)> {
    match cursor.split_once('-') {
        Some((after, last)) => Some((after.parse().ok()?, Some(last.parse().ok()?))),
        None => Some((cursor.parse().ok()?, None)),
    }
}

/// What a list or an export is filtered by.
pub(crate) fn filter(query: &Query) -> Result<ParkedFilter, Problem> {
    let mut filter = ParkedFilter::default();
    for name in FILTERS {
        if let Some(value) = query.get(name) {
            set(&mut filter, name, value, Timestamp::now())
                .map_err(|problem| Problem { code: Code::BadRequest, ..problem })?;
        }
    }
    Ok(filter)
}

fn set(filter: &mut ParkedFilter, name: &str, value: &str, now: Timestamp) -> Result<(), Problem> {
    let text = || Some(value.to_owned());
    match name {
        "queue" => filter.queue = text(),
        "pool" => filter.pool = text(),
        "group" => filter.group = text(),
        "host" => filter.host = text(),
        "code" if ParkedCode::of_label(value).is_some() => filter.code = text(),
        "code" => {
            let known = ParkedCode::ALL.map(ParkedCode::label).join(", ");
            return Err(wrong(name, &format!("must be one of {known}")));
        }
        _ => {
            let words =
                "must be a time as in 2026-11-16T08:30:00Z, or how long ago as in 90s, 2h or 3d";
            let time = Some(moment(value, now).ok_or_else(|| wrong(name, words))?);
            *(if name == "after" { &mut filter.after } else { &mut filter.before }) = time;
        }
    }
    Ok(())
}

/// A time, or how long ago it was, in milliseconds since 1970.
fn moment(text: &str, now: Timestamp) -> Option<i64> {
    const UNITS: [(&str, i64); 5] =
        [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time.as_millisecond());
    }
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let ago = number.parse::<i64>().ok()?.checked_mul(*millis)?;
    now.as_millisecond().checked_sub(ago)
}

fn wrong(name: &str, words: &str) -> Problem {
    Problem::field(name, format!("{name} {words}"))
}

fn ids(value: &Value) -> Result<Vec<String>, Problem> {
    let text = |id: &Value| id.as_str().map(str::to_owned);
    let ids = match value {
        Value::Array(ids) => ids.iter().map(text).collect(),
        Value::String(ids) => Some(ids.split(',').map(str::to_owned).collect()),
        _ => None,
    };
    let ids: Vec<String> = ids.ok_or_else(|| wrong("ids", "must be a list of strings"))?;
    if ids.len() > MOST_IDS {
        return Err(wrong("ids", &format!("must not be more than {MOST_IDS}")));
    }
    Ok(ids)
}

fn flag(name: &str, value: &Value) -> Result<bool, Problem> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        _ => Err(wrong(name, "must be true or false")),
    }
}

fn number(name: &str, value: &Value, most: u64) -> Result<u64, Problem> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| wrong(name, &format!("must be a whole number from 1 to {most}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value, query: &[(&str, &str)]) -> Result<Which, String> {
        let fields = body.as_object().cloned().unwrap_or_default();
        Which::read(&fields, &Query::of(query)).map_err(|problem| problem.detail)
    }

    #[test]
    fn a_body_and_a_query_mean_the_same() {
        let filter = ParkedFilter { pool: Some("P".to_owned()), ..ParkedFilter::default() };
        let wanted = Which { filter, rate: Some(5), dry_run: true, ..Which::default() };
        let body = json!({"pool": "P", "rate": 5, "dryRun": true});
        assert_eq!(
            read(body, &[]),
            Ok(read(json!({}), &[("pool", "P"), ("rate", "5"), ("dryRun", "true")]).unwrap())
        );
        assert_eq!(read(json!({"pool": "P", "rate": 5, "dryRun": true}), &[]), Ok(wanted));
        let ids = Some(vec!["1".to_owned(), "2".to_owned()]);
        assert_eq!(read(json!({"ids": ["1", "2"]}), &[]).unwrap().ids, ids);
        assert_eq!(read(json!({}), &[("ids", "1,2")]).unwrap().ids, ids);
    }

    #[test]
    fn what_is_meant_must_be_said() {
        let cases = [
            (json!({}), "say which ones"),
            (json!({"all": false}), "all must be true"),
            (json!({"all": true, "pool": "P"}), "say which ones"),
            (json!({"all": true, "ids": []}), "say which ones"),
            (json!({"dryRun": true}), "say which ones"),
            (json!({"pol": "P"}), "there are ids, all, queue, pool"),
            (
                json!({"code": "gone"}),
                "code must be one of malformed, rejected, exhausted, key_parked, unknown_pool",
            ),
            (json!({"after": "yesterday"}), "after must be a time"),
            (json!({"all": true, "rate": 0}), "rate must be a whole number from 1"),
            (json!({"pool": 7}), "pool must be a string"),
            (json!({"pool": ""}), "pool must not be empty"),
            (json!({"all": true, "cursor": "1-"}), "cursor must be the `next`"),
        ];
        for (body, words) in cases {
            let said = read(body.clone(), &[]).unwrap_err();
            assert!(said.contains(words), "{body}: {said}");
        }
    }

    #[test]
    fn a_cursor_says_where_it_goes_on_and_where_it_ends() {
        let read = |cursor: &str| read(json!({"all": true, "cursor": cursor}), &[]).unwrap();
        assert_eq!((read("17").cursor, read("17").filter.last), (17, None));
        assert_eq!((read("17-40").cursor, read("17-40").filter.last), (17, Some(40)));
    }

    #[test]
    fn what_is_said_twice_is_refused() {
        let said = read(json!({"pool": "P"}), &[("pool", "Q")]).unwrap_err();
        assert!(said.contains("not in both"), "{said}");
    }

    #[test]
    fn a_time_is_one_or_how_long_ago() {
        let now: Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
        let cases = [
            ("2026-11-16T08:00:00Z", Some("2026-11-16T08:00:00Z")),
            ("2026-11-16T09:00:00+01:00", Some("2026-11-16T08:00:00Z")),
            ("2h", Some("2026-11-16T08:00:00Z")),
            ("1d", Some("2026-11-15T10:00:00Z")),
            ("0s", Some("2026-11-16T10:00:00Z")),
            ("", None),
            ("h", None),
            ("2x", None),
            ("-2h", None),
            ("99999999999999999999d", None),
        ];
        for (text, wanted) in cases {
            let wanted = wanted.map(|time| time.parse::<Timestamp>().unwrap().as_millisecond());
            assert_eq!(moment(text, now), wanted, "{text}");
        }
    }
}
