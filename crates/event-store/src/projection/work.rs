//! Pages to projections, on tasks where that is worth it: from the second page on, where there are several projections.
//!
//! 1. There are never more tasks than `max_projection_tasks`, nor than projections.
//! 2. A task folds its own projections and nobody else's, page by page, in order.
//! 3. The permit is held by the projection and by its tasks: it is free when the last of them is gone.

use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate_tasks::{Context, OwnedPermit, Task, TaskGroup};
use tokio::sync::mpsc;

use super::slot::Slot;
use crate::{EngineError, Event, ProjectError};

/// How many pages wait for a task that folds slower than the others.
const PAGES_AHEAD: usize = 2;

/// Projections that are fed page by page.
pub(crate) struct Work {
    slots: Vec<Arc<dyn Slot>>,
    most_tasks: usize,
    permit: Arc<OwnedPermit>,
    begun: bool,
    tasks: Option<Tasks>,
}

/// Those that fold, and the ways to them.
struct Tasks {
    ways: Vec<mpsc::Sender<Job>>,
    running: Vec<Task<()>>,
    failed: Arc<Mutex<Option<ProjectError>>>,
    /// Dropped, it ends them.
    _group: TaskGroup,
}

/// What a task is handed.
enum Job {
    Page(Arc<Vec<Event>>),
    /// Dropped by each task when it has come so far.
    Told(mpsc::Sender<()>),
}

impl Work {
    pub(crate) fn new(slots: Vec<Arc<dyn Slot>>, most_tasks: u32, permit: OwnedPermit) -> Self {
        let most_tasks = usize::try_from(most_tasks).unwrap_or(usize::MAX);
        Self { slots, most_tasks, permit: Arc::new(permit), begun: false, tasks: None }
    }

    /// Folds a page, or hands it to those who do. What fails may be heard of later.
    pub(crate) async fn fold(&mut self, page: Vec<Event>) -> Result<(), ProjectError> {
        if self.begun && self.tasks.is_none() && self.slots.len().min(self.most_tasks) > 1 {
            self.tasks = Some(self.spawn()?);
        }
        self.begun = true;
        match &self.tasks {
            Some(tasks) => {
                let page = Arc::new(page);
                tasks.send(|| Job::Page(Arc::clone(&page))).await
            }
            None => fold_page(&self.slots, self.slots.len() == 1, &page),
        }
    }

    /// Waits until all that was handed over is folded.
    pub(crate) async fn settled(&self) -> Result<(), ProjectError> {
        let Some(tasks) = &self.tasks else { return Ok(()) };
        let (told, mut all_told) = mpsc::channel(1);
        tasks.send(|| Job::Told(told.clone())).await?;
        drop(told);
        // Nobody sends: it ends when the last of them has dropped it.
        all_told.recv().await;
        tasks.check()
    }

    /// Ends the tasks and waits until they are gone.
    pub(crate) async fn stop(&mut self) {
        let Some(Tasks { ways, running, failed: _, _group }) = self.tasks.take() else { return };
        drop(ways);
        for task in running {
            // However it ended: what went wrong was noted where it did.
            drop(task.await);
        }
    }

    fn spawn(&self) -> Result<Tasks, ProjectError> {
        let count = self.slots.len().min(self.most_tasks);
        let each = self.slots.len().div_ceil(count);
        let chunks = self.slots.chunks(each);
        let limit = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        let group = TaskGroup::new("projection", limit).map_err(EngineError::new)?;
        let failed = Arc::new(Mutex::new(None));
        let (mut ways, mut running) = (Vec::new(), Vec::new());
        for chunk in chunks {
            let (way, jobs) = mpsc::channel(PAGES_AHEAD);
            let folder = Folder {
                slots: chunk.to_vec(),
                jobs,
                failed: Arc::clone(&failed),
                _permit: Arc::clone(&self.permit),
            };
            let task = group.try_submit(Context::new(), |cx| folder.run(cx));
            // It has a permit for each, and nobody else's tasks.
            running.push(task.map_err(|refused| EngineError::new(refused.why))?);
            ways.push(way);
        }
        Ok(Tasks { ways, running, failed, _group: group })
    }
}

impl Tasks {
    /// Hands the same to each of them.
    async fn send(&self, job: impl Fn() -> Job) -> Result<(), ProjectError> {
        for way in &self.ways {
            if way.send(job()).await.is_err() {
                self.check()?;
                return Err(EngineError::new("the projection was stopped").into());
            }
        }
        self.check()
    }

    fn check(&self) -> Result<(), ProjectError> {
        self.failed.lock().clone().map_or(Ok(()), Err)
    }
}

/// A task's part of the projections.
struct Folder {
    slots: Vec<Arc<dyn Slot>>,
    jobs: mpsc::Receiver<Job>,
    failed: Arc<Mutex<Option<ProjectError>>>,
    _permit: Arc<OwnedPermit>,
}

impl Folder {
    async fn run(mut self, cx: Context) {
        while let Ok(Some(job)) = cx.until_interrupted(self.jobs.recv()).await {
            let folded = match job {
                Job::Page(page) => fold_page(&self.slots, false, &page),
                Job::Told(told) => {
                    drop(told);
                    Ok(())
                }
            };
            if let Err(error) = folded {
                self.failed.lock().get_or_insert(error);
                return;
            }
        }
    }
}

fn fold_page(slots: &[Arc<dyn Slot>], all: bool, page: &[Event]) -> Result<(), ProjectError> {
    slots.iter().try_for_each(|slot| slot.fold(page, all))
}
