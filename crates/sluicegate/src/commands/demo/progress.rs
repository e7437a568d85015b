//! How far the demo is: two bars for somebody who watches, a line a second for a pipe.

use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::screen::{self, time};

const LINE_EVERY: Duration = Duration::from_secs(1);

/// What is shown of a run.
pub(super) enum Progress {
    /// Bars, on standard error.
    Bars { published: ProgressBar, delivered: ProgressBar },
    /// Lines; on standard error if the result goes to programs.
    Lines { published: AtomicU32, said: Mutex<Instant>, json: bool },
}

impl Progress {
    pub(super) fn new(messages: u32, json: bool) -> Self {
        if !std::io::stderr().is_terminal() {
            let said = Mutex::new(Instant::now());
            return Self::Lines { published: AtomicU32::new(0), said, json };
        }
        let both = MultiProgress::new();
        let bar = |name: &'static str, colour| {
            let template = format!(
                "{{prefix:>9}} {{bar:40.{colour}/black.bright}} {{human_pos}}/{{human_len}} {{rate}}"
            );
            let style = ProgressStyle::with_template(&template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
                    // A bar has nobody to tell that it could not be drawn.
                    write!(out, "{} a second", time::count(state.per_sec() as u64)).ok();
                })
                .progress_chars("━╸─");
            let bar = ProgressBar::new(u64::from(messages)).with_style(style).with_prefix(name);
            both.add(bar)
        };
        Self::Bars { published: bar("published", "cyan"), delivered: bar("delivered", "green") }
    }

    pub(super) fn published(&self, count: u32) {
        match self {
            Self::Bars { published, .. } => published.set_position(u64::from(count)),
            Self::Lines { published, .. } => published.store(count, Ordering::Relaxed),
        }
    }

    pub(super) fn delivered(&self, count: u32) {
        match self {
            Self::Bars { delivered, .. } => delivered.set_position(u64::from(count)),
            Self::Lines { published, said, json } => {
                let mut said = said.lock();
                if said.elapsed() < LINE_EVERY {
                    return;
                }
                *said = Instant::now();
                let numbers = [published.load(Ordering::Relaxed), count]
                    .map(|number| time::count(u64::from(number)));
                let line = format!("published {}, delivered {}", numbers[0], numbers[1]);
                if *json {
                    eprintln!("{line}");
                } else {
                    // Whoever does not read any more is told at the end.
                    screen::line(line).ok();
                }
            }
        }
    }

    pub(super) fn end(&self) {
        if let Self::Bars { published, delivered } = self {
            published.finish_and_clear();
            delivered.finish_and_clear();
        }
    }
}
