//! Commands as a person types them into a shell: what is told to do can be done as it is printed.

/// An option and its value: `--pool 'BIG POOL'`, and `--group=-7` for what looks like an option itself.
#[must_use]
pub fn typed_option(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!("{name}{between}{}", word(value))
}

/// An argument: `m1`, `'m 1'`, and `-- -7` for what looks like an option.
#[must_use]
pub fn typed_argument(argument: &str) -> String {
    let before = if argument.starts_with('-') { "-- " } else { "" };
    format!("{before}{}", word(argument))
}

/// A word as a shell takes it.
fn word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_it_as_it_was_meant() {
        let cases = [
            ("order-7", "order-7", "--group order-7"),
            ("BIG POOL", "'BIG POOL'", "--group 'BIG POOL'"),
            ("it's", "'it'\\''s'", "--group 'it'\\''s'"),
            ("[::1]:80", "'[::1]:80'", "--group '[::1]:80'"),
            ("-x", "-- -x", "--group=-x"),
            ("- x", "-- '- x'", "--group='- x'"),
            ("", "''", "--group ''"),
        ];
        for (given, argument, option) in cases {
            assert_eq!(typed_argument(given), argument);
            assert_eq!(typed_option("--group", given), option);
        }
    }
}
