//! The API beside the daemon: it answers from before the first sync until after the drain.

use std::io;
use std::time::Duration;

use sluicegate::server::{Daemon, api};
use sluicegate::tasks::{Context, Task, TaskGroup};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::exit::Failure;

/// How long requests have at the very end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// The API, running.
pub(crate) struct Front {
    group: TaskGroup,
    serving: Task<io::Result<()>>,
    cx: Context,
}

impl Front {
    /// Begins to answer.
    pub(crate) async fn start(daemon: &Daemon, listener: TcpListener) -> Result<Self, Failure> {
        let cx = Context::new();
        let group = TaskGroup::builder("api", 1)
            .service_context(cx.clone())
            .build()
            .map_err(Failure::failed)?;
        let daemon = daemon.clone();
        let serve = move |cx: Context| async move { api::serve(daemon, listener, &cx).await };
        let serving = group.submit_detached("api", serve).await;
        let serving = serving.map_err(|refused| Failure::failed(refused.why))?;
        Ok(Self { group, serving, cx })
    }

    /// Waits until it cannot go on.
    pub(crate) async fn ended(&mut self) -> Failure {
        match (&mut self.serving).await {
            Ok(Ok(())) => Failure::failed("the API ended"),
            Ok(Err(error)) => Failure::failed(format!("the API ended: {error}")),
            Err(error) => Failure::failed(format!("the API ended: {error}")),
        }
    }

    /// Answers what was asked, and ends.
    pub(crate) async fn end(self) {
        self.cx.cancel();
        let report = self.group.drain(Instant::now() + LAST_ANSWERS).await;
        if !report.is_clean() {
            tracing::debug!("requests to the API were cut off");
        }
    }
}
