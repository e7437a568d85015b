//! Calendar days, just enough to expire an exemption.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// A day of the Gregorian calendar; later days compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: u32,
    month: u32,
    day: u32,
}

impl Date {
    /// Reads `YYYY-MM-DD`, and refuses days that no calendar has.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let shaped = bytes.len() == 10
            && bytes.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        if !shaped {
            return None;
        }
        let number = |range: std::ops::Range<usize>| text[range].parse::<u32>().ok();
        let date = Self { year: number(0..4)?, month: number(5..7)?, day: number(8..10)? };
        let known_month = (1..=12).contains(&date.month);
        let known_day = known_month && (1..=days_in(date.year, date.month)).contains(&date.day);
        known_day.then_some(date)
    }

    /// The current day in UTC.
    #[must_use]
    pub fn today() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_days(since.as_secs() / SECONDS_PER_DAY)
    }

    /// The day that many days after 1970-01-01.
    #[must_use]
    pub fn from_days(mut days: u64) -> Self {
        let mut date = Self { year: 1970, month: 1, day: 1 };
        while days >= days_of_year(date.year) {
            days -= days_of_year(date.year);
            date.year += 1;
        }
        while days >= u64::from(days_in(date.year, date.month)) {
            days -= u64::from(days_in(date.year, date.month));
            date.month += 1;
        }
        date.day += u32::try_from(days).unwrap_or(0);
        date
    }

    /// The same day of the next year; the last of February for a leap day.
    #[must_use]
    pub fn a_year_later(self) -> Self {
        let year = self.year + 1;
        Self { year, month: self.month, day: self.day.min(days_in(year, self.month)) }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u32) -> u64 {
    if leap(year) { 366 } else { 365 }
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::Date;

    #[test]
    fn reads_only_days_that_exist() {
        for good in ["2024-02-29", "2000-02-29", "2026-12-31", "1970-01-01"] {
            assert_eq!(Date::parse(good).map(|date| date.to_string()).as_deref(), Some(good));
        }
        let bad = [
            "2023-02-29",
            "1900-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-04-31",
            "2026-01-00",
            "2026-1-01",
            "26-01-01",
            "2026/01/01",
            "2026-01-01T00",
            "+026-01-01",
            "",
            "never",
        ];
        for bad in bad {
            assert_eq!(Date::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn counts_days_from_the_epoch() {
        for (days, date) in [(0, "1970-01-01"), (59, "1970-03-01"), (19_782, "2024-02-29")] {
            assert_eq!(Date::from_days(days).to_string(), date);
        }
        for (day, later) in [("2026-11-16", "2027-11-16"), ("2024-02-29", "2025-02-28")] {
            assert_eq!(Date::parse(day).map(Date::a_year_later), Date::parse(later));
        }
        assert!(Date::parse("2026-02-01") > Date::parse("2025-12-31"));
    }
}
