//! What a prompt asks for.

use std::time::Duration;

/// What to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Directive {
    Sleep(Duration),
    Hang,
    IgnoreTerm,
    Exit(u8),
    Signal(String),
    Fork(usize),
    Daemonize,
    KeepForking,
    Flood(Option<usize>),
    FloodErrors(usize),
    Errors(String),
    Leak(usize),
    NoJson,
    Error,
    Partial,
    LateExit,
    Show(String),
    Notice,
    Ask,
    Unknown,
    /// A part of the answer.
    Say(String),
}

/// A prompt as directives, in its order.
pub(crate) fn parse(prompt: &str) -> Vec<Directive> {
    let mut words = prompt.split_whitespace().peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix('!') else {
            found.push(Directive::Say(word.to_owned()));
            continue;
        };
        // A word that cannot be an argument stays what it is: a part of the answer.
        let mut argument = |fits: fn(&str) -> bool| words.next_if(|next| fits(next));
        let starts_with_digit = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
        let directive = match name {
            "sleep" => {
                Directive::Sleep(argument(starts_with_digit).map_or(Duration::ZERO, duration))
            }
            "hang" => Directive::Hang,
            "ignore-term" => Directive::IgnoreTerm,
            "crash" => Directive::Exit(argument(starts_with_digit).map_or(1, number) as u8),
            "exit-before-output" => Directive::Exit(0),
            "signal" => Directive::Signal(argument(|_| true).unwrap_or("KILL").to_owned()),
            "fork" => Directive::Fork(argument(starts_with_digit).map_or(1, number)),
            "daemonize" => Directive::Daemonize,
            "keep-forking" => Directive::KeepForking,
            "flood" => Directive::Flood(argument(starts_with_digit).map(size)),
            "flood-stderr" => {
                Directive::FloodErrors(argument(starts_with_digit).map_or(1 << 20, size))
            }
            "stderr" => Directive::Errors(argument(|_| true).unwrap_or_default().to_owned()),
            "leak" => Directive::Leak(argument(starts_with_digit).map_or(1 << 20, size)),
            "no-json" => Directive::NoJson,
            "error" => Directive::Error,
            "partial" => Directive::Partial,
            "late-exit" => Directive::LateExit,
            "notice" => Directive::Notice,
            "ask" => Directive::Ask,
            "unknown" => Directive::Unknown,
            other => match other.strip_prefix("print-") {
                Some(what) => Directive::Show(what.to_owned()),
                None => Directive::Say(word.to_owned()),
            },
        };
        found.push(directive);
    }
    found
}

/// The number at the beginning of a word, and its unit.
fn split(word: &str) -> (usize, &str) {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    (word[..end].parse().unwrap_or(0), &word[end..])
}

fn number(word: &str) -> usize {
    split(word).0
}

fn duration(word: &str) -> Duration {
    let (count, unit) = split(word);
    let count = count as u64;
    match unit {
        "s" => Duration::from_secs(count),
        "m" => Duration::from_secs(60 * count),
        _ => Duration::from_millis(count),
    }
}

fn size(word: &str) -> usize {
    let (count, unit) = split(word);
    match unit {
        "kB" | "KB" | "KiB" => count << 10,
        "MB" | "MiB" => count << 20,
        "GB" | "GiB" => count << 30,
        _ => count,
    }
}

#[cfg(test)]
mod tests {
    use super::Directive::{Exit, Flood, Hang, Leak, Say, Show, Sleep};
    use super::{Duration, parse};

    #[test]
    fn a_prompt_is_directives_and_words() {
        let say = |word: &str| Say(word.to_owned());
        let cases = [
            ("hello  world", vec![say("hello"), say("world")]),
            ("a !sleep 250ms b", vec![say("a"), Sleep(Duration::from_millis(250)), say("b")]),
            ("!sleep 2s !crash 3", vec![Sleep(Duration::from_secs(2)), Exit(3)]),
            ("!crash !hang", vec![Exit(1), Hang]),
            ("!flood 5MB !flood", vec![Flood(Some(5 << 20)), Flood(None)]),
            ("!leak 200MB", vec![Leak(200 << 20)]),
            ("!print-env", vec![Show("env".to_owned())]),
            ("hi! !what", vec![say("hi!"), say("!what")]),
        ];
        for (prompt, directives) in cases {
            assert_eq!(parse(prompt), directives, "{prompt}");
        }
    }
}
