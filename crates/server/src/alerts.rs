//! Alerts: telling a webhook of warnings, each when it is new and then, while it goes on, now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::daemon::Daemon;
use crate::fetch::Ask;
use crate::warnings::Warning;

/// What was told, by the warning's id.
#[derive(Debug, Default)]
pub(crate) struct Told {
    by_id: Mutex<BTreeMap<u64, Last>>,
}

/// The last time that a warning was told of.
#[derive(Clone, Copy, Debug)]
struct Last {
    count: u64,
    at: Instant,
}

const PATIENCE: Duration = Duration::from_secs(10);
/// How much of an answer is read: only its status matters.
const ANSWER: usize = 64 * 1024;
/// How many warnings are looked at in a turn.
const PAGE: usize = 1_000;

impl Told {
    /// Whether a warning is to be told of: it is new, or happened again and it is time.
    fn is_due(&self, warning: &Warning, every: Duration, now: Instant) -> bool {
        match self.by_id.lock().get(&warning.id) {
            None => true,
            Some(last) => warning.count > last.count && now - last.at >= every,
        }
    }

    fn note(&self, warning: &Warning, now: Instant) {
        self.by_id.lock().insert(warning.id, Last { count: warning.count, at: now });
    }

    /// Forgets warnings that are gone.
    fn keep(&self, there: &[Warning]) {
        self.by_id.lock().retain(|id, _| there.iter().any(|warning| warning.id == *id));
    }
}

/// Tells the webhook of what is due. What it does not take is due again next time.
pub(crate) async fn tell(daemon: Daemon) {
    let settings = daemon.settings();
    let alerts = &settings.alerts;
    let Some(webhook) = &alerts.webhook else { return };
    let page = daemon.record().warnings.list(None, None, PAGE).items;
    let told = &daemon.inner.told;
    told.keep(&page);
    let worth = page
        .iter()
        .filter(|warning| warning.severity >= alerts.min_severity && !warning.acknowledged);
    for warning in worth {
        let now = Instant::now();
        if !told.is_due(warning, alerts.every, now) {
            continue;
        }
        let ask = Ask {
            method: Method::POST,
            token: None,
            body: Some(Bytes::from(warning.to_json().to_string())),
            timeout: PATIENCE,
            most_bytes: ANSWER,
        };
        match daemon.inner.fetch.ask(webhook.expose(), ask).await {
            Ok(answer) if answer.status.is_success() => told.note(warning, now),
            Ok(answer) => tracing::warn!("alerts: {webhook} answered {}", answer.status.as_u16()),
            Err(error) => {
                tracing::warn!("alerts: {webhook} {error}");
                return;
            }
        }
    }
}
