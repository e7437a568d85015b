//! Groups of processes that the system keeps (cgroup v2), one for each keeper, where it lets this process make them.
//!
//! A keeper puts itself into its group before it starts anything, so all that it starts is born there: who belongs to a
//! tree is known without looking for them, and all of them are killed at once, whatever they do meanwhile. Nothing relies
//! on it: a keeper that has no group does what it does without one.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::mark::Mark;
use super::proc;

/// The group of this process, in which it may make others.
#[derive(Debug)]
pub(super) struct Delegated {
    folder: PathBuf,
    /// How the names of groups begin that were made in this container: the numbers in a mark are those of its own.
    prefix: String,
}

/// The group of one keeper. Dropped, its folder is removed, if nobody is in it any more.
#[derive(Debug)]
pub(super) struct Cgroup {
    folder: PathBuf,
}

/// The group that this process is in, as a keeper. Dropped, it leaves it and removes it.
#[derive(Debug)]
pub(super) struct Joined {
    folder: PathBuf,
}

impl Delegated {
    /// The group of this process; or why none can be made in it. `trial` is the name of one that is made for a moment.
    pub(super) fn find(trial: Mark) -> Result<Self, String> {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let folder = own(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        let folder = folder.ok_or("there is no cgroup v2 that this process is in")?;
        let container = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let container: String =
            container.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        if container.is_empty() {
            return Err("it cannot be seen which container this process is in".to_owned());
        }
        let found = Self { folder, prefix: format!("sluicegate-{container}-") };
        match found.try_out(trial) {
            Ok(()) => Ok(found),
            Err(error) => {
                Err(format!("no group can be made in {}: {error}", found.folder.display()))
            }
        }
    }

    fn try_out(&self, trial: Mark) -> io::Result<()> {
        let may_write = |file: &Path| OpenOptions::new().write(true).open(file).map(drop);
        // Whoever goes from this group into one below it must be let into both.
        may_write(&self.folder.join("cgroup.procs"))?;
        let group = self.make(trial)?;
        may_write(&group.folder.join("cgroup.procs"))?;
        // Since Linux 5.14.
        may_write(&group.folder.join("cgroup.kill"))?;
        match fs::read_to_string(group.folder.join("cgroup.type"))?.trim() {
            "domain" => Ok(()),
            other => Err(io::Error::other(format!("it would be `{other}`"))),
        }
    }

    /// Where groups are made.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the group of a keeper, which puts itself into it.
    pub(super) fn make(&self, mark: Mark) -> io::Result<Cgroup> {
        let folder = self.folder.join(format!("{}{}", self.prefix, mark.number()));
        fs::create_dir(&folder)?;
        Ok(Cgroup { folder })
    }

    /// Kills what processes that are no more have left behind; says whether something of it may still be there.
    pub(super) fn kill_leftovers(&self) -> bool {
        let Ok(entries) = fs::read_dir(&self.folder) else { return true };
        let mut are_left = false;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let mark = name.to_str().and_then(|name| Mark::parse(name.strip_prefix(&self.prefix)?));
            if mark.is_some_and(|mark| !mark.owner().is_here()) {
                let group = Cgroup { folder: entry.path() };
                group.kill();
                are_left |= !remove(&group.folder);
            }
        }
        are_left
    }
}

impl Cgroup {
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Kills all that is in it, its keeper too.
    pub(super) fn kill(&self) {
        // It may be gone already, with all that was in it.
        fs::write(self.folder.join("cgroup.kill"), "1").ok();
    }

    /// Whether anybody is in it, or may be.
    pub(super) fn is_populated(&self) -> bool {
        match fs::read_to_string(self.folder.join("cgroup.events")) {
            Ok(events) => events.lines().any(|line| line == "populated 1"),
            Err(error) => !proc::is_gone(&error),
        }
    }

    /// Whether a process is in it or below it, or was when it ended.
    pub(super) fn has(&self, pid: i32) -> io::Result<bool> {
        let groups = match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(false),
            groups => groups?,
        };
        Ok(self.folder.file_name().is_some_and(|name| is_below(&groups, name)))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

impl Joined {
    /// Puts this process into a group; `None` if it is not let in.
    pub(super) fn join(folder: PathBuf) -> Option<Self> {
        // Zero is whoever writes it.
        fs::write(folder.join("cgroup.procs"), "0").ok()?;
        Some(Self { folder })
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let parent = self.folder.parent().map(|parent| parent.join("cgroup.procs"));
        if parent.is_some_and(|parent| fs::write(parent, "0").is_ok()) {
            remove(&self.folder);
        }
    }
}

/// Removes a group and those that were made in it; says whether it is gone.
fn remove(folder: &Path) -> bool {
    let inner = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    fs::remove_dir(folder).is_ok() || !folder.exists()
}

/// Whether a process's group of version 2 has that name, or is below one that has.
fn is_below(groups: &str, name: &OsStr) -> bool {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    // It may be removed while somebody in it has ended, and nobody has heard of it.
    Path::new(group.strip_suffix(" (deleted)").unwrap_or(group)).iter().any(|part| part == name)
}

/// The folder of a process's group: of its groups the one of version 2, below where that is mounted.
fn own(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = place.split(' ').skip(3);
        let (root, mounted_at) = (fields.next()?, fields.next()?);
        Some(Path::new(mounted_at).join(group.strip_prefix(root).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::{is_below, own};
    use std::path::Path;

    #[test]
    fn a_process_is_in_a_group_or_below_it() {
        let cases = [
            ("4:memory:/a\n0::/x/keeper-1\n", true),
            ("0::/x/keeper-1/inner\n", true),
            ("0::/x/keeper-1 (deleted)\n", true),
            ("0::/x/keeper-12\n", false),
            ("4:memory:/keeper-1\n0::/\n", false),
            ("", false),
        ];
        for (groups, expected) in cases {
            assert_eq!(is_below(groups, "keeper-1".as_ref()), expected, "{groups}");
        }
    }

    #[test]
    fn the_own_group_is_found_where_it_is_mounted() {
        let only = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let beside = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let inner = "30 23 0:26 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup ro\n";
        let cases = [
            ("0::/system.slice/x.service\n", only, Some("/sys/fs/cgroup/system.slice/x.service")),
            ("4:memory:/a\n0::/\n", beside, Some("/sys/fs/cgroup/unified/")),
            ("0::/docker/a/b\n", inner, Some("/sys/fs/cgroup/b")),
            ("0::/elsewhere\n", inner, None),
            ("4:memory:/a\n", beside, None),
            ("0::/\n", "", None),
        ];
        for (groups, mounts, expected) in cases {
            assert_eq!(own(groups, mounts).as_deref(), expected.map(Path::new), "{groups}{mounts}");
        }
    }
}
