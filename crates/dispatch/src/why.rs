//! Why a message is not running yet, wherever it is.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_schedule::Why;
use tokio::time::Instant;

use crate::pool::Pool;
use crate::routed::{InFlightMessage, Now, PoolId, Standing};
use crate::{Message, Ordering, Reason, Router, UnknownPool, typed_argument, typed_option};

/// Why a message is not running yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyWaiting {
    /// The reason, as a word.
    pub reason: &'static str,
    /// The reason, in words.
    pub detail: String,
    /// How long it still holds, where that is known.
    pub rest: Option<Duration>,
    /// What a person can do about it, where there is something.
    pub hint: Option<String>,
}

impl WhyWaiting {
    /// A reason.
    pub fn new(reason: &'static str, detail: impl Into<String>, rest: Option<Duration>) -> Self {
        Self { reason, detail: detail.into(), rest, hint: None }
    }

    /// With what a person can do about it.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Why a message is to wait for so long. Until when is said behind it, so the words end with what lasts.
    #[must_use]
    pub fn delayed(reason: Reason, rest: Duration) -> Self {
        let (word, detail) = match reason {
            Reason::Scheduled => ("delayed", "its first delivery waits"),
            Reason::Failed => ("delayed", "an attempt failed; it waits"),
            Reason::Throttled => ("rate_limited", "its host asked for a pause"),
            Reason::BreakerOpen => ("breaker_open", "the breaker of its target was open; it waits"),
            Reason::Cascade => {
                ("group_retrying", "a message of its batch before it failed; it comes again")
            }
            Reason::PoolFull => ("pool_full", "its pool had no room; it waits"),
            Reason::Draining => ("draining", "its pool was draining; it waits"),
        };
        Self::new(word, detail, Some(rest))
    }

    /// Why a message waits in its source: only its source knows when it comes.
    #[must_use]
    pub fn delayed_at_source(message: &Message, reason: Reason, rest: Duration) -> Self {
        let why = Self::delayed(reason, rest);
        if reason != Reason::Throttled {
            return why;
        }
        let detail = format!("{} asked for a pause", message.target.authority());
        Self { detail, ..why }.with_hint(
            "it waits in its queue until then: to lift the pause (`sluicegate pauses`) does not bring it \
             sooner",
        )
    }

    /// A message waits here for a host that asked its pool for a pause.
    fn paused(host: &str, pool: &str, rest: Duration) -> Self {
        let detail = format!("{host} asked pool {pool} for a pause");
        Self::new("rate_limited", detail, Some(rest)).with_hint(format!(
            "`sluicegate pauses {} {}` ends it",
            typed_option("--lift", host),
            typed_option("--pool", pool)
        ))
    }

    /// A message waits for a person, and its group with it.
    fn blocked(id: &str) -> Self {
        let hint = format!(
            "`sluicegate ack {}` gives it up as done, and its group goes on",
            typed_argument(id)
        );
        Self::new("group_blocked", "its attempts are used up", None).with_hint(hint)
    }

    /// A message waits behind one of its group that waits for a person.
    #[must_use]
    pub fn behind_blocked(head: &str) -> Self {
        let hint = format!(
            "`sluicegate ack {}` gives that one up as done, and its group goes on",
            typed_argument(head)
        );
        Self::new("group_blocked", format!("group head {head} is blocked"), None).with_hint(hint)
    }
}

impl Router {
    /// Why a message that could be received waits in its queue.
    #[must_use]
    pub fn why_in_queue(&self, queue: &str, message: &Message) -> WhyWaiting {
        let look = Look::at(self);
        look.before_its_pool(queue, message).unwrap_or_else(|| {
            WhyWaiting::new("ready", "it waits in its queue to be received", None)
        })
    }
}

/// One look at the router. What many messages wait for is found once for all of them, and only if one does: with
/// many messages in a group, finding its head for each would take for ever.
pub(crate) struct Look<'a> {
    pub(crate) router: &'a Router,
    pub(crate) now: Instant,
    heads: OnceCell<Heads>,
    tenants: RefCell<BTreeMap<PoolId, RunningByTenant>>,
}

/// The message that is next, or runs, by pool and group.
type Heads = HashMap<(Arc<str>, Arc<str>), Arc<str>>;
type RunningByTenant = HashMap<Arc<str>, u32>;

impl<'a> Look<'a> {
    pub(crate) fn at(router: &'a Router) -> Self {
        let (heads, tenants) = (OnceCell::new(), RefCell::default());
        Self { router, now: Instant::now(), heads, tenants }
    }

