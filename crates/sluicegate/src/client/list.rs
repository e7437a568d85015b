//! Lists of the server, which come in pages.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Client, escaped};
use crate::exit::Failure;

/// The first items of a list, as the server wrote them.
#[derive(Debug, Default)]
pub(crate) struct List {
    items: Vec<Box<RawValue>>,
    /// Where it goes on; null at the end.
    next: Value,
}

/// The most that a server gives at once.
const PAGE: usize = 1_000;

impl Client {
    /// The first `limit` items of a list, from as many pages as it takes; a few more where the
    /// server keeps them together.
    pub(crate) async fn list(
        &self,
        path: &str,
        filters: &[(&str, &str)],
        limit: usize,
    ) -> Result<List, Failure> {
        let mut list = List::default();
        loop {
            let wanted = (limit - list.items.len()).min(PAGE);
            let mut url = format!("{path}?limit={wanted}");
            for (name, value) in filters {
                url.push_str(&format!("&{name}={}", escaped(value)));
            }
            if let Some(cursor) = list.cursor() {
                url.push_str(&format!("&cursor={}", escaped(&cursor)));
            }
            let page = List::parse(&self.get(&url).await?).ok_or_else(|| self.stranger())?;
            let none = page.items.is_empty();
            list.items.extend(page.items);
            list.next = page.next;
            // An empty page that is not the last would be a server gone astray.
            if none || list.is_whole() || list.items.len() >= limit {
                return Ok(list);
            }
        }
    }
}

impl List {
    fn parse(body: &[u8]) -> Option<Self> {
        let mut page: BTreeMap<&str, &RawValue> = serde_json::from_slice(body).ok()?;
        let items = serde_json::from_str(page.remove("items")?.get()).ok()?;
        let next = page.remove("next").and_then(|next| serde_json::from_str(next.get()).ok());
        Some(Self { items, next: next.unwrap_or_default() })
    }

    fn cursor(&self) -> Option<String> {
        match &self.next {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// Whether this is all there is.
    pub(crate) fn is_whole(&self) -> bool {
        self.next.is_null()
    }

    /// The items.
    pub(crate) fn values(&self) -> Vec<Value> {
        self.items.iter().filter_map(|item| serde_json::from_str(item.get()).ok()).collect()
    }
}

/// As the server would have written it on one page: a line for each item.
impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{\"items\":[")?;
        for (place, item) in self.items.iter().enumerate() {
            write!(f, "{}\n{}", if place == 0 { "" } else { "," }, item.get())?;
        }
        let end = if self.items.is_empty() { "" } else { "\n" };
        write!(f, "{end}],\"next\":{}}}", self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::List;

    #[test]
    fn a_list_is_written_as_it_was_read() {
        let cases = [
            (r#"{"items":[],"next":null}"#, r#"{"items":[],"next":null}"#, true),
            (
                r#"{"items":[{"b":1.50,"a":"ä"},2],"next":"c/1"}"#,
                "{\"items\":[\n{\"b\":1.50,\"a\":\"ä\"},\n2\n],\"next\":\"c/1\"}",
                false,
            ),
            (r#"{"next":7,"items":[]}"#, r#"{"items":[],"next":7}"#, false),
        ];
        for (text, expected, whole) in cases {
            let list = List::parse(text.as_bytes()).unwrap();
            assert_eq!(list.to_string(), expected);
            assert_eq!(list.is_whole(), whole, "{text}");
        }
        for text in ["", "[]", "{}", r#"{"items":7}"#, "<html>"] {
            assert!(List::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
