//! The head of a frame: its command and its headers, of which there may be too many.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::stomp::frame::{Command, Frame, Headers};

/// How many bytes of headers are kept, and how long a line may be.
const MAX_BYTES: usize = 64 * 1024;
const MAX_COUNT: usize = 1_000;
/// What is kept in any case: without it a message could not be settled.
const ESSENTIAL: [&str; 6] =
    ["ack", "content-length", "message", "message-id", "receipt-id", "subscription"];

/// The head of a frame, as far as it was read.
#[derive(Debug)]
pub(super) struct Head {
    command: Command,
    headers: Headers,
    bytes: usize,
    is_cut: bool,
    /// In a line that was too long, and of which the beginning is gone.
    drops_line: bool,
}

/// What a line of the head was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Header,
    /// The empty one before the body.
    Last,
}

impl Head {
    pub(super) const fn new(command: Command) -> Self {
        Self { command, headers: Vec::new(), bytes: 0, is_cut: false, drops_line: false }
    }

    /// Whether a line of which so much is there is too long. If so, the rest of it is dropped.
    pub(super) fn too_long(&mut self, length: usize) -> bool {
        let is_long = length > MAX_BYTES || (self.drops_line && length > 0);
        if is_long {
            (self.drops_line, self.is_cut) = (true, true);
        }
        is_long
    }

    /// Takes a line in, without the LF at its end.
    pub(super) fn line(&mut self, line: &[u8]) -> Line {
        if std::mem::take(&mut self.drops_line) {
            return Line::Header;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Line::Last;
        }
        if line.len() > MAX_BYTES {
            self.is_cut = true;
            return Line::Header;
        }
        // What has no colon is no header, and says nothing.
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return Line::Header };
        let (name, value) = (self.text(&line[..colon]), self.text(&line[colon + 1..]));
        let is_known = |(known, _): &(Box<str>, Box<str>)| *known == name;
        if self.is_kept(&name, line.len()) && !self.headers.iter().any(is_known) {
            self.bytes += line.len();
            self.headers.push((name, value));
        }
        Line::Header
    }

    fn is_kept(&mut self, name: &str, length: usize) -> bool {
        let fits = self.bytes + length <= MAX_BYTES && self.headers.len() < MAX_COUNT;
        if fits || ESSENTIAL.contains(&name) {
            return true;
        }
        self.is_cut = true;
        false
    }

    fn text(&self, bytes: &[u8]) -> Box<str> {
        let text = String::from_utf8_lossy(bytes);
        if self.command.escapes() && text.contains('\\') { unescape(&text) } else { text.into() }
    }

    pub(super) fn content_length(&self) -> io::Result<Option<usize>> {
        let length = self.headers.iter().find(|(name, _)| &**name == "content-length");
        let Some((_, length)) = length else { return Ok(None) };
        length.trim().parse().map(Some).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "a frame's content-length is no number")
        })
    }

    pub(super) fn into_frame(self, body: Bytes) -> Frame {
        let Self { command, headers, is_cut, .. } = self;
        Frame { command, headers, body, is_cut }
    }
}

/// Writes a name or a value so that it stays on its line.
pub(super) fn escape_into(text: &str, bytes: &mut BytesMut) {
    for byte in text.bytes() {
        match byte {
            b'\\' => bytes.extend_from_slice(b"\\\\"),
            b'\n' => bytes.extend_from_slice(b"\\n"),
            b'\r' => bytes.extend_from_slice(b"\\r"),
            b':' => bytes.extend_from_slice(b"\\c"),
            _ => bytes.extend_from_slice(&[byte]),
        }
    }
}

/// The reverse. An escape that there is not stays as it is.
fn unescape(text: &str) -> Box<str> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match rest.next() {
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('c') => plain.push(':'),
            Some('\\') => plain.push('\\'),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    plain.into()
}
