//! Times and counts in words.

use std::time::Duration;

use jiff::Timestamp;

/// A span, in at most two units: `250 ms`, `3.2 s`, `12 s`, `4m 12s`, `2h 5m`, `3d 4h`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |large: u64, large_unit, small: u64, small_unit| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit} {small}{small_unit}"),
    };
    match seconds {
        0 if span.as_micros() < 1_000 && !span.is_zero() => format!("{} µs", span.as_micros()),
        0 => format!("{} ms", span.as_millis()),
        1..10 => format!("{:.1} s", span.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// How long ago that was; what is to come is now.
pub(crate) fn since(time: &str, now: Timestamp) -> Option<Duration> {
    let time: Timestamp = time.parse().ok()?;
    Some(now.duration_since(time).try_into().unwrap_or_default())
}

/// How long it is until then; what is past is now.
pub(crate) fn until(time: &str, now: Timestamp) -> Option<Duration> {
    let time: Timestamp = time.parse().ok()?;
    Some(time.duration_since(now).try_into().unwrap_or_default())
}

/// A number with its thousands apart: `12,345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Duration, count, since, span, until};

    #[test]
    fn spans_are_said_in_at_most_two_units() {
        let cases = [
            (0, "0 ms"),
            (400, "400 µs"),
            (1_000, "1 ms"),
            (999_999, "999 ms"),
            (3_240_000, "3.2 s"),
            (12_900_000, "12 s"),
            (60_000_000, "1m"),
            (252_000_000, "4m 12s"),
            (7_500_000_000, "2h 5m"),
            (273_600_000_000, "3d 4h"),
        ];
        for (micros, expected) in cases {
            assert_eq!(span(Duration::from_micros(micros)), expected);
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let earlier = "2026-01-02T03:03:05.5+00:00";
        assert_eq!(since(earlier, now), Some(Duration::from_millis(59_500)));
        assert_eq!(until(earlier, now), Some(Duration::ZERO));
        assert_eq!(until("2026-01-02T03:04:07Z", now), Some(Duration::from_secs(2)));
        assert_eq!(since("yesterday", now), None);
    }

    #[test]
    fn thousands_are_apart() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(count(number), expected);
        }
    }
}
