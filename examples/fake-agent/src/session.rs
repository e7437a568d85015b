//! Sessions: how many turns each has had, when, and whether two are under way at once.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use nix::time::{ClockId, clock_gettime};

const FOLDER: &str = "FAKE_AGENT_FOLDER";

/// A session, and where its turns are counted.
pub(crate) struct Session {
    id: String,
    folder: Option<PathBuf>,
}

/// A turn that is under way. The lock ends with the file, and so with this process.
pub(crate) struct Turn {
    _locked: Option<File>,
    number: u64,
}

impl Session {
    pub(crate) fn new(id: Option<&str>) -> Self {
        let id = id.map_or_else(|| format!("fake-{}", std::process::id()), str::to_owned);
        Self { id, folder: std::env::var_os(FOLDER).map(PathBuf::from) }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Begins a turn; `None` while another of the session is under way.
    pub(crate) fn begin(&self) -> io::Result<Option<Turn>> {
        let Some(folder) = &self.folder else {
            return Ok(Some(Turn { _locked: None, number: 1 }));
        };
        let path = folder.join(format!("{}.turns", self.id));
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = folder.join("overlaps");
                let mut overlaps = OpenOptions::new().append(true).create(true).open(path)?;
                writeln!(overlaps, "{}", self.id)?;
                return Ok(None);
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut counted = String::new();
        file.read_to_string(&mut counted)?;
        let number = counted.trim().parse::<u64>().unwrap_or(0) + 1;
        file.rewind()?;
        writeln!(file, "{number}")?;
        Ok(Some(Turn { _locked: Some(file), number }))
    }

    /// Notes that a turn begins or ends, by a clock that all processes share.
    pub(crate) fn note(&self, what: &str, prompt: &str) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
        let micros = now.tv_sec() * 1_000_000 + now.tv_nsec() / 1_000;
        let (process, session) = (std::process::id(), &self.id);
        // In one piece: others add lines too.
        let line = format!("{micros} {what} {process} {session} {prompt}\n");
        let mut turns = OpenOptions::new().append(true).create(true).open(folder.join("turns"))?;
        turns.write_all(line.as_bytes())
    }
}

impl Turn {
    /// How many turns the session has had, with this one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
