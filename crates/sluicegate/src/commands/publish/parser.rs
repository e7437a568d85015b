//! Messages out of a stream of bytes, as they come: a JSON object, an array, or JSON Lines.
//!
//! 1. It holds one message at a time, and no more of it than a message may have.
//! 2. What is wrong is said of the one message that is wrong; the others are read.
//! 3. An object may go over several lines if the first one does. Once such an object turns out to be
//!    none, all that follows is read line by line, so no byte is looked at more than twice.

use std::fmt;

use sluicegate::dispatch::Publication;
use sluicegate::sources::wire::{self, MAX_BODY};

/// A message, or what is wrong with it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) message: Result<Publication, String>,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The line it begins on, from 1.
    pub(super) line: u64,
    /// Its number in its array, from 1.
    pub(super) number: Option<u64>,
}

/// Reads messages.
#[derive(Debug, Default)]
pub(super) struct Parser {
    shape: Shape,
    /// How many line ends have been seen.
    ends: u64,
    /// What is being collected, without the blanks before it, and on which line it begins.
    text: Collected,
    begun: u64,
    scan: Scan,
    found: Vec<Entry>,
}

/// What the stream turned out to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shape {
    /// Nothing so far but the beginning of a byte order mark.
    #[default]
    Start,
    /// A value on each line. Whether the first of them is still to come.
    Lines { first: bool },
    /// Objects, each over several lines.
    Objects,
    /// An array, with so many messages before this one.
    Array { before: u64 },
    /// Behind the end of the array. Whether that was complained about.
    Behind { complained: bool },
}

/// The text of a message, cut where it is too long anyway.
#[derive(Debug, Default)]
struct Collected {
    bytes: Vec<u8>,
    length: u64,
}

/// Where in the nesting of JSON a byte is.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    depth: u32,
    in_string: bool,
    escaped: bool,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// With the end of a line.
const MOST: usize = MAX_BODY + 2;

impl Parser {
    /// Reads on, and gives what was found.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Entry> {
        for byte in bytes {
            self.step(*byte);
        }
        std::mem::take(&mut self.found)
    }

    /// There is no more.
    pub(super) fn finish(mut self) -> Vec<Entry> {
        match self.shape {
            Shape::Start | Shape::Lines { .. } => self.end_line(),
            Shape::Objects => {
                self.fall_back();
                self.end_line();
            }
            Shape::Array { before } => {
                if !self.text.is_empty() {
                    self.end_element(before);
                }
                self.complain(self.ends + 1, "the array has no end");
            }
            Shape::Behind { .. } => {}
        }
        self.found
    }

    fn step(&mut self, byte: u8) {
        match self.shape {
            Shape::Start => self.start(byte),
            Shape::Lines { first } => self.line(byte, first),
            Shape::Objects => self.object(byte),
            Shape::Array { before } => self.array(byte, before),
            Shape::Behind { complained } => {
                if !byte.is_ascii_whitespace() && !complained {
                    self.complain(self.ends + 1, "there is more behind the end of the array");
                    self.shape = Shape::Behind { complained: true };
                }
            }
        }
        self.ends += u64::from(byte == b'\n');
    }

    fn start(&mut self, byte: u8) {
        if BYTE_ORDER_MARK.get(self.text.bytes.len()) != Some(&byte) {
            self.shape = Shape::Lines { first: true };
            return self.line(byte, true);
        }
        self.collect(byte);
        if self.text.bytes == BYTE_ORDER_MARK {
            self.text.clear();
            self.shape = Shape::Lines { first: true };
        }
    }

    fn line(&mut self, byte: u8, first: bool) {
        if first && byte == b'[' && self.text.is_empty() {
            self.shape = Shape::Array { before: 0 };
        } else if byte != b'\n' {
            self.collect(byte);
        } else if first && self.may_go_on() {
            self.collect(byte);
            self.shape = Shape::Objects;
        } else {
            self.end_line();
        }
    }

    /// Whether an object has begun that the next line may continue. A text cannot.
    fn may_go_on(&self) -> bool {
        let Scan { depth, in_string, .. } = self.scan;
        self.text.bytes.first() == Some(&b'{') && depth > 0 && !in_string && !self.text.is_full()
    }

    /// The line is over.
    fn end_line(&mut self) {
        if !self.text.is_empty() {
            self.emit(Place { line: self.begun, number: None });
            self.shape = Shape::Lines { first: false };
        }
    }

    fn object(&mut self, byte: u8) {
        self.collect(byte);
        if self.text.is_empty() || byte == b'\n' && self.may_go_on() {
            return;
        }
        if byte != b'\n' && self.scan.is_open() && !self.text.is_full() {
            return;
        }
        if self.text.is_json() {
            self.emit(Place { line: self.begun, number: None });
        } else {
            self.fall_back();
        }
    }

    /// What was collected is no object: it is read again, line by line.
    fn fall_back(&mut self) {
        let again = std::mem::take(&mut self.text.bytes);
        self.text.clear();
        self.shape = Shape::Lines { first: false };
        let ends = std::mem::replace(&mut self.ends, self.begun - 1);
        for byte in again {
            self.line(byte, false);
            self.ends += u64::from(byte == b'\n');
        }
        // The last byte is counted by whoever brought it.
        self.ends = ends;
    }

    fn array(&mut self, byte: u8, before: u64) {
        if self.scan.is_open() || !matches!(byte, b',' | b']') {
            return self.collect(byte);
        }
        let is_last = byte == b']';
        if !self.text.is_empty() {
            self.end_element(before);
        } else if !is_last || before > 0 {
            let place = Place { line: self.ends + 1, number: Some(before + 1) };
            let message = Err("there is no message beside a comma".to_owned());
            self.found.push(Entry { place, message });
        }
        self.shape = match is_last {
            true => Shape::Behind { complained: false },
            false => Shape::Array { before: before + 1 },
        };
    }

    fn end_element(&mut self, before: u64) {
        self.emit(Place { line: self.begun, number: Some(before + 1) });
    }

    fn collect(&mut self, byte: u8) {
        if self.text.is_empty() {
            if byte.is_ascii_whitespace() {
                return;
            }
            self.begun = self.ends + 1;
            self.scan = Scan::default();
        }
        self.scan.step(byte);
        self.text.push(byte);
    }

    fn emit(&mut self, place: Place) {
        let message = self.text.publication();
        self.text.clear();
        self.found.push(Entry { place, message });
    }

    fn complain(&mut self, line: u64, what: &str) {
        let place = Place { line, number: None };
        self.found.push(Entry { place, message: Err(what.to_owned()) });
    }
}

