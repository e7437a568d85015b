//! The four ways to print a report.

mod github;
mod human;
mod json;
mod sarif;

use std::path::Path;

use crate::Report;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people: source lines with carets; `colour` for a terminal.
    Human {
        /// Whether to use terminal colours.
        colour: bool,
    },
    /// `{"findings":[…],"files":N}`
    Json,
    /// SARIF 2.1.0, for code-scanning services.
    Sarif,
    /// Annotations for GitHub Actions.
    Github,
}

/// The report as text.
#[must_use]
pub fn render(report: &Report, format: Format) -> String {
    match format {
        Format::Human { colour } => human::render(report, colour),
        Format::Json => json::render(report),
        Format::Sarif => sarif::render(report),
        Format::Github => github::render(report),
    }
}

/// A path with `/` between its parts on every system.
fn slashes(path: &Path) -> String {
    let text = path.to_string_lossy();
    if std::path::MAIN_SEPARATOR == '/' {
        text.into_owned()
    } else {
        text.replace(std::path::MAIN_SEPARATOR, "/")
    }
}

/// `1 finding`, `2 findings`
fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
