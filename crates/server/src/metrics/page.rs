//! The page of metrics: names, meanings and labels of all that is shown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use sluicegate_dispatch::{PoolView, QueueView};
use sluicegate_tasks::HistogramSnapshot;

use super::series::{BUCKETS, Times, bound, bucket};
use super::{Series, Snapshot};

/// One scrape.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) series: Arc<Series>,
    pub(super) snapshot: Snapshot,
    pools: BTreeMap<Arc<str>, PoolNow>,
    queues: BTreeMap<Arc<str>, QueueNow>,
}

/// A pool at one moment. One that was removed and added again is there twice for a while, and shown
/// once.
#[derive(Debug)]
struct PoolNow {
    view: PoolView,
    queued: u32,
    running: u32,
    read_ahead: usize,
    oldest: Duration,
}

/// A queue at one moment.
#[derive(Debug, Default)]
struct QueueNow {
    in_flight: usize,
}

pub(super) type Written = Result<(), fmt::Error>;

impl Page {
    pub(super) fn new(series: Arc<Series>, mut snapshot: Snapshot) -> Self {
        let pools = by_code(std::mem::take(&mut snapshot.pools));
        let queues = by_name(std::mem::take(&mut snapshot.queues));
        Self { series, snapshot, pools, queues }
    }

    pub(super) fn forget_the_gone(&self) {
        self.series.pools.keep(|pool| self.pools.contains_key(pool));
        self.series.queues.keep(|queue| self.queues.contains_key(queue));
    }
}

fn by_code(views: Vec<PoolView>) -> BTreeMap<Arc<str>, PoolNow> {
    let mut pools: BTreeMap<Arc<str>, PoolNow> = BTreeMap::new();
    for view in views {
        let (queued, running) = (view.stats.gauges.queued, view.stats.gauges.running);
        let (oldest, read_ahead) = (view.stats.gauges.oldest_wait, view.read_ahead);
        let pool = pools.entry(Arc::clone(&view.settings.code)).or_insert(PoolNow {
            view,
            queued: 0,
            running: 0,
            read_ahead: 0,
            oldest: Duration::ZERO,
        });
        pool.queued += queued;
        pool.running += running;
        pool.read_ahead += read_ahead;
        pool.oldest = pool.oldest.max(oldest);
    }
    pools
}

fn by_name(views: Vec<QueueView>) -> BTreeMap<Arc<str>, QueueNow> {
    let mut queues: BTreeMap<Arc<str>, QueueNow> = BTreeMap::new();
    for view in views {
        queues.entry(view.name).or_default().in_flight += view.in_flight;
    }
    queues
}

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Written {
        let mut sheet = Sheet { encoder };
        self.pools_now(&mut sheet)?;
        self.pools_so_far(&mut sheet)?;
        self.queues(&mut sheet)?;
        self.agents(&mut sheet)?;
        self.events(&mut sheet)?;
        self.rest(&mut sheet)
    }
}

impl Page {
    fn pools_now(&self, sheet: &mut Sheet<'_>) -> Written {
        let pools = || self.pools.iter().map(|(code, pool)| (&**code, pool));
        let gauge = |value: fn(&PoolNow) -> u32| {
            pools().map(move |(code, pool)| ([("pool", code)], value(pool)))
        };
        sheet.gauges("pool_queued", "Messages that wait in the pool", gauge(|pool| pool.queued))?;
        sheet.gauges("pool_running", "Messages that run", gauge(|pool| pool.running))?;
        let limit = gauge(|pool| pool.view.stats.gauges.limit);
        sheet.gauges("pool_limit", "Messages that may run at once", limit)?;
        let read_ahead = pools().map(|(code, pool)| ([("pool", code)], pool.read_ahead as u64));
        let help = "Messages that were read ahead of the pool and wait until it has room";
        sheet.gauges("pool_read_ahead", help, read_ahead)?;
        let oldest = pools().map(|(code, pool)| ([("pool", code)], pool.oldest.as_secs_f64()));
        let help = "How long ago the oldest message was received that waits, in the pool or read ahead of it";
        sheet.seconds("pool_oldest_wait", help, oldest)?;
        let waits = pools().map(|(code, pool)| (code, Histogram::of(&pool.view.stats.wait_time)));
        let help = "How long messages waited in the pool before they started";
        sheet.histograms("pool_wait", help, waits)?;
        let runs = pools().map(|(code, pool)| (code, Histogram::of(&pool.view.stats.run_time)));
        sheet.histograms("pool_run", "How long messages held their permit", runs)?;
        let rejected = pools().flat_map(|(code, pool)| {
            let reasons = pool.view.stats.rejected.iter();
            reasons.map(move |(reason, count)| ([("pool", code), ("reason", reason)], *count))
        });
        let help = "Messages that were not let into the pool";
        sheet.counters("pool_rejected", help, rejected)
    }

