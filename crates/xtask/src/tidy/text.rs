//! Checks of prose and settings: links, whitespace, machine paths, registries, the changelog.

use std::collections::BTreeSet;

use super::Finding;
use super::rules::rule_id;
use super::tree::{File, Tree};

fn markdown(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| file.path.ends_with(".md") && !file.path.contains("/fixtures/"))
}

/// Relative links lead to files and headings that exist.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in markdown(tree) {
        for (line, link) in links_of(&file.text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (to, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = if to.is_empty() { file.path.clone() } else { resolve(&file.path, to) };
            if !tree.has(&path) {
                found.push(Finding::new(
                    &file.path,
                    line,
                    format!("link to `{link}`: no such file"),
                ));
                continue;
            }
            let target = tree.file(&path).filter(|target| target.path.ends_with(".md"));
            let missing =
                |target: &File| !anchor.is_empty() && !anchors(&target.text).contains(anchor);
            if target.is_some_and(missing) {
                let message = format!("link to `{link}`: no such heading");
                found.push(Finding::new(&file.path, line, message));
            }
        }
    }
    found
}

/// The lines of a document that are not inside a fenced block, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        let hidden = fenced || fence;
        fenced ^= fence;
        (!hidden).then_some((index + 1, line))
    })
}

/// The targets of inline links, outside of code.
fn links_of(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between back-ticks is code.
        let shown: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for rest in shown.split("](").skip(1) {
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            links.push((number, target.trim_matches(['<', '>']).to_owned()));
        }
    }
    links
}

