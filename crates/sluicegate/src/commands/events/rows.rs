//! Events on the screen: as JSON Lines, or as a line of words each.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::exit::Failure;
use crate::screen::{self, plain};

/// How much of an event's data is shown.
const MOST_SHOWN: usize = 200;

/// An event as the server writes it. Its data are any JSON, also such as no value of ours could hold.
#[derive(Deserialize)]
struct Row<'a> {
    position: u64,
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow, rename = "type")]
    event_type: Cow<'a, str>,
    #[serde(borrow)]
    tags: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// Prints an event; `false` where it is none.
pub(super) fn print(event: &RawValue, is_json: bool) -> Result<bool, Failure> {
    let Ok(row) = serde_json::from_str::<Row<'_>>(event.get()) else { return Ok(false) };
    match is_json {
        true => screen::line(event)?,
        false => screen::line(words(&row))?,
    }
    Ok(true)
}

/// Position, time, type, tags, data.
fn words(row: &Row<'_>) -> String {
    let Row { position, time, event_type, tags, data } = row;
    let tags: Vec<String> = tags.iter().map(|tag| plain(tag)).collect();
    let (time, event_type, tags) = (plain(time), plain(event_type), tags.join(" "));
    format!("{position:>8}  {time}  {event_type}  {tags}  {}", cut(data.get()))
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
        assert_eq!(
            words(&serde_json::from_str(event).unwrap()),
            "       7  T  A\u{fffd}[2J  k:v l:w  {\"a\":1}"
        );
    }
}