    fn pools_so_far(&self, sheet: &mut Sheet<'_>) -> Written {
        let book = &self.series.pools;
        let codes = || self.pools.keys().map(|code| &**code);
        let count = |value: fn(&super::PoolSeries) -> u64| {
            codes().map(move |code| ([("pool", code)], book.read(code, value).unwrap_or_default()))
        };
        let panics = count(|series| series.panics.get());
        sheet.counters("pool_panics", "Executors that panicked", panics)?;
        let limited = count(|series| series.rate_limited.get());
        let help = "Answers of endpoints that asked the pool to slow down";
        sheet.counters("rate_limited", help, limited)?;
        let outcomes: Vec<_> = codes()
            .flat_map(|code| {
                let all = book.read(code, |series| series.outcomes().collect::<Vec<_>>());
                all.into_iter().flatten().map(move |each| (code, each))
            })
            .collect();
        let outcomes = outcomes
            .iter()
            .map(|(code, (outcome, count))| ([("pool", *code), ("outcome", *outcome)], *count));
        sheet.counters("messages", "Attempts at messages, by how they ended", outcomes)?;
        let statuses: Vec<_> = codes()
            .flat_map(|code| {
                let all = book.read(code, |series| series.statuses.all().collect::<Vec<_>>());
                all.into_iter().flatten().map(move |each| (code, each))
            })
            .collect();
        let statuses = statuses.iter().map(|(code, (status, count))| {
            ([("pool", *code), ("status", status.as_str())], *count)
        });
        sheet.counters("deliveries", "Calls to endpoints, by how they ended", statuses)?;
        let times = codes().filter_map(|code| {
            Some((code, book.read(code, |series| Histogram::so_far(&series.delivery))?))
        });
        sheet.histograms("delivery", "How long calls to endpoints took", times)
    }

    fn queues(&self, sheet: &mut Sheet<'_>) -> Written {
        let queues = || self.queues.iter().map(|(name, queue)| (&**name, queue));
        let depths = self.snapshot.depths.iter();
        let depths = depths.filter(|(name, _)| self.queues.contains_key(*name));
        let depths = depths.map(|(name, depth)| {
            ([("queue", &**name)], depth.waiting.saturating_add(depth.delayed))
        });
        let help = "Messages that wait in the queue, those with a delay included";
        sheet.gauges("queue_depth", help, depths)?;
        let in_flight = queues().map(|(name, queue)| ([("queue", name)], queue.in_flight));
        sheet.gauges("inflight", "Messages received and not settled", in_flight)?;
        let unsettled = queues().map(|(name, _)| {
            let count = self.snapshot.unsettled.get(name).copied();
            ([("queue", name)], count.unwrap_or_default())
        });
        let help =
            "Messages that are done, parked or going back, and whose source does not know yet";
        sheet.gauges("queue_unsettled", help, unsettled)?;
        let book = &self.series.queues;
        let received = queues().map(|(name, _)| {
            let received = book.read(name, |series| series.received.get());
            ([("queue", name)], received.unwrap_or_default())
        });
        sheet.counters("queue_received", "Deliveries received", received)?;
        let settled = queues().flat_map(|(name, _)| {
            let counts = book.read(name, |series| {
                [("ack", &series.acked), ("retry", &series.retried), ("stale", &series.stale)]
                    .map(|(how, count)| (how, count.get()))
            });
            let counts = counts.into_iter().flatten();
            counts.map(move |(how, count)| ([("queue", name), ("how", how)], count))
        });
        sheet.counters("queue_settled", "Deliveries settled, by how", settled)?;
        let failures = queues().map(|(name, _)| {
            let failures = book.read(name, |series| series.settle_failures.get());
            ([("queue", name)], failures.unwrap_or_default())
        });
        let help =
            "Times that the source, or the state file, could not be told what became of messages";
        sheet.counters("queue_settle_failures", help, failures)
    }

