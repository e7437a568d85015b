//! The kernel's public items are documented by example.
//!
//! The compiler wants a comment on each of them; that it shows the item at work is ours to check.
//! Doctests run the examples, so one that is there holds.

use super::Finding;
use super::code::{Code, words};
use super::tree::Tree;

/// The crates that others build on.
const FOLDERS: &[&str] = &["crates/schedule/src/", "crates/tasks/src/"];

/// Finds public items whose documentation has no example that runs.
pub(super) fn missing(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let in_kernel = |path: &str| FOLDERS.iter().any(|folder| path.starts_with(folder));
    for (file, code) in tree.rust().filter(|(file, _)| in_kernel(&file.path)) {
        for (index, line) in code.code.iter().enumerate() {
            if file.is_test_line(index + 1) {
                break;
            }
            if let Some(name) = public(line)
                && !shown(code, index)
            {
                let message = format!("`{name}` has no example: add a ``` block that runs to it");
                found.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    found
}

/// The name of the item that a line makes public. Modules, constants and what is exported from
/// elsewhere are exempt: they are shown where they are used.
fn public(line: &str) -> Option<&str> {
    let declared = line.trim_start().strip_prefix("pub ")?;
    let mut words = words(declared).skip_while(|word| ["const", "async"].contains(word));
    let kind = words.next()?;
    let name = words.next()?;
    ["fn", "struct", "enum", "trait", "type"].contains(&kind).then_some(name)
}

/// Whether the comment above a line has a block that is run as a test.
fn shown(code: &Code, item: usize) -> bool {
    let above = (0..item).rev().map(|index| (code.code[index].trim(), code.comments[index].trim()));
    // Between an item and the one before it are its comment and its attributes.
    let own = above.take_while(|(code, comment)| {
        !(code.is_empty() && comment.is_empty() || code.ends_with([';', '{', '}']))
    });
    let mut fences: Vec<&str> = own
        .filter_map(|(_, comment)| comment.strip_prefix("///"))
        .map(str::trim)
        .filter(|text| text.starts_with("```"))
        .collect();
    fences.reverse();
    // Every other fence closes a block. One that opens with a word is something else, or not run.
    fences.iter().step_by(2).any(|opens| *opens == "```")
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::missing;

    const PATH: &str = "crates/tasks/src/lib.rs";
    const SHOWN: &str = "/// What for.\n///\n/// ```\n/// assert!(true);\n/// ```\n";

    #[test]
    fn public_items_without_an_example_are_found() {
        let items = [
            ("pub fn f() {}", 1),
            ("pub const fn f() {}", 1),
            ("pub async fn f() {}", 1),
            ("    pub fn f(self) -> Self {", 1),
            ("pub struct S;", 1),
            ("pub enum E {}", 1),
            ("pub type T = u32;", 1),
            ("pub trait T {}", 1),
            ("#[must_use]\n#[expect(\n    lint,\n    reason = \"so\"\n)]\npub fn f() {}", 1),
            ("pub(crate) fn f() {}", 0),
            ("fn f() {}", 0),
            ("pub mod m;", 0),
            ("pub use m::f;", 0),
            ("pub const MOST: u32 = 1;", 0),
            ("pub kind: fn() -> u32,", 0),
            ("#[cfg(test)]\nmod tests {\n    pub fn f() {}\n}", 0),
            ("#[cfg(test)]\nmod loom_tests;\n\npub fn f() {}", 1),
        ];
        for (item, count) in items {
            let bare = format!("/// What for.\n{item}\n");
            assert_eq!(check(missing, &[(PATH, &bare)]).len(), count, "{item}");
        }
        for (item, _) in items.iter().take(9) {
            let shown = format!("{SHOWN}{item}\n");
            assert_eq!(check(missing, &[(PATH, &shown)]), [""; 0], "{item}");
        }
    }

    #[test]
    fn an_example_is_the_items_own_and_runs() {
        let cases = [
            (format!("{SHOWN}struct A;\npub struct B;"), 1),
            (format!("{SHOWN}\npub struct B;"), 1),
            (format!("struct A {{\n{SHOWN}pub fn b() {{"), 0),
            ("/// ```ignore\n/// x\n/// ```\npub struct A;".to_owned(), 1),
            ("/// ```text\n/// x\n/// ```\n/// ```\n/// y\n/// ```\npub struct A;".to_owned(), 0),
            ("// ```\n// x\n// ```\npub struct A;".to_owned(), 1),
        ];
        for (text, count) in cases {
            assert_eq!(check(missing, &[(PATH, &text)]).len(), count, "{text}");
        }
    }

    #[test]
    fn only_the_kernel_must_show_everything() {
        for (path, count) in [
            ("crates/schedule/src/rate.rs", 1),
            ("crates/tasks/src/permits/guard.rs", 1),
            ("crates/tasks/src/permits/loom_tests.rs", 0),
            ("crates/tasks/tests/it/main.rs", 0),
            ("crates/xtask/src/main.rs", 0),
        ] {
            assert_eq!(check(missing, &[(path, "pub fn f() {}")]).len(), count, "{path}");
        }
    }

    #[test]
    fn a_finding_names_the_item() {
        assert_eq!(
            check(missing, &[(PATH, "/// Opens it.\npub fn open() {}\n")]),
            ["crates/tasks/src/lib.rs:2: `open` has no example: add a ``` block that runs to it"]
        );
    }
}
