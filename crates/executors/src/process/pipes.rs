//! The pipes to a program and from it: `docs/rules.md#tree-4`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep_until};

use super::NotRead;
use super::tree::State;

/// What is read at once.
const PIECE: usize = 64 << 10;
/// How long what descendants hold open is waited for.
const LINGER: Duration = Duration::from_millis(250);

/// The ends of a program's three pipes.
pub(super) struct Pipes {
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) errors: Errors,
}

/// What the program gets of them.
pub(super) struct ForProgram {
    pub(super) input: OwnedFd,
    pub(super) output: OwnedFd,
    pub(super) errors: OwnedFd,
}

pub(super) fn pipes() -> io::Result<(Pipes, ForProgram)> {
    let (input, to_input) = io::pipe()?;
    let (from_output, output) = io::pipe()?;
    let (from_errors, errors) = io::pipe()?;
    let program = ForProgram { input: input.into(), output: output.into(), errors: errors.into() };
    let pipes = Pipes {
        input: Input::new(pipe::Sender::from_owned_fd(to_input.into())?),
        output: Output::new(pipe::Receiver::from_owned_fd(from_output.into())?),
        errors: Errors { pipe: Some(pipe::Receiver::from_owned_fd(from_errors.into())?) },
    };
    Ok((pipes, program))
}

/// A program's standard input.
pub(super) struct Input {
    /// Shared with whoever writes just now.
    pipe: Mutex<Option<Arc<pipe::Sender>>>,
    closed: Notify,
    /// One writes at a time.
    writing: AsyncMutex<()>,
}

impl Input {
    fn new(pipe: pipe::Sender) -> Self {
        let pipe = Mutex::new(Some(Arc::new(pipe)));
        Self { pipe, closed: Notify::new(), writing: AsyncMutex::new(()) }
    }

    pub(super) fn close(&self) {
        let closed = self.pipe.lock().take();
        drop(closed);
        self.closed.notify_waiters();
    }

    pub(super) async fn write(&self, bytes: &[u8], state: &State) -> Result<(), NotRead> {
        let _one = self.writing.lock().await;
        // Dropped before the end, a part was written, and more would be read as the rest of it.
        let mut whole = Whole { input: self, is_written: false };
        let closed = self.closed.notified();
        let Some(pipe) = self.pipe.lock().clone() else { return Err(NotRead) };
        tokio::select! {
            biased;
            done = write_all(&pipe, bytes) => done.map_err(|_| NotRead)?,
            () = closed => return Err(NotRead),
            // Descendants may hold the other end, and not read.
            _ = state.exited() => return Err(NotRead),
        }
        whole.is_written = true;
        Ok(())
    }
}

async fn write_all(pipe: &pipe::Sender, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match pipe.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => pipe.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct Whole<'a> {
    input: &'a Input,
    is_written: bool,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            self.input.close();
        }
    }
}

/// A program's standard output.
pub(super) struct Output {
    pipe: pipe::Receiver,
    reading: AsyncMutex<Reading>,
}

#[derive(Default)]
struct Reading {
    piece: Vec<u8>,
    after_exit: Option<AfterExit>,
    is_over: bool,
}

/// The program has ended: it has written no more than was in its pipe then.
struct AfterExit {
    owed: u64,
    until: Instant,
}

impl Output {
    fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe, reading: AsyncMutex::default() }
    }

    /// Cancel safe: a piece is read and handed out in one step.
    pub(super) async fn read(&self, state: &State) -> Option<Bytes> {
        let mut reading = self.reading.lock().await;
        let reading = &mut *reading;
        reading.piece.resize(PIECE, 0);
        while !reading.is_over {
            if reading.after_exit.is_none() && state.has_exited() {
                let owed = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
                reading.after_exit = Some(AfterExit { owed, until: Instant::now() + LINGER });
            }
            if let Some(after) = &reading.after_exit
                && after.owed == 0
                && Instant::now() >= after.until
            {
                break;
            }
            let read = match &reading.after_exit {
                None => self.pipe.try_read(&mut reading.piece),
                Some(_) => read_at_once(&self.pipe, &mut reading.piece),
            };
            match read {
                Ok(read) if read > 0 => {
                    if let Some(after) = &mut reading.after_exit {
                        after.owed = after.owed.saturating_sub(read as u64);
                    }
                    return Some(Bytes::copy_from_slice(&reading.piece[..read]));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.more(reading.after_exit.as_mut(), state).await;
                }
                Ok(_) | Err(_) => break,
            }
        }
        reading.is_over = true;
        None
    }

    /// Waits until there may be more to read, or reason to stop.
    async fn more(&self, after: Option<&mut AfterExit>, state: &State) {
        let enough = async {
            match after {
                None => drop(state.exited().await),
                Some(after) => {
                    // There is nothing, so there is nothing owed.
                    after.owed = 0;
                    sleep_until(after.until).await;
                }
            }
        };
        tokio::select! {
            // An error is seen again where it is read.
            _ = self.pipe.readable() => {}
            () = enough => {}
        }
    }
}

/// Reads what is in a pipe, also where the runtime has not heard of it yet: what says that a program has ended may be
/// quicker than what says that there is something to read.
fn read_at_once(pipe: &pipe::Receiver, piece: &mut [u8]) -> io::Result<usize> {
    match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut *piece)) {
        // The runtime learns from its own attempt that there is nothing.
        Err(rustix::io::Errno::AGAIN) => pipe.try_read(piece),
        read => Ok(read?),
    }
}

/// A program's standard error.
pub(super) struct Errors {
    pipe: Option<pipe::Receiver>,
}

impl Errors {
    /// Reads for as long as anybody has it open, and then for ever waits. Cancel safe.
    pub(super) async fn read(&mut self, state: &State) {
        loop {
            self.read_now(state);
            let Some(pipe) = &self.pipe else { return std::future::pending().await };
            if pipe.readable().await.is_err() {
                self.pipe = None;
            }
        }
    }

    /// Reads what is there, of one that floods no more than a pipe holds.
    fn read_now(&mut self, state: &State) {
        self.pieces(state, |pipe, piece| pipe.try_read(piece));
    }

    /// The same, of a program that has ended: the system is asked, for the runtime may not have heard yet that there is
    /// something to read.
    pub(super) fn read_last(&mut self, state: &State) {
        self.pieces(state, read_at_once);
    }

    fn pieces(
        &mut self,
        state: &State,
        read: impl Fn(&pipe::Receiver, &mut [u8]) -> io::Result<usize>,
    ) {
        let mut piece = [0; 16 << 10];
        for _ in 0..4 {
            let Some(pipe) = &self.pipe else { return };
            match read(pipe, &mut piece) {
                Ok(read) if read > 0 => state.errs(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }
}
