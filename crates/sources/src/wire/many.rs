//! Several messages at once: an array, or a line each.

use std::fmt;
use std::io::{self, BufRead, Read};

use serde_json::value::RawValue;
use sluicegate_dispatch::{Malformed, Publication};

use super::{MAX_BODY, parse, publication, raw};

/// One of several messages that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadMessage {
    /// Its place among them, from 0.
    pub index: usize,
    /// What is wrong with it.
    pub malformed: Malformed,
}

/// Why a body is no list of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAList {
    /// It is not JSON at all.
    NotJson(Malformed),
    /// These of its messages are wrong: all of them are named.
    Bad(Vec<BadMessage>),
}

/// One line of JSON Lines.
#[derive(Debug)]
pub struct JsonLine {
    /// Its number, from 1.
    pub number: u64,
    /// The message on it.
    pub message: Result<Publication, Malformed>,
}

/// Messages from JSON Lines, one by one. Blank lines are skipped.
#[derive(Debug)]
pub struct JsonLines<R> {
    reader: R,
    number: u64,
    line: Vec<u8>,
}

/// Reads one message, or an array of them, to be published all or none.
///
/// # Errors
/// Names all that are wrong, by their places.
pub fn parse_many(body: &[u8]) -> Result<Vec<Publication>, NotAList> {
    let not_json = |why| NotAList::NotJson(Malformed { why, raw: raw(body) });
    let text = std::str::from_utf8(body).map_err(|error| {
        not_json(format!("the body is not UTF-8 from byte {}", error.valid_up_to()))
    })?;
    if !text.trim_start().starts_with('[') {
        let one = publication(text.trim());
        return one
            .map(|one| vec![one])
            .map_err(|malformed| NotAList::Bad(vec![BadMessage { index: 0, malformed }]));
    }
    let items: Vec<&RawValue> = serde_json::from_str(text)
        .map_err(|error| not_json(format!("the body is not a JSON array: {error}")))?;
    let mut good = Vec::with_capacity(items.len());
    let mut bad = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        match publication(item.get()) {
            Ok(publication) => good.push(publication),
            Err(malformed) => bad.push(BadMessage { index, malformed }),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(NotAList::Bad(bad)) }
}

impl<R: BufRead> JsonLines<R> {
    /// Reads from `reader`, no more than a line at a time.
    pub const fn new(reader: R) -> Self {
        Self { reader, number: 0, line: Vec::new() }
    }

    /// The next line into `self.line`; of one that is too long, no more than shows that it is.
    fn fill(&mut self) -> io::Result<bool> {
        self.line.clear();
        let limit = MAX_BODY as u64 + 2;
        if self.reader.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        if self.line.last() != Some(&b'\n') && self.line.len() as u64 == limit {
            self.reader.skip_until(b'\n')?;
        }
        Ok(true)
    }
}

impl<R: BufRead> Iterator for JsonLines<R> {
    type Item = io::Result<JsonLine>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.fill() {
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
                Ok(true) => self.number += 1,
            }
            let body = self.line.trim_ascii();
            if !body.is_empty() {
                let message = match std::str::from_utf8(body) {
                    Ok(text) => publication(text),
                    Err(_) => parse(body).map(|_| unreachable!("it is not UTF-8")),
                };
                return Some(Ok(JsonLine { number: self.number, message }));
            }
        }
    }
}

impl fmt::Display for NotAList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(malformed) => f.write_str(&malformed.why),
            Self::Bad(bad) => {
                for (place, bad) in bad.iter().enumerate() {
                    let sep = if place == 0 { "" } else { "; " };
                    write!(f, "{sep}message {}: {}", bad.index, bad.malformed.why)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for NotAList {}
