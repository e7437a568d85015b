//! Every fixture fires on exactly the lines that say so, and on no other.
//!
//! A line's expected findings stand at its end: `//~ rule`, once for each. The lint never reads
//! these marks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sluicegate_lint::{Manifest, SourceFile, SourceTree, check_tree};

const RULES: [&str; 5] =
    ["naked-spawn", "leaky-permit", "nested-pool", "context-dropped", "unbounded-queue"];
const SPELLINGS: [&str; 6] =
    ["path", "alias", "method", "reexport", "macro_body", "nested_closure"];

type Places = BTreeMap<(PathBuf, usize, String), usize>;

fn folder(rule: &str, kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(rule).join(kind)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn files_in(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        entries(path).iter().for_each(|entry| files_in(entry, files));
    } else {
        files.push(path.to_owned());
    }
}

/// A file by itself, or a folder as one crate.
fn tree_of(fixture: &Path) -> SourceTree {
    let mut files = Vec::new();
    files_in(fixture, &mut files);
    let mut tree = SourceTree::default();
    for path in files {
        let inner = path.strip_prefix(fixture).unwrap();
        let shown = if fixture.is_dir() { Path::new("src").join(inner) } else { path.clone() };
        tree.files.push(SourceFile {
            bytes: Ok(fs::read(&path).unwrap()),
            path: shown,
            checked: true,
        });
    }
    if fixture.is_dir() {
        tree.manifests.push(Manifest::parse(Path::new(""), "[package]\nname = 'fixture'"));
    }
    tree
}

fn expected(tree: &SourceTree) -> Places {
    let mut places = Places::new();
    for file in &tree.files {
        let text = String::from_utf8(file.bytes.clone().unwrap()).unwrap();
        for (at, line) in text.lines().enumerate() {
            let marks = line.split("//~").nth(1).unwrap_or_default();
            for rule in marks.split_whitespace() {
                *places.entry((file.path.clone(), at + 1, rule.to_owned())).or_default() += 1;
            }
        }
    }
    places
}

fn found(tree: &SourceTree) -> Places {
    let mut places = Places::new();
    for finding in check_tree(tree).findings {
        let rule = finding.rule.id().to_owned();
        *places.entry((finding.path, finding.line, rule)).or_default() += 1;
    }
    places
}

fn check(rule: &str, kind: &str) {
    let mut faults = Vec::new();
    for fixture in entries(&folder(rule, kind)) {
        let tree = tree_of(&fixture);
        let (expected, found) = (expected(&tree), found(&tree));
        if (kind == "clean") != expected.is_empty() {
            faults.push(format!("{}: marks do not fit the folder", fixture.display()));
        }
        for (place, count) in &expected {
            if found.get(place) != Some(count) {
                faults.push(format!("missing: {place:?} {count}, found {:?}", found.get(place)));
            }
        }
        let extra = found.keys().filter(|place| !expected.contains_key(place));
        faults.extend(extra.map(|place| format!("not expected: {place:?}")));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn naked_spawn_fires() {
    check("naked-spawn", "fires");
}

#[test]
fn naked_spawn_stays_quiet() {
    check("naked-spawn", "clean");
}

#[test]
fn leaky_permit_fires() {
    check("leaky-permit", "fires");
}

#[test]
fn leaky_permit_stays_quiet() {
    check("leaky-permit", "clean");
}

#[test]
fn nested_pool_fires() {
    check("nested-pool", "fires");
}

#[test]
fn nested_pool_stays_quiet() {
    check("nested-pool", "clean");
}

#[test]
fn context_dropped_fires() {
    check("context-dropped", "fires");
}

#[test]
fn context_dropped_stays_quiet() {
    check("context-dropped", "clean");
}

#[test]
fn unbounded_queue_fires() {
    check("unbounded-queue", "fires");
}

#[test]
fn unbounded_queue_stays_quiet() {
    check("unbounded-queue", "clean");
}

#[test]
fn every_rule_has_every_spelling() {
    for rule in RULES {
        for spelling in SPELLINGS {
            let fixture = folder(rule, "fires").join(format!("{spelling}.rs"));
            assert!(fixture.is_file(), "{rule} has no fixture for {spelling}");
        }
        let clean = entries(&folder(rule, "clean")).len();
        assert!(clean >= 6, "{rule} has {clean} fixtures that must not fire");
    }
}
