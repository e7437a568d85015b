//! For people: what is wrong, where, the line itself, and what to write instead.

use std::fmt::Write as _;

use super::{counted, slashes};
use crate::{Finding, Report};

struct Paint {
    red: &'static str,
    blue: &'static str,
    bold: &'static str,
    reset: &'static str,
}

const COLOURS: Paint =
    Paint { red: "\u{1b}[1;31m", blue: "\u{1b}[1;34m", bold: "\u{1b}[1m", reset: "\u{1b}[0m" };
const PLAIN: Paint = Paint { red: "", blue: "", bold: "", reset: "" };

pub(super) fn render(report: &Report, colour: bool) -> String {
    let paint = if colour { COLOURS } else { PLAIN };
    let mut text = String::new();
    for finding in &report.findings {
        text.push_str(&one(finding, &paint));
        text.push('\n');
    }
    let files = counted(report.files, "file");
    if report.findings.is_empty() {
        text.push_str(&format!("sluicegate-lint: {files} checked, no findings\n"));
    } else {
        let findings = counted(report.findings.len(), "finding");
        text.push_str(&format!("sluicegate-lint: {files} checked, {findings}\n"));
    }
    text
}

fn one(finding: &Finding, paint: &Paint) -> String {
    let Paint { red, blue, bold, reset } = paint;
    let Finding { rule, line, column, message, help, .. } = finding;
    let message = printable(message);
    let path = printable(&slashes(&finding.path));
    let gutter = " ".repeat(line.to_string().len());
    let mut text = String::new();
    let _written = write!(
        text,
        "{red}error[{}]{reset}{bold}: {message}{reset}\n\
         {gutter}{blue}-->{reset} {path}:{line}:{column}\n",
        rule.id()
    );
    if !finding.source_line.trim().is_empty() {
        let source = printable(&finding.source_line);
        let carets = "^".repeat(finding.width.max(1));
        // Tabs stay tabs under tabs, so that the carets stand where the eye expects them.
        let pad: String = finding
            .source_line
            .chars()
            .take(column.saturating_sub(1))
            .map(|char| if char == '\t' { '\t' } else { ' ' })
            .collect();
        let _written = write!(
            text,
            "{gutter} {blue}|{reset}\n{blue}{line} |{reset} {source}\n\
             {gutter} {blue}|{reset} {pad}{red}{carets}{reset}\n"
        );
    }
    let _written = writeln!(text, "{gutter} {blue}={reset} {bold}help{reset}: {help}");
    text
}

/// Without characters that would steer the terminal or reorder the line.
fn printable(text: &str) -> String {
    let steers = |char: char| {
        (char.is_control() && char != '\t')
            || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|char| if steers(char) { '\u{fffd}' } else { char }).collect()
}
