//! `cargo xtask tidy`: the project's law as checks over every file that git would commit.
//!
//! A check is a function from a [`Tree`] to findings, so it is tested on trees made of strings; one
//! more test runs all of them over the real repository.

use std::fmt;

use crate::child::root;
use crate::gate;
use crate::steps::{Done, Failure, Steps, Stopped};
use crate::workspace::Workspace;

mod arrows;
mod code;
mod examples;
mod names;
mod rules;
mod rust;
mod text;
mod tree;

use tree::Tree;

/// One breach of the law.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 is the file as a whole.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line.max(1), self.message)
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

/// The law. Arrows are checked beside these, from cargo's metadata.
const CHECKS: &[Check] = &[
    rust::lengths,
    rust::headers,
    rust::unfinished,
    rust::forbidden_blocks,
    rust::purity,
    names::banned,
    examples::missing,
    rules::coverage,
    text::links,
    text::whitespace,
    text::machine_paths,
    text::registries,
    text::changelog,
];

/// Runs tidy as one step.
pub(crate) fn step(steps: &mut Steps) -> Result<(), Stopped> {
    const COMMAND: &str = "cargo xtask tidy";
    steps.run("tidy", COMMAND, || {
        let found = check_repository()?;
        for finding in &found {
            println!("{finding}");
        }
        if found.is_empty() { Ok(Done::Ok) } else { Err(gate::findings(found.len(), COMMAND)) }
    })
}

/// Everything wrong with the repository, in order of place.
fn check_repository() -> Result<Vec<Finding>, Failure> {
    let tree = Tree::read(&root())?;
    let mut found: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    found.extend(arrows::check(&Workspace::read()?));
    found.sort();
    Ok(found)
}

/// Runs one check over files given as strings and shows what it found.
#[cfg(test)]
fn check(check: Check, files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files)).iter().map(Finding::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::{Finding, check_repository};

    #[test]
    fn the_repository_keeps_its_own_law() {
        let found = check_repository().unwrap();
        let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }

    #[test]
    fn a_finding_reads_as_a_place_that_editors_can_open() {
        assert_eq!(Finding::new("a.rs", 3, "no").to_string(), "a.rs:3: no");
        assert_eq!(Finding::new("a.rs", 0, "no").to_string(), "a.rs:1: no");
    }
}
