//! For programs: one object on one line.

use serde::Serialize;

use super::slashes;
use crate::Report;

#[derive(Serialize)]
struct Document<'a> {
    findings: Vec<Entry<'a>>,
    files: usize,
}

#[derive(Serialize)]
struct Entry<'a> {
    rule: &'static str,
    path: String,
    line: usize,
    column: usize,
    message: &'a str,
    help: &'a str,
}

pub(super) fn render(report: &Report) -> String {
    let findings = report.findings.iter().map(|finding| Entry {
        rule: finding.rule.id(),
        path: slashes(&finding.path),
        line: finding.line,
        column: finding.column,
        message: &finding.message,
        help: &finding.help,
    });
    let document = Document { findings: findings.collect(), files: report.files };
    let mut text = serde_json::to_string(&document).unwrap_or_default();
    text.push('\n');
    text
}
