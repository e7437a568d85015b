//! A tree as its keeper sees it: below this process, all of it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, wait};

use crate::process::proc::{self, Stat};
use crate::process::{Exit, Program, TreeSignal, wire};

/// A program that was started, and what it has started.
pub(super) struct KeptTree {
    pid: Pid,
    /// Its number, and with it its group's, is nobody else's until its end was heard of.
    has_ended: bool,
    is_killed: bool,
}

/// Starts a program in a group of its own.
pub(super) fn start(program: &Program, files: [OwnedFd; wire::FILES]) -> io::Result<KeptTree> {
    let [input, output, errors] = files;
    let mut command = Command::new(found(program));
    command
        .arg0(&program.command)
        .args(&program.arguments)
        .env_clear()
        .envs(&program.environment)
        .stdin(input)
        .stdout(output)
        .stderr(errors)
        .process_group(0);
    if let Some(folder) = &program.folder {
        command.current_dir(folder);
    }
    let started = command.spawn()?;
    let pid = i32::try_from(started.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::Other))?;
    Ok(KeptTree { pid, has_ended: false, is_killed: false })
}

/// A name without a folder is looked for where the program itself would look.
fn found(program: &Program) -> PathBuf {
    let name = Path::new(&program.command);
    let path = program.environment.get(OsStr::new("PATH"));
    if program.command.as_bytes().contains(&b'/') {
        return name.to_owned();
    }
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    let runs = |file: &PathBuf| {
        file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    folders.map(|folder| folder.join(name)).find(runs).unwrap_or_else(|| name.to_owned())
}

impl KeptTree {
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    pub(super) fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Hears of those that have ended, the program by name; says whether nobody is left.
    pub(super) fn reap(&mut self, mut ended: impl FnMut(Exit)) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid == self.pid
                        && !self.has_ended
                        && let Some(exit) = exit(status)
                    {
                        self.has_ended = true;
                        ended(exit);
                    }
                }
                Ok(None) => return false,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    pub(super) fn signal(&mut self, signal: TreeSignal) {
        match signal {
            TreeSignal::Terminate => self.terminate(),
            TreeSignal::Kill => self.kill(),
        }
    }

    /// Once to each process, the program's group together: some take a second one for impatience. What is stopped
    /// goes on, to hear it.
    fn terminate(&self) {
        for signal in [Signal::TERM, Signal::CONT] {
            // Those furthest down first: the children of one that ends move up.
            for (pid, parent) in below(getpid().as_raw_pid(), |_, _| {}).into_iter().rev() {
                proc::signal(pid, signal, |stat| {
                    is_below(stat, parent) && (self.has_ended || stat.group != self.pid())
                });
            }
            self.signal_group(signal);
        }
    }

    /// All that is found. Whoever calls it comes back until nobody is left.
    pub(super) fn kill(&mut self) {
        self.is_killed = true;
        self.signal_group(Signal::KILL);
        below(getpid().as_raw_pid(), |pid, parent| {
            proc::signal(pid, Signal::KILL, |stat| is_below(stat, parent));
        });
    }

    fn signal_group(&self, signal: Signal) {
        if !self.has_ended {
            // Nobody may be in it any more.
            kill_process_group(self.pid, signal).ok();
        }
    }
}

/// All descendants with their parents, each after its parent; told of each as it is found.
fn below(ancestor: i32, mut told: impl FnMut(i32, i32)) -> Vec<(i32, i32)> {
    let mut found: Vec<(i32, i32)> = Vec::new();
    let (mut next, mut parent) = (0, ancestor);
    loop {
        // Those that cannot be seen now are there when it is looked again.
        for pid in proc::children(parent).unwrap_or_default() {
            told(pid, parent);
            found.push((pid, parent));
        }
        let Some(&(pid, _)) = found.get(next) else { return found };
        (next, parent) = (next + 1, pid);
    }
}

/// Still a child of the one that it was found below, or left behind by it meanwhile.
fn is_below(stat: Stat, parent: i32) -> bool {
    !stat.is_zombie() && (stat.parent == parent || stat.parent == getpid().as_raw_pid())
}

fn exit(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or(status.terminating_signal().map(Exit::Signal))
}
