//! A batch as the database is told of it: columns of numbers and texts.

use tokio_postgres::types::ToSql;

use super::batch::Batch;
use super::pairs::pairs;
use crate::{AppendCondition, MAX_TAGS, QueryItem};

/// The statement that takes the columns.
pub(super) const APPEND: &str = "SELECT base, lost FROM {s}.append_events(\
     $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";

/// The arguments of `append_events`; see `sql/append.sql`. Requests and events are counted from one.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    owners: Vec<i32>,
    tokens: Vec<Option<i64>>,
    types: Vec<&'a str>,
    tags: Vec<String>,
    datas: Vec<&'a str>,
    key_events: Vec<i32>,
    keys: Vec<String>,
    list_owners: Vec<i32>,
    list_afters: Vec<i64>,
    list_keys: Vec<Option<String>>,
    list_tags: Vec<String>,
    list_types: Vec<String>,
    pair_owners: Vec<i32>,
    pair_afters: Vec<i64>,
    pair_earlier: Vec<i32>,
    pair_events: Vec<i32>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        let mut columns = Self::default();
        for (n, request) in batch.requests.iter().enumerate() {
            let owner = number(n);
            let mut token = Some(request.token);
            for event in request.append.events() {
                columns.owners.push(owner);
                columns.tokens.push(token.take());
                columns.types.push(event.event_type());
                columns.tags.push(literal(event.tags()));
                // It was checked, so it has data; without any the database would refuse it.
                columns.datas.push(event.data().unwrap_or_default());
                let event_number = number(columns.owners.len() - 1);
                columns.keys.extend(event.tags().iter().cloned());
                columns.keys.push(type_key(event.event_type()));
                columns.key_events.resize(columns.keys.len(), event_number);
            }
            if let Some(condition) = request.append.condition() {
                columns.ask(owner, condition, request.known.after(condition));
            }
        }
        columns.compare(batch);
        columns
    }

    fn ask(&mut self, owner: i32, condition: &AppendCondition, after: i64) {
        let query = &condition.fail_if_events_match;
        if query.is_all() {
            return self.list(owner, after, None, &QueryItem::default());
        }
        // No event has more tags than that.
        let items = query.items().iter().filter(|item| item.all_tags().len() <= MAX_TAGS);
        for item in items {
            match item.all_tags().first() {
                Some(tag) => self.list(owner, after, Some(tag.clone()), item),
                None => {
                    for name in item.event_types() {
                        self.list(owner, after, Some(type_key(name)), &QueryItem::default());
                    }
                }
            }
        }
    }

    fn list(&mut self, owner: i32, after: i64, key: Option<String>, item: &QueryItem) {
        self.list_owners.push(owner);
        self.list_afters.push(after);
        self.list_keys.push(key);
        self.list_tags.push(literal(item.all_tags()));
        self.list_types.push(literal(item.event_types()));
    }

    /// Adds what the requests may do to one another.
    fn compare(&mut self, batch: &Batch) {
        for pair in pairs(batch.requests.iter().map(|request| &request.append)) {
            let later = batch.requests.get(pair.later);
            // What is known of a condition counts up to an event before all of the batch.
            let after =
                later.and_then(|it| it.append.condition()).map_or(0, |it| it.after.as_i64());
            self.pair_owners.push(number(pair.later));
            self.pair_afters.push(after);
            self.pair_earlier.push(number(pair.earlier));
            self.pair_events.push(number(pair.event));
        }
    }

    pub(super) fn values(&self) -> [&(dyn ToSql + Sync); 16] {
        [
            &self.owners,
            &self.tokens,
            &self.types,
            &self.tags,
            &self.datas,
            &self.key_events,
            &self.keys,
            &self.list_owners,
            &self.list_afters,
            &self.list_keys,
            &self.list_tags,
            &self.list_types,
            &self.pair_owners,
            &self.pair_afters,
            &self.pair_earlier,
            &self.pair_events,
        ]
    }
}

/// The number of the nth, from one.
fn number(n: usize) -> i32 {
    i32::try_from(n + 1).unwrap_or(i32::MAX)
}

/// The key that events of a type are found by: no tag begins like it.
pub(super) fn type_key(name: &str) -> String {
    format!(":{name}")
}

/// An array of texts as the database reads it.
pub(super) fn literal(names: &[String]) -> String {
    let mut text =
        String::with_capacity(names.iter().map(|name| name.len() + 3).sum::<usize>() + 2);
    text.push('{');
    for (n, name) in names.iter().enumerate() {
        text.push_str(if n == 0 { "\"" } else { ",\"" });
        for part in name.split_inclusive(['"', '\\']) {
            let (last, before) = (part.len() - 1, part.as_bytes().last());
            match before {
                Some(b'"' | b'\\') => {
                    text.push_str(&part[..last]);
                    text.push('\\');
                    text.push_str(&part[last..]);
                }
                _ => text.push_str(part),
            }
        }
        text.push('"');
    }
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn an_array_is_written_with_its_quotes_escaped() {
        let cases: [(&[&str], &str); 5] = [
            (&[], "{}"),
            (&["a:b"], r#"{"a:b"}"#),
            (&["k:a,b", "k:{}", "k:NULL"], r#"{"k:a,b","k:{}","k:NULL"}"#),
            (&[r#"k:"q""#, r"k:\"], r#"{"k:\"q\"","k:\\"}"#),
            (&["ü:é\u{1F600}\u{1}"], "{\"ü:é\u{1F600}\u{1}\"}"),
        ];
        for (names, expected) in cases {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(literal(&names), expected);
        }
    }
}
