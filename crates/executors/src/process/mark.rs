//! A mark on every process of a tree, by which it is found when its keeper is no more.
//!
//! What a process is started with goes down to all that it starts, but little of it can be seen from outside and cannot
//! be changed: an environment can be cleared, a session left. The limit on real-time computing can only be lowered, anybody
//! may read it, and one of thousands of years limits nothing. So the number of a tree is this limit.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use parking_lot::Mutex;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, getrlimit, setrlimit, waitpid,
};

use super::cgroup::Cgroup;
use super::proc::{self, Stat};

/// The highest bits of every mark.
const OURS: u64 = 0xA7;
const PID_BITS: u32 = 22;
const SINCE_BITS: u32 = 16;
const TREE_BITS: u32 = 16;

/// The numbers of the keepers that this process has.
static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { last: 0, used: BTreeSet::new() });

#[derive(Debug)]
struct Numbers {
    last: u16,
    used: BTreeSet<u16>,
}

impl Numbers {
    /// One that nobody has, of those the one that was given longest ago: something may be left that has a later one.
    fn take(&mut self) -> Option<u16> {
        let mut all = (1..=u16::MAX).map(|more| self.last.wrapping_add(more));
        let number = all.find(|number| !self.used.contains(number))?;
        self.used.insert(number);
        self.last = number;
        Some(number)
    }
}

/// The mark of a keeper, which no other has. Dropped, its number is free.
#[derive(Debug)]
pub(super) struct OwnMark(Mark);

impl OwnMark {
    /// One more.
    pub(super) fn new(owner: Owner) -> io::Result<Self> {
        let number = NUMBERS.lock().take();
        let number = number.ok_or_else(|| io::Error::other("no number is left"))?;
        Ok(Self(Mark::new(owner, number)))
    }

    pub(super) fn get(&self) -> Mark {
        self.0
    }
}

impl Drop for OwnMark {
    fn drop(&mut self) {
        NUMBERS.lock().used.remove(&self.0.tree());
    }
}

/// Which daemon, and which of its keepers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64);

/// A process that starts trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pid: u64,
    since: u64,
}

impl Owner {
    /// This process.
    pub(super) fn this() -> Option<Self> {
        Self::of(i32::try_from(std::process::id()).ok()?)
    }

    fn of(pid: i32) -> Option<Self> {
        let since = Stat::of(pid)?.since & ((1 << SINCE_BITS) - 1);
        Some(Self { pid: u64::try_from(pid).ok()?, since })
    }

    pub(super) fn is_here(self) -> bool {
        i32::try_from(self.pid).is_ok_and(|pid| Self::of(pid) == Some(self))
    }
}

impl Mark {
    pub(super) fn new(owner: Owner, tree: u16) -> Self {
        let pid = owner.pid & ((1 << PID_BITS) - 1);
        let whose = ((OURS << PID_BITS | pid) << SINCE_BITS) | owner.since;
        Self(whose << TREE_BITS | u64::from(tree))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        text.parse()
            .ok()
            .map(Self)
            .filter(|mark| mark.0 >> (PID_BITS + SINCE_BITS + TREE_BITS) == OURS)
    }

    pub(super) fn number(self) -> u64 {
        self.0
    }

    pub(super) fn owner(self) -> Owner {
        let whose = self.0 >> TREE_BITS;
        let pid = whose >> SINCE_BITS & ((1 << PID_BITS) - 1);
        Owner { pid, since: whose & ((1 << SINCE_BITS) - 1) }
    }

    fn tree(self) -> u16 {
        (self.0 & ((1 << TREE_BITS) - 1)) as u16
    }

    /// Marks this process and all that it starts from now on, if a lower limit does not forbid it.
    pub(super) fn put(self) {
        let lower = getrlimit(Resource::Rttime).maximum.is_some_and(|most| most < self.0);
        if !lower {
            let limit = Rlimit { current: Some(self.0), maximum: Some(self.0) };
            // Without it all is kept as well, but for what happens when a keeper is killed.
            setrlimit(Resource::Rttime, limit).ok();
        }
    }

