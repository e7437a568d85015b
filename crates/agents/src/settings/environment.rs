//! What a program finds in its environment, and what of it must not be seen.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use serde_json::Value;

/// What is seen instead of a secret.
const HIDDEN: &str = "***";

/// The whole environment of a program: what it inherits by name, and what was written for it, which may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    inherited: BTreeMap<String, String>,
    written: BTreeMap<String, String>,
}

impl Environment {
    /// What is inherited (`PATH`, `HOME`), and what the settings name. The latter replaces the former.
    #[must_use]
    pub const fn new(
        inherited: BTreeMap<String, String>,
        written: BTreeMap<String, String>,
    ) -> Self {
        Self { inherited, written }
    }

    /// A text with every secret in it made unreadable, also where it is written as JSON writes it. What is shorter
    /// than six characters is no secret, and would be found everywhere.
    pub(crate) fn redact(&self, text: &str) -> String {
        hide(text, self.places(text))
    }

    /// The same of a text that was cut, perhaps within a secret, or within a character of one.
    pub(crate) fn redact_cut(&self, text: &str) -> String {
        let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let half = |secret: &String| {
            let mut cuts = secret.char_indices().map(|(at, _)| at).rev();
            cuts.find(|at| text.ends_with(&secret[..*at])).unwrap_or(0)
        };
        let half = self.secrets().iter().map(half).max().unwrap_or(0);
        let mut places = self.places(text);
        if half > 0 {
            places.push((text.len() - half, text.len()));
        }
        hide(text, places)
    }

    /// Where there are secrets, one perhaps within another.
    fn places(&self, text: &str) -> Vec<(usize, usize)> {
        let of = |secret: &String| -> Vec<_> {
            text.match_indices(secret.as_str()).map(|(at, found)| (at, at + found.len())).collect()
        };
        self.secrets().iter().flat_map(of).collect()
    }

    /// What must not be seen, also as JSON writes it, and each line of it: output is passed on line by line.
    fn secrets(&self) -> Vec<String> {
        let parts = |value: &'_ String| {
            let lines = value.lines().map(|line| line.trim().to_owned());
            std::iter::once(value.clone()).chain(lines).collect::<Vec<_>>()
        };
        let secrets = self.written.values().flat_map(parts);
        let written = |secret: String| {
            let json = Value::from(secret.as_str()).to_string();
            [secret, json[1..json.len() - 1].to_owned()]
        };
        let is_long = |secret: &String| secret.chars().count() >= 6;
        let mut all: Vec<String> = secrets.filter(is_long).flat_map(written).collect();
        all.dedup();
        all
    }

    /// The same of every text in a value, and of every name.
    pub(crate) fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.redact_value(value)),
            Value::Object(fields) => {
                let all = std::mem::take(fields).into_iter();
                fields.extend(all.map(|(name, mut value)| {
                    self.redact_value(&mut value);
                    (self.redact(&name), value)
                }));
            }
            _ => {}
        }
    }

    pub(crate) fn variables(&self) -> BTreeMap<OsString, OsString> {
        let all = self.inherited.iter().chain(&self.written);
        all.map(|(name, value)| (name.into(), value.into())).collect()
    }
}

/// A text without what is in these places, which may overlap.
fn hide(text: &str, mut places: Vec<(usize, usize)>) -> String {
    places.sort_unstable();
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    for (from, to) in places {
        if from >= at {
            shown.push_str(&text[at..from]);
            shown.push_str(HIDDEN);
        }
        at = at.max(to);
    }
    shown.push_str(&text[at..]);
    shown
}

/// The names alone.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.inherited.keys().chain(self.written.keys())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn neither_a_part_of_a_secret_nor_one_within_another_shows() {
        let written =
            of(&[("ACCOUNT", "acme-prod"), ("TOKEN", "acme-prod-7f3a9c51"), ("É", "éééééé")]);
        let environment = Environment::new(of(&[]), written);
        assert_eq!(environment.redact("at acme-prod: acme-prod-7f3a9c51"), "at ***: ***");
        let cases = [
            ("log in: acme-prod-7f3", "log in: ***-7f3", "log in: ***"),
            ("acme-prod acme-prod-7f3a9c51", "*** ***", "*** ***"),
            ("log in: acme-p", "log in: acme-p", "log in: ***"),
            ("log in: ééé\u{fffd}", "log in: ééé\u{fffd}", "log in: ***"),
            ("log in: none", "log in: none", "log in: none"),
        ];
        for (text, whole, cut) in cases {
            assert_eq!(
                (environment.redact(text).as_str(), environment.redact_cut(text).as_str()),
                (whole, cut)
            );
        }
    }

    #[test]
    fn secrets_show_nowhere() {
        let written = of(&[("KEY", "sk-very-secret"), ("HOME", "/srv/agent"), ("DEBUG", "1")]);
        let environment = Environment::new(of(&[("PATH", "/bin"), ("HOME", "/root")]), written);
        assert_eq!(environment.redact("1: bad key sk-very-secret!"), "1: bad key ***!");
        let mut value =
            serde_json::json!({"a": ["sk-very-secret", 7], "b": {"c": "x sk-very-secret"}});
        environment.redact_value(&mut value);
        assert_eq!(value, serde_json::json!({"a": ["***", 7], "b": {"c": "x ***"}}));
        let mut named = serde_json::json!({"sk-very-secret": {"x": 1}, "y": 2});
        environment.redact_value(&mut named);
        assert_eq!(named, serde_json::json!({"***": {"x": 1}, "y": 2}));
        assert!(!format!("{environment:?}").contains("secret"));
        let lines = Environment::new(of(&[]), of(&[("PEM", "-----BEGIN-----\nMIIEvQ\nend\n")]));
        let shown = ["-----BEGIN-----", "MIIEvQ", "end"].map(|line| lines.redact(line));
        assert_eq!(shown, ["***", "***", "end"]);
        let parts =
            Environment::new(of(&[]), of(&[("A", "secret"), ("B", "secret-and \\\"more\"")]));
        assert_eq!(parts.redact("secret-and \\\"more\" secret"), "*** ***");
        assert_eq!(parts.redact(r#"{"a":"secret-and \\\"more\""}"#), r#"{"a":"***"}"#);
        let variables = environment.variables();
        assert_eq!(variables.len(), 4);
        assert_eq!(variables.get(&OsString::from("HOME")), Some(&OsString::from("/srv/agent")));
    }
}
