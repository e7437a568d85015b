//! The signals that a daemon, and a command that takes its time, listens to.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM, SIGINT and SIGHUP. From when it is made none of them ends the program by itself.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
pub(super) enum Told {
    /// To end; by this signal.
    End(&'static str),
    /// To read the file again.
    Reload,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until it is told to end, and says by what. Dropped, it loses no signal.
    pub(super) async fn end(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The same of a command that reads no file again: it ends with its terminal.
    pub(super) async fn leave(&mut self) -> &'static str {
        match self.next().await {
            Told::End(name) => name,
            Told::Reload => "SIGHUP",
        }
    }

    /// Waits for whatever comes first. Dropped, it loses no signal.
    pub(super) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.terminate.recv() => Told::End("SIGTERM"),
            _ = self.interrupt.recv() => Told::End("SIGINT"),
            _ = self.hangup.recv() => Told::Reload,
        }
    }
}
