//! One STOMP frame, as a value.

use bytes::Bytes;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Connect,
    Connected,
    Send,
    Subscribe,
    Unsubscribe,
    Ack,
    Nack,
    Begin,
    Commit,
    Abort,
    Disconnect,
    Message,
    Receipt,
    Error,
}

impl Command {
    pub(crate) const ALL: [Command; 14] = [
        Command::Connect,
        Command::Connected,
        Command::Send,
        Command::Subscribe,
        Command::Unsubscribe,
        Command::Ack,
        Command::Nack,
        Command::Begin,
        Command::Commit,
        Command::Abort,
        Command::Disconnect,
        Command::Message,
        Command::Receipt,
        Command::Error,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Connected => "CONNECTED",
            Self::Send => "SEND",
            Self::Subscribe => "SUBSCRIBE",
            Self::Unsubscribe => "UNSUBSCRIBE",
            Self::Ack => "ACK",
            Self::Nack => "NACK",
            Self::Begin => "BEGIN",
            Self::Commit => "COMMIT",
            Self::Abort => "ABORT",
            Self::Disconnect => "DISCONNECT",
            Self::Message => "MESSAGE",
            Self::Receipt => "RECEIPT",
            Self::Error => "ERROR",
        }
    }

    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name().as_bytes() == name)
    }

    /// Whether its headers are escaped. The two that agree on a version are not, for the sake of old
    /// peers.
    pub(crate) const fn escapes(self) -> bool {
        !matches!(self, Self::Connect | Self::Connected)
    }

    /// Whether it may carry a body.
    pub(crate) const fn has_body(self) -> bool {
        matches!(self, Self::Send | Self::Message | Self::Error)
    }
}

/// Names and values of a frame's headers. Of those with one name, the first one counts.
pub(crate) type Headers = Vec<(Box<str>, Box<str>)>;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) command: Command,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
    /// Whether it was larger than what is taken in: some of its body or headers is missing.
    pub(crate) is_cut: bool,
}

impl Frame {
    pub(crate) const fn new(command: Command) -> Self {
        Self { command, headers: Vec::new(), body: Bytes::new(), is_cut: false }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Box<str>>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn with_body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| **known == *name).map(|(_, value)| &**value)
    }
}
