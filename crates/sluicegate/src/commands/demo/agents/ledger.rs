//! What the agents of the demo saw, and what is left of them.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use super::stand_in::NOTES;

/// What must all be nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Turns that began while another of their session ran.
    pub(super) overlaps: usize,
    /// Turns that began before an earlier one of their session.
    pub(super) misplaced: usize,
}

/// Reads what the agents noted.
pub(super) fn faults(folder: &Path) -> io::Result<Faults> {
    Ok(judge(&fs::read_to_string(folder.join(NOTES))?))
}

fn judge(notes: &str) -> Faults {
    let mut faults = Faults::default();
    // Of each session how many run, and the last that began.
    let mut sessions: HashMap<&str, (i32, u32)> = HashMap::new();
    for line in notes.lines() {
        let mut parts = line.split(' ').skip(1);
        let (Some(what), Some(session), Some(number)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let number = number.parse().unwrap_or(0);
        let (running, last) = sessions.entry(session).or_default();
        if what == "begin" {
            faults.overlaps += usize::from(*running > 0);
            faults.misplaced += usize::from(number <= *last);
            (*running, *last) = (*running + 1, number);
        } else {
            *running -= 1;
        }
    }
    faults
}

/// The processes that were started with this folder among their arguments.
pub(super) fn processes(folder: &Path) -> io::Result<usize> {
    let is_ours = |entry: &fs::DirEntry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|argument| argument == folder.as_os_str().as_bytes())
    };
    Ok(fs::read_dir("/proc")?.flatten().filter(is_ours).count())
}

#[cfg(test)]
mod tests {
    use super::{Faults, judge};

    #[test]
    fn overlaps_and_disorder_are_seen() {
        let cases = [
            ("1 begin a 1\n2 begin b 1\n3 end a 1\n4 begin a 2\n5 end b 1\n6 end a 2\n", (0, 0)),
            ("1 begin a 1\n2 begin a 2\n3 end a 1\n4 end a 2\n", (1, 0)),
            ("1 begin a 2\n2 end a 2\n3 begin a 1\n4 end a 1\n", (0, 1)),
            ("1 begin a 1\n2 end a 1\n3 begin a 1\n", (0, 1)),
        ];
        for (notes, (overlaps, misplaced)) in cases {
            assert_eq!(judge(notes), Faults { overlaps, misplaced }, "{notes}");
        }
    }
}
