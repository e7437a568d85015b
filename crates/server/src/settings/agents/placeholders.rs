//! `{session}` and `{prompt}` in arguments, and what looks like one of them.

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
        // A word that is farther off may be the program's own: `{version}` is two letters from `{session}`.
        if let Some(known) = known.iter().find(|known| is_slip(word, known)) {
            let message = format!("has {{{word}}}, which nothing is put in place of");
            return value.wrong_so(message, format!("did you mean {{{known}}}?"));
        }
    }
    Some(())
}

/// Whether a word is a known one but for its capitals and one slip: a letter more, less or another, or two swapped.
fn is_slip(word: &str, known: &str) -> bool {
    let (word, known) = (word.to_ascii_lowercase(), known.to_ascii_lowercase());
    let (word, known) = (word.as_bytes(), known.as_bytes());
    let same = |(one, other): &(&u8, &u8)| one == other;
    let begin = word.iter().zip(known).take_while(same).count();
    let (word, known) = (&word[begin..], &known[begin..]);
    let end = word.iter().rev().zip(known.iter().rev()).take_while(same).count();
    match (&word[..word.len() - end], &known[..known.len() - end]) {
        ([a, b], [c, d]) => (a, b) == (d, c),
        (word, known) => word.len() <= 1 && known.len() <= 1,
    }
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
    use super::{is_slip, words};

    #[test]
    fn one_slip_is_one_and_two_are_another_word() {
        for word in ["Session", "sesion", "sessionn", "sassion", "esssion", "sessino", "sessions"] {
            assert!(is_slip(word, "session"), "{word}");
        }
        for word in ["version", "region", "ssesino", "session_id", "sess", "noisses", "s"] {
            assert!(!is_slip(word, "session"), "{word}");
        }
    }

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
