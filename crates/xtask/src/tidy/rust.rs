//! Checks of Rust sources: size, header, nothing left undone, purity.

use super::Finding;
use super::code::words;
use super::tree::Tree;

/// The hard limit; files aim at less than 400.
const MOST_LINES: usize = 600;
/// Files that may be longer, each with its reason.
const LONGER: &[(&str, &str)] = &[];

/// A file fits in a reader's head.
pub(super) fn lengths(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, _) in tree.rust() {
        let lines = file.text.lines().count();
        if lines > MOST_LINES && LONGER.iter().all(|(path, _)| *path != file.path) {
            let message = format!("{lines} lines: split it, {MOST_LINES} is the most");
            found.push(Finding::new(&file.path, MOST_LINES + 1, message));
        }
    }
    found
}

/// A source says first what it is for.
pub(super) fn headers(tree: &Tree) -> Vec<Finding> {
    let in_src = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    tree.rust()
        .filter(|(file, _)| in_src(&file.path) && !file.text.starts_with("//!"))
        .map(|(file, _)| {
            Finding::new(&file.path, 1, "begin with a `//!` header that says what the file is for")
        })
        .collect()
}

/// Nothing is left undone or switched off.
pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    const IN_CODE: &[(&str, &str)] = &[
        ("todo!", "finish it or leave it out"),
        ("unimplemented!", "finish it or leave it out"),
        ("#[ignore", "a test that does not run proves nothing: mend it or remove it"),
    ];
    const IN_COMMENTS: &[&str] = &["FIXME", "XXX", "TODO"];
    let mut found = Vec::new();
    for (file, code) in tree.rust() {
        for (index, line) in code.code.iter().enumerate() {
            for (word, advice) in IN_CODE {
                if line.contains(word) {
                    found.push(Finding::new(&file.path, index + 1, format!("`{word}`: {advice}")));
                }
            }
        }
        for (index, line) in code.comments.iter().enumerate() {
            for word in IN_COMMENTS {
                if words(line).any(|w| w == *word) {
                    let message = format!("`{word}`: do it now, or say why not as a sentence");
                    found.push(Finding::new(&file.path, index + 1, message));
                }
            }
        }
    }
    found
}

/// The word that opens unchecked blocks appears nowhere, not even where a lint could be lifted.
pub(super) fn forbidden_blocks(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (file, code) in tree.rust() {
        for (index, line) in code.code.iter().enumerate() {
            if words(line).any(|word| word == "unsafe") {
                let message = "`unsafe`: the workspace has none; look for a safe crate";
                found.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

/// The schedule decides from its arguments alone: no clock, no dice, no I/O, no threads.
pub(super) fn purity(tree: &Tree) -> Vec<Finding> {
    const FOLDER: &str = "crates/schedule/src/";
    const WORDS: &[(&str, &str)] = &[
        ("tokio", "the async shell lives in `tasks`"),
        ("Instant", "take `now` as an argument"),
        ("SystemTime", "take `now` as an argument"),
        ("rand", "take the seed as an argument"),
        ("thread", "the schedule runs on its caller's"),
    ];
    const PATHS: &[(&str, &str)] = &[("std::fs", "no I/O"), ("std::net", "no I/O")];
    let mut found = Vec::new();
    for (file, code) in tree.rust().filter(|(file, _)| file.path.starts_with(FOLDER)) {
        for (index, line) in code.code.iter().enumerate() {
            if file.is_test_line(index + 1) {
                break;
            }
            let by_word = WORDS.iter().filter(|(word, _)| words(line).any(|w| w == *word));
            let by_path = PATHS.iter().filter(|(path, _)| line.contains(path));
            for (what, instead) in by_word.chain(by_path) {
                let message = format!("`{what}` in the pure schedule: {instead}");
                found.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::{forbidden_blocks, headers, lengths, purity, unfinished};

    #[test]
    fn long_files_are_found() {
        let fits = "//\n".repeat(600);
        let long = "//\n".repeat(601);
        assert_eq!(check(lengths, &[("a.rs", &fits), ("b.md", &long)]), [""; 0]);
        assert_eq!(
            check(lengths, &[("a.rs", &long)]),
            ["a.rs:601: 601 lines: split it, 600 is the most"]
        );
    }

    #[test]
    fn sources_without_a_header_are_found() {
        let files = [
            ("crates/a/src/lib.rs", "//! What for.\n"),
            ("crates/a/src/bare.rs", "fn a() {}\n"),
            ("crates/a/tests/it.rs", "fn a() {}\n"),
            ("crates/a/tests/fixtures/src/x.rs", "fn a() {}\n"),
        ];
        let found = check(headers, &files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/bare.rs:1: "), "{found:?}");
    }

    #[test]
    fn undone_work_is_found_in_code_and_comments_but_not_in_strings() {
        let cases = [
            ("todo!()", 1),
            ("unimplemented!(\"later\")", 1),
            ("#[ignore = \"slow\"]\nfn a() {}", 1),
            ("// FIXME later", 1),
            ("/* XXX */", 1),
            ("// TODO", 1),
            ("let s = \"todo! FIXME\";", 0),
            ("// the XXXL size", 0),
        ];
        for (text, count) in cases {
            assert_eq!(check(unfinished, &[("a.rs", text)]).len(), count, "{text}");
        }
        assert_eq!(check(unfinished, &[("a.md", "TODO")]), [""; 0]);
    }

    #[test]
    fn unchecked_blocks_are_found() {
        let cases = [
            ("unsafe { f() }", 1),
            ("unsafe fn f() {}", 1),
            ("#![forbid(unsafe_code)]", 0),
            ("// unsafe here", 0),
            ("let s = \"unsafe\";", 0),
        ];
        for (text, count) in cases {
            assert_eq!(check(forbidden_blocks, &[("a.rs", text)]).len(), count, "{text}");
        }
    }

    #[test]
    fn clocks_dice_and_io_are_found_in_the_schedule_only() {
        let cases = [
            ("crates/schedule/src/lib.rs", "use std::time::Instant;", 1),
            ("crates/schedule/src/lib.rs", "use std::time::{Duration, SystemTime};", 1),
            ("crates/schedule/src/lib.rs", "use std::fs;", 1),
            ("crates/schedule/src/lib.rs", "tokio::spawn(x); rand::random()", 2),
            ("crates/schedule/src/lib.rs", "std::thread::sleep(x)", 1),
            ("crates/schedule/src/lib.rs", "use std::time::Duration;", 0),
            ("crates/schedule/src/lib.rs", "// an Instant", 0),
            ("crates/schedule/src/lib.rs", "#[cfg(test)]\nuse std::time::Instant;", 0),
            ("crates/schedule/src/tests.rs", "use std::time::Instant;", 0),
            ("crates/tasks/src/lib.rs", "use std::time::Instant;", 0),
        ];
        for (path, text, count) in cases {
            assert_eq!(check(purity, &[(path, text)]).len(), count, "{path}: {text}");
        }
    }
}
