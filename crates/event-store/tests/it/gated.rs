//! An engine that waits, fails and hangs as it is told, round one in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_event_store::{
    Append, AppendError, BoxFuture, Engine, EngineError, MemoryEngine, Page, Position, Read,
    ReadError,
};
use tokio::sync::watch;

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Gated {
    pub(crate) inner: MemoryEngine,
    /// How many reads may still be answered; the others wait.
    reads: watch::Sender<usize>,
    waiting: watch::Sender<usize>,
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    /// This read fails, counted from now.
    fail_read: Option<usize>,
    /// Before each of so many appends somebody else appends this.
    interlopers: Vec<Append>,
    hang_appends: bool,
    reads: usize,
}

impl Gated {
    /// One whose gate is open.
    pub(crate) fn new() -> Self {
        let (reads, waiting) = (watch::Sender::new(usize::MAX), watch::Sender::new(0));
        Self { inner: MemoryEngine::new(), reads, waiting, script: Arc::default() }
    }

    /// From now on only so many reads are answered.
    pub(crate) fn let_through(&self, reads: usize) {
        self.reads.send_replace(reads);
    }

    pub(crate) fn open(&self) {
        self.let_through(usize::MAX);
    }

    /// The read after so many others fails.
    pub(crate) fn fail_read_after(&self, reads: usize) {
        self.script.lock().fail_read = Some(reads);
    }

    pub(crate) fn hang_appends(&self) {
        self.script.lock().hang_appends = true;
    }

    /// Before the next appends somebody else is quicker, once for each of these.
    pub(crate) fn intrude(&self, appends: impl IntoIterator<Item = Append>) {
        self.script.lock().interlopers.extend(appends);
    }

    /// How many reads were asked for.
    pub(crate) fn reads(&self) -> usize {
        self.script.lock().reads
    }

    /// Waits until so many reads wait at the gate.
    pub(crate) async fn until_waiting(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        waiting.wait_for(|waiting| *waiting >= count).await.unwrap();
    }

    async fn pass(&self) {
        let _waiting = Waiting::at(&self.waiting);
        let mut gate = self.reads.subscribe();
        loop {
            let passed = self.reads.send_if_modified(|reads| match *reads {
                0 => false,
                usize::MAX => true,
                _ => {
                    *reads -= 1;
                    true
                }
            });
            if passed {
                return;
            }
            gate.changed().await.unwrap();
        }
    }
}

/// One that waits at the gate, until it is dropped.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn at(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Engine for Gated {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Position, AppendError>> {
        Box::pin(async move {
            let (hang, intruder) = {
                let mut script = self.script.lock();
                (script.hang_appends, script.interlopers.pop())
            };
            if hang {
                std::future::pending::<()>().await;
            }
            if let Some(intruder) = intruder {
                self.inner.append(intruder).await?;
            }
            self.inner.append(append).await
        })
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move {
            let fails = {
                let mut script = self.script.lock();
                script.reads += 1;
                let left = script.fail_read;
                script.fail_read = left.and_then(|left| left.checked_sub(1));
                left == Some(0)
            };
            self.pass().await;
            match fails {
                true => Err(EngineError::new("the disk is gone").into()),
                false => self.inner.read(read).await,
            }
        })
    }

    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
        self.inner.head()
    }

    fn changed(&self, after: Position) -> BoxFuture<'_, ()> {
        self.inner.changed(after)
    }
}
