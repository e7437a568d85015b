//! Settings that say the same thing twice: where one of two is said, the other one follows it.

use serde_json::Value;

use super::super::reader::Section;
use super::AgentSettings;

/// Which of them are said, in the file or in the JSON file that it names.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// `max_queue_depth_per_tenant`
    pub(super) depth: bool,
    /// `tenant_limits.max_queued_requests`
    pub(super) queued: bool,
    /// `execution_timeout`
    pub(super) execution: bool,
    /// `tenant_limits.max_response_time`
    pub(super) response: bool,
}

impl Given {
    pub(super) fn of(section: &Section<'_>) -> Self {
        let (depth, execution) =
            (section.has("max_queue_depth_per_tenant"), section.has("execution_timeout"));
        Self { depth, execution, ..Self::default() }
    }

    /// What a `workerPool` object says is said.
    pub(super) fn add(&mut self, json: &str) {
        let document: Value = serde_json::from_str(json).unwrap_or_default();
        let places = ["/agents/defaults/workerPool", "/workerPool", ""];
        let object = places.iter().find_map(|place| document.pointer(place));
        let says = |key: &str| object.is_some_and(|object| object.get(key).is_some());
        self.depth |= says("maxQueueDepthPerTenant");
        self.execution |= says("executionTimeoutMs");
    }
}

impl AgentSettings {
    /// Where both are said, the smaller one holds.
    pub(super) fn relate(&mut self, given: &Given) {
        let limits = &mut self.tenant_limits;
        match (given.depth, given.queued) {
            (true, false) => limits.max_queued_requests = self.max_queue_depth_per_tenant,
            (false, true) => self.max_queue_depth_per_tenant = limits.max_queued_requests,
            _ => {}
        }
        if given.execution && !given.response {
            limits.max_response_time = limits.max_response_time.max(self.execution_timeout);
        }
    }
}
