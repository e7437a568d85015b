//! An alert of a daemon that is none: its start failed before there was anybody who could tell.

use std::sync::Arc;

use sluicegate_dispatch::Severity;

use super::Alerter;
use crate::fetch::Fetch;
use crate::record::Record;
use crate::settings::AlertSettings;
use crate::time::Wall;
use crate::warnings::{Code, Raised};

/// Tells the webhook, if there is one, that a daemon did not start, and why. It takes a few seconds at most.
pub async fn alert_failed_start(settings: &AlertSettings, why: &str) {
    let record = Record::new(Arc::new(Wall));
    // A group of one task can always be made.
    let Ok(alerter) = Alerter::new(settings, Arc::clone(&record), Fetch::new()) else { return };
    let words = format!("the daemon did not start: {why}");
    // Its log says it by itself.
    record.warnings.raise(Raised::new(Code::StartFailed, Severity::Critical, "start", words));
    alerter.start().await;
    alerter.finish().await;
}
