//! The part of an address after the question mark.

use std::collections::BTreeMap;

use url::Url;

use crate::{OpenError, nearest};

/// So much of an unknown name is shown.
const SHOWN: usize = 32;

/// The parameters of an address by their names, all of which are known. What an address says twice
/// it does not say clearly, so that is an error too.
pub(crate) fn read(url: &Url, known: &[&str]) -> Result<BTreeMap<String, String>, OpenError> {
    let mut parameters = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        if !known.contains(&&*name) {
            return Err(OpenError::Address(unknown(&name, known)));
        }
        if parameters.insert(name.to_string(), value.into_owned()).is_some() {
            return Err(OpenError::Address(format!("`{name}` comes twice")));
        }
    }
    Ok(parameters)
}

fn unknown(name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(SHOWN).collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("there is no parameter `{shown}`; did you mean `{near}`?"),
        None => format!("there is no parameter `{shown}`; known are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused_by_name() {
        let long = "x".repeat(SHOWN + 1);
        let cut = format!("there is no parameter `{}`; known are queue, ca", "x".repeat(SHOWN));
        let cases = [
            ("", "{}"),
            ("queue=a%2Fb&ca=", r#"{"ca": "", "queue": "a/b"}"#),
            ("ca=1&quue=s3cret", "there is no parameter `quue`; did you mean `queue`?"),
            ("colour=s3cret", "there is no parameter `colour`; known are queue, ca"),
            ("Queue=s3cret", "there is no parameter `Queue`; did you mean `queue`?"),
            (&long, &cut),
            ("ca=s3cret&queue=x&ca=s3cret", "`ca` comes twice"),
        ];
        for (query, expected) in cases {
            let url = Url::parse(&format!("x://h?{query}")).unwrap();
            let said = match read(&url, &["queue", "ca"]) {
                Ok(parameters) => format!("{parameters:?}"),
                Err(OpenError::Address(why)) => why,
                Err(other) => panic!("{query}: {other}"),
            };
            assert_eq!(said, expected, "{query}");
        }
    }
}
