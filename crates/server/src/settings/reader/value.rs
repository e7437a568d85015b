//! One value of the document, asked for as what it should be.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use sluicegate_sources::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::duration;
use super::super::substitute::{Unresolved, Why, substitute};
use super::{Fault, Report};

/// The most characters of a value that an error quotes.
const MOST_QUOTED: usize = 60;

/// A value and its key. What is not as asked for is a fault, and `None`.
pub(in super::super) struct Value<'a> {
    report: &'a Report<'a>,
    key: String,
    value: &'a Spanned<DeValue<'a>>,
}

/// A table of an array: its key, its header and itself.
type Entry<'a> = (String, Range<usize>, &'a DeTable<'a>);

impl<'a> Value<'a> {
    pub(super) fn new(
        report: &'a Report<'a>,
        key: String,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Self {
        Self { report, key, value }
    }

    /// Says what is wrong.
    pub(in super::super) fn wrong<T>(&self, message: impl Into<String>) -> Option<T> {
        self.fault(self.value.span(), message.into(), None)
    }

    /// Says what is wrong and what would be right.
    pub(in super::super) fn wrong_so<T>(
        &self,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        self.fault(self.value.span(), message.into(), Some(help.into()))
    }

    /// Masks the value wherever its line is shown. The bare name of a variable gives nothing away.
    pub(in super::super) fn mask(&self) -> &Self {
        let inside = self.written().trim_matches(['"', '\'']);
        let name = inside.strip_prefix("${").and_then(|inside| inside.strip_suffix('}'));
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !name.is_some_and(is_name) {
            self.report.mask(self.value.span());
        }
        self
    }

    /// A text, with the environment's variables in place.
    pub(in super::super) fn text(&self) -> Option<String> {
        let DeValue::String(text) = self.value.get_ref() else {
            return self.mistyped("a string");
        };
        match substitute(text, self.report.env) {
            Ok(text) => Some(text),
            Err(unresolved) => {
                unresolved.iter().for_each(|unresolved| self.unresolved(unresolved));
                None
            }
        }
    }

    /// A text with something in it.
    pub(in super::super) fn filled(&self) -> Option<String> {
        let text = self.text()?;
        if text.trim().is_empty() { self.wrong("must not be empty") } else { Some(text) }
    }

    /// A name: something to see, nothing at the edges that cannot be seen, not too long.
    pub(in super::super) fn name(&self) -> Option<String> {
        let text = self.filled()?;
        match name_invalid(&text) {
            Some(why) => self.wrong(why),
            None => Some(text),
        }
    }

    /// A whole number within a range.
    pub(in super::super) fn integer(&self, range: RangeInclusive<u32>) -> Option<u32> {
        let DeValue::Integer(integer) = self.value.get_ref() else {
            return self.mistyped("a whole number");
        };
        let negative = integer.as_str().starts_with('-');
        let number = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
        match number {
            Some(number) if number > *range.end() => self.wrong(at_most(range.end())),
            Some(number) if number >= *range.start() => Some(number),
            None if !negative => self.wrong(at_most(range.end())),
            _ => self.wrong(at_least(range.start())),
        }
    }

    /// A number of any kind.
    pub(in super::super) fn number(&self) -> Option<f64> {
        let number = match self.value.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().parse().ok(),
            _ => None,
        };
        number.or_else(|| self.mistyped("a number"))
    }

    /// Yes or no.
    pub(in super::super) fn boolean(&self) -> Option<bool> {
        self.value.get_ref().as_bool().or_else(|| self.mistyped("true or false"))
    }

    /// A duration within a range.
    pub(in super::super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        const EXAMPLE: &str = "a duration such as \"250ms\", \"30s\", \"5m\" or \"1h\"";
        if !self.value.get_ref().is_str() {
            return self.mistyped(EXAMPLE);
        }
        let text = self.text()?;
        match duration::parse(&text) {
            None => self.wrong(format!("must be {EXAMPLE}, not {}", quoted(&text))),
            Some(found) if found < *range.start() => {
                self.wrong(at_least(duration::shown(*range.start())))
            }
            Some(found) if found > *range.end() => {
                self.wrong(at_most(duration::shown(*range.end())))
            }
            found => found,
        }
    }

