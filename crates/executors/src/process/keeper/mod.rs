//! The keeper of a tree: a small process between this one and a program, which outlives both by a moment.
//!
//! It is this program again, with a hidden argument. It takes what descendants leave behind, so that all of them stay
//! below it, and kills them when it is told to, or when nobody is there any more to tell it.
//!
//! Invariants:
//! 1. It has no child exactly when nothing of the tree is left: orphans become its children.
//! 2. It ends when the socket does, and only after the tree.
//! 3. It waits for nothing but the socket, the end of a child, and, while it kills, a short time; and for the system to
//!    start a program.
//!
//! `docs/rules.md#tree-1`, `docs/rules.md#tree-2`, `docs/rules.md#tree-3`.

mod tree;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{getpid, set_child_subreaper, setsid};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};

use super::cgroup::Joined;
use super::mark::Mark;
use super::wire::{self, Event};
use super::{Program, TreeSignal};
use tree::start;

/// The hidden argument.
pub(super) const ARGUMENT: &str = "__keep-processes";
/// What a list of processes shows: not the daemon's name, by which people kill.
pub(super) const NAME: &std::ffi::CStr = c"agent-keeper";

/// What would end a keeper, or stop it. With a handler of ours they do neither, and a program starts without one.
const HARMLESS: [i32; 10] =
    [SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2];

/// While it kills, how long it waits before it looks again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// Keeps processes, if this process was started for that; call it first in `main`.
///
/// ```
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(code) = sluicegate_executors::process::keeper::run_if_asked() {
///         return code;
///     }
///     // What the program is for.
///     ExitCode::SUCCESS
/// }
/// ```
#[must_use]
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    Some(match Keeper::new(arguments).and_then(Keeper::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keeps processes for the program that starts it, nothing else: {error}");
            ExitCode::from(2)
        }
    })
}

/// Closes what the daemon itself has inherited and hands down without knowing: a program gets its own three files only.
fn close_inherited() -> io::Result<()> {
    let listed = fs::read_dir("/proc/self/fd")?.flatten();
    let numbers: Vec<i32> =
        listed.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|&number| number > 2) {
        // The list itself is closed by now.
        nix::unistd::close(number).ok();
    }
    Ok(())
}

struct Keeper {
    daemon: UnixStream,
    /// Readable when a child has ended.
    ended: UnixStream,
    _group: Option<Joined>,
}

/// What the daemon wants.
enum Order {
    Start(Program, [OwnedFd; wire::FILES]),
    Signal(TreeSignal),
    /// It is gone, or says what nobody understands.
    End,
}

impl Keeper {
    fn new(mut arguments: impl Iterator<Item = OsString>) -> io::Result<Self> {
        close_inherited()?;
        let daemon = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        // Fails where standard input is something else, as when a person tries it.
        daemon.peer_addr()?;
        let (ended, end) = UnixStream::pair()?;
        ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, end)?;
        for signal in HARMLESS {
            signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
        }
        // Away from the daemon's terminal. It fails for the first of a group, which is as far away.
        setsid().ok();
        rustix::thread::set_name(NAME)?;
        set_child_subreaper(Some(getpid()))?;
        if let Some(mark) = arguments.next().as_deref().and_then(|mark| Mark::parse(mark.to_str()?))
        {
            mark.put();
        }
        // Before it starts anything, and while nobody waits for it, as a rule: it takes the system a while.
        let _group = arguments.next().and_then(|folder| Joined::join(folder.into()));
        Ok(Self { daemon, ended, _group })
    }

    /// Keeps one tree after the other, until the daemon is gone.
    fn run(self) -> io::Result<()> {
        loop {
            match self.order() {
                Order::Start(program, files) => {
                    if !self.keep(&program, files) {
                        return Ok(());
                    }
                }
                // For a tree that is gone: it was sent before that was heard.
                Order::Signal(_) => {}
                Order::End => return Ok(()),
            }
        }
    }

    /// Starts a program, and stays with it until nothing of it is left; says whether the daemon is there still.
    fn keep(&self, program: &Program, files: [OwnedFd; wire::FILES]) -> bool {
        let mut tree = match start(program, files) {
            Ok(tree) => tree,
            Err(error) => {
                return self.tell(Event::NotStarted(error.raw_os_error().unwrap_or(0)));
            }
        };
        let mut is_there = self.tell(Event::Started(tree.pid()));
        let mut pause = PAUSE.0;
        while !tree.reap(|exit| is_there &= self.tell(Event::Exited(exit))) {
            let limit = if tree.is_killed() || !is_there {
                tree.kill();
                pause = (pause * 2).min(PAUSE.1);
                Some(pause)
            } else {
                None
            };
            if self.wait(limit, is_there) {
                match self.order() {
                    Order::Signal(signal) => tree.signal(signal),
                    Order::Start(..) | Order::End => is_there = false,
                }
            }
        }
        is_there && self.tell(Event::Gone)
    }

    /// Waits for the end of a child, or for the daemon, if it is there; says whether that has something to say.
    fn wait(&self, limit: Option<Duration>, is_there: bool) -> bool {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut both =
            [PollFd::new(&self.ended, PollFlags::IN), PollFd::new(&self.daemon, PollFlags::IN)];
        let asked = if is_there { &mut both[..] } else { &mut both[..1] };
        let woken = poll(asked, limit.as_ref()).unwrap_or(0) > 0;
        let has_order = is_there && woken && !both[1].revents().is_empty();
        while (&self.ended).read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        has_order
    }

    fn order(&self) -> Order {
        let Ok((order, files)) = self.receive::<1>() else { return Order::End };
        match order {
            [wire::TERMINATE] => Order::Signal(TreeSignal::Terminate),
            [wire::KILL] => Order::Signal(TreeSignal::Kill),
            [wire::START] => self.program(files).unwrap_or(Order::End),
            _ => Order::End,
        }
    }

    fn program(&self, files: Vec<OwnedFd>) -> Option<Order> {
        let (length, _) = self.receive::<4>().ok()?;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        (&self.daemon).read_exact(&mut bytes).ok()?;
        Some(Order::Start(wire::decode(&bytes)?, files.try_into().ok()?))
    }

    /// So many bytes, and the files that come with them.
    fn receive<const N: usize>(&self) -> io::Result<([u8; N], Vec<OwnedFd>)> {
        let mut bytes = [0; N];
        let mut files = Vec::new();
        let mut length = 0;
        while length < N {
            match wire::receive(&self.daemon, &mut bytes[length..]) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((received, with)) => {
                    length += received;
                    files.extend(with);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((bytes, files))
    }

    /// Says whether the daemon is there.
    fn tell(&self, event: Event) -> bool {
        // There is always room: a tree has three events.
        (&self.daemon).write_all(&event.encode()).is_ok()
    }
}
