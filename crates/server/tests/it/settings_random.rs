//! Whatever stands in a file: no panic, a place for every problem, no secret in what is said.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sluicegate_server::settings::{Settings, synced};

const EVERYTHING: &str = include_str!("../fixtures/everything.toml");

/// What may be put anywhere into a valid document.
const PIECES: &[&str] = &[
    "\n",
    "\r\n",
    "\"",
    "'''",
    "\"\"\"",
    "=",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    ",",
    ".",
    "#",
    "${",
    "${A}",
    "${A:-",
    "$${",
    "\\",
    "\\u0024",
    "0",
    "-1",
    "1e999",
    "0xffffffffffffffffff",
    "nan",
    "true",
    "1979-05-27",
    "queue",
    "[[pool]]\n",
    "[server]\n",
    "é",
    "\u{1b}",
    "\u{feff}",
    "\0",
    "\t",
    "uri = \"amqp://u:p@h\"\n",
];

/// A change of a document at one place.
#[derive(Clone, Debug)]
enum Change {
    Insert(Index, &'static str),
    Remove(Index, usize),
    Swap(Index, Index),
    Truncate(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), select(PIECES)).prop_map(|(at, piece)| Change::Insert(at, piece)),
        3 => (at(), 1..20usize).prop_map(|(at, count)| Change::Remove(at, count)),
        2 => (at(), at()).prop_map(|(one, other)| Change::Swap(one, other)),
        1 => at().prop_map(Change::Truncate),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for change in changes {
        let size = chars.len() + 1;
        match change {
            Change::Insert(at, piece) => {
                let at = at.index(size);
                chars.splice(at..at, piece.chars());
            }
            Change::Remove(at, count) => {
                let at = at.index(size);
                let end = (at + count).min(chars.len());
                chars.drain(at..end);
            }
            Change::Swap(one, other) if chars.len() > 1 => {
                let (one, other) = (one.index(chars.len()), other.index(chars.len()));
                chars.swap(one, other);
            }
            Change::Swap(..) => {}
            Change::Truncate(at) => chars.truncate(at.index(size)),
        }
    }
    chars.into_iter().collect()
}

/// Reads a text and checks whatever is said of it.
fn check(text: &str) -> Result<(), TestCaseError> {
    let read = Settings::parse("f.toml", text, &|name| (name == "A").then(|| "a".to_owned()));
    match read {
        Ok(settings) => {
            prop_assert!(settings.shown().is_object());
            prop_assert!(
                !settings.server.listen.ip().is_unspecified() || settings.server.token.is_some()
            );
        }
        Err(problems) => {
            prop_assert!(!problems.list().is_empty());
            let lines: Vec<&str> = text.split('\n').collect();
            for problem in problems.list().iter().filter(|problem| problem.line > 0) {
                let line = lines.get(problem.line - 1).map(|line| line.chars().count());
                prop_assert!(line.is_some_and(|width| problem.column <= width + 1), "{problem:?}");
                prop_assert!(!problem.message.is_empty());
            }
            let said = problems.to_string();
            prop_assert!(
                !said.chars().any(|c| c.is_control() && c != '\n' && c != '\t'),
                "{said:?}"
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn any_pieces_are_read_or_refused(pieces in vec(select(PIECES), 0..40)) {
        check(&pieces.concat())?;
    }

    #[test]
    fn a_changed_document_is_read_or_refused(changes in vec(change(), 1..8)) {
        check(&changed(EVERYTHING, &changes))?;
    }

    #[test]
    fn any_value_is_read_or_refused(at in any::<Index>(), value in select(&[
        "1", "0", "-1", "1.5", "nan", "true", "\"\"", "\" \"", "\"x\"", "\"5m\"", "[]", "[1]", "{}",
        "{ a = 1 }", "1979-05-27", "\"\\u0000\"", "\"${B}\"", "99999999999999999999",
    ][..])) {
        let lines: Vec<&str> = EVERYTHING.lines().collect();
        let keys: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains(" = ")).collect();
        let at = keys[at.index(keys.len())];
        let key = lines[at].split(" = ").next().unwrap();
        let line = format!("{key} = {value}");
        let text: Vec<&str> =
            lines.iter().enumerate().map(|(n, old)| if n == at { &*line } else { old }).collect();
        check(&text.join("\n"))?;
    }

    /// Secrets stand in every place for them, and the document is broken elsewhere.
    #[test]
    fn no_secret_is_ever_said(changes in vec((any::<Index>(), select(&["=", "]", "x = 1\n", "0", "[a]\n"][..])), 1..4)) {
        let lines = [
            "[server]\n", "token = \"tiger\"\n", "read_token = \"tiger\"\n", "drain = \"1s\"\n",
            "[[queue]]\n", "name = \"a\"\n", "uri = \"amqp://me:tiger@h?queue=q\"\n",
            "[[pool]]\n", "code = \"A\"\n", "signing_secret = \"tiger\"\n",
            "[alerts]\n", "webhook = \"https://h/tiger\"\n",
            "[agents]\n", "env = { KEY = \"tiger\" }\n", "[events]\n", "url = \"postgres://me:tiger@h/d\"\n",
        ];
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        for (at, piece) in changes {
            let at = at.index(lines.len());
            lines[at].insert_str(0, piece);
        }
        let text = lines.concat();
        if let Err(problems) = Settings::parse("f.toml", &text, &|_| None) {
            let said = format!("{problems} {problems:?}");
            prop_assert!(!said.contains("tiger"), "{said}");
        }
    }

    #[test]
    fn any_synced_document_is_read_or_refused(text in "[\\[\\]{}:,\"a-z0-9 \\-.]{0,60}") {
        if let Ok(read) = synced::parse(text.as_bytes()) {
            prop_assert!(read.pools.iter().all(|pool| pool.concurrency.get() >= 1));
        }
    }
}
