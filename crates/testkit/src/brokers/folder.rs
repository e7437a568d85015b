//! The temporary folder of one broker, named after the process that made it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

const PREFIX: &str = "sluicegate-broker-";
/// How much of a log is shown when a start fails.
const TAIL_LINES: usize = 20;

/// A folder, removed with all in it when dropped.
#[derive(Debug)]
pub(super) struct Folder {
    dir: TempDir,
}

impl Folder {
    pub(super) fn new(name: &str) -> io::Result<Folder> {
        let prefix = format!("{PREFIX}{}-{name}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir()?;
        Ok(Folder { dir })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path inside, as text: it goes into settings files and command lines.
    pub(super) fn at(&self, inside: &str) -> String {
        self.dir.path().join(inside).display().to_string()
    }

    /// Makes a folder inside.
    pub(super) fn make(&self, inside: &str) -> io::Result<String> {
        fs::create_dir_all(self.dir.path().join(inside))?;
        Ok(self.at(inside))
    }

    /// Writes a file inside.
    pub(super) fn write(&self, inside: &str, text: &str) -> io::Result<String> {
        fs::write(self.dir.path().join(inside), text)?;
        Ok(self.at(inside))
    }

    /// Opens the log of a program for appending.
    pub(super) fn log(&self, program: &str) -> io::Result<fs::File> {
        let path = self.dir.path().join(format!("{program}.log"));
        fs::OpenOptions::new().create(true).append(true).open(path)
    }

    /// The last lines of every log.
    pub(super) fn log_tail(&self) -> String {
        let mut logs: Vec<PathBuf> = fs::read_dir(self.path())
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|kind| kind == "log"))
            .collect();
        logs.sort();
        let tails = logs.iter().map(|path| {
            let text = fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned());
            last_lines(&text.unwrap_or_default())
        });
        tails.filter(|tail| !tail.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Removes the folders of processes that were killed before they could do so themselves.
pub(super) fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Somebody else may be sweeping too, or the folder be another user's: both are fine.
            fs::remove_dir_all(entry.path()).unwrap_or_default();
        }
    }
}

/// The process that made a folder of this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Folder, PREFIX, last_lines, owner, sweep};

    #[test]
    fn sweeping_takes_the_folders_of_dead_processes_only() {
        let ours = Folder::new("test").unwrap();
        // Larger than any process id that Linux gives.
        let orphan = std::env::temp_dir().join(format!("{PREFIX}4194999-test-x"));
        std::fs::create_dir_all(&orphan).unwrap();
        sweep();
        assert!(ours.path().exists());
        assert!(!orphan.exists());
    }

    #[test]
    fn the_owner_is_read_from_the_name() {
        let cases = [
            ("sluicegate-broker-17-nats-abc", Some(17)),
            ("sluicegate-broker-x-nats", None),
            ("something-else-17", None),
        ];
        for (name, pid) in cases {
            assert_eq!(owner(name), pid, "{name}");
        }
    }

    #[test]
    fn the_end_of_the_logs_is_shown() {
        let folder = Folder::new("test").unwrap();
        folder.write("a.log", "one\ntwo\n").unwrap();
        folder.write("b.log", "").unwrap();
        folder.write("c.txt", "no log").unwrap();
        assert_eq!(folder.log_tail(), "one\ntwo");
        let long: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert!(last_lines(&long).starts_with("80\n"));
    }
}