/// The path that a link in `from` leads to, relative to the root.
fn resolve(from: &str, to: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// What a link's fragment may name: headings as the common renderers write them, explicit ids, and
/// the ids of numbered rules.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        if let Some(heading) = line.strip_prefix('#') {
            anchors.insert(slug(heading.trim_start_matches('#').trim()));
        }
        anchors.extend(rule_id(line).map(str::to_owned));
        for rest in line.split("id=\"").skip(1) {
            anchors.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || *c == '-' || *c == '_' || *c == ' ';
    let lowered = heading.to_lowercase();
    lowered.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// No blanks at the end of a line, one newline at the end of a file.
pub(super) fn whitespace(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let ours = |path: &str| {
        let kinds = [".md", ".toml", ".rs", ".sql", ".html", ".css", ".js", ".yml"];
        let kind = kinds.iter().any(|kind| path.ends_with(kind)) || path.starts_with(".ci/");
        kind && !path.contains("/fixtures/") && !path.contains("/snapshots/")
    };
    for file in tree.files.iter().filter(|file| ours(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            // In Rust, blanks may stand in a string; the formatter takes care of the rest.
            if line.ends_with([' ', '\t']) && !file.path.ends_with(".rs") {
                found.push(Finding::new(&file.path, index + 1, "blanks at the end of the line"));
            }
        }
        if !file.text.is_empty() && !file.text.ends_with('\n') {
            let last = file.text.lines().count();
            found.push(Finding::new(&file.path, last, "no newline at the end of the file"));
        }
    }
    found
}

/// Nothing names a folder of somebody's machine.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    // Split, so that this file does not accuse itself.
    const FOLDERS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut found = Vec::new();
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            for folder in FOLDERS.iter().filter(|folder| names_folder(line, folder)) {
                let message = format!("`{folder}…` is a path of one machine");
                found.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

/// Whether the folder stands at the start of a path, with something after it.
fn names_folder(line: &str, folder: &str) -> bool {
    let in_path = |c: char| c.is_alphanumeric() || "._-/})>*~".contains(c);
    line.match_indices(folder).any(|(at, _)| {
        let starts = !line[..at].ends_with(in_path);
        let goes_on =
            line[at + folder.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '.');
        starts && goes_on
    })
}

/// Dependencies come from the public registry, and no file names a mirror of one.
pub(super) fn registries(tree: &Tree) -> Vec<Finding> {
    // How cargo spells the public registry; a mirror that stands in for it is not written down.
    let public = |line: &str| {
        line.starts_with("source = \"registry+") && line.ends_with("/crates.io-index\"")
    };
    const SUSPECTS: &[&str] = &["mirror", "registry", "artifactory", "nexus", "pypi", "index-url"];
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| !file.path.contains("/fixtures/")) {
        for (index, line) in file.text.lines().enumerate() {
            if file.path == "Cargo.lock" {
                if line.starts_with("source = ") && !public(line) {
                    let message = "a dependency from elsewhere than the public registry";
                    found.push(Finding::new(&file.path, index + 1, message));
                }
                continue;
            }
            let hosts = line.split("http").skip(1).filter_map(|rest| {
                let rest = rest.strip_prefix('s').unwrap_or(rest).strip_prefix("://")?;
                rest.split(['/', '"', ' ', ')', '`', '>']).next()
            });
            for host in hosts.filter(|host| SUSPECTS.iter().any(|word| host.contains(word))) {
                let message =
                    format!("`{host}` looks like a package registry: name packages, not hosts");
                found.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

/// The changelog has room for what comes next.
pub(super) fn changelog(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file("CHANGELOG.md") else {
        return Vec::new();
    };
    if file.text.lines().any(|line| line.starts_with("## [Unreleased]")) {
        return Vec::new();
    }
    vec![Finding::new(&file.path, 0, "no `## [Unreleased]` section")]
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::{changelog, links, machine_paths, registries, whitespace};

    #[test]
    fn broken_links_are_found() {
        let cases = [
            ("[a](other.md)", 0),
            ("[a](./other.md#a-heading-with-code)", 0),
            ("[a](other.md#fifo-1)", 0),
            ("[a](other.md#spot)", 0),
            ("[a](../README.md) and [b](../crates)", 0),
            ("[a](https://example.com/x)", 0),
            ("[a](#here)\n\n## Here", 0),
            ("`[a](gone.md)`", 0),
            ("```\n[a](gone.md)\n```", 0),
            ("[a](gone.md)", 1),
            ("[a](other.md#gone)", 1),
            ("[a](#gone)", 1),
            ("[a](other.md) [b](gone.md) ![c](gone.svg)", 2),
        ];
        let other = "# A heading, with `code`\n\n### fifo-1 In order\n\n<a id=\"spot\"></a>\n";
        for (text, count) in cases {
            let files = [
                ("docs/a.md", text),
                ("docs/other.md", other),
                ("README.md", ""),
                ("crates/a/src/lib.rs", ""),
            ];
            let found = check(links, &files);
            assert_eq!(found.len(), count, "{text}: {found:?}");
        }
    }

    #[test]
    fn blanks_and_missing_newlines_are_found() {
        let cases = [
            ("a.md", "fine\n", 0),
            ("a.md", "", 0),
            ("a.md", "blank \n", 1),
            ("a.toml", "tab\t\nno end", 2),
            ("a.rs", "let s = \"\n \n\";\n", 0),
            ("a.rs", "no end", 1),
            ("a.png", "no end ", 0),
        ];
        for (path, text, count) in cases {
            assert_eq!(check(whitespace, &[(path, text)]).len(), count, "{path}: {text:?}");
        }
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let cases = [
            (concat!("see /wo", "rk/main/x"), 1),
            (concat!("HOME=/ro", "ot/.cargo"), 1),
            (concat!("(/ho", "me/alice/x)"), 1),
            (concat!("docs/wo", "rk/x and $d/ho", "me/x"), 0),
            (concat!("/ho", "me/<user>"), 0),
            ("/var/lib/sluicegate", 0),
        ];
        for (text, count) in cases {
            assert_eq!(check(machine_paths, &[("a.md", text)]).len(), count, "{text}");
        }
    }

    #[test]
    fn registries_are_found() {
        let public = "source = \"registry+https://host.example/crates.io-index\"";
        let cases = [
            ("Cargo.lock", public, 0),
            ("Cargo.lock", "source = \"git+https://example.com/x\"", 1),
            ("a.toml", concat!("url = \"http://cargo-mir", "ror.example/\""), 1),
            ("a.md", concat!("see https://py", "pi.example/simple"), 1),
            ("a.md", "see https://docs.rs/x and http://127.0.0.1:8080/", 0),
        ];
        for (path, text, count) in cases {
            assert_eq!(check(registries, &[(path, text)]).len(), count, "{path}: {text}");
        }
    }

    #[test]
    fn a_changelog_without_room_is_found() {
        assert_eq!(check(changelog, &[("README.md", "")]), [""; 0]);
        assert_eq!(check(changelog, &[("CHANGELOG.md", "## [Unreleased]\n")]), [""; 0]);
        assert_eq!(
            check(changelog, &[("CHANGELOG.md", "## [0.1.0]\n")]),
            ["CHANGELOG.md:1: no `## [Unreleased]` section"]
        );
    }
}