    pub(crate) fn why(&self, tracked: &InFlightMessage, standing: &Standing) -> WhyWaiting {
        let now = self.now;
        match &standing.now {
            Now::Blocked => {
                return WhyWaiting::blocked(&tracked.entry.message.id);
            }
            Now::Retrying { until, reason, breaker } => {
                let rest = until.saturating_duration_since(now);
                let place = standing.place.as_ref();
                if let (Reason::Throttled, Some(place)) = (*reason, place) {
                    let host = tracked.entry.message.target.authority();
                    return WhyWaiting::paused(host, &place.code, rest);
                }
                let mut why = WhyWaiting::delayed(*reason, rest);
                if let Some(breaker) = breaker {
                    why.detail = format!("breaker open for {breaker}");
                }
                return why;
            }
            Now::Waiting | Now::Running { .. } => {}
        }
        let place = standing.place.as_ref();
        let found = place.and_then(|place| {
            let pool = self.router.pools.at(place)?;
            let not = pool.sluice.why(place.item)?;
            Some((pool, not))
        });
        let Some((pool, not)) = found else {
            return self.outside(tracked);
        };
        let rest = not.until.map(|until| until.saturating_duration_since(now));
        self.explain(&pool, tracked, not.why, rest)
    }

    /// Why a message that is done is still here.
    pub(crate) fn not_settled(
        &self,
        queue: &str,
        tracked: &InFlightMessage,
        standing: &Standing,
    ) -> WhyWaiting {
        // What was given up by hand in strict order is settled when it is its turn.
        let turn = standing.place.as_ref().filter(|_| !tracked.is_settling()).and_then(|place| {
            let pool = self.router.pools.at(place)?;
            let not = pool.sluice.why(place.item)?;
            let rest = not.until.map(|until| until.saturating_duration_since(self.now));
            Some(self.explain(&pool, tracked, not.why, rest))
        });
        if let Some(turn) = turn {
            let detail = "it was given up, and its queue is told in its turn";
            return WhyWaiting { detail: format!("{detail}: {}", turn.detail), ..turn };
        }
        let trouble = self.router.source(queue).and_then(|source| source.health().err());
        let trouble = trouble.map(|error| format!(": {}", error.cause)).unwrap_or_default();
        WhyWaiting::new("settling", format!("its settlement is not durable yet{trouble}"), None)
    }

    /// Why a message that was received is in no pool.
    fn outside(&self, tracked: &InFlightMessage) -> WhyWaiting {
        let queues = self.router.queues.all();
        if queues.iter().any(|queue| queue.recipient.window.holds_behind(tracked)) {
            let detail = "an earlier message of its group is in another pool, as pools changed";
            return WhyWaiting::new("group_busy", detail, None);
        }
        let why = self.before_its_pool(&tracked.entry.queue, &tracked.entry.message);
        why.unwrap_or_else(|| WhyWaiting::new("ready", "it is being taken in", None))
    }

    fn explain(
        &self,
        pool: &Pool,
        tracked: &InFlightMessage,
        why: Why,
        rest: Option<Duration>,
    ) -> WhyWaiting {
        let head = || self.head_of(pool, tracked);
        match why {
            Why::KeyBusy { .. } => {
                WhyWaiting::new("group_busy", format!("group head {} is running", head()), None)
            }
            Why::KeyRetrying { .. } if rest.is_some() => {
                WhyWaiting::new("group_retrying", format!("group head {} retries", head()), rest)
            }
            Why::KeyRetrying { .. } => WhyWaiting::behind_blocked(&head()),
            Why::TenantAtLimit { running, max } => {
                let tenant = tracked.entry.message.tenant.as_deref().unwrap_or_default();
                let detail = format!("tenant {tenant} at {running} of {max}");
                WhyWaiting::new("tenant_limit", detail, None)
            }
            Why::RateLimited { .. } => rate_limited(pool, rest),
            Why::AtLimit { running, limit } => {
                self.at_limit(pool, &tracked.entry.message, running, limit)
            }
            _ => WhyWaiting::new("ready", "it is next", None),
        }
    }

    /// The message that holds up the others of its group.
    fn head_of(&self, pool: &Pool, tracked: &InFlightMessage) -> Arc<str> {
        let heads = self.heads.get_or_init(|| {
            let groups = self.router.group_views(None).into_iter();
            groups.map(|group| ((group.pool, group.group), group.head)).collect()
        });
        let key = pool.settings().key(&tracked.entry.message);
        let head = key.and_then(|key| heads.get(&(Arc::clone(&pool.code), key)));
        Arc::clone(head.unwrap_or(&tracked.entry.message.id))
    }

