//! The files of a run, parsed; they grow by what the code itself leads to.
//!
//! The walk over folders leaves out test folders, build output and whatever does not end in
//! `.rs`. A `mod x;`, a `#[path]` or an `include!` may lead there all the same.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use proc_macro2::Span;

use crate::finding::{Finding, Rule};
use crate::parse;
use crate::walk::{Reached, SourceFile};

/// A file that parsed.
pub(crate) struct Unit {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
    /// Whether it is checked, or only read for the names it defines.
    pub(crate) checked: bool,
    /// The file is a list of statements: fine to include, else this finding.
    pub(crate) only_included: Option<Box<Finding>>,
}

/// A file that some code needs and that is not among those read.
pub(crate) struct Wanted {
    /// The file that asks for it.
    pub(crate) by: usize,
    pub(crate) span: Span,
    /// What is written there.
    pub(crate) what: String,
    /// Any of these will do.
    pub(crate) candidates: Vec<PathBuf>,
    /// Whether it is a finding if there is none.
    pub(crate) required: bool,
}

/// What is known of a path.
pub(crate) enum Found {
    Unit(usize),
    /// It was read, and cannot be parsed: a finding already.
    Broken,
    Absent,
}

#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) units: Vec<Unit>,
    by_path: HashMap<PathBuf, usize>,
    broken: HashSet<PathBuf>,
    /// Where a path really leads, if it was asked for under another one.
    real: HashMap<PathBuf, PathBuf>,
    asked: HashSet<PathBuf>,
    /// One for each checked file that could not be read or parsed.
    pub(crate) findings: Vec<Finding>,
}

impl Sources {
    pub(crate) fn add(&mut self, file: &SourceFile) {
        let parsed = parse::text(&file.path, &file.bytes).and_then(|text| {
            let (syntax, only_included) = parse::syntax(&file.path, text)?;
            Ok((text.to_owned(), syntax, only_included))
        });
        match parsed {
            Ok((text, syntax, only_included)) => {
                self.by_path.insert(file.path.clone(), self.units.len());
                let (path, checked) = (file.path.clone(), file.checked);
                self.units.push(Unit { path, text, syntax, checked, only_included });
            }
            Err(finding) => {
                self.broken.insert(file.path.clone());
                if file.checked {
                    self.findings.push(*finding);
                }
            }
        }
    }

    pub(crate) fn find(&self, path: &Path) -> Found {
        let path = self.real.get(path).map_or(path, PathBuf::as_path);
        match self.by_path.get(path) {
            Some(unit) => Found::Unit(*unit),
            None if self.broken.contains(path) => Found::Broken,
            None => Found::Absent,
        }
    }

    /// Reads what is wanted; says whether anything new was found.
    pub(crate) fn reach(
        &mut self,
        wanted: &[Wanted],
        read: &dyn Fn(&Path) -> Option<Reached>,
    ) -> bool {
        let mut grown = false;
        for want in wanted {
            for path in &want.candidates {
                if !self.asked.insert(path.clone()) {
                    continue;
                }
                let Some(Reached { real, bytes }) = read(path) else {
                    continue;
                };
                if matches!(self.find(&real), Found::Absent) {
                    let checked = self.units[want.by].checked;
                    self.add(&SourceFile { path: real.clone(), bytes, checked });
                }
                self.real.insert(path.clone(), real);
                grown = true;
            }
        }
        grown
    }

    /// The finding for a file that is nowhere.
    pub(crate) fn missing(&self, want: &Wanted) -> Option<Finding> {
        let unit = &self.units[want.by];
        let absent = |path: &PathBuf| matches!(self.find(path), Found::Absent);
        if !want.required || !unit.checked || !want.candidates.iter().all(absent) {
            return None;
        }
        let start = want.span.start();
        let line = start.line.max(1);
        let source_line = unit.text.lines().nth(line - 1).unwrap_or_default().to_owned();
        Some(Finding {
            rule: Rule::UnreadFile,
            path: unit.path.clone(),
            line,
            column: start.column + 1,
            width: want.what.chars().count().max(1),
            message: format!("the file of `{}` is not there, so it is not checked", want.what),
            help: "add the file, or remove what names it".to_owned(),
            source_line,
        })
    }
}
