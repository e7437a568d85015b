//! Names that say nothing: banned for files, folders, modules and types.

use super::Finding;
use super::code::words;
use super::tree::Tree;

/// The banned words, each with what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("manager", "name what it does: noun and doer, as in `LeaseRenewer`"),
    ("helper", "put it beside what it serves, under the domain's word"),
    ("helpers", "put it beside what it serves, under the domain's word"),
    ("util", "name the one thing that it is about"),
    ("utils", "name the one thing that it is about"),
    ("common", "name what the sharers have in common"),
    ("misc", "give each thing a home of its own"),
];

/// Finds banned names.
pub(super) fn banned(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, code) in tree.rust() {
        if let Some((word, advice)) = file.path.split('/').find_map(in_path_part) {
            found.push(Finding::new(&file.path, 0, format!("`{word}` is no name: {advice}")));
        }
        for (index, line) in code.code.iter().enumerate() {
            for name in declared(line) {
                if let Some((word, advice)) = parts(name).iter().find_map(|part| ban(part)) {
                    let message = format!("`{name}`: `{word}` says nothing: {advice}");
                    found.push(Finding::new(&file.path, index + 1, message));
                }
            }
        }
    }
    found
}

fn in_path_part(part: &str) -> Option<(&'static str, &'static str)> {
    let stem = part.strip_suffix(".rs").unwrap_or(part);
    if part == "impl.rs" {
        return Some(("impl", "name what is implemented"));
    }
    parts(stem).iter().find_map(|word| ban(word))
}

fn ban(word: &str) -> Option<(&'static str, &'static str)> {
    BANNED.iter().find(|(banned, _)| *banned == word).copied()
}

/// The names of modules and types that a line declares.
fn declared(line: &str) -> Vec<&str> {
    let words: Vec<&str> = words(line).collect();
    let declares = |word: &str| ["mod", "struct", "enum", "trait", "type", "union"].contains(&word);
    words.windows(2).filter(|pair| declares(pair[0])).map(|pair| pair[1]).collect()
}

/// The words of a snake, kebab or camel name, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c == '-' || c.is_uppercase() {
            parts.push(String::new());
        }
        if c.is_alphanumeric()
            && let Some(last) = parts.last_mut()
        {
            last.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::banned;

    #[test]
    fn names_that_say_nothing_are_found() {
        let cases = [
            ("crates/a/src/queue_manager.rs", "", 1),
            ("crates/a/src/utils/mod.rs", "", 1),
            ("crates/a/src/impl.rs", "", 1),
            ("crates/a/tests/common/mod.rs", "", 1),
            ("crates/a/src/lib.rs", "mod helpers;", 1),
            ("crates/a/src/lib.rs", "pub struct QueueManager;", 1),
            ("crates/a/src/lib.rs", "enum StringUtil {}", 1),
            ("crates/a/src/lib.rs", "pub trait Helper {}", 1),
            ("crates/a/src/lib.rs", "struct Managed; struct Utility;", 0),
            ("crates/a/src/lib.rs", "// struct QueueManager", 0),
            ("crates/a/src/lib.rs", "fn f() -> QueueManager {}", 0),
            ("crates/a/src/implicit.rs", "", 0),
            ("docs/common.md", "", 0),
        ];
        for (path, text, count) in cases {
            assert_eq!(check(banned, &[(path, text)]).len(), count, "{path}: {text}");
        }
    }

    #[test]
    fn a_ban_says_what_to_do_instead() {
        assert_eq!(
            check(banned, &[("crates/a/src/lib.rs", "\nstruct PoolManager;")]),
            ["crates/a/src/lib.rs:2: `PoolManager`: `manager` says nothing: \
                 name what it does: noun and doer, as in `LeaseRenewer`"]
        );
    }
}