    /// Why a message is in no pool; `None` if nothing keeps it from the one it goes to.
    fn before_its_pool(&self, queue: &str, message: &Message) -> Option<WhyWaiting> {
        let pools = &self.router.pools;
        let is_known = pools.get(&message.pool).is_some();
        let unknown = || format!("there is no pool {}", message.pool);
        if !is_known && pools.unknown_pool() != UnknownPool::Default {
            let detail = format!("{}: it is parked when it is received", unknown());
            return Some(WhyWaiting::new("ready", detail, None));
        }
        let pool = pools.takes(&message.pool)?;
        let mut why = self.parked_behind(&pool, queue, message).or_else(|| {
            let host = message.target.authority();
            let until = pool.paused_until(host, self.now)?;
            Some(WhyWaiting::paused(host, &pool.code, until - self.now))
        });
        why = why.or_else(|| self.no_room(&pool, message));
        if let Some(why) = why.as_mut().filter(|_| !is_known) {
            why.detail = format!("{}; {}", unknown(), why.detail);
        }
        why
    }

    /// An earlier message of its group is parked, and it will be too.
    fn parked_behind(&self, pool: &Pool, queue: &str, message: &Message) -> Option<WhyWaiting> {
        let settings = pool.settings();
        if settings.ordering != Ordering::Strict || !settings.parks_keys() {
            return None;
        }
        let key = settings.key(message)?;
        let runner = &self.router.pools.runner;
        let passes = || runner.parked.may_pass(queue, &message.id);
        let by = pool.parks_key(&queue.into(), message, &key);
        runner.is_held_up(by, queue, message, &key, passes).then(|| {
            let detail = format!("an earlier message of its group {key} is parked");
            WhyWaiting::new("group_blocked", detail, None)
        })
    }

    /// Why a pool takes nothing more.
    fn no_room(&self, pool: &Pool, message: &Message) -> Option<WhyWaiting> {
        let gauges = pool.sluice.stats().gauges;
        if let Some(done) = pool.places.full_of_done(gauges.running) {
            let code = &pool.code;
            let detail = format!(
                "pool {code} is full of messages that are done and not settled yet: {done}"
            );
            return Some(WhyWaiting::new("pool_full", detail, None));
        }
        if gauges.running >= gauges.limit {
            return Some(self.at_limit(pool, message, gauges.running, gauges.limit));
        }
        if pool.places.room() > 0 {
            return None;
        }
        let first = pool.sluice.waiting(1).pop().map(|first| first.why);
        if let Some(first) = first.filter(|first| matches!(first.why, Why::RateLimited { .. })) {
            let rest = first.until.map(|until| until.saturating_duration_since(self.now));
            return Some(rate_limited(pool, rest));
        }
        let (code, waiting) = (&pool.code, gauges.queued);
        let detail = format!(
            "pool {code} has no room: {waiting} wait there, {} of {} run",
            gauges.running, gauges.limit
        );
        Some(WhyWaiting::new("pool_full", detail, None))
    }

    /// As many run as may: whose they are.
    fn at_limit(&self, pool: &Pool, message: &Message, running: u32, limit: u32) -> WhyWaiting {
        let mut detail = format!("pool {} at {running} of {limit}", pool.code);
        if let Some(tenant) = &message.tenant {
            let own = self.running_of(pool, tenant).min(running);
            detail += &match running - own {
                0 => format!(": {own} of tenant {tenant} run"),
                others => format!(": {others} of other tenants run, {own} of tenant {tenant}"),
            };
        }
        WhyWaiting::new("pool_full", detail, None)
    }

    fn running_of(&self, pool: &Pool, tenant: &Arc<str>) -> u32 {
        let mut tenants = self.tenants.borrow_mut();
        let running = tenants.entry(pool.id).or_insert_with(|| {
            let views = pool.sluice.tenants().into_iter();
            views.map(|view| (view.tenant, view.running)).collect()
        });
        running.get(tenant).copied().unwrap_or_default()
    }
}

fn rate_limited(pool: &Pool, rest: Option<Duration>) -> WhyWaiting {
    let rate = pool.settings().rate_limit_per_minute.unwrap_or_default();
    WhyWaiting::new("rate_limited", format!("pool {} allows {rate} a minute", pool.code), rest)
}
