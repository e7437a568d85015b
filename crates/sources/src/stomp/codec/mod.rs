//! Frames to bytes and back, within bounds.
//!
//! 1. What is buffered is bounded, whatever the peer sends: a body that is too large is kept up to the
//!    bound and the rest dropped as it comes; so are headers. Such a frame is [`Frame::is_cut`].
//! 2. What is no frame is dropped up to the next NUL: a text with a NUL in it, which a broker may send
//!    without its length, must not end the connection each time it is delivered.
//! 3. Every call that returns something has consumed something.

mod head;
#[cfg(test)]
mod tests;

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use super::frame::{Command, Frame};
use head::{Head, Line, escape_into};

/// The largest body that is taken in whole.
pub(crate) const MAX_BODY: usize = 1024 * 1024;
/// The longest command there is has eleven letters.
const MAX_COMMAND: usize = 64;
/// A body that is smaller than this gets a buffer of its own, so that it does not keep alive all that
/// was read together with it.
const SMALL: usize = 16 * 1024;

/// What was heard from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A frame.
    Frame(Frame),
    /// A sign of life.
    Beat,
}

/// What is written to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A frame.
    Frame(Frame),
    /// A sign of life.
    Beat,
}

/// The codec of one direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Codec {
    state: State,
    /// How many bytes at the front of the buffer are known not to end what is read.
    scanned: usize,
}

#[derive(Debug, Default)]
enum State {
    /// Between frames.
    #[default]
    Between,
    /// Behind a command.
    Headers(Head),
    /// Behind the headers; with the length of the body, where it was said.
    Body(Head, Option<usize>),
    /// In a body of which the rest is dropped; with its length, where it was said.
    Rest(Head, Bytes, Option<usize>),
    /// In something that is no frame.
    Garbage,
}

impl Decoder for Codec {
    type Item = Heard;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<Heard>> {
        loop {
            let (next, heard) = match std::mem::take(&mut self.state) {
                State::Between => self.command(bytes),
                State::Headers(head) => self.headers(head, bytes)?,
                State::Body(head, Some(length)) => sized(head, length, bytes)?,
                State::Body(head, None) => self.unsized_body(head, bytes),
                State::Rest(head, body, left) => rest(head, body, left, bytes)?,
                State::Garbage => garbage(bytes),
            };
            self.state = next;
            match heard {
                Step::Heard(heard) => return Ok(Some(heard)),
                Step::More => return Ok(None),
                Step::On => {}
            }
        }
    }
}

/// What a piece of work in the decoder leads to.
enum Step {
    Heard(Heard),
    /// More bytes are needed.
    More,
    /// The next state goes on with what is there.
    On,
}

impl Codec {
    fn command(&mut self, bytes: &mut BytesMut) -> (State, Step) {
        let ends = bytes.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        bytes.advance(ends);
        if bytes.is_empty() {
            let step = if ends > 0 { Step::Heard(Heard::Beat) } else { Step::More };
            return (State::Between, step);
        }
        let look = bytes.len().min(MAX_COMMAND);
        match bytes[..look].iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                let name = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
                let Some(command) = Command::named(name) else {
                    return (State::Garbage, Step::On);
                };
                bytes.advance(end + 1);
                self.scanned = 0;
                (State::Headers(Head::new(command)), Step::On)
            }
            None if look == MAX_COMMAND || bytes[..look].contains(&0) => (State::Garbage, Step::On),
            None => (State::Between, Step::More),
        }
    }

    fn headers(&mut self, mut head: Head, bytes: &mut BytesMut) -> io::Result<(State, Step)> {
        loop {
            let end = bytes[self.scanned..].iter().position(|&byte| byte == b'\n');
            let Some(end) = end.map(|end| self.scanned + end) else {
                self.scanned = bytes.len();
                if head.too_long(bytes.len()) {
                    bytes.clear();
                    self.scanned = 0;
                    return Ok((State::Headers(head), Step::Heard(Heard::Beat)));
                }
                return Ok((State::Headers(head), Step::More));
            };
            let line = bytes.split_to(end + 1);
            self.scanned = 0;
            if head.line(&line[..end]) == Line::Last {
                let length = head.content_length()?;
                bytes.reserve(length.unwrap_or(0).min(MAX_BODY).saturating_sub(bytes.len()) + 1);
                return Ok((State::Body(head, length), Step::On));
            }
        }
    }

    /// A body that ends with the first NUL.
    fn unsized_body(&mut self, head: Head, bytes: &mut BytesMut) -> (State, Step) {
        match bytes[self.scanned..].iter().position(|&byte| byte == 0) {
            Some(end) if self.scanned + end <= MAX_BODY => {
                let body = take(bytes, self.scanned + end);
                bytes.advance(1);
                self.scanned = 0;
                (State::Between, Step::Heard(Heard::Frame(head.into_frame(body))))
            }
            _ if bytes.len() > MAX_BODY => {
                let body = take(bytes, MAX_BODY);
                self.scanned = 0;
                (State::Rest(head, body, None), Step::On)
            }
            _ => {
                self.scanned = bytes.len();
                (State::Body(head, None), Step::More)
            }
        }
    }
}

