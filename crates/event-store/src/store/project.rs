//! Projecting: all at once, or page by page.
//!
//! `docs/rules.md#events-5`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, Stream};
use sluicegate_tasks::{Context, OwnedPermit};
use tokio::time::{Instant, timeout};

use super::EventStore;
use crate::projection::Running;
use crate::projection::slot::Slot;
use crate::projection::work::Work;
use crate::{
    AppendCondition, BoxFuture, Invalid, Position, ProjectError, Projections, Query, Reader,
    TooManyProjections,
};

impl EventStore {
    /// Folds the events after a position into states, and answers with them and the condition under which a decision that
    /// is made on them still holds.
    ///
    /// It takes one projection, a tuple of up to eight, or a list: they are read together, once. While too many projections
    /// run it is refused at once; [`Project::wait`] makes it wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use std::time::Duration;
    /// use sluicegate_event_store::{EventStore, NewEvent, Position, Query, fold};
    /// use tokio::time::Instant;
    ///
    /// let store = EventStore::in_memory();
    /// store.append([NewEvent::of("CourseDefined").tag("course", "c1")]).await?;
    ///
    /// let is_there = fold::exists(Query::types(["CourseDefined"]).tag("course", "c1"));
    /// let taken = fold::count(Query::types(["StudentSubscribed"]).tag("course", "c1"));
    /// let ((is_there, taken), condition) = store
    ///     .project((is_there, taken), Position::START)
    ///     .wait(Instant::now() + Duration::from_secs(1))
    ///     .await?;
    /// assert_eq!((is_there, taken), (true, 0));
    /// assert_eq!(condition.after, Position::new(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ProjectError`], when it is awaited.
    pub fn project<P: Projections>(&self, projections: P, after: Position) -> Project<P> {
        Project { store: self.clone(), projections, after, wait: None }
    }

