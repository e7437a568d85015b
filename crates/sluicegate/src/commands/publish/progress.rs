//! How far publishing is, for somebody who watches.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::screen::time;

/// A bar, if somebody watches.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar for so many bytes, or for nobody knows how many.
    pub(super) fn new(bytes: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::hidden();
        }
        let (bar, template) = match bytes {
            Some(bytes) => (
                ProgressBar::new(bytes),
                "{bar:40.cyan/blue} {bytes}/{total_bytes}, {eta} left, {msg}",
            ),
            None => (ProgressBar::new_spinner(), "{spinner} {bytes} read, {msg}"),
        };
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        bar.set_message("accepted 0");
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }

    pub(super) fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    pub(super) fn read(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    pub(super) fn accepted(&self, accepted: u64) {
        self.bar.set_message(format!("accepted {}", time::count(accepted)));
    }

    /// Says something on standard error, above the bar.
    pub(super) fn say(&self, words: fmt::Arguments<'_>) {
        self.bar.suspend(|| eprintln!("{words}"));
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
