//! The files that git tracks or would track, with their text.

use std::path::Path;

use super::code::Code;
use crate::child::Child;
use crate::steps::Failure;

/// All files of the repository, in order of path.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(super) files: Vec<File>,
}

/// One file. Binary files have no text and are known by path only.
#[derive(Debug)]
pub(super) struct File {
    /// Relative to the root, with `/` between folders.
    pub(super) path: String,
    pub(super) text: String,
    /// Set for Rust sources.
    pub(super) code: Option<Code>,
}

impl File {
    fn new(path: &str, text: String) -> File {
        // Fixtures are inputs of tests: they break the law on purpose.
        let ours = path.ends_with(".rs") && !path.contains("/fixtures/");
        let code = ours.then(|| Code::scan(&text));
        File { path: path.to_owned(), text, code }
    }

    /// Whether the whole file is test code.
    pub(super) fn is_test(&self) -> bool {
        let in_folder = |name: &str| self.path.split('/').any(|part| part == name);
        in_folder("tests") || in_folder("benches") || self.path.ends_with("tests.rs")
    }

    /// Whether this line, counted from 1, is test code: by the file's place, or because it comes
    /// after the `cfg(test)` that by custom opens the last part of a file.
    pub(super) fn is_test_line(&self, line: usize) -> bool {
        let opens = self.code.as_ref().and_then(Code::first_test_line);
        self.is_test() || opens.is_some_and(|first| line >= first)
    }
}

impl Tree {
    /// Reads what `git ls-files` lists, tracked or not, but not ignored.
    pub(super) fn read(root: &Path) -> Result<Tree, Failure> {
        let listed = Child::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .read()?;
        let listed = String::from_utf8_lossy(&listed);
        let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        let read = |path: &&str| {
            // A file deleted but not yet staged is listed still.
            let bytes = std::fs::read(root.join(path)).ok()?;
            Some(File::new(path, String::from_utf8(bytes).unwrap_or_default()))
        };
        Ok(Tree { files: paths.iter().filter_map(read).collect() })
    }

    /// A tree of strings, for tests.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        Tree {
            files: files.iter().map(|(path, text)| File::new(path, (*text).to_owned())).collect(),
        }
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether a file, or a folder with files in it, lies at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.iter().any(|file| {
            file.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The Rust sources.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&File, &Code)> {
        self.files.iter().filter_map(|file| Some((file, file.code.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn test_lines_are_told_by_place_and_by_attribute() {
        let inline = "fn a() {}\n#[cfg(test)]\nmod tests {}\n";
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", inline),
            ("crates/a/tests/it/main.rs", "fn a() {}\n"),
            ("crates/a/src/walk/tests.rs", "fn a() {}\n"),
        ]);
        let cases = [
            ("crates/a/src/lib.rs", 1, false),
            ("crates/a/src/lib.rs", 2, true),
            ("crates/a/src/lib.rs", 3, true),
            ("crates/a/tests/it/main.rs", 1, true),
            ("crates/a/src/walk/tests.rs", 1, true),
        ];
        for (path, line, is_test) in cases {
            assert_eq!(tree.file(path).unwrap().is_test_line(line), is_test, "{path}:{line}");
        }
    }

    #[test]
    fn folders_count_as_there() {
        let tree = Tree::of(&[("docs/adr/0001.md", "")]);
        for (path, there) in [
            ("docs/adr/0001.md", true),
            ("docs/adr", true),
            ("docs/ad", false),
            ("docs/adr/0002.md", false),
        ] {
            assert_eq!(tree.has(path), there, "{path}");
        }
    }
}
