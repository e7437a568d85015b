//! Fields of an item as cells. What is not there is a dash: a server may be older or newer.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::screen::{Cell, Shade, time};

/// A text; a number or a truth value as it is written.
pub(super) fn text(value: &Value) -> Cell {
    match value {
        Value::Null => Cell::none(),
        Value::String(text) if text.is_empty() => Cell::none(),
        Value::String(text) => Cell::new(text),
        other => Cell::new(other),
    }
}

/// A text that may be long, cut in its middle: both ends tell what it is.
pub(super) fn cut(value: &Value, most: usize) -> Cell {
    let Some(text) = value.as_str() else { return self::text(value) };
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= most {
        return self::text(value);
    }
    let (head, tail) = (most - most / 3 - 1, most / 3);
    let shown = chars[..head].iter().chain(['…'].iter()).chain(&chars[chars.len() - tail..]);
    Cell::new(shown.collect::<String>())
}

/// A count.
pub(super) fn count(value: &Value) -> Cell {
    match value.as_u64() {
        Some(0) => Cell::new("0").shaded(Shade::Faint),
        Some(count) => Cell::new(time::count(count)),
        None => text(value),
    }
}

/// A count that somebody should know of unless it is zero.
pub(super) fn count_if_any(value: &Value, shade: Shade) -> Cell {
    let cell = count(value);
    if value.as_u64().is_some_and(|count| count > 0) { cell.shaded(shade) } else { cell }
}

/// A span in milliseconds.
pub(super) fn millis(value: &Value) -> Cell {
    match value.as_u64() {
        Some(millis) => Cell::new(time::span(Duration::from_millis(millis))),
        None => text(value),
    }
}

/// How long ago a time was.
pub(super) fn ago(value: &Value, now: Timestamp) -> Cell {
    match value.as_str().and_then(|text| time::since(text, now)) {
        Some(span) => Cell::new(format!("{} ago", time::span(span))),
        None => text(value),
    }
}

/// How long something has been so.
pub(super) fn since(value: &Value, now: Timestamp) -> Cell {
    match value.as_str().and_then(|text| time::since(text, now)) {
        Some(span) => Cell::new(time::span(span)),
        None => text(value),
    }
}

/// How long it is until a time.
pub(super) fn until(value: &Value, now: Timestamp) -> Cell {
    match value.as_str().and_then(|text| time::until(text, now)) {
        Some(span) => Cell::new(format!("in {}", time::span(span))),
        None => text(value),
    }
}

/// A memory's size.
pub(super) fn bytes(value: &Value) -> Cell {
    match value.as_u64() {
        Some(bytes) if bytes >= 1 << 30 => {
            Cell::new(format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)))
        }
        Some(bytes) => Cell::new(format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))),
        None => text(value),
    }
}

/// A word whose colour says how things are.
pub(super) fn state(value: &Value) -> Cell {
    let shade = match value.as_str().unwrap_or_default().to_ascii_lowercase().as_str() {
        "running" | "closed" | "up" | "ready" | "idle" | "processing" | "done" => Shade::Good,
        "draining" | "half-open" | "delayed" | "starting" | "warning" | "degraded" => Shade::Warn,
        "open" | "parked" | "error" | "critical" | "down" | "crashed" | "stuck" => Shade::Bad,
        _ => Shade::Plain,
    };
    text(value).shaded(shade)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn fields_become_cells() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let cases: [(Cell, &str, Shade); 14] = [
            (text(&Value::Null), "–", Shade::Faint),
            (text(&json!("")), "–", Shade::Faint),
            (text(&json!("a\u{1b}[31m\n")), "a\u{fffd}[31m\u{fffd}", Shade::Plain),
            (cut(&json!("0123456789abcdef"), 10), "012345…def", Shade::Plain),
            (cut(&json!("0123456789"), 10), "0123456789", Shade::Plain),
            (count(&json!(12_345)), "12,345", Shade::Plain),
            (count(&json!(0)), "0", Shade::Faint),
            (count_if_any(&json!(1), Shade::Bad), "1", Shade::Bad),
            (count_if_any(&json!(0), Shade::Bad), "0", Shade::Faint),
            (millis(&json!(1_500)), "1.5 s", Shade::Plain),
            (ago(&json!("2026-01-02T03:03:05Z"), now), "1m ago", Shade::Plain),
            (until(&json!("2026-01-02T03:04:17Z"), now), "in 12 s", Shade::Plain),
            (state(&json!("HALF-OPEN")), "HALF-OPEN", Shade::Warn),
            (bytes(&json!(3 << 20)), "3.0 MiB", Shade::Plain),
        ];
        for (cell, expected, shade) in cases {
            assert_eq!((cell.text.as_str(), cell.shade), (expected, shade));
        }
    }
}
