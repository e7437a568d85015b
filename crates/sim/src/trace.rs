//! What happened, a line each.

use std::fmt;

/// The lines of one run, kept or not.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Option<String>,
}

impl Trace {
    /// Keeps the lines.
    #[must_use]
    pub const fn kept() -> Self {
        Self { lines: Some(String::new()) }
    }

    /// Drops the lines, unformatted.
    #[must_use]
    pub const fn dropped() -> Self {
        Self { lines: None }
    }

    /// Notes a line at a simulated time.
    pub fn note(&mut self, nanos: u64, line: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            use fmt::Write;
            let micros = nanos / 1_000;
            writeln!(lines, "{:>6}.{:03} {line}", micros / 1_000, micros % 1_000)
                .expect("a string takes every line");
        }
    }

    /// The lines that were kept.
    #[must_use]
    pub fn text(&self) -> &str {
        self.lines.as_deref().unwrap_or_default()
    }
}
