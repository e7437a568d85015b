//! What is wrong with a settings file: a list for programs, a text for people.

use std::error::Error;
use std::fmt;

use super::source::Excerpt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The line, counted from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// The column, in characters, counted from 1; 0 when it is about the file as a whole.
    pub column: usize,
    /// The key, as in `pool[0].concurrency`; empty when there is none, as in a syntax error.
    pub key: String,
    /// What is wrong. Never shows a secret.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
    pub(super) excerpt: Option<Excerpt>,
}

/// Everything that is wrong with one file, in the order of its lines.
///
/// `Display` shows each problem with its line and a mark under the part that is meant:
///
/// ```
/// use sluicegate_server::settings::Settings;
///
/// let text = "[[pool]]\ncode = \"ORDERS\"\nconcurrency = 0\n";
/// let problems = Settings::parse("sluicegate.toml", text, &|_| None).unwrap_err();
/// assert_eq!(
///     problems.to_string(),
///     "sluicegate.toml:3:15: pool[0].concurrency: must be at least 1\n\
///     \x203 | concurrency = 0\n\
///     \x20  |               ^\n"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: String,
    list: Vec<Problem>,
}

impl Problems {
    pub(super) fn new(file: &str, list: Vec<Problem>) -> Self {
        Self { file: file.to_owned(), list }
    }

    /// About the file as a whole.
    pub(super) fn whole(file: &str, message: String) -> Self {
        Self::new(file, vec![Problem::whole(message)])
    }

    /// The name of the file, as it was given.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The first one in a line, and how many more there are.
    #[must_use]
    pub fn summary(&self) -> String {
        let Some(first) = self.list.first() else { return self.file.clone() };
        let place = match first.line {
            0 => String::new(),
            line => format!(":{line}:{}", first.column),
        };
        let key = if first.key.is_empty() { String::new() } else { format!("{}: ", first.key) };
        let message = first.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let more = match self.list.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        format!("{}{place}: {key}{message}{more}", self.file)
    }

    /// The problems; there is at least one.
    #[must_use]
    pub fn list(&self) -> &[Problem] {
        &self.list
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.list {
            write!(f, "{}", self.file)?;
            if problem.line > 0 {
                write!(f, ":{}:{}", problem.line, problem.column)?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl Problem {
    /// About the file as a whole.
    pub(super) fn whole(message: String) -> Self {
        Self { line: 0, column: 0, key: String::new(), message, help: None, excerpt: None }
    }

    /// All but the file and the place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ": ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        writeln!(f, "{}", self.message)?;
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        if let Some(Excerpt { text, marks }) = &self.excerpt {
            writeln!(f, " {number} | {text}")?;
            writeln!(f, " {gutter} | {marks}")?;
        }
        if let Some(help) = &self.help {
            writeln!(f, " {gutter} = {help}")?;
        }
        Ok(())
    }
}

impl Error for Problems {}
