//! One server process: started in a group of its own, ended with all of its descendants.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::folder::Folder;
use super::plan::Spec;

/// How long a server may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);

/// The servers of one broker, in the order of their start; the last one is the broker itself.
#[derive(Debug, Default)]
pub(super) struct Servers(Vec<Server>);

impl Servers {
    pub(super) fn start(&mut self, spec: &Spec, folder: &Folder) -> io::Result<()> {
        self.0.push(Server::spawn(spec, folder)?);
        Ok(())
    }

    /// The broker itself.
    pub(super) fn main(&self) -> Option<&Server> {
        self.0.last()
    }

    /// Ends the broker itself without a farewell; those that it leans on stay.
    pub(super) fn kill_main(&mut self) {
        if let Some(mut server) = self.0.pop() {
            server.kill();
        }
    }

    /// Asks the broker itself to end, and waits for it; those that it leans on stay.
    pub(super) fn dismiss_main(&mut self) {
        drop(self.0.pop());
    }

    pub(super) fn any_ended(&self) -> bool {
        self.0.iter().any(Server::has_ended)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        // The broker before those that it leans on.
        while let Some(server) = self.0.pop() {
            drop(server);
        }
    }
}

/// A running server; ended when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    farewell: Signal,
}

impl Server {
    /// Starts the process through `setpriv`, which asks the kernel to kill it when we end, drops
    /// root's rights where asked to, and then becomes the server: the id stays the same.
    pub(super) fn spawn(spec: &Spec, folder: &Folder) -> io::Result<Server> {
        let name = spec.program.file_name().map_or_else(OsString::new, ToOwned::to_owned);
        let log = folder.log(&name.to_string_lossy())?;
        let mut command = Command::new(super::plan::program("setpriv")?);
        command.args(["--pdeathsig", "SIGKILL"]);
        if let Some(user) = &spec.user {
            command
                .arg(format!("--reuid={user}"))
                .arg(format!("--regid={user}"))
                .arg("--clear-groups");
        }
        let path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
        command
            .arg("--")
            .arg(&spec.program)
            .args(&spec.arguments)
            .env_clear()
            .env("PATH", path)
            .envs(spec.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(folder.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Server { child: command.spawn()?, farewell: spec.farewell })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the process has ended. It is not reaped yet, so its id, which is also its group's,
    /// cannot have gone to another process.
    pub(super) fn has_ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(self.group()), flags), Ok(WaitStatus::StillAlive))
    }

    /// Ends the process and all of its group at once, and waits for it.
    pub(super) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        // Fails only if it was reaped before; then there is nothing to wait for.
        self.child.wait().map(drop).unwrap_or_default();
    }

    /// Returns when it stands still: what ran on another core goes on for a moment.
    pub(super) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let begun = Instant::now();
        while any_runs(self.group()) && begun.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Signals the group, but never after the leader was reaped: the id may be another's by then.
    fn signal(&self, signal: Signal) {
        if self.has_been_reaped() {
            return;
        }
        // A group whose processes have all ended refuses the signal; that is as good as sent.
        killpg(self.group(), signal).unwrap_or_default();
    }

    fn has_been_reaped(&self) -> bool {
        self.ask().is_err()
    }

    /// The state of the process, without reaping it; an error once it was reaped.
    fn ask(&self) -> nix::Result<WaitStatus> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.group()), flags)
    }
}

/// Whether any thread of a group is neither stopped nor over.
fn any_runs(group: Pid) -> bool {
    let folders = |path: PathBuf| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.join("stat").exists())
    };
    let is_ours = |path: &PathBuf| state(path).is_some_and(|(_, of)| of == group);
    let threads =
        folders("/proc".into()).filter(is_ours).flat_map(|path| folders(path.join("task")));
    let mut states = threads.filter_map(|path| Some(state(&path)?.0));
    states.any(|state| !matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// The state of a process or thread, and its group.
fn state(folder: &Path) -> Option<(char, Pid)> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The name before them may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some((state, Pid::from_raw(group)))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(self.farewell);
        // One that was paused hears its farewell only when it goes on.
        self.signal(Signal::SIGCONT);
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::Folder;
    use super::super::plan::Spec;
    use super::Server;
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    fn shell(folder: &Folder, script: &str) -> Server {
        let spec = Spec::new("/bin/sh").args(["-c", script]);
        Server::spawn(&spec, folder).unwrap()
    }

    fn until(what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(20), "never {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it runs: a process that has ended but was not reaped does not.
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_dropped_server_takes_its_descendants_along() {
        let folder = Folder::new("test").unwrap();
        // Deaf to the farewell, and so is its child.
        let server = shell(&folder, "trap '' TERM; sleep 600 & echo $! > pid; kill -9 $$");
        until("ended", || server.has_ended());
        let child = std::fs::read_to_string(folder.path().join("pid")).unwrap();
        assert!(runs(child.trim()));
        drop(server);
        until("gone", || !runs(child.trim()));
    }

    #[test]
    fn a_paused_server_can_still_be_ended() {
        let folder = Folder::new("test").unwrap();
        let server = shell(&folder, "exec sleep 600");
        let pid = server.pid().to_string();
        server.pause();
        let begun = Instant::now();
        drop(server);
        assert!(!runs(&pid));
        assert!(begun.elapsed() < super::GRACE, "it was not asked, only killed");
    }

    #[test]
    fn what_a_server_writes_is_in_its_log() {
        let folder = Folder::new("test").unwrap();
        let server = shell(&folder, "echo out; echo err >&2");
        until("ended", || server.has_ended());
        assert_eq!(folder.log_tail(), "out\nerr");
    }
}
