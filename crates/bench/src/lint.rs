//! The lint over a hundred thousand lines of real code: this project's own, many times over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluicegate_lint::{Date, Options};

use crate::report::{Promise, Report, Row};
use crate::timing::{by_turns, timed};

/// Runs it.
pub(crate) fn run(quick: bool) -> Result<Report, String> {
    let lines = if quick { 10_000 } else { 100_000 };
    let corpus = Corpus::write(lines).map_err(|error| format!("cannot write a corpus: {error}"))?;
    let options = Options {
        paths: Vec::new(),
        exemptions: None,
        today: Date::today(),
        folder: corpus.folder.clone(),
    };
    let checked = sluicegate_lint::run(&options).map_err(|error| error.to_string())?;
    eprintln!(
        "{} lines in {} files, {} findings …",
        corpus.lines,
        checked.files,
        checked.findings.len()
    );
    // Few rounds: the parser keeps every text it has seen for as long as the thread lives.
    let compared = by_turns(
        if quick { 1 } else { 5 },
        1,
        |_| timed(|| drop(sluicegate_lint::run(&options))),
        |_| timed(|| corpus.files.iter().for_each(|file| parse(file))),
    );
    let mut report = Report::new("lint", quick);
    let what = format!("check {} lines", corpus.lines);
    let row = Row::new(what, "ms", compared.ours / 1e6)
        .beside("read and parse them only", compared.baseline / 1e6)
        .promised(Promise::AtMost(2_000.0));
    report.rows.push(row);
    Ok(report)
}

fn parse(file: &Path) {
    let text = fs::read_to_string(file).expect("it was just written");
    std::hint::black_box(syn::parse_file(&text).expect("it compiles"));
}

/// A package in a temporary folder, removed in the end.
struct Corpus {
    folder: PathBuf,
    files: Vec<PathBuf>,
    lines: usize,
}

impl Corpus {
    fn write(wanted: usize) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("sluicegate-lint-{}", std::process::id()));
        let source = folder.join("src");
        fs::create_dir_all(&source)?;
        fs::write(
            folder.join("Cargo.toml"),
            "[package]\nname = \"corpus\"\nversion = \"0.1.0\"\n",
        )?;
        let mut corpus = Self { folder, files: Vec::new(), lines: 0 };
        let originals = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
        let mut modules = String::new();
        for (copy, original) in (0..).zip(originals.iter().cycle()) {
            if corpus.lines >= wanted || originals.is_empty() {
                break;
            }
            let file = source.join(format!("m{copy}.rs"));
            fs::write(&file, original)?;
            modules.push_str(&format!("mod m{copy};\n"));
            corpus.lines += original.lines().count();
            corpus.files.push(file);
        }
        fs::write(source.join("lib.rs"), modules)?;
        Ok(corpus)
    }
}

impl Drop for Corpus {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

/// The text of every source file of the product's crates.
fn sources(crates: &Path) -> io::Result<Vec<String>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(crates)? {
        folders.push(entry?.path().join("src"));
    }
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(fs::read_to_string(path)?);
            }
        }
    }
    texts.sort_unstable();
    Ok(texts)
}
