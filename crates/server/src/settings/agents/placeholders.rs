//! `{session}` and `{prompt}` in arguments, and what looks like one of them.

use sluicegate_sources::nearest;

use super::super::reader::Value;

/// Refuses what is meant for a placeholder and is none here. Other words in braces may be the program's own.
pub(super) fn check(value: &Value<'_>, known: &[&str]) -> Option<()> {
    // As it is written: what comes from the environment is not looked at.
    for word in words(value.written()) {
        if known.contains(&word) {
            continue;
        }
        if word == "prompt" {
            let message = "has {prompt}, which is filled only in agents.command";
            return value.wrong_so(message, "known here: {session}");
        }
        if let Some(known) = nearest(word, known.iter().copied()) {
            let message = format!("has {{{word}}}, which nothing is put in place of");
            return value.wrong_so(message, format!("did you mean {{{known}}}?"));
        }
    }
    Some(())
}

/// The words in braces that nothing is put in place of, and no shell fills either.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{').filter_map(|(at, _)| {
        let (word, _) = text[at + 1..].split_once('}')?;
        let is_word = !word.is_empty()
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        (is_word && !text[..at].ends_with(['$', '{'])).then_some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_in_braces_are_found() {
        let cases: [(&str, &[&str]); 6] = [
            ("--id={sesion}", &["sesion"]),
            ("{session}-{prompt}", &["session", "prompt"]),
            ("${HOME} ${HOME:-x}", &[]),
            (r#"{"a": {"b": 1}} { print } {}"#, &[]),
            ("{{session}}", &[]),
            ("{a{b}", &["b"]),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
