//! Several messages at once: an array, or a line each.

use std::fmt;
use std::io::{self, BufRead, Read};

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
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
    /// Whether it is longer than a message may be.
    pub is_too_long: bool,
}

/// Why a body is no list of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotAList {
    /// It is not JSON at all.
    NotJson(Malformed),
    /// It has more messages than this.
    TooMany(usize),
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

/// Reads one message, or an array of at most so many, to be published all or none. The body is walked
/// through once, and each message is read once.
///
/// # Errors
/// Names all that are wrong, by their places.
pub fn parse_many(body: &[u8], most: usize) -> Result<Vec<Publication>, NotAList> {
    let not_json = |why| NotAList::NotJson(Malformed { why, raw: raw(body) });
    let text = std::str::from_utf8(body).map_err(|error| {
        not_json(format!("the body is not UTF-8 from byte {}", error.valid_up_to()))
    })?;
    let mut list =
        List { most, read: publication, good: Vec::new(), bad: Vec::new(), has_more: false };
    match split(text.trim(), &mut list) {
        _ if list.has_more => Err(NotAList::TooMany(most)),
        Err(error) => Err(not_json(format!("the body is not JSON: {error}"))),
        Ok(()) if list.bad.is_empty() => Ok(list.good),
        Ok(()) => Err(NotAList::Bad(list.bad)),
    }
}

/// Walks through a body once and reads what is in it.
fn split<R>(text: &str, list: &mut List<R>) -> serde_json::Result<()>
where
    R: FnMut(&str) -> Result<Publication, Malformed>,
{
    let mut reader = serde_json::Deserializer::from_str(text);
    if text.starts_with('[') {
        reader.deserialize_seq(&mut *list)?;
    } else {
        list.take(<&RawValue>::deserialize(&mut reader)?.get());
    }
    reader.end()
}

/// The messages of a body, as far as it was walked through.
struct List<R> {
    most: usize,
    /// Reads one of them.
    read: R,
    good: Vec<Publication>,
    bad: Vec<BadMessage>,
    has_more: bool,
}

impl<R: FnMut(&str) -> Result<Publication, Malformed>> List<R> {
    fn take(&mut self, text: &str) {
        let index = self.good.len() + self.bad.len();
        match (self.read)(text) {
            Ok(publication) => self.good.push(publication),
            Err(malformed) => {
                let is_too_long = text.len() > MAX_BODY;
                self.bad.push(BadMessage { index, malformed, is_too_long });
            }
        }
    }
}

impl<'de, R: FnMut(&str) -> Result<Publication, Malformed>> Visitor<'de> for &mut List<R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&'de RawValue>()? {
            if self.good.len() + self.bad.len() == self.most {
                self.has_more = true;
                return Ok(());
            }
            self.take(item.get());
        }
        Ok(())
    }
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
            Self::TooMany(most) => write!(f, "there are more than {most} messages"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_of_a_body_is_read_once() {
        let message = |id: usize| format!(r#"{{"id":"m{id}","mediationTarget":"http://h/"}}"#);
        let all: Vec<String> = (0..100).map(message).collect();
        let cases = [(format!(" [{}]\n", all.join(" ,\n")), 100), (message(0), 1)];
        for (body, count) in cases {
            let mut seen: Vec<String> = Vec::new();
            let read = |text: &str| {
                seen.push(text.to_owned());
                publication(text)
            };
            let mut list =
                List { most: 100, read, good: Vec::new(), bad: Vec::new(), has_more: false };
            split(body.trim(), &mut list).unwrap();
            assert_eq!((list.good.len(), list.bad.len(), list.has_more), (count, 0, false));
            assert_eq!(seen, all[..count]);
        }
    }

    #[test]
    fn nothing_is_read_beyond_the_bound() {
        let body = format!("[{}]", ["{}"; 5].join(","));
        let mut count = 0;
        let read = |text: &str| {
            count += 1;
            publication(text)
        };
        let mut list = List { most: 3, read, good: Vec::new(), bad: Vec::new(), has_more: false };
        drop(split(&body, &mut list));
        assert!(list.has_more);
        assert_eq!(count, 3);
        assert_eq!(parse_many(body.as_bytes(), 3), Err(NotAList::TooMany(3)));
        let Err(NotAList::Bad(bad)) = parse_many(body.as_bytes(), 5) else { panic!("it is bad") };
        assert_eq!(bad.iter().map(|bad| bad.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
