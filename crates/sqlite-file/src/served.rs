//! A file that is served already, handed to somebody else of the same process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Clock, Lock, Writer};

/// A file that this process serves. What is written through its writer shares its transactions, and so its syncs. Clones
/// are the same file, which stays locked as long as one of them is there.
#[derive(Clone, Debug)]
pub struct ServedFile {
    path: PathBuf,
    writer: Arc<Writer>,
    clock: Clock,
    _lock: Option<Arc<Lock>>,
}

impl ServedFile {
    /// The file at a path, its lock, and the one that writes to it.
    #[must_use]
    pub fn new(path: PathBuf, lock: Option<Arc<Lock>>, writer: Arc<Writer>, clock: Clock) -> Self {
        Self { path, writer, clock, _lock: lock }
    }

    /// Where it is, to read it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The one that writes to it.
    #[must_use]
    pub fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// What time it is, for what is stored in it.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}
