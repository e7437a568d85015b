//! A folder with files for one test, and the lint run on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_lint::{Date, Options, Report, run};

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Breaks `naked-spawn` once, at line 2 column 5.
pub(crate) const SPAWNS: &str = "fn start() {\n    tokio::spawn(work());\n}\n";

/// A temporary folder, gone with the value.
pub(crate) struct Workbench {
    pub(crate) folder: PathBuf,
}

impl Workbench {
    /// A workspace of its own, with these files.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let name = format!("lint-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let bench = Self { folder: fs::canonicalize(folder).unwrap() };
        bench.write("Cargo.toml", "[workspace]\n[package]\nname = \"bench\"\n");
        files.iter().for_each(|(path, text)| bench.write(path, text));
        bench
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn options(&self, paths: &[&str]) -> Options {
        Options {
            paths: paths.iter().map(PathBuf::from).collect(),
            exemptions: None,
            today: Date::parse("2026-06-15").unwrap(),
            folder: self.folder.clone(),
        }
    }

    pub(crate) fn report(&self, paths: &[&str]) -> Report {
        run(&self.options(paths)).unwrap()
    }

    /// The findings as `path:line rule`, on 2026-06-15.
    pub(crate) fn findings(&self, paths: &[&str]) -> Vec<String> {
        shown(&self.report(paths))
    }

    /// The real command, run in the folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_cargo-sluicegate-lint"))
            .args(arguments)
            .current_dir(&self.folder)
            .output()
            .unwrap()
    }
}

impl Drop for Workbench {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn shown(report: &Report) -> Vec<String> {
    let one = |finding: &sluicegate_lint::Finding| {
        format!("{}:{} {}", finding.path.display(), finding.line, finding.rule.id())
    };
    report.findings.iter().map(one).collect()
}
