//! A whole run: from paths and exemptions to a report.

use std::fs;
use std::path::{Path, PathBuf};

use crate::check::check_file;
use crate::date::Date;
use crate::exemptions::Exemptions;
use crate::finding::{Finding, sort_findings};
use crate::names::collect::collect;
use crate::sources::Sources;
use crate::walk::{CannotCheck, Reached, SourceTree, home_of, reach, read_tree};

const EXEMPTIONS_FILE: &str = "sluicegate-lint.toml";

/// What to check, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Files and folders; the current folder when there are none.
    pub paths: Vec<PathBuf>,
    /// The file of exemptions; `sluicegate-lint.toml` at the workspace's root when not named.
    pub exemptions: Option<PathBuf>,
    /// The day against which exemptions expire.
    pub today: Date,
    /// Where relative paths start, and what paths are shown relative to.
    pub folder: PathBuf,
}

/// What a run found.
#[derive(Debug, Default)]
pub struct Report {
    /// By path, line, column and rule.
    pub findings: Vec<Finding>,
    /// How many files were checked.
    pub files: usize,
}

/// Checks the paths.
///
/// # Errors
///
/// When a path does not exist, a folder cannot be listed, or the exemptions cannot be read.
pub fn run(options: &Options) -> Result<Report, CannotCheck> {
    let roots = roots(options)?;
    let exemptions = read_exemptions(options, &roots)?;
    let Report { findings, files } = check_reaching(&read_tree(&roots)?, &reach);
    let mut findings = exemptions.apply(findings, &roots, options.today);
    let folder = fs::canonicalize(&options.folder).unwrap_or_else(|_| options.folder.clone());
    for finding in &mut findings {
        if let Ok(inner) = finding.path.strip_prefix(&folder) {
            finding.path = inner.to_owned();
        }
    }
    sort_findings(&mut findings);
    Ok(Report { findings, files })
}

/// Checks sources that are already read; touches nothing else.
#[must_use]
pub fn check_tree(tree: &SourceTree) -> Report {
    check_reaching(tree, &|_| None)
}

/// Checks sources, and those that their code leads to, which `read` fetches.
fn check_reaching(tree: &SourceTree, read: &dyn Fn(&Path) -> Option<Reached>) -> Report {
    let mut sources = Sources::default();
    tree.files.iter().for_each(|file| sources.add(file));
    let mut collected = collect(&sources, &tree.manifests);
    // Each round finds at least one more file.
    while sources.reach(&collected.wanted, read) {
        collected = collect(&sources, &tree.manifests);
    }
    let mut report =
        Report { files: sources.findings.len(), findings: std::mem::take(&mut sources.findings) };
    for (unit, seat) in sources.units.iter().zip(&collected.seats) {
        if !unit.checked || seat.test_only {
            continue;
        }
        report.files += 1;
        match &unit.only_included {
            Some(finding) if !collected.included.contains(&seat.file) => {
                report.findings.push((**finding).clone());
            }
            _ => report.findings.extend(check_file(&collected.index, *seat, unit)),
        }
    }
    let missing = collected.wanted.iter().filter_map(|want| sources.missing(want));
    report.findings.extend(missing);
    sort_findings(&mut report.findings);
    report
}

fn roots(options: &Options) -> Result<Vec<PathBuf>, CannotCheck> {
    let here = [PathBuf::from(".")];
    let paths = if options.paths.is_empty() { &here[..] } else { &options.paths };
    let real = |path: &PathBuf| {
        fs::canonicalize(options.folder.join(path)).map_err(|error| CannotCheck {
            reason: format!("cannot check {}: {error}; name a file or folder", path.display()),
        })
    };
    paths.iter().map(real).collect()
}

fn read_exemptions(options: &Options, roots: &[PathBuf]) -> Result<Exemptions, CannotCheck> {
    let file = match &options.exemptions {
        Some(named) => options.folder.join(named),
        None => default_exemptions(options, roots),
    };
    if options.exemptions.is_none() && !file.exists() {
        return Ok(Exemptions::default());
    }
    let cannot = |error: String| CannotCheck {
        reason: format!("cannot read the exemptions in {}: {error}", file.display()),
    };
    let file = fs::canonicalize(&file).map_err(|error| cannot(error.to_string()))?;
    let text = fs::read_to_string(&file).map_err(|error| cannot(error.to_string()))?;
    Exemptions::parse(&file, &text).map_err(cannot)
}

/// Beside the `Cargo.toml` of the workspace or package around the first path, else here.
fn default_exemptions(options: &Options, roots: &[PathBuf]) -> PathBuf {
    let home = roots.first().map(|root| home_of(root)).unwrap_or_default();
    let has_manifest = Path::new(&home).join("Cargo.toml").is_file();
    if has_manifest { home.join(EXEMPTIONS_FILE) } else { options.folder.join(EXEMPTIONS_FILE) }
}
