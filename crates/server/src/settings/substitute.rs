//! `${NAME}` and `${NAME:-default}` in strings, as a shell reads them.
//!
//! The default stands for a variable that is unset or empty. `$${` is a plain `${`. What comes from
//! the environment is not looked at again.

/// Asks for the value of an environment variable.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What is wrong with one `${`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unresolved {
    /// Which `${` of the string it is, counted from 0.
    pub(super) index: usize,
    pub(super) why: Why,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Nobody set the variable, and there is no default.
    Unset { name: String },
    /// What stands between the braces cannot name a variable.
    NoName,
    /// The brace is never closed.
    Unclosed,
}

/// The text with every variable replaced, or all that could not be.
pub(super) fn substitute(text: &str, env: Env<'_>) -> Result<String, Vec<Unresolved>> {
    let mut replaced = String::with_capacity(text.len());
    let mut unresolved = Vec::new();
    let mut rest = text;
    let mut index = 0;
    while let Some(at) = rest.find("${") {
        let before = &rest[..at];
        let inside = &rest[at + 2..];
        if let Some(before) = before.strip_suffix('$') {
            replaced.push_str(before);
            replaced.push_str("${");
            rest = inside;
        } else {
            replaced.push_str(before);
            let Some((inside, after)) = inside.split_once('}') else {
                unresolved.push(Unresolved { index, why: Why::Unclosed });
                return Err(unresolved);
            };
            match resolve(inside, env) {
                Ok(value) => replaced.push_str(&value),
                Err(why) => unresolved.push(Unresolved { index, why }),
            }
            rest = after;
        }
        index += 1;
    }
    replaced.push_str(rest);
    if unresolved.is_empty() { Ok(replaced) } else { Err(unresolved) }
}

fn resolve(inside: &str, env: Env<'_>) -> Result<String, Why> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(letter) || !name.chars().all(|c| letter(c) || c.is_ascii_digit()) {
        return Err(Why::NoName);
    }
    match (env(name), default) {
        (Some(value), _) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (Some(empty), None) => Ok(empty),
        (None, None) => Err(Why::Unset { name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Unresolved, Why, substitute};

    fn env(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("example".to_owned()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_replaced() {
        let cases = [
            ("", ""),
            ("plain $ and } and {", "plain $ and } and {"),
            ("${HOST}", "example"),
            ("a${HOST}b${HOST}c", "aexamplebexamplec"),
            ("${HOST:-other}", "example"),
            ("${MISSING:-other}", "other"),
            ("${MISSING:-}", ""),
            ("${MISSING:-a:-b}", "a:-b"),
            ("${EMPTY:-other}", "other"),
            ("${EMPTY}", ""),
            ("${NESTED}", "${HOST}"),
            ("$${HOST}", "${HOST}"),
            ("é${HOST}é", "éexampleé"),
        ];
        for (text, replaced) in cases {
            assert_eq!(substitute(text, &env).as_deref(), Ok(replaced), "{text}");
        }
    }

    #[test]
    fn every_unresolved_one_is_found() {
        let unset = |index, name: &str| Unresolved { index, why: Why::Unset { name: name.into() } };
        let cases = [
            ("${A}", vec![unset(0, "A")]),
            ("${A} $${X} ${HOST} ${B}", vec![unset(0, "A"), unset(3, "B")]),
            ("${}", vec![Unresolved { index: 0, why: Why::NoName }]),
            ("${1A}", vec![Unresolved { index: 0, why: Why::NoName }]),
            ("${A B:-x}", vec![Unresolved { index: 0, why: Why::NoName }]),
            ("${A} ${B", vec![unset(0, "A"), Unresolved { index: 1, why: Why::Unclosed }]),
        ];
        for (text, found) in cases {
            assert_eq!(substitute(text, &env), Err(found), "{text}");
        }
    }
}