impl Collected {
    fn push(&mut self, byte: u8) {
        self.length += 1;
        if self.bytes.len() < MOST {
            self.bytes.push(byte);
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        // A long message is rare: its room is not kept for the next.
        self.bytes.shrink_to(64 * 1024);
        self.length = 0;
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() == MOST
    }

    fn is_json(&self) -> bool {
        serde_json::from_slice::<&serde_json::value::RawValue>(&self.bytes).is_ok()
    }

    fn publication(&self) -> Result<Publication, String> {
        let length = self.length;
        if length > MOST as u64 {
            return Err(format!("the message has {length} bytes; at most {MAX_BODY} are right"));
        }
        let body = self.bytes.trim_ascii();
        match std::str::from_utf8(body) {
            Ok(text) => wire::publication(text).map_err(|malformed| malformed.why),
            Err(error) => {
                Err(format!("the message is not UTF-8 from byte {}", error.valid_up_to()))
            }
        }
    }
}

impl Scan {
    const fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    const fn is_open(self) -> bool {
        self.in_string || self.depth > 0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        match self.number {
            Some(number) => write!(f, ": message {number}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Parser;

    const M: &str = r#"{"id":"ID","mediationTarget":"http://localhost/"}"#;

    fn message(id: &str) -> String {
        M.replace("ID", id)
    }

    /// `id` of each message in order, or `line N: …`.
    fn read(bytes: &[u8], at_once: usize) -> Vec<String> {
        let mut parser = Parser::default();
        let mut entries = Vec::new();
        for part in bytes.chunks(at_once) {
            entries.extend(parser.feed(part));
        }
        entries.extend(parser.finish());
        let words = |entry: super::Entry| match entry.message {
            Ok(publication) => format!("{} {}", entry.place.line, publication.message.id),
            Err(why) => format!("{}: {why}", entry.place),
        };
        entries.into_iter().map(words).collect()
    }

    fn check(text: &str, expected: &[&str]) {
        for at_once in [1, 2, 3, 7, usize::MAX] {
            assert_eq!(read(text.as_bytes(), at_once), expected, "{text:?} by {at_once}");
        }
    }

    #[test]
    fn an_object_an_array_or_lines() {
        let [a, b, c] = ["a", "b", "c"].map(message);
        let pretty = a.replace(',', ",\n  ").replace('{', "{\n  ").replace('}', "\n}");
        check(&a, &["1 a"]);
        check(&pretty, &["1 a"]);
        check(&format!("\n {pretty}\n\n{pretty} {b}\n"), &["2 a", "7 a", "10 b"]);
        check(&format!("[{a},{b}]"), &["1 a", "1 b"]);
        check(&format!("\u{feff}\n [\n{a} ,\r\n\n{pretty},{c} ] \n"), &["3 a", "5 a", "8 c"]);
        check(&format!("{a}\n{b}\n{c}"), &["1 a", "2 b", "3 c"]);
        check(&format!("\u{feff}{a}\r\n\r\n \t\r\n{b}\r\n"), &["1 a", "4 b"]);
        for nothing in ["", "\n\n \r\n", "[]", " [ ] \n", "\u{feff}"] {
            check(nothing, &[]);
        }
    }

    #[test]
    fn what_is_wrong_is_said_of_its_line_alone() {
        let [a, b, c] = ["a", "b", "c"].map(message);
        let end = "line 2: the message is not JSON: EOF while parsing a value at line 1 column 6";
        check(&format!("{a}\n{{\"id\":\n{b}\n"), &["1 a", end, "3 b"]);
        let first = end.replace("line 2", "line 1");
        check(&format!("{{\"id\":\n{a}\n{b}\n{c}"), &[&first, "2 a", "3 b", "4 c"]);
        let open = "line 1: the message is not JSON: EOF while parsing a string at line 1 column 8";
        check(&format!("{{\"id\":\"a\n{b}"), &[open, "2 b"]);
        let [first, second, third] = ["{", r#""id":"a"#, &b];
        let found = read(format!("{first}\n{second}\n{third}\n{c}").as_bytes(), 4);
        assert!(found[0].starts_with("line 1: ") && found[1].starts_with("line 2: "), "{found:?}");
        assert_eq!(found[2..], ["3 b", "4 c"]);
        check("7\n", &["line 1: the message must be a JSON object, not a number"]);
        let missing = "line 2: mediationTarget is missing; it must be a URL";
        check(&format!("{a}\n{{\"id\":\"x\"}}\n{c}"), &["1 a", missing, "3 c"]);
        let array = "line 2: the message must be a JSON object, not an array";
        check(&format!("{a}\n[{b}]"), &["1 a", array]);
        check(
            "\u{feff}\u{feff}x",
            &["line 1: the message is not JSON: expected value at line 1 column 1"],
        );
    }

    #[test]
    fn an_array_goes_on_behind_what_is_wrong_in_it() {
        let [a, b] = ["a", "b"].map(message);
        let id = "line 2: message 2: id must be a string, not a number";
        check(&format!("[{a},\n{{\"id\":7}},{b}]"), &["1 a", id, "2 b"]);
        let comma = "there is no message beside a comma";
        check(&format!("[{a},,{b}]"), &["1 a", &format!("line 1: message 2: {comma}"), "1 b"]);
        check(&format!("[{a},\n]"), &["1 a", &format!("line 2: message 2: {comma}")]);
        check(&format!("[{a},\n{b}"), &["1 a", "2 b", "line 2: the array has no end"]);
        let more = "line 2: there is more behind the end of the array";
        check(&format!("[{a}]\n{b} {b}"), &["1 a", more]);
        let brackets =
            r#"{"id":"]","mediationTarget":"http://localhost/","payload":[",]\"}",[{}]]}"#;
        check(&format!("[{brackets},{b}]"), &["1 ]", "1 b"]);
    }

    #[test]
    fn of_a_message_that_is_too_long_no_more_is_kept_than_shows_it() {
        let a = message("a");
        let long = format!("{{\"id\":\"{}\"}}", "x".repeat(10 << 20));
        let why = "the message has 10485769 bytes; at most 1048576 are right";
        for (text, expected) in [
            (format!("{long}\n{a}"), [format!("line 1: {why}"), "2 a".to_owned()]),
            (format!("[{long},{a}]"), [format!("line 1: message 1: {why}"), "1 a".to_owned()]),
        ] {
            assert_eq!(read(text.as_bytes(), 1 << 16), expected);
        }
        let padded = |length| format!("{}{}\r\n{a}", a, " ".repeat(length - a.len()));
        assert_eq!(read(padded(1 << 20).as_bytes(), 1 << 16), ["1 a", "2 a"]);
    }

    #[test]
    fn an_object_over_many_lines_has_the_same_bound() {
        let a = message("a");
        let lines = format!("{{\n{}\"id\":\n{a}", "\"x\":1,\n".repeat(200_000));
        let found = read(lines.as_bytes(), 1 << 16);
        assert_eq!(found.len(), 200_003);
        assert_eq!(found.last().unwrap(), "200003 a");
        assert!(found[0].starts_with("line 1: "), "{}", found[0]);
    }

    #[test]
    fn what_is_not_utf_8_is_said() {
        let mut bytes = message("a").into_bytes();
        bytes.extend(b"\n{\"id\":\"\xff\"}\n");
        assert_eq!(read(&bytes, 5), ["1 a", "line 2: the message is not UTF-8 from byte 7"]);
        assert_eq!(read(b"\xef\xbb", 1), ["line 1: the message is not UTF-8 from byte 0"]);
    }
}
