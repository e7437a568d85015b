//! From the paths a user names to the files to read.
//!
//! 1. Files come in one order, whatever the file system says.
//! 2. The answer for a file does not depend on which other paths were named: the rest of its
//!    workspace is read too, for the names it defines, but not checked.
//! 3. A file that the code or a manifest leads to is read, wherever it is and however it is called.
//! 4. Build output is what cargo marked as its own, not whatever holds a mark.
//! 5. `tests/` and `benches/` beside a `Cargo.toml` are test code; a folder that merely has such a
//!    name is not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::manifest::Manifest;

/// A file of Rust source, read or not.
#[derive(Debug)]
pub struct SourceFile {
    /// Where it is; absolute when it came from a disk.
    pub path: PathBuf,
    /// Its bytes, or why they could not be had.
    pub bytes: Result<Vec<u8>, String>,
    /// Whether it is checked, or only read for the names it defines.
    pub checked: bool,
}

/// All that one run looks at.
#[derive(Debug, Default)]
pub struct SourceTree {
    /// The manifests of the packages and workspaces around the files.
    pub manifests: Vec<Manifest>,
    /// The files, sorted by path.
    pub files: Vec<SourceFile>,
}

/// The run could not check what it was asked to.
#[derive(Debug)]
pub struct CannotCheck {
    /// What stood in the way, and what to do about it.
    pub reason: String,
}

impl std::fmt::Display for CannotCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CannotCheck {}

/// A file outside of the walk that code leads to.
pub(crate) struct Reached {
    /// Where it really is.
    pub(crate) real: PathBuf,
    pub(crate) bytes: Result<Vec<u8>, String>,
}

/// Reads the file at `path`, if there is one.
pub(crate) fn reach(path: &Path) -> Option<Reached> {
    let real = match fs::canonicalize(path) {
        Ok(real) if real.is_dir() => return None,
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return None,
        Err(error) => return Some(Reached { real: path.into(), bytes: Err(error.to_string()) }),
    };
    Some(Reached { bytes: read(&real), real })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| error.to_string())
}

#[derive(Default)]
struct Walk {
    files: BTreeMap<PathBuf, bool>,
    /// The folders with a manifest, and whether they are checked.
    manifests: BTreeMap<PathBuf, bool>,
    visited: BTreeSet<PathBuf>,
}

/// Reads the files below `roots`, which must be absolute, and what is needed to understand them.
///
/// # Errors
///
/// When a folder cannot be listed.
pub fn read_tree(roots: &[PathBuf]) -> Result<SourceTree, CannotCheck> {
    let mut walk = Walk::default();
    for root in roots.iter().filter(|root| !in_test_folder(root)) {
        if root.is_dir() {
            walk.folder(root, true)?;
        } else {
            walk.files.insert(root.clone(), true);
        }
    }
    for root in roots {
        for folder in ancestors_with_manifest(root) {
            walk.manifests.entry(folder).or_insert(false);
        }
        let home = home_of(root);
        if home.is_dir() && !roots.iter().any(|root| home.starts_with(root)) {
            // Seen folders are seen as checked; the rest of the home is for its names only.
            walk.folder(&home, false)?;
        }
    }
    Ok(walk.read())
}

/// The workspace, else the package, around a path; the path itself when there is neither.
#[must_use]
pub(crate) fn home_of(path: &Path) -> PathBuf {
    let mut package = None;
    for folder in ancestors_with_manifest(path) {
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if Manifest::parse(&folder, &text).is_workspace {
            return folder;
        }
        package.get_or_insert(folder);
    }
    package.unwrap_or_else(|| path.to_owned())
}

fn ancestors_with_manifest(path: &Path) -> Vec<PathBuf> {
    let folders = path.ancestors().filter(|folder| folder.join("Cargo.toml").is_file());
    folders.map(Path::to_owned).collect()
}

fn in_test_folder(path: &Path) -> bool {
    path.ancestors().any(is_test_folder)
}

fn is_test_folder(path: &Path) -> bool {
    let named = matches!(path.file_name().and_then(OsStr::to_str), Some("tests" | "benches"));
    named && path.is_dir() && beside_manifest(path)
}

/// Build output: the `target` of a package, or what cargo marked as a cache and wrote its state
/// to. A module may be called target, and anybody may put a mark into a folder.
fn is_build_folder(path: &Path) -> bool {
    const MARK: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
    if path.file_name() == Some(OsStr::new("target")) && beside_manifest(path) {
        return true;
    }
    path.join(".rustc_info.json").is_file()
        && fs::read(path.join("CACHEDIR.TAG")).is_ok_and(|tag| tag.starts_with(MARK))
}

fn beside_manifest(path: &Path) -> bool {
    path.parent().is_some_and(|parent| parent.join("Cargo.toml").is_file())
}

impl Walk {
    fn folder(&mut self, folder: &Path, checked: bool) -> Result<(), CannotCheck> {
        let mut pending = vec![folder.to_owned()];
        while let Some(folder) = pending.pop() {
            if !self.visited.insert(folder.clone()) {
                continue;
            }
            for entry in list(&folder)? {
                let hidden =
                    entry.file_name().and_then(OsStr::to_str).is_some_and(|n| n.starts_with('.'));
                if hidden {
                    continue;
                }
                // Real paths only, so that a loop of links ends where it began.
                // A link that leads nowhere stays: to read it fails, and that is a finding.
                let path = if entry.is_symlink() {
                    fs::canonicalize(&entry).unwrap_or(entry)
                } else {
                    entry
                };
                if path.is_dir() {
                    if !is_test_folder(&path) && !is_build_folder(&path) {
                        pending.push(path);
                    }
                } else if path.extension() == Some(OsStr::new("rs")) {
                    let known = self.files.entry(path).or_insert(checked);
                    *known |= checked;
                } else if path.file_name() == Some(OsStr::new("Cargo.toml")) {
                    *self.manifests.entry(folder.clone()).or_insert(checked) |= checked;
                }
            }
        }
        Ok(())
    }

    fn read(mut self) -> SourceTree {
        let mut manifests = Vec::new();
        for (folder, checked) in &self.manifests {
            let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
            let manifest = Manifest::parse(folder, &text);
            // A program may have its source in a folder that the walk leaves out.
            for target in manifest.targets.iter().filter_map(|path| fs::canonicalize(path).ok()) {
                self.files.entry(target).or_insert(*checked);
            }
            manifests.push(manifest);
        }
        let workspaces: Vec<Manifest> =
            manifests.iter().filter(|manifest| manifest.is_workspace).cloned().collect();
        for manifest in &mut manifests {
            let around = workspaces.iter().filter(|w| manifest.folder.starts_with(&w.folder));
            if let Some(workspace) = around.max_by_key(|w| w.folder.components().count()) {
                manifest.inherit(workspace);
            }
        }
        let files = self
            .files
            .into_iter()
            .map(|(path, checked)| SourceFile { bytes: read(&path), path, checked })
            .collect();
        SourceTree { manifests, files }
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, CannotCheck> {
    let entries = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>());
    entries.map_err(|error| CannotCheck {
        reason: format!("cannot list {}: {error}; check its permissions", folder.display()),
    })
}
