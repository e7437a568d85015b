//! Numbered behaviour rules: each is cited by the code that keeps it and by a test that proves it.
//!
//! A rule is a heading of the third level in the rules file, and its first word is its id. Code and
//! tests cite it in a comment, by the file's path, a `#` and the id.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::Tree;

const RULES: &str = "docs/rules.md";

/// Finds rules that nobody cites and citations of rules that do not exist.
pub(super) fn coverage(tree: &Tree) -> Vec<Finding> {
    let Some(rules) = tree.file(RULES) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut declared: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, line) in rules.text.lines().enumerate() {
        if let Some(id) = rule_id(line)
            && declared.insert(id, index + 1).is_some()
        {
            found.push(Finding::new(RULES, index + 1, format!("rule `{id}` is declared twice")));
        }
    }
    let mut by_code = BTreeSet::new();
    let mut by_test = BTreeSet::new();
    for (file, code) in tree.rust() {
        for (index, line) in code.comments.iter().enumerate() {
            for id in citations(line) {
                if !declared.contains_key(id) {
                    let message = format!("cites `{id}`, which {RULES} does not have");
                    found.push(Finding::new(&file.path, index + 1, message));
                }
                let test = file.is_test_line(index + 1);
                if test {
                    by_test.insert(id)
                } else {
                    by_code.insert(id)
                };
            }
        }
    }
    for (id, line) in declared {
        for (citing, who) in [(&by_code, "code"), (&by_test, "test")] {
            if !citing.contains(id) {
                found.push(Finding::new(RULES, line, format!("no {who} cites rule `{id}`")));
            }
        }
    }
    found
}

/// The id of the rule that a heading declares: lower-case words with a number at the end.
pub(super) fn rule_id(line: &str) -> Option<&str> {
    let id = line.strip_prefix("### ")?.split_whitespace().next()?;
    let (name, number) = id.rsplit_once('-')?;
    let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    (named && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())).then_some(id)
}

/// The ids that a line of comment cites.
fn citations(line: &str) -> impl Iterator<Item = &str> {
    line.split(RULES).skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('#')?;
        let part_of_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let end = rest.find(|c| !part_of_id(c)).unwrap_or(rest.len());
        let id = rest[..end].trim_end_matches('-');
        (!id.is_empty()).then_some(id)
    })
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::{coverage, rule_id};

    type Files<'a> = &'a [(&'a str, &'a str)];
    const BOOK: &str = "# Rules\n\n### fifo-1 In order\n\n### fifo-2 One at a time\n";

    #[test]
    fn every_rule_needs_code_and_test() {
        let code = "// docs/rules.md#fifo-1 and docs/rules.md#fifo-2.\n";
        let test = "#[cfg(test)]\nmod tests {\n// docs/rules.md#fifo-1\n}\n";
        let both = format!("{code}{test}");
        let cases: [(Files<'_>, &[&str]); 4] = [
            (&[("a.rs", &both)], &[]),
            (
                &[("docs/rules.md", BOOK), ("a.rs", &both)],
                &["docs/rules.md:5: no test cites rule `fifo-2`"],
            ),
            (&[("docs/rules.md", BOOK), ("a.rs", &both), ("crates/a/tests/it.rs", code)], &[]),
            (
                &[("docs/rules.md", BOOK), ("crates/a/tests/it.rs", code)],
                &[
                    "docs/rules.md:3: no code cites rule `fifo-1`",
                    "docs/rules.md:5: no code cites rule `fifo-2`",
                ],
            ),
        ];
        for (files, expected) in cases {
            assert_eq!(check(coverage, files), expected, "{files:?}");
        }
    }

    #[test]
    fn citations_of_rules_that_do_not_exist_and_double_rules_are_found() {
        let twice = "### a-1 x\n### a-1 y\n";
        let files = [
            ("docs/rules.md", twice),
            ("a.rs", "/// See docs/rules.md#a-1, docs/rules.md#a-2.\n"),
            ("tests/b.rs", "// docs/rules.md#a-1\nlet s = \"docs/rules.md#a-9\";\n"),
        ];
        assert_eq!(
            check(coverage, &files),
            [
                "docs/rules.md:2: rule `a-1` is declared twice",
                "a.rs:1: cites `a-2`, which docs/rules.md does not have",
            ]
        );
    }

    #[test]
    fn only_numbered_headings_are_rules() {
        let cases = [
            ("### kernel-3 Permits come back", Some("kernel-3")),
            ("### event-store-12", Some("event-store-12")),
            ("### Notes on order", None),
            ("### well-known", None),
            ("## kernel-3", None),
        ];
        for (line, id) in cases {
            assert_eq!(rule_id(line), id, "{line}");
        }
    }
}
