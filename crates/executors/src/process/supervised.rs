//! A keeper as this process sees it: what is asked of it, what it tells, and what is done when it is killed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cgroup::Cgroup;
use super::keeper::{ARGUMENT, NAME};
use super::mark::{self, OwnMark};
use super::pipes::{Errors, ForProgram, Pipes, pipes};
use super::tree::State;
use super::wire::{self, Event};
use super::{Program, SpawnError, TreeSignal};

/// A keeper that was told to kill and is not done by then is taken for dead.
const KEEPER_LIMIT: Duration = Duration::from_secs(2);
/// The same where all of the tree can be killed without its keeper.
const GROUP_LIMIT: Duration = Duration::from_millis(250);
/// What is left of a tree without a keeper is looked for again after this, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// A keeper, which keeps one tree after the other. Dropped, it kills what it has and ends, since its socket does.
pub(super) struct Supervised {
    process: Child,
    socket: UnixStream,
    mark: OwnMark,
    group: Option<Cgroup>,
    event: [u8; Event::SIZE],
    received: usize,
}

/// What came of a request to start a program.
pub(super) enum Begun {
    /// It runs, as this process.
    Started(u32, Box<Pipes>),
    /// It cannot be started; the keeper can have another.
    Refused(SpawnError),
    /// The keeper is no more, and nothing was started.
    Lost,
    /// The keeper is no more, and may have started it.
    Killed(SpawnError),
}

/// How a tree ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing is left of it: the keeper can have another.
    Gone,
    /// The keeper is no more, or as good as dead.
    Lost,
}

impl Supervised {
    /// Starts a keeper, in a group if there is one for it.
    pub(super) fn start(
        executable: &Path,
        mark: OwnMark,
        group: Option<Cgroup>,
    ) -> io::Result<Self> {
        let (ours, its) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut command = Command::new(executable);
        command
            .arg0(NAME.to_string_lossy().as_ref())
            .arg(ARGUMENT)
            .arg(mark.get().number().to_string())
            .args(group.as_ref().map(Cgroup::folder))
            .env_clear()
            .stdin(OwnedFd::from(its))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = tokio::process::Command::from(command).spawn()?;
        let socket = UnixStream::from_std(ours)?;
        Ok(Self { process, socket, mark, group, event: [0; Event::SIZE], received: 0 })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.id().unwrap_or(0)
    }

    /// Whether it waits for a program; it says nothing without being asked.
    pub(super) fn is_idle(&mut self) -> bool {
        let read = self.socket.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Starts a program. Dropped meanwhile, with the keeper, it leaves nothing behind.
    pub(super) async fn begin(&mut self, program: &Program) -> Begun {
        let why = |error: &io::Error| not_started(program, error);
        let (pipes, files) = match pipes() {
            Ok(both) => both,
            Err(error) => return Begun::Refused(why(&error)),
        };
        match self.ask(program, files).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
                return Begun::Refused(why(&error));
            }
            Err(_) => return Begun::Lost,
        }
        match self.event().await {
            Ok(Some(Event::Started(pid))) => Begun::Started(pid.unsigned_abs(), Box::new(pipes)),
            Ok(Some(Event::NotStarted(error))) => {
                Begun::Refused(why(&io::Error::from_raw_os_error(error)))
            }
            // It was killed before it had read all of it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Begun::Lost,
            _ => Begun::Killed(why(&io::Error::other("its keeper was killed"))),
        }
    }

    async fn ask(&self, program: &Program, files: ForProgram) -> io::Result<()> {
        let program = wire::encode(program);
        let ForProgram { input, output, errors } = files;
        let files = [input.as_fd(), output.as_fd(), errors.as_fd()];
        let start = || wire::send_start(&self.socket, &program, files);
        let sent = self.socket.async_io(Interest::WRITABLE, start).await?;
        self.tell(&program[sent..]).await
    }

    /// Stays with a tree that runs, until it is gone.
    pub(super) async fn stay(&mut self, state: &State, mut errors: Errors) -> Ended {
        let mut limit: Option<Instant> = None;
        loop {
            let too_late = async {
                match limit {
                    Some(limit) => sleep_until(limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.event() => match event {
                    Ok(Some(Event::Exited(exit))) => {
                        // What the program wrote before its end is there when its end is heard of.
                        errors.read_last(state);
                        state.exit(exit);
                    }
                    Ok(Some(Event::Gone)) => return Ended::Gone,
                    _ => break,
                },
                signal = state.signal() => {
                    let order = match signal {
                        TreeSignal::Terminate => wire::TERMINATE,
                        TreeSignal::Kill => {
                            limit.get_or_insert_with(|| Instant::now() + self.limit());
                            wire::KILL
                        }
                    };
                    if self.tell(&[order]).await.is_err() {
                        break;
                    }
                }
                () = errors.read(state) => {}
                () = too_late => {
                    self.kill_group();
                    break;
                }
            }
        }
        errors.read_last(state);
        Ended::Lost
    }

    /// Kills all of the tree with its keeper, if that is in a group.
    fn kill_group(&self) {
        self.group.as_ref().inspect(|group| group.kill());
    }

    /// How long a keeper may take to kill its tree.
    fn limit(&self) -> Duration {
        // One that was not let into its group is not in it.
        let has_group = self.group.as_ref().is_some_and(Cgroup::is_populated);
        if has_group { GROUP_LIMIT } else { KEEPER_LIMIT }
    }

    /// The next event; `None` when there are no more. Cancel safe: what has come is kept.
    async fn event(&mut self) -> io::Result<Option<Event>> {
        while self.received < Event::SIZE {
            match self.socket.try_read(&mut self.event[self.received..]) {
                Ok(0) => return Ok(None),
                Ok(read) => self.received += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.readable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.received = 0;
        Ok(Event::decode(self.event))
    }

    async fn tell(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.socket.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lets the keeper end, ends it if it does not, and kills what it has left behind.
    pub(super) async fn end(self) {
        let limit = self.limit();
        let Self { mut process, socket, mark, group, .. } = self;
        drop(socket);
        match timeout(limit, process.wait()).await {
            // By itself, and so after its tree.
            Ok(Ok(status)) if status.success() => return,
            Ok(_) => {}
            // One that is stopped hears nothing else.
            Err(_) => drop(process.kill().await),
        }
        let (mut pause, mut empty) = (PAUSE.0, 0);
        // One that comes or goes may be missing from a list.
        while empty < 3 {
            group.as_ref().inspect(|group| group.kill());
            let is_populated = group.as_ref().is_some_and(Cgroup::is_populated);
            if mark::kill_children(mark.get(), group.as_ref()) || is_populated {
                (pause, empty) = ((pause * 2).min(PAUSE.1), 0);
            } else {
                (pause, empty) = (PAUSE.0, empty + 1);
            }
            sleep(pause).await;
        }
    }
}

/// Names the program and the error, and nothing that may be secret.
fn not_started(program: &Program, error: &io::Error) -> SpawnError {
    let command = program.command.display();
    let folder = program.folder.as_ref().filter(|folder| !folder.is_dir());
    // The system says the same of a folder that is not there.
    let cause = match (error.kind(), folder) {
        (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, Some(folder)) => {
            format!("`{command}` cannot start in the folder {}: {error}", folder.display())
        }
        _ => format!("`{command}` cannot be started: {error}"),
    };
    SpawnError { cause }
}