    /// The mark of a process. An error is one that has ended just now, or cannot be looked at.
    fn of(pid: i32) -> io::Result<Option<Self>> {
        let limits = match fs::read_to_string(format!("/proc/{pid}/limits")) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            limits => limits?,
        };
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"));
        Ok(limit.and_then(|limit| Self::parse(limit.split_whitespace().nth(1)?)))
    }
}

/// Kills the children of this process that have the mark, or are in the group, and hears of their end; says whether there
/// were any, or may have been.
///
/// This process takes in orphans, so what a keeper leaves behind is below it: none has a child of its own elsewhere.
pub(super) fn kill_children(mark: Mark, group: Option<&Cgroup>) -> bool {
    let Ok(children) = proc::children(getpid().as_raw_pid()) else { return true };
    let mut found = false;
    for pid in children {
        let is_meant = || match group {
            _ if Mark::of(pid)? == Some(mark) => Ok(true),
            Some(group) => group.has(pid),
            None => Ok(false),
        };
        match is_meant() {
            Ok(false) => continue,
            Err(error) if proc::is_gone(&error) => continue,
            Ok(true) => {
                proc::signal(pid, Signal::KILL, |_| is_meant().unwrap_or(false));
                if let Some(pid) = Pid::from_raw(pid) {
                    waitpid(Some(pid), WaitOptions::NOHANG).ok();
                }
            }
            // What cannot be seen may be one of them.
            Err(_) => {}
        }
        found = true;
    }
    found
}

/// Kills what processes that are no more have left behind.
pub(super) fn kill_leftovers() -> Found {
    let container = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let here = container("self");
    kill_where(|pid, found| {
        // The numbers in a mark are those of its own container, where they may mean another process.
        !found.owner().is_here() && here.is_some() && container(&pid.to_string()) == here
    })
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) running: usize,
    /// Some could not be looked at, or ended before: what they have started since then was not seen.
    pub(super) has_gaps: bool,
}

fn kill_where(is_meant: impl Fn(i32, Mark) -> bool) -> Found {
    let mut found = Found::default();
    let meant = |pid| Mark::of(pid).map(|mark| mark.is_some_and(|mark| is_meant(pid, mark)));
    let Ok(everybody) = proc::everybody() else { return Found { running: 0, has_gaps: true } };
    for pid in everybody {
        match meant(pid) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => {
                found.has_gaps = true;
                continue;
            }
        }
        if Stat::of(pid).is_some_and(|stat| !stat.is_zombie()) {
            found.running += 1;
            proc::signal(pid, Signal::KILL, |_| meant(pid).unwrap_or(false));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Mark, Numbers, OwnMark, Owner};
    use std::collections::BTreeSet;

    #[test]
    fn a_mark_that_is_in_use_is_not_given_again() {
        let owner = Owner::this().unwrap();
        let one = OwnMark::new(owner).unwrap();
        for _ in 0..=u32::from(u16::MAX) {
            assert_ne!(OwnMark::new(owner).unwrap().get(), one.get());
        }
    }

    #[test]
    fn a_number_is_free_again_when_all_others_were_given() {
        let mut numbers = Numbers { last: 0, used: BTreeSet::new() };
        let one = numbers.take().unwrap();
        while numbers.take().is_some() {}
        assert!(numbers.used.len() >= usize::from(u16::MAX));
        numbers.used.remove(&one);
        assert_eq!(numbers.take(), Some(one));
        assert_eq!(numbers.take(), None);
    }

    #[test]
    fn a_mark_says_whose_it_is() {
        let owner = Owner { pid: 4_194_303, since: 65_535 };
        let mark = Mark::new(owner, 513);
        assert_eq!(mark.owner(), owner);
        assert_eq!(Mark::parse(&mark.number().to_string()), Some(mark));
        assert_ne!(Mark::new(owner, 514), mark);
    }

    #[test]
    fn other_limits_are_no_marks() {
        for text in ["unlimited", "0", "200000", "9223372036854775807", "18446744073709551615"] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_process_is_here() {
        assert!(Owner::this().unwrap().is_here());
        assert!(!Owner { since: u64::MAX, ..Owner::this().unwrap() }.is_here());
    }
}