    fn rest(&self, sheet: &mut Sheet<'_>) -> Written {
        let Snapshot { parked, breakers, warnings, leader, .. } = &self.snapshot;
        sheet.gauge("messages_parked", "Messages put aside for a person", *parked)?;
        let breakers = [
            ([("state", "closed")], breakers.closed),
            ([("state", "half-open")], breakers.half_open),
            ([("state", "open")], breakers.open),
        ];
        sheet.gauges("breaker_state", "Breakers in each state", breakers)?;
        let warnings = warnings.iter().map(|((severity, code), count)| {
            ([("severity", severity.label()), ("code", code.label())], *count)
        });
        sheet.gauges("warnings", "Warnings that are open, that is not over", warnings)?;
        let help = "Whether this instance does the work";
        sheet.gauge("leader", help, u64::from(*leader))
    }
}

/// What the page is written on.
pub(super) struct Sheet<'a> {
    encoder: DescriptorEncoder<'a>,
}

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl Sheet<'_> {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        kind: MetricType,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> Written,
    ) -> Written {
        write(&mut self.encoder.encode_descriptor(name, help, unit, kind)?)
    }

    pub(super) fn gauges<'b, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'b, N>, V)>,
    ) -> Written {
        self.family(name, help, None, MetricType::Gauge, |family| {
            values
                .into_iter()
                .try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
        })
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> Written {
        self.family(name, help, None, MetricType::Counter, |family| {
            family.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> Written {
        self.family(name, help, None, MetricType::Gauge, |family| family.encode_gauge(&value))
    }

    fn seconds<'b, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'b, N>, f64)>,
    ) -> Written {
        self.family(name, help, Some(&Unit::Seconds), MetricType::Gauge, |family| {
            values
                .into_iter()
                .try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
        })
    }

    pub(super) fn second(&mut self, name: &str, help: &str, value: Duration) -> Written {
        self.family(name, help, Some(&Unit::Seconds), MetricType::Gauge, |family| {
            family.encode_gauge(&value.as_secs_f64())
        })
    }

    pub(super) fn counters<'b, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels<'b, N>, u64)>,
    ) -> Written {
        self.family(name, help, None, MetricType::Counter, |family| {
            values.into_iter().try_for_each(|(labels, value)| {
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, u64>(&value, None)
            })
        })
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: Histogram) -> Written {
        let Histogram { sum, buckets } = histogram;
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.family(name, help, Some(&Unit::Seconds), MetricType::Histogram, |family| {
            family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        })
    }

    fn histograms<'b>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (&'b str, Histogram)>,
    ) -> Written {
        self.family(name, help, Some(&Unit::Seconds), MetricType::Histogram, |family| {
            values.into_iter().try_for_each(|(pool, histogram)| {
                let labels = [("pool", pool)];
                let Histogram { sum, buckets } = histogram;
                let count = buckets.iter().map(|(_, count)| count).sum();
                let mut family = family.encode_family(&labels)?;
                family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            })
        })
    }
}

/// Durations as they are shown.
pub(super) struct Histogram {
    sum: f64,
    buckets: [(f64, u64); BUCKETS],
}

impl Histogram {
    fn of(kept: &HistogramSnapshot) -> Self {
        let mut counts = [0; BUCKETS];
        for (at_most, count) in kept.buckets() {
            counts[bucket(at_most)] += count;
        }
        Self::new(kept.sum().as_secs_f64(), counts)
    }

    pub(super) fn so_far(times: &Times) -> Self {
        Self::new(times.sum().as_secs_f64(), times.counts())
    }

    fn new(sum: f64, counts: [u64; BUCKETS]) -> Self {
        Self { sum, buckets: std::array::from_fn(|at| (bound(at), counts[at])) }
    }
}
