//! The beginning of a reply as it may be shown: short, plain text, without the secrets of the call that an endpoint
//! may have echoed.

use std::sync::Arc;

use sluicegate_dispatch::Message;

use super::reply::Text;

/// How much of a reply is shown, in bytes of UTF-8.
const MOST: usize = 1024;
/// What is shown in place of a secret.
const HIDDEN: &[u8] = b"***";

/// The beginning of a reply; `None` if there is nothing in it.
pub(crate) fn excerpt(text: &Text, message: &Message) -> Option<Arc<str>> {
    let (bytes, is_cut) = match text {
        Text::Whole(bytes) => (bytes, false),
        Text::TooLong(start) => (start, true),
    };
    let shown = without(&secrets(message), bytes, is_cut);
    let shown = plain(&shown);
    (!shown.is_empty()).then(|| shown.into())
}

/// What must not be shown, as an endpoint may write it.
fn secrets(message: &Message) -> Vec<Vec<u8>> {
    let token = message.auth_token.as_ref().map(|token| token.expose());
    let query = message.target.path_and_query().query().map(|query| format!("?{query}"));
    let mut secrets = Vec::new();
    for secret in token.into_iter().chain(query.as_deref()).filter(|secret| secret.len() > 1) {
        let quoted = serde_json::Value::from(secret).to_string();
        let quoted = &quoted[1..quoted.len() - 1];
        // Some write a slash with a backslash.
        for spelling in [secret.to_owned(), quoted.to_owned(), quoted.replace('/', "\\/")] {
            let spelling = spelling.into_bytes();
            if !secrets.contains(&spelling) {
                secrets.push(spelling);
            }
        }
    }
    secrets
}

/// So much of it that the secrets in it are hidden and enough is left. Where it was cut off, a secret may have been
/// cut too: what may be the beginning of one is left out.
fn without(secrets: &[Vec<u8>], mut bytes: &[u8], is_cut: bool) -> Vec<u8> {
    let mut shown = Vec::with_capacity(MOST.min(bytes.len()) + 4);
    // A character that begins within the bound is read to its end.
    while shown.len() < MOST + 4
        && let Some((first, rest)) = bytes.split_first()
    {
        if let Some(secret) = secrets.iter().find(|secret| bytes.starts_with(secret)) {
            shown.extend_from_slice(HIDDEN);
            bytes = &bytes[secret.len()..];
        } else if is_cut && secrets.iter().any(|secret| secret.starts_with(bytes)) {
            break;
        } else {
            shown.push(*first);
            bytes = rest;
        }
    }
    shown
}

/// Bytes as text of at most so many bytes: what is no text, and what would move a terminal's cursor, is replaced.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let is_safe = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    let safe = text.chars().map(|c| if is_safe(c) { c } else { char::REPLACEMENT_CHARACTER });
    let mut shown = String::with_capacity(MOST.min(text.len()));
    for c in safe {
        if shown.len() + c.len_utf8() > MOST {
            break;
        }
        shown.push(c);
    }
    shown
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use sluicegate_dispatch::{AuthToken, Target};
    use sluicegate_testkit::scripted;

    use super::*;

    fn message(token: &str) -> Message {
        Message {
            target: Target::parse("http://a.test/in?key=hush").unwrap(),
            auth_token: Some(AuthToken::new(token)),
            ..scripted::message("m", "P")
        }
    }

    fn shown(text: Text, token: &str) -> String {
        excerpt(&text, &message(token)).map(|shown| shown.to_string()).unwrap_or_default()
    }

    #[test]
    fn secrets_are_hidden_however_they_are_written() {
        let whole = |text: &str| Text::Whole(Bytes::copy_from_slice(text.as_bytes()));
        let cut = |text: &str| Text::TooLong(Bytes::copy_from_slice(text.as_bytes()));
        let cases = [
            (whole("no a/b\"c here"), "no *** here"),
            (whole(r#"{"got":"a/b\"c"}"#), r#"{"got":"***"}"#),
            (whole(r#"{"got":"a\/b\"c"}"#), r#"{"got":"***"}"#),
            (whole("no /in?key=hush here"), "no /in*** here"),
            (whole("a/b"), "a/b"),
            (cut("begins a/b"), "begins "),
            (cut("begins x"), "begins x"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text, "a/b\"c"), expected);
        }
        let many = "secret".repeat(10_000);
        let hidden = shown(whole(&many), "secret");
        assert!(hidden.len() <= MOST && hidden.bytes().all(|byte| byte == b'*'), "{hidden}");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_short_and_plain(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let shown = shown(Text::Whole(bytes.clone().into()), "tok");
            prop_assert!(shown.len() <= MOST);
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(shown.is_empty(), bytes.is_empty());
        }

        #[test]
        fn text_is_shown_as_it_is(text in "[a-zäöü\n]{0,1500}") {
            let shown = shown(Text::Whole(text.clone().into()), "0");
            prop_assert!(text.starts_with(&shown));
            prop_assert!(shown.len() + 2 > text.len().min(MOST));
        }
    }
}