    /// One of a few words.
    pub(in super::super) fn word<T: Copy>(&self, words: &[(&'static str, T)]) -> Option<T> {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let list: Vec<String> = names.iter().map(|word| format!("\"{word}\"")).collect();
        let wanted = list.join(" or ");
        if !self.value.get_ref().is_str() {
            return self.mistyped(&wanted);
        }
        let text = self.text()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*meaning);
        }
        let message = format!("must be {wanted}, not {}", quoted(&text));
        match nearest(&text, names) {
            Some(near) => self.wrong_so(message, format!("did you mean \"{near}\"?")),
            None => self.wrong(message),
        }
    }

    /// A list. Every wrong element is a fault; the list is only given if there is none.
    pub(in super::super) fn list<T>(
        &self,
        parse: impl Fn(&Value<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let DeValue::Array(values) = self.value.get_ref() else {
            return self.mistyped("a list");
        };
        let parsed: Vec<Option<T>> = values
            .iter()
            .enumerate()
            .map(|(at, value)| {
                parse(&Value::new(self.report, format!("{}[{at}]", self.key), value))
            })
            .collect();
        parsed.into_iter().collect()
    }

    /// Whether it is a list, for settings that take one value as well.
    pub(in super::super) fn is_list(&self) -> bool {
        self.value.get_ref().is_array()
    }

    /// The value as it stands in the file.
    pub(in super::super) fn written(&self) -> &str {
        self.report.source.slice(&self.value.span())
    }

    pub(super) fn table(&self) -> Option<(Range<usize>, &'a DeTable<'a>)> {
        match self.value.get_ref() {
            DeValue::Table(table) => Some((self.value.span(), table)),
            _ => self.mistyped("a table"),
        }
    }

    pub(super) fn tables(&self) -> Option<Vec<Entry<'a>>> {
        let wanted = format!("written as [[{}]]", self.key);
        let DeValue::Array(values) = self.value.get_ref() else {
            return self.mistyped(&wanted);
        };
        let entry = |(at, value): (usize, &'a Spanned<DeValue<'a>>)| {
            let inner = Value::new(self.report, format!("{}[{at}]", self.key), value);
            let (span, table) = inner.table()?;
            Some((inner.key, span, table))
        };
        Some(values.iter().enumerate().filter_map(entry).collect())
    }

    fn mistyped<T>(&self, wanted: &str) -> Option<T> {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.wrong(format!("must be {wanted}, not {found}"))
    }

    fn unresolved(&self, unresolved: &Unresolved) {
        let (message, help) = match &unresolved.why {
            Why::Unset { name } => {
                let help = format!("set it, or write ${{{name}:-default}}");
                (format!("the environment variable {name} is not set"), Some(help))
            }
            Why::NoName => {
                let help = "write ${NAME} or ${NAME:-default}, or $${ for a plain ${";
                ("`${` must be followed by a name".to_owned(), Some(help.to_owned()))
            }
            Why::Unclosed => {
                let help = "write $${ for a plain ${";
                ("`${` is never closed".to_owned(), Some(help.to_owned()))
            }
        };
        self.fault::<()>(self.variable(unresolved.index), message, help);
    }

    /// Where the `${` of this number stands.
    fn variable(&self, index: usize) -> Range<usize> {
        let span = self.value.span();
        let written = self.written();
        // An escape may have made a `${` that is not written as one: then it is the whole value.
        let Some((at, _)) = written.match_indices("${").nth(index) else { return span };
        let length = written[at..].find('}').map_or(2, |end| end + 1);
        span.start + at..span.start + at + length
    }

    fn fault<T>(&self, span: Range<usize>, message: String, help: Option<String>) -> Option<T> {
        self.report.fault(Fault { key: self.key.clone(), span, message, help });
        None
    }
}

/// Why a text is no name, if so.
pub(in super::super) fn name_invalid(text: &str) -> Option<String> {
    const MOST_BYTES: usize = 256;
    if text.trim().is_empty() {
        return Some("must not be empty".to_owned());
    }
    if text.len() > MOST_BYTES {
        return Some(format!("must have at most {MOST_BYTES} bytes"));
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Some("must have no control characters, and no blanks around it".to_owned());
    }
    None
}

/// A text as an error may quote it: on one line, and not endless.
pub(in super::super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
        None => format!("{text:?}"),
    }
}

fn at_least(least: impl std::fmt::Display) -> String {
    format!("must be at least {least}")
}

fn at_most(most: impl std::fmt::Display) -> String {
    format!("must be at most {most}")
}
