//! A tree of processes, held here and kept elsewhere: `docs/rules.md#tree-5`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sluicegate_dispatch::BoxFuture;
use tokio::sync::{Notify, watch};

use super::keepers::Shared;
use super::pipes::{Input, Output};
use super::{Exit, NotRead, Tree, TreeSignal};

/// What is kept of standard error.
const ERRORS: usize = 64 << 10;

/// What nobody knows the end of was killed.
const KILLED: Exit = Exit::Signal(9);

/// A tree, as its owner has it.
pub(super) struct HeldTree {
    pub(super) pid: u32,
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) state: Arc<State>,
    /// What supervises it is there for as long as it is.
    pub(super) _keepers: Arc<Shared>,
}

/// What owner and supervisor of a tree tell each other.
pub(super) struct State {
    stage: watch::Sender<Stage>,
    errors: Mutex<Vec<u8>>,
    memory: AtomicU64,
    memory_limit: Option<u64>,
    /// The memory for which it was killed.
    exceeded: AtomicU64,
    terminate: AtomicBool,
    kill: AtomicBool,
    told: Notify,
}

#[derive(Clone, Copy)]
enum Stage {
    Running,
    Exited(Exit),
    Gone(Exit),
}

impl State {
    pub(super) fn new(memory_limit: Option<u64>) -> Self {
        Self {
            stage: watch::Sender::new(Stage::Running),
            errors: Mutex::default(),
            memory: AtomicU64::new(0),
            memory_limit,
            exceeded: AtomicU64::new(0),
            terminate: AtomicBool::new(false),
            kill: AtomicBool::new(false),
            told: Notify::new(),
        }
    }

    /// The program has ended.
    pub(super) fn exit(&self, exit: Exit) {
        self.stage.send_replace(Stage::Exited(exit));
    }

    /// All of it has ended.
    pub(super) fn go(&self) {
        self.memory.store(0, Ordering::Relaxed);
        self.stage.send_modify(|stage| *stage = Stage::Gone(stage.exit().unwrap_or(KILLED)));
    }

    pub(super) fn has_exited(&self) -> bool {
        self.stage.borrow().exit().is_some()
    }

    pub(super) async fn exited(&self) -> Exit {
        let mut stage = self.stage.subscribe();
        // The sender is right here.
        let stage = stage.wait_for(|stage| stage.exit().is_some()).await;
        stage.ok().and_then(|stage| stage.exit()).unwrap_or(KILLED)
    }

    async fn gone(&self) {
        let mut stage = self.stage.subscribe();
        stage.wait_for(|stage| matches!(stage, Stage::Gone(_))).await.ok();
    }

    /// Keeps the beginning of standard error.
    pub(super) fn errs(&self, bytes: &[u8]) {
        let mut errors = self.errors.lock();
        let room = ERRORS.saturating_sub(errors.len());
        errors.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Keeps how much memory the tree uses, and kills it if that is too much; `exact` takes longer.
    pub(super) fn uses(&self, memory: u64, exact: impl FnOnce() -> u64) {
        self.memory.store(memory, Ordering::Relaxed);
        let Some(limit) = self.memory_limit.filter(|&limit| memory > limit) else { return };
        let memory = exact();
        if memory > limit {
            self.exceeded.fetch_max(memory, Ordering::Relaxed);
            self.tell(TreeSignal::Kill);
        }
    }

    /// What it said, as `shown` makes it, and why it was killed here.
    fn errors(&self, shown: &dyn Fn(&str, bool) -> String) -> String {
        let (said, is_cut) = {
            let errors = self.errors.lock();
            (String::from_utf8_lossy(&errors).into_owned(), errors.len() >= ERRORS)
        };
        let mut errors = shown(&said, is_cut);
        if let (used @ 1.., Some(limit)) =
            (self.exceeded.load(Ordering::Relaxed), self.memory_limit)
        {
            let (used, limit) = (used >> 20, limit >> 20);
            errors += &format!("killed: it uses {used} MiB of memory, and may use {limit} MiB\n");
        }
        errors
    }

    fn tell(&self, signal: TreeSignal) {
        let flag = match signal {
            TreeSignal::Terminate => &self.terminate,
            TreeSignal::Kill => &self.kill,
        };
        flag.store(true, Ordering::Release);
        self.told.notify_one();
    }

    /// The next signal for the tree. Cancel safe.
    pub(super) async fn signal(&self) -> TreeSignal {
        loop {
            if self.kill.swap(false, Ordering::AcqRel) {
                return TreeSignal::Kill;
            }
            if self.terminate.swap(false, Ordering::AcqRel) {
                return TreeSignal::Terminate;
            }
            self.told.notified().await;
        }
    }
}

impl Stage {
    fn exit(self) -> Option<Exit> {
        match self {
            Self::Running => None,
            Self::Exited(exit) | Self::Gone(exit) => Some(exit),
        }
    }
}

impl Tree for HeldTree {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn write(&self, bytes: Bytes) -> BoxFuture<'_, Result<(), NotRead>> {
        Box::pin(async move { self.input.write(&bytes, &self.state).await })
    }

    fn close_input(&self) {
        self.input.close();
    }

    fn read(&self) -> BoxFuture<'_, Option<Bytes>> {
        Box::pin(self.output.read(&self.state))
    }

    fn errors_as(&self, shown: &dyn Fn(&str, bool) -> String) -> String {
        self.state.errors(shown)
    }

    fn memory(&self) -> u64 {
        self.state.memory.load(Ordering::Relaxed)
    }

    fn is_killed_for_memory(&self) -> bool {
        self.state.exceeded.load(Ordering::Relaxed) > 0
    }

    fn signal(&self, signal: TreeSignal) {
        self.state.tell(signal);
    }

    fn exit(&self) -> BoxFuture<'_, Exit> {
        Box::pin(self.state.exited())
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.state.gone())
    }
}

impl Drop for HeldTree {
    fn drop(&mut self) {
        self.state.tell(TreeSignal::Kill);
    }
}
