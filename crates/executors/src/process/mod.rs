//! Trees of processes: a program with all that it starts.
//!
//! Invariants:
//! 1. What a tree was started with ends with it: when [`Tree::gone`] has answered, no process of it is left, and none
//!    is a zombie.
//! 2. A tree that is dropped is killed, whatever it does; so are all trees when this process ends, in whatever way.
//! 3. What is kept of a tree's output is bounded.
//!
//! [`Keepers`] starts real ones.

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
pub mod keeper;
#[cfg(target_os = "linux")]
mod keepers;
#[cfg(target_os = "linux")]
mod mark;
#[cfg(target_os = "linux")]
mod pipes;
#[cfg(target_os = "linux")]
mod proc;
#[cfg(target_os = "linux")]
mod supervised;
#[cfg(target_os = "linux")]
mod tree;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub use keepers::{Cgroups, Keepers};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use bytes::Bytes;
use sluicegate_dispatch::BoxFuture;

/// Starts trees of processes.
pub trait Spawner: Send + Sync + 'static {
    /// Starts a program, with nothing in its environment but what it says.
    ///
    /// # Cancel safety
    /// Dropped, it leaves no process behind.
    fn spawn(&self, program: Program) -> BoxFuture<'_, Result<Box<dyn Tree>, SpawnError>>;
}

/// A process with all its descendants. Dropped, all of them are killed.
pub trait Tree: Send + Sync + 'static {
    /// The program's process.
    fn pid(&self) -> u32;

    /// Writes to the program's standard input; waits while it does not read.
    ///
    /// # Errors
    /// The program does not read any more.
    ///
    /// # Cancel safety
    /// Dropped, a part may have been written: nothing more can be said to the program then.
    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), NotRead>>;

    /// Ends the program's standard input.
    fn close_input(&self);

    /// What the program writes next to its standard output, as it comes. `None` once it has ended, or its output
    /// has: what its descendants still hold open is waited for only briefly. One reads at a time.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    fn read(&self) -> BoxFuture<'_, Option<Bytes>>;

    /// The beginning of what the tree has written to its standard error, and why it was killed here, if it was.
    fn errors(&self) -> String {
        self.errors_as(&|text, _| text.to_owned())
    }

    /// The same, with what it has written as `shown` makes it, which is told whether that was cut at its end: the half of
    /// a secret is a secret too.
    fn errors_as(&self, shown: &dyn Fn(&str, bool) -> String) -> String;

    /// How many bytes of memory the tree uses, as of the last look.
    fn memory(&self) -> u64;

    /// Whether it was killed for its memory.
    fn is_killed_for_memory(&self) -> bool;

    /// Sends a signal to every process of the tree.
    fn signal(&self, signal: TreeSignal);

    /// How the program ended; waits for it. Others of the tree may still be there.
    fn exit(&self) -> BoxFuture<'_, Exit>;

    /// Waits until nothing of the tree is left.
    fn gone(&self) -> BoxFuture<'_, ()>;
}

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program.
    pub command: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// The folder it starts in; ours, if it does not matter.
    pub folder: Option<PathBuf>,
    /// How many bytes of memory the tree may use: above it, by a look every second, it is killed.
    pub memory_limit: Option<u64>,
}

/// What a tree is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeSignal {
    /// To end in order.
    Terminate,
    /// To end now.
    Kill,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// The program reads its standard input no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRead;

/// Why a program was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnError {
    /// What happened, with the program's name and without its arguments or environment.
    pub cause: String,
}

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the program does not read its input any more")
    }
}

impl std::error::Error for NotRead {}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for SpawnError {}