/// A body whose length was said.
fn sized(head: Head, length: usize, bytes: &mut BytesMut) -> io::Result<(State, Step)> {
    if length > MAX_BODY {
        if bytes.len() < MAX_BODY {
            return Ok((State::Body(head, Some(length)), Step::More));
        }
        let body = take(bytes, MAX_BODY);
        return Ok((State::Rest(head, body, Some(length - MAX_BODY)), Step::On));
    }
    if bytes.len() <= length {
        return Ok((State::Body(head, Some(length)), Step::More));
    }
    let body = take(bytes, length);
    end(bytes)?;
    Ok((State::Between, Step::Heard(Heard::Frame(head.into_frame(body)))))
}

/// The rest of a body that is too large.
fn rest(
    head: Head,
    body: Bytes,
    left: Option<usize>,
    bytes: &mut BytesMut,
) -> io::Result<(State, Step)> {
    let (dropped, is_over) = match left {
        Some(left) => (left.min(bytes.len()), left < bytes.len()),
        None => match bytes.iter().position(|&byte| byte == 0) {
            Some(nul) => (nul, true),
            None => (bytes.len(), false),
        },
    };
    bytes.advance(dropped);
    if is_over {
        end(bytes)?;
        let frame = Frame { is_cut: true, ..head.into_frame(body) };
        return Ok((State::Between, Step::Heard(Heard::Frame(frame))));
    }
    let left = left.map(|left| left - dropped);
    let step = if dropped > 0 { Step::Heard(Heard::Beat) } else { Step::More };
    Ok((State::Rest(head, body, left), step))
}

fn garbage(bytes: &mut BytesMut) -> (State, Step) {
    match bytes.iter().position(|&byte| byte == 0) {
        Some(nul) => {
            bytes.advance(nul + 1);
            (State::Between, Step::On)
        }
        None => {
            bytes.clear();
            (State::Garbage, Step::More)
        }
    }
}

/// Consumes the NUL behind a body.
fn end(bytes: &mut BytesMut) -> io::Result<()> {
    match bytes.get_u8() {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a frame does not end where it says")),
    }
}

fn take(bytes: &mut BytesMut, length: usize) -> Bytes {
    if length < SMALL {
        let body = Bytes::copy_from_slice(&bytes[..length]);
        bytes.advance(length);
        return body;
    }
    bytes.split_to(length).freeze()
}

impl Encoder<Said> for Codec {
    type Error = io::Error;

    fn encode(&mut self, said: Said, bytes: &mut BytesMut) -> io::Result<()> {
        let Said::Frame(frame) = said else {
            bytes.extend_from_slice(b"\n");
            return Ok(());
        };
        let length = |(name, value): &(Box<str>, Box<str>)| name.len() + value.len() + 8;
        let headers: usize = frame.headers.iter().map(length).sum();
        bytes.reserve(frame.body.len() + headers + 64);
        bytes.extend_from_slice(frame.command.name().as_bytes());
        bytes.extend_from_slice(b"\n");
        for (name, value) in &frame.headers {
            if frame.command.escapes() {
                escape_into(name, bytes);
                bytes.extend_from_slice(b":");
                escape_into(value, bytes);
            } else {
                bytes.extend_from_slice(name.as_bytes());
                bytes.extend_from_slice(b":");
                bytes.extend_from_slice(value.as_bytes());
            }
            bytes.extend_from_slice(b"\n");
        }
        if frame.command.has_body() {
            let length = frame.body.len();
            bytes.extend_from_slice(format!("content-length:{length}\n").as_bytes());
        }
        bytes.extend_from_slice(b"\n");
        bytes.extend_from_slice(&frame.body);
        bytes.extend_from_slice(b"\0");
        Ok(())
    }
}
