//! SARIF 2.1.0, the format of code-scanning services.

use serde_json::{Value, json};

use super::slashes;
use crate::{Finding, Report, Rule};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
const HOME: &str = env!("CARGO_PKG_REPOSITORY");

pub(super) fn render(report: &Report) -> String {
    let rules: Vec<Value> = Rule::ALL.iter().map(|rule| rule_metadata(*rule)).collect();
    let results: Vec<Value> = report.findings.iter().map(result).collect();
    let document = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "sluicegate-lint",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": HOME,
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn rule_metadata(rule: Rule) -> Value {
    json!({
        "id": rule.id(),
        "shortDescription": { "text": rule.summary() },
        "helpUri": format!("{HOME}/blob/main/docs/lint.md#{}", rule.id()),
        "defaultConfiguration": { "level": "error" },
    })
}

fn result(finding: &Finding) -> Value {
    let index = Rule::ALL.iter().position(|rule| *rule == finding.rule);
    json!({
        "ruleId": finding.rule.id(),
        "ruleIndex": index,
        "level": "error",
        "message": { "text": format!("{}. Help: {}", finding.message, finding.help) },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&slashes(&finding.path)) },
            "region": {
                "startLine": finding.line,
                "startColumn": finding.column,
                "endColumn": finding.column + finding.width.max(1),
            },
        }}],
    })
}

/// A path as a URI reference: all but what may stand in one is percent-encoded.
fn uri(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    if path.starts_with('/') { format!("file://{text}") } else { text }
}
