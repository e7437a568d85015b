//! What this process and its keepers say to each other, over a pair of sockets.
//!
//! To a keeper: one byte, and with [`START`] the length of a program, three files and the program. From a keeper:
//! events of five bytes each.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::{Exit, Program};

/// The program and its files follow.
pub(super) const START: u8 = b'S';
/// To all of the tree: end in order.
pub(super) const TERMINATE: u8 = b'T';
/// To all of the tree: end now, and again until nothing is left.
pub(super) const KILL: u8 = b'K';

/// Standard input, output and error of a program.
pub(super) const FILES: usize = 3;
/// The system takes no more than this by far.
const LONGEST: u32 = 16 << 20;

/// What a keeper tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The program runs, as this process.
    Started(i32),
    /// It could not be started: the system's number of the error.
    NotStarted(i32),
    /// The program has ended.
    Exited(Exit),
    /// Nothing of the tree is left.
    Gone,
}

impl Event {
    pub(super) const SIZE: usize = 5;

    pub(super) fn encode(self) -> [u8; Self::SIZE] {
        let (tag, [a, b, c, d]) = match self {
            Self::Started(pid) => (b'S', pid.to_le_bytes()),
            Self::NotStarted(error) => (b'N', error.to_le_bytes()),
            Self::Exited(Exit::Code(code)) => (b'C', code.to_le_bytes()),
            Self::Exited(Exit::Signal(signal)) => (b'X', signal.to_le_bytes()),
            Self::Gone => (b'G', [0; 4]),
        };
        [tag, a, b, c, d]
    }

    pub(super) fn decode([tag, a, b, c, d]: [u8; Self::SIZE]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        match tag {
            b'S' => Some(Self::Started(value)),
            b'N' => Some(Self::NotStarted(value)),
            b'C' => Some(Self::Exited(Exit::Code(value))),
            b'X' => Some(Self::Exited(Exit::Signal(value))),
            b'G' => Some(Self::Gone),
            _ => None,
        }
    }
}

/// Sends a start with its files, as much of it as there is room for; says how much of the program that was.
pub(super) fn send_start(
    socket: impl AsFd,
    program: &[u8],
    files: [BorrowedFd<'_>; FILES],
) -> io::Result<usize> {
    let length = u32::try_from(program.len()).ok().filter(|&length| length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::from(io::ErrorKind::ArgumentListTooLong))?;
    let [a, b, c, d] = length.to_le_bytes();
    let header = [START, a, b, c, d];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&files));
    let both = [IoSlice::new(&header), IoSlice::new(program)];
    let sent = sendmsg(socket, &both, &mut control, SendFlags::NOSIGNAL)?;
    // So few bytes are not sent in part.
    Ok(sent.saturating_sub(header.len()))
}

/// Waits for bytes and the files that come with them. No bytes: nobody is there any more.
pub(super) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(bytes)];
    let received = recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            files.extend(sent);
        }
    }
    Ok((received, files))
}

/// A program as bytes.
pub(super) fn encode(program: &Program) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |text: &OsStr| {
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    put(&program.command);
    put(program.folder.as_ref().map_or(OsStr::new(""), |folder| folder.as_os_str()));
    put(OsStr::new(&program.memory_limit.map_or(String::new(), |limit| limit.to_string())));
    put(OsStr::new(&program.environment.len().to_string()));
    for (name, value) in &program.environment {
        put(name);
        put(value);
    }
    program.arguments.iter().for_each(|argument| put(argument));
    bytes
}

/// A program from its bytes.
pub(super) fn decode(bytes: &[u8]) -> Option<Program> {
    let mut texts = Texts { rest: bytes };
    let command = texts.next()?;
    let folder = texts.next().filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let memory_limit = texts.next()?.to_str()?.parse().ok();
    let variables: usize = texts.next()?.to_str()?.parse().ok()?;
    let mut environment = BTreeMap::new();
    for _ in 0..variables {
        environment.insert(texts.next()?, texts.next()?);
    }
    let arguments = texts.by_ref().collect();
    texts.rest.is_empty().then_some(Program {
        command,
        arguments,
        environment,
        folder,
        memory_limit,
    })
}

struct Texts<'a> {
    rest: &'a [u8],
}

impl Iterator for Texts<'_> {
    type Item = OsString;

    fn next(&mut self) -> Option<OsString> {
        let (length, rest) = self.rest.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.rest = rest;
        Some(OsString::from_vec(text.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::{Event, Exit, Program, decode, encode};

    fn program() -> Program {
        Program {
            command: "/bin/agent".into(),
            arguments: vec!["-p".into(), "".into(), OsString::from_vec(vec![0xff, b'\n'])],
            environment: [("A".into(), "1 2".into()), ("B".into(), "".into())].into(),
            folder: Some("/tmp/x y".into()),
            memory_limit: Some(1 << 30),
        }
    }

    #[test]
    fn a_program_arrives_as_it_was_sent() {
        let bare = Program {
            arguments: Vec::new(),
            environment: [].into(),
            folder: None,
            memory_limit: None,
            ..program()
        };
        for program in [program(), bare] {
            assert_eq!(decode(&encode(&program)), Some(program));
        }
    }

    #[test]
    fn half_a_program_is_none() {
        let whole = encode(&program());
        // A part that ends between two arguments is a program with fewer of them: its length is sent with it.
        let cuts = (0..whole.len()).filter(|&end| decode(&whole[..end]).is_some());
        assert_eq!(cuts.count(), 3);
    }

    #[test]
    fn events_arrive_as_they_were_sent() {
        let all = [
            Event::Started(77),
            Event::NotStarted(2),
            Event::Exited(Exit::Code(3)),
            Event::Exited(Exit::Signal(9)),
            Event::Gone,
        ];
        for event in all {
            assert_eq!(Event::decode(event.encode()), Some(event));
        }
        assert_eq!(Event::decode([0; 5]), None);
    }
}