    /// Folds as [`project`](Self::project) does, and gives out the states after each page. It holds its place among the
    /// projections until it has ended or is dropped.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// use futures_util::StreamExt;
    /// use sluicegate_event_store::{EventStore, NewEvent, Position, Projected, Query, fold};
    ///
    /// let store = EventStore::in_memory();
    /// store.append([NewEvent::of("Paid").tag("order", 7)]).await?;
    /// let mut states = store.project_stream(fold::count(Query::all()), Position::START).await?;
    /// while let Some(projected) = states.next().await {
    ///     match projected? {
    ///         Projected::Page { states, position } => println!("{states} up to {position}"),
    ///         Projected::End { states, .. } => assert_eq!(states, 1), // only now it is complete
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ProjectError`], when it is awaited. What goes wrong later is the last item of the stream.
    pub fn project_stream<P: Projections>(
        &self,
        projections: P,
        after: Position,
    ) -> ProjectStream<P>
    where
        P::States: Clone,
    {
        ProjectStream { of: self.project(projections, after) }
    }

    /// A place among the projections.
    async fn admit(
        &self,
        op: &'static str,
        wait: Option<Instant>,
    ) -> Result<OwnedPermit, ProjectError> {
        let permits = &self.shared.projections;
        if let Some(deadline) = wait {
            let cx = Context::new().with_deadline(deadline);
            if let Ok(permit) = permits.acquire_owned(&cx).await {
                return Ok(permit);
            }
        }
        // At the end of its wait as without one: the counts of that moment, or a place after all.
        permits.try_acquire_owned().map_err(|at_limit| {
            self.shared.counted.refused.fetch_add(1, Ordering::Relaxed);
            let (limit, in_use) = (at_limit.limit, at_limit.in_use);
            ProjectError::TooManyProjections(TooManyProjections { limit, in_use, op })
        })
    }
}

/// A projection that is asked for: await it.
#[must_use = "await it"]
pub struct Project<P> {
    store: EventStore,
    projections: P,
    after: Position,
    wait: Option<Instant>,
}

/// A projection page by page that is asked for: await it for its stream.
#[must_use = "await it"]
pub struct ProjectStream<P> {
    of: Project<P>,
}

/// What a stream of states gives out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projected<S> {
    /// The states after some events. More may come.
    Page {
        /// The states.
        states: S,
        /// The last of those events.
        position: Position,
    },
    /// The states after all events that were there when it began. Nothing comes after it.
    End {
        /// The states.
        states: S,
        /// The condition under which a decision that is made on them still holds.
        condition: AppendCondition,
    },
}

/// States, page after page. It has ended well only if the last of them is [`Projected::End`].
pub type ProjectionStream<S> =
    Pin<Box<dyn Stream<Item = Result<Projected<S>, ProjectError>> + Send>>;

impl<P: Projections> Project<P> {
    /// Waits in line for its place until the deadline.
    pub fn wait(mut self, deadline: Instant) -> Self {
        self.wait = Some(deadline);
        self
    }

    async fn begin(self, op: &'static str) -> Result<Run<P::Running>, ProjectError> {
        let permit = self.store.admit(op, self.wait).await?;
        let (running, after) = (self.projections.begin(), self.after);
        let mut slots = Vec::new();
        running.slots(&mut slots);
        let query = union(&slots)?;
        let reader = self.store.reader(query.clone(), after)?;
        let most_tasks = self.store.settings().max_projection_tasks;
        let work = Work::new(slots, most_tasks, permit);
        Ok(Run { work, running, reader, condition: AppendCondition::none_after(query, after) })
    }

    async fn fold_to_end(self) -> Result<(P::States, AppendCondition), ProjectError> {
        let after = self.store.settings().query_timeout;
        let mut run = self.begin("project").await?;
        // Too late, it is dropped as it is: whatever still folds keeps the place until it has heard of it.
        let folded = timeout(after, run.fold_all()).await;
        let folded = folded.map_err(|_elapsed| ProjectError::TimedOut { after })?;
        run.work.stop().await;
        folded?;
        Ok((run.running.take(), run.condition))
    }
}

impl<P: Projections> ProjectStream<P>
where
    P::States: Clone,
{
    /// Waits in line for its place until the deadline.
    pub fn wait(self, deadline: Instant) -> Self {
        Self { of: self.of.wait(deadline) }
    }

    async fn open(self) -> Result<ProjectionStream<P::States>, ProjectError> {
        let run = self.of.begin("project_stream").await?;
        Ok(Box::pin(stream::unfold(Some(run), |run| async {
            let mut run = run?;
            match run.next().await {
                Ok(Some(page)) => Some((Ok(page), Some(run))),
                // The place is given back before anybody hears of the end.
                Ok(None) => Some((Ok(run.end().await), None)),
                Err(error) => {
                    run.work.stop().await;
                    drop(run);
                    Some((Err(error), None))
                }
            }
        })))
    }
}

/// A projection on its way.
struct Run<R> {
    work: Work,
    running: R,
    reader: Reader,
    /// Its position is that of the last event that was read.
    condition: AppendCondition,
}

impl<R: Running> Run<R> {
    async fn fold_all(&mut self) -> Result<(), ProjectError> {
        while self.fold_page().await? {}
        self.work.settled().await
    }

    /// Reads a page and hands it on; `false` if there is none.
    async fn fold_page(&mut self) -> Result<bool, ProjectError> {
        let Some(page) = self.reader.next_page().await? else { return Ok(false) };
        if let Some(last) = page.last() {
            self.condition.after = last.position();
        }
        self.work.fold(page).await?;
        // An engine that never waits, and folds that take long, leave room for others and for deadlines.
        tokio::task::yield_now().await;
        Ok(true)
    }

    async fn next(&mut self) -> Result<Option<Projected<R::States>>, ProjectError>
    where
        R::States: Clone,
    {
        if !self.fold_page().await? {
            return Ok(None);
        }
        self.work.settled().await?;
        let states = self.running.take();
        self.running.put(states.clone());
        Ok(Some(Projected::Page { states, position: self.condition.after }))
    }

    async fn end(mut self) -> Projected<R::States> {
        self.work.stop().await;
        Projected::End { states: self.running.take(), condition: self.condition }
    }
}

/// What any of them asks for, each item once.
fn union(slots: &[Arc<dyn Slot>]) -> Result<Query, Invalid> {
    let mut items = Vec::new();
    for slot in slots {
        // Without an item it asks for all.
        if slot.query().is_all() {
            return Ok(Query::all());
        }
        for item in slot.query().items() {
            if !items.contains(item) {
                items.push(item.clone());
            }
        }
    }
    match slots.is_empty() {
        true => Err(Invalid::new("projections", "there is none: give at least one")),
        false => Ok(Query::any_of(items)),
    }
}

impl<P: Projections> IntoFuture for Project<P> {
    type Output = Result<(P::States, AppendCondition), ProjectError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.fold_to_end())
    }
}

impl<P: Projections> IntoFuture for ProjectStream<P>
where
    P::States: Clone,
{
    type Output = Result<ProjectionStream<P::States>, ProjectError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}
