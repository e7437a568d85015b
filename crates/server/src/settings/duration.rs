//! Durations as people write them: `250ms`, `30s`, `5m`, `1h`.

use std::ops::RangeInclusive;
use std::time::Duration;

/// No setting means longer than this: 30 days.
const LONGEST: Duration = Duration::from_hours(720);

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// From `least` to the longest that any setting may be.
pub(super) fn from(least: Duration) -> RangeInclusive<Duration> {
    least..=LONGEST
}

/// Reads a whole number and its unit.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number: u64 = number.parse().ok()?;
    Some(Duration::from_millis(number.checked_mul(*millis)?))
}

/// Writes a duration in the largest unit that keeps it whole.
pub(super) fn shown(duration: Duration) -> String {
    let millis = duration.as_millis();
    let fits = |unit: &&(&str, u64)| millis > 0 && millis.is_multiple_of(u128::from(unit.1));
    let (name, per) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[1]);
    format!("{}{name}", millis / u128::from(*per))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{parse, shown};

    #[test]
    fn a_number_and_a_unit_are_a_duration() {
        let cases = [
            ("250ms", Some(250)),
            ("30s", Some(30_000)),
            ("5m", Some(300_000)),
            ("1h", Some(3_600_000)),
            ("0s", Some(0)),
            ("", None),
            ("s", None),
            ("30", None),
            ("30 s", None),
            ("1.5s", None),
            ("-1s", None),
            ("1m30s", None),
            ("1d", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn a_duration_is_shown_as_it_would_be_written() {
        for text in ["250ms", "30s", "5m", "1h", "90s", "1500ms", "0s", "61m"] {
            assert_eq!(shown(parse(text).unwrap()), text);
        }
        assert_eq!(shown(Duration::from_secs(60)), "1m");
    }
}
