//! Alerts: telling a webhook what is warned of, when it begins and when it is over.
//!
//! The alerter starts before everything that may go wrong and ends after it. It has a task of its own:
//! whatever the webhook does, nobody waits for it.

mod notices;
mod start;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use sluicegate_dispatch::Severity;
use sluicegate_tasks::{Context, Invalid, TaskGroup};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::fetch::{Ask, Fetch};
use crate::record::Record;
use crate::settings::{AlertSettings, WebhookUrl};
use notices::{Next, Notice, Notices};
pub use start::alert_failed_start;

/// How long the webhook may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of an answer is read: only its status matters.
const ANSWER: usize = 64 * 1024;
/// Warnings that come at once are looked at together.
const TOGETHER: Duration = Duration::from_millis(50);
/// How long the last notices have.
const LAST: Duration = Duration::from_secs(5);

/// Tells a webhook, if there is one.
#[derive(Debug)]
pub(crate) struct Alerter {
    group: TaskGroup,
    post: Option<Arc<Post>>,
}

#[derive(Debug)]
struct Post {
    record: Arc<Record>,
    fetch: Fetch,
    webhook: WebhookUrl,
    min_severity: Severity,
    every: Duration,
    is_started: AtomicBool,
    is_ending: AtomicBool,
    ending: Notify,
}

impl Alerter {
    pub(crate) fn new(
        settings: &AlertSettings,
        record: Arc<Record>,
        fetch: Fetch,
    ) -> Result<Self, Invalid> {
        let post = settings.webhook.clone().map(|webhook| Post {
            record,
            fetch,
            webhook,
            min_severity: settings.min_severity,
            every: settings.every,
            is_started: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            ending: Notify::new(),
        });
        Ok(Self { group: TaskGroup::new("alerts", 1)?, post: post.map(Arc::new) })
    }

    /// Begins to tell. Once is enough.
    pub(crate) async fn start(&self) {
        let Some(post) = &self.post else { return };
        if post.is_started.swap(true, Ordering::AcqRel) {
            return;
        }
        let post = Arc::clone(post);
        // Refused only when it has ended.
        self.group.submit_detached("alerter", |cx| async move { post.run(cx).await }).await.ok();
    }

    /// Tells what is owed, for a few seconds, and ends.
    pub(crate) async fn finish(&self) {
        if let Some(post) = &self.post {
            post.is_ending.store(true, Ordering::Release);
            post.ending.notify_one();
        }
        let report = self.group.drain(Instant::now() + LAST).await;
        if !report.is_clean() {
            tracing::warn!(target: "sluicegate", "alerts: the last notices were not taken");
        }
    }
}

impl Post {
    /// # Cancel safety
    /// Dropped, it has told of a warning or not; whether the webhook took the last one is not known.
    async fn run(&self, cx: Context) {
        let mut notices = Notices::new(self.every);
        let mut is_ending = false;
        loop {
            if !is_ending && self.is_ending.load(Ordering::Acquire) {
                is_ending = true;
                notices.hurry();
            }
            let dropped = notices.look(self.record.warnings.at_least(self.min_severity));
            if dropped > 0 {
                tracing::warn!(target: "sluicegate", dropped, "alerts: too many notices are owed");
            }
            match notices.next(Instant::now()) {
                Next::Send(notice) => {
                    let Ok(taken) = cx.until_interrupted(self.send(&notice)).await else { return };
                    self.note(&mut notices, &notice, taken);
                }
                Next::Wait(_) if is_ending && !notices.owes() => return,
                Next::Wait(until) => {
                    if cx.until_interrupted(self.wait(until)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn note(&self, notices: &mut Notices, notice: &Notice, taken: Result<(), String>) {
        let now = Instant::now();
        match taken {
            Ok(()) => notices.taken(notice, now),
            Err(why) => {
                let pause = notices.refused(notice, now, chance());
                let webhook = &self.webhook;
                tracing::warn!(target: "sluicegate", ?pause, "alerts: {webhook} {why}");
            }
        }
    }

    async fn wait(&self, until: Option<Instant>) {
        let time = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.record.warnings.changed() => {
                tokio::select! {
                    () = sleep(TOGETHER) => {}
                    () = self.ending.notified() => {}
                }
            }
            () = self.ending.notified() => {}
            () = time => {}
        }
    }

    async fn send(&self, notice: &Notice) -> Result<(), String> {
        let ask = Ask {
            method: Method::POST,
            token: None,
            body: Some(Bytes::from(notice.body.to_string())),
            timeout: PATIENCE,
            most_bytes: ANSWER,
        };
        match self.fetch.ask(self.webhook.expose(), ask).await {
            Ok(answer) if answer.status.is_success() => Ok(()),
            Ok(answer) => Err(format!("answered {}", answer.status.as_u16())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A number from 0 to 1. The state of a hasher is random, and nothing secret depends on it.
fn chance() -> f64 {
    let number = RandomState::new().hash_one(0_u8) >> 32;
    number as f64 / f64::from(u32::MAX)
}
