//! What is no message may still carry a token: it is cut out before the text is shown.

use std::borrow::Cow;

const FIELD: &str = "\"authToken\"";
const STARS: &str = "\"***\"";

/// The text with the value of each `authToken` replaced. It works on broken JSON too: a string that
/// does not end is replaced to the end of the text.
#[must_use]
pub fn redacted(raw: &str) -> Cow<'_, str> {
    if !raw.contains(FIELD) {
        return Cow::Borrowed(raw);
    }
    let mut shown = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find(FIELD) {
        let (before, after) = rest.split_at(at + FIELD.len());
        shown.push_str(before);
        let value = after.trim_start().strip_prefix(':').map(str::trim_start);
        rest = match value {
            Some(value) if !value.starts_with("null") => {
                shown.push(':');
                shown.push_str(STARS);
                &value[value_len(value)..]
            }
            _ => after,
        };
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// How long the value at the start of the text is: a whole string, or up to the next mark.
fn value_len(value: &str) -> usize {
    let Some(inside) = value.strip_prefix('"') else {
        // What else it may be is not looked into: of a list or an object nothing is shown.
        let ends = if value.starts_with(['[', '{']) { None } else { value.find([',', '}', '\n']) };
        return ends.unwrap_or(value.len());
    };
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 2,
            _ => {}
        }
    }
    value.len()
}
