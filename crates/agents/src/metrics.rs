//! The paper's `WorkerPoolMetrics`: what the pool did in the last 60 seconds, and how it stands.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::Outcome;
use crate::event::ms;

const MINUTE: Duration = Duration::from_secs(60);
/// How many requests of the last minute are looked at for the percentiles.
const SAMPLES: usize = 10_000;

/// The paper's metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the paper's, and say it")]
pub struct Metrics {
    /// In milliseconds since 1970; whoever shows it fills it in.
    pub timestamp: u64,
    pub workers_total: usize,
    pub workers_idle: usize,
    pub workers_busy: usize,
    pub workers_starting: usize,
    pub workers_draining: usize,
    pub workers_stuck: usize,
    pub queue_depth: u32,
    pub queue_depth_by_priority: BTreeMap<&'static str, u32>,
    pub requests_completed: u64,
    pub requests_failed: u64,
    pub requests_timed_out: u64,
    pub requests_rejected: u64,
    pub queue_wait_p50_ms: u64,
    pub queue_wait_p95_ms: u64,
    pub queue_wait_p99_ms: u64,
    pub execution_time_p50_ms: u64,
    pub execution_time_p95_ms: u64,
    pub execution_time_p99_ms: u64,
    pub total_latency_p50_ms: u64,
    pub total_latency_p95_ms: u64,
    pub total_latency_p99_ms: u64,
    pub active_tenants: usize,
    pub tenant_queue_depths: BTreeMap<String, u32>,
    #[serde(rename = "estimatedMemoryMB")]
    pub estimated_memory_mb: u64,
    /// Whoever shows it fills it in: the pool does not look at processors.
    pub cpu_utilization_percent: f64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Completed,
    Failed,
    TimedOut,
    Rejected,
}

/// What ended in the last minute.
#[derive(Debug, Default)]
pub(crate) struct LastMinute {
    /// By the second, counted from the first; each with its counts.
    seconds: VecDeque<(u64, [u64; 4])>,
    samples: VecDeque<(Instant, Sample)>,
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    execution: Duration,
    total: Duration,
}

impl Counted {
    pub(crate) const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Ok(_) => Self::Completed,
            Err(error) if error.is_timeout() => Self::TimedOut,
            Err(crate::RequestError::ShuttingDown) => Self::Rejected,
            Err(_) => Self::Failed,
        }
    }
}

impl LastMinute {
    pub(crate) fn count(&mut self, now: Instant, what: Counted) {
        let second = self.second(now);
        if self.seconds.back().is_none_or(|(last, _)| *last < second) {
            self.seconds.push_back((second, [0; 4]));
        }
        if let Some((_, counts)) = self.seconds.back_mut() {
            counts[what as usize] += 1;
        }
        self.forget(now);
    }

    /// A request had its turn.
    pub(crate) fn ran(&mut self, now: Instant, execution: Duration, total: Duration) {
        self.samples.push_back((now, Sample { execution, total }));
        self.forget(now);
    }

    pub(crate) fn fill(&mut self, now: Instant, metrics: &mut Metrics) {
        self.forget(now);
        let sum =
            |what: Counted| self.seconds.iter().map(|(_, counts)| counts[what as usize]).sum();
        metrics.requests_completed = sum(Counted::Completed);
        metrics.requests_failed = sum(Counted::Failed);
        metrics.requests_timed_out = sum(Counted::TimedOut);
        metrics.requests_rejected = sum(Counted::Rejected);
        let sorted = |of: fn(&Sample) -> Duration| {
            let mut all: Vec<Duration> = self.samples.iter().map(|(_, one)| of(one)).collect();
            all.sort_unstable();
            [50, 95, 99].map(|part| ms(percentile(&all, part)))
        };
        [
            metrics.execution_time_p50_ms,
            metrics.execution_time_p95_ms,
            metrics.execution_time_p99_ms,
        ] = sorted(|one| one.execution);
        [
            metrics.total_latency_p50_ms,
            metrics.total_latency_p95_ms,
            metrics.total_latency_p99_ms,
        ] = sorted(|one| one.total);
    }

    fn second(&mut self, now: Instant) -> u64 {
        let since = *self.since.get_or_insert(now);
        now.duration_since(since).as_secs()
    }

    fn forget(&mut self, now: Instant) {
        let second = self.second(now);
        while self.seconds.front().is_some_and(|(at, _)| *at + MINUTE.as_secs() <= second) {
            self.seconds.pop_front();
        }
        let old = |samples: &VecDeque<(Instant, Sample)>| {
            let first = samples.front();
            first
                .is_some_and(|(at, _)| now.duration_since(*at) >= MINUTE || samples.len() > SAMPLES)
        };
        while old(&self.samples) {
            self.samples.pop_front();
        }
    }
}

/// The least value that so many of a hundred do not exceed.
fn percentile(sorted: &[Duration], part: usize) -> Duration {
    let rank = (sorted.len() * part).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were() {
        let all: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        for (part, expected) in [(50, 50), (95, 95), (99, 99)] {
            assert_eq!(percentile(&all, part), Duration::from_millis(expected));
        }
        assert_eq!(percentile(&all[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    /// Paper 001, section 6: "last 60s window".
    #[test]
    fn a_minute_later_nothing_is_left() {
        let (mut last, now) = (LastMinute::default(), Instant::now());
        let seconds = |count| now + Duration::from_secs(count);
        last.count(now, Counted::Completed);
        last.ran(now, Duration::from_secs(1), Duration::from_secs(3));
        last.count(seconds(30), Counted::Rejected);
        let at = |last: &mut LastMinute, now| {
            let mut metrics = Metrics::default();
            last.fill(now, &mut metrics);
            (metrics.requests_completed, metrics.requests_rejected, metrics.total_latency_p95_ms)
        };
        assert_eq!(at(&mut last, seconds(59)), (1, 1, 3000));
        assert_eq!(at(&mut last, seconds(60)), (0, 1, 0));
        assert_eq!(at(&mut last, seconds(90)), (0, 0, 0));
    }
}
