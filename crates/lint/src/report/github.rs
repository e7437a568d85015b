//! Annotations for GitHub Actions: a workflow command for each finding, then the count.

use super::{counted, slashes};
use crate::Report;

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        let end = finding.column + finding.width.max(1) - 1;
        text.push_str(&format!(
            "::error file={},line={},col={},endColumn={end},title={}::{}\n",
            property(&slashes(&finding.path)),
            finding.line,
            finding.column,
            property(finding.rule.id()),
            data(&format!("{}\nhelp: {}", finding.message, finding.help)),
        ));
    }
    let files = counted(report.files, "file");
    let findings = counted(report.findings.len(), "finding");
    text.push_str(&format!("sluicegate-lint: {files} checked, {findings}\n"));
    text
}

/// The message of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a command, where `:` and `,` have a meaning.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
