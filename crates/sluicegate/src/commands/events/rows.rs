//! Events on the screen: as JSON Lines, or as a line of words each.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::exit::Failure;
use crate::screen::{self, plain};

/// How much of an event's data is shown.
const MOST_SHOWN: usize = 200;

/// Prints an event.
pub(super) fn print(event: &RawValue, is_json: bool) -> Result<(), Failure> {
    if is_json {
        return Ok(screen::line(event)?);
    }
    Ok(screen::line(words(event))?)
}

/// Position, time, type, tags, data.
fn words(event: &RawValue) -> String {
    let shown: Value = serde_json::from_str(event.get()).unwrap_or_default();
    let text = |name: &str| plain(shown[name].as_str().unwrap_or_default());
    let tags = shown["tags"]
        .as_array()
        .map_or(Vec::new(), |tags| tags.iter().filter_map(Value::as_str).map(plain).collect());
    let (time, of, tags) = (text("time"), text("type"), tags.join(" "));
    // A number: how a JSON value takes a width depends on how serde_json was built.
    let position = shown["position"].as_u64().unwrap_or_default();
    format!("{position:>8}  {time}  {of}  {tags}  {}", cut(&shown["data"].to_string()))
}

fn cut(data: &str) -> String {
    let data = plain(data);
    if data.chars().count() <= MOST_SHOWN {
        return data;
    }
    data.chars().take(MOST_SHOWN).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_that_no_terminal_obeys() {
        let event =
            r#"{"position":7,"time":"T","type":"A\u001b[2J","tags":["k:v","l:w"],"data":{"a":1}}"#;
        let event = RawValue::from_string(event.to_owned()).unwrap();
        assert_eq!(words(&event), "       7  T  A\u{fffd}[2J  k:v l:w  {\"a\":1}");
    }
}
