//! What the system tells of processes under `/proc`.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A line of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// In ticks since the system started: with the number it is one process for ever.
    pub(super) since: u64,
}

impl Stat {
    pub(super) fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may have some itself.
        let (_, rest) = line.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let since = fields.nth(16)?.parse().ok()?;
        Some(Self { state, parent, group, since })
    }

    /// It has ended, and its parent has not heard of it.
    pub(super) fn is_zombie(self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Whether this is said of what has gone. Whatever else is said, it may be there: no file may be free to look at it.
pub(super) fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::SRCH, Errno::NODEV];
    Errno::from_io_error(error).is_some_and(|error| gone.contains(&error))
}

/// All processes.
pub(super) fn everybody() -> io::Result<Vec<i32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The children of a process, zombies too. One that comes or goes meanwhile may be missing.
pub(super) fn children(parent: i32) -> io::Result<Vec<i32>> {
    let threads = match fs::read_dir(format!("/proc/{parent}/task")) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        threads => threads?,
    };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                found.extend(list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
            }
            // Not every system has that file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && thread.path().exists() => {
                return children_of_all(parent);
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn children_of_all(parent: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for pid in everybody()? {
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(line) => {
                let is_child = Stat::parse(&line).is_some_and(|stat| stat.parent == parent);
                found.extend(is_child.then_some(pid));
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Sends a signal to a process, if `is_meant` says so of what is known once it can be no other.
pub(super) fn signal(pid: i32, signal: Signal, is_meant: impl FnOnce(Stat) -> bool) {
    let Some(number) = Pid::from_raw(pid) else { return };
    let Ok(handle) = pidfd_open(number, PidfdFlags::empty()) else { return };
    if Stat::of(pid).is_some_and(is_meant) {
        // It may have ended just now.
        pidfd_send_signal(handle, signal).ok();
    }
}

/// The sum of something over all descendants of a process that can be seen.
pub(super) fn sum_below(ancestor: i32, of: impl Fn(i32) -> u64) -> u64 {
    let mut waiting = children(ancestor).unwrap_or_default();
    let mut sum = 0;
    while let Some(pid) = waiting.pop() {
        sum += of(pid);
        waiting.extend(children(pid).unwrap_or_default());
    }
    sum
}

/// How many bytes of memory a process uses, what it shares with others included.
pub(super) fn resident(pid: i32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// The same with its part only of what is shared. It takes the system a while to say.
pub(super) fn proportional(pid: i32) -> u64 {
    let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return resident(pid);
    };
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or_else(|| resident(pid), |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::Stat;

    #[test]
    fn the_name_of_a_program_may_be_anything() {
        let rest = "S 5 77 77 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 31337 9 9";
        for name in ["cat", "a b", "a) R 9 9", "()", ""] {
            let stat = Stat::parse(&format!("99 ({name}) {rest}"));
            assert_eq!(stat, Some(Stat { state: b'S', parent: 5, group: 77, since: 31337 }));
        }
        assert_eq!(Stat::parse("99 (cat) S 5"), None);
    }
}
