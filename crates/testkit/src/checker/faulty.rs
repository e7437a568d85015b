//! An engine with a fault, to see that the checker finds it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sluicegate_event_store::{
    Append, AppendCondition, AppendError, BoxFuture, Engine, EngineError, MemoryEngine, Page,
    Position, Query, QueryItem, Read, ReadError,
};

use super::rng::Rng;

/// What is wrong with an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None, for comparison.
    None,
    /// It checks, and appends a moment later.
    StaleHead,
    /// It takes the items of a condition for one.
    OrAsAnd,
    /// Where a page is full it leaves out the next event.
    LosesWhilePaging,
    /// Once in a hundred times it appends although the condition does not hold.
    TwoWinners,
    /// Once in a hundred times it refuses what nothing is in the way of.
    RefusesForNothing,
    /// It appends the events of a batch one by one.
    TornBatches,
    /// An event can be read later than others that stand behind it.
    LateCommits,
}

/// An engine in memory with a fault.
pub struct FaultyEngine {
    inner: MemoryEngine,
    fault: Fault,
    rng: Mutex<Rng>,
    /// From where on nothing can be read yet, and up to where; 0 if there is no such thing.
    hidden: (AtomicU64, AtomicU64),
}

impl FaultyEngine {
    /// An engine without events and with that fault.
    #[must_use]
    pub fn new(fault: Fault, seed: u64) -> Self {
        let (rng, hidden) = (Mutex::new(Rng::new(seed)), Default::default());
        Self { inner: MemoryEngine::new(), fault, rng, hidden }
    }

    fn once_in_a_hundred(&self) -> bool {
        self.rng.lock().percent(1)
    }

    async fn plainly(&self, append: &Append) -> Result<Position, AppendError> {
        self.inner.append(Append::new(append.events().to_vec(), None)?).await
    }

    async fn check_then_append(&self, append: Append) -> Result<Position, AppendError> {
        if let Some(condition) = append.condition() {
            let mut read = Read::new(condition.fail_if_events_match.clone())?;
            read.after = condition.after;
            let page = self.inner.read(read).await.map_err(EngineError::new)?;
            if let Some(event) = page.events.first() {
                return Err(AppendError::Conflict { position: event.position() });
            }
            tokio::task::yield_now().await;
        }
        self.plainly(&append).await
    }

    async fn with_one_item(&self, append: Append) -> Result<Position, AppendError> {
        let as_one = |condition: &AppendCondition| {
            let items = condition.fail_if_events_match.items();
            let one = items.iter().fold(QueryItem::default(), |one, item| {
                one.types(item.event_types().iter().cloned()).tags(item.all_tags().iter().cloned())
            });
            AppendCondition::none_after(Query::any_of([one]), condition.after)
        };
        let condition = append.condition().map(as_one);
        self.inner.append(Append::new(append.events().to_vec(), condition)?).await
    }

    async fn one_by_one(&self, append: Append) -> Result<Position, AppendError> {
        let mut condition = append.condition().cloned();
        let mut last = Position::START;
        for event in append.events() {
            let one = Append::new(vec![event.clone()], condition.take())?;
            last = self.inner.append(one).await?;
            tokio::task::yield_now().await;
        }
        Ok(last)
    }

    async fn late(&self, append: Append) -> Result<Position, AppendError> {
        let count = append.events().len() as u64;
        let last = self.inner.append(append).await?;
        let (from, to) = &self.hidden;
        if from
            .compare_exchange(0, last.get() - count + 1, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            to.store(last.get(), Ordering::SeqCst);
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            to.store(0, Ordering::SeqCst);
            from.store(0, Ordering::SeqCst);
        }
        Ok(last)
    }
}

impl Engine for FaultyEngine {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Position, AppendError>> {
        Box::pin(async move {
            match self.fault {
                Fault::StaleHead => self.check_then_append(append).await,
                Fault::OrAsAnd => self.with_one_item(append).await,
                Fault::TornBatches => self.one_by_one(append).await,
                Fault::LateCommits => self.late(append).await,
                Fault::TwoWinners if self.once_in_a_hundred() => self.plainly(&append).await,
                Fault::RefusesForNothing
                    if append.condition().is_some() && self.once_in_a_hundred() =>
                {
                    Err(AppendError::Conflict { position: self.inner.head().await? })
                }
                _ => self.inner.append(append).await,
            }
        })
    }

    fn read(&self, read: Read) -> BoxFuture<'_, Result<Page, ReadError>> {
        Box::pin(async move {
            let mut page = self.inner.read(read).await?;
            if self.fault == Fault::LosesWhilePaging {
                page.next = page.next.map(|next| Position::new(next.get() + 1));
            }
            let (from, to) = &self.hidden;
            let hidden = from.load(Ordering::SeqCst)..=to.load(Ordering::SeqCst);
            page.events.retain(|event| !hidden.contains(&event.position().get()));
            Ok(page)
        })
    }

    fn head(&self) -> BoxFuture<'_, Result<Position, EngineError>> {
        self.inner.head()
    }

    fn changed(&self, after: Position) -> BoxFuture<'_, ()> {
        self.inner.changed(after)
    }
}
