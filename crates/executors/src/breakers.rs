//! The circuit breakers of all endpoints, by name.
//!
//! A host has one name, however it is written: docs/rules.md#throttle-1.
//!
//! There are at most [`Breakers::MAX`]. Beyond that closed ones that nobody uses are forgotten,
//! first those without a recent failure; where none is left, a new endpoint is called without a
//! breaker.
//! Lock order: the map, then a breaker. Observers are called under neither.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use sluicegate_dispatch::{
    Breaker, BreakerChange, BreakerSettings, BreakerState, Fact, LastError, Observer, Pass, Target,
    Verdict,
};
use sluicegate_schedule::Moment;
use tokio::time::Instant;

/// What shares a breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerScope {
    /// Targets of one host and port.
    #[default]
    Host,
    /// One target, whatever its query.
    Target,
    /// All targets.
    Global,
    /// Nothing: there are no breakers.
    Off,
}

/// Breakers by name.
pub struct Breakers {
    scope: BreakerScope,
    settings: BreakerSettings,
    observer: Arc<dyn Observer>,
    origin: Instant,
    known: RwLock<Known>,
}

/// One breaker as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerReport {
    /// Its name: a host and port, a target without its query, or [`Breakers::GLOBAL`].
    pub name: Arc<str>,
    /// Its state.
    pub state: BreakerState,
    /// How much longer it lets nothing through; only while it is open.
    pub rest: Option<Duration>,
    /// How many calls ended within the span it judges by. While half-open: how many ended since.
    pub calls: u32,
    /// How many of them failed. An open breaker shows those that opened it.
    pub failures: u32,
    /// The last call that failed, if one did since it was made or reset.
    pub last_error: Option<Arc<LastError>>,
}

#[derive(Default)]
struct Known {
    by_name: HashMap<Arc<str>, Arc<Named>, RandomState>,
    /// Not before then is it searched again for breakers to forget.
    next_sweep: Moment,
}

/// A breaker, its name, and its lock, which is held for a few instructions only.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: Arc<str>,
    breaker: Mutex<Breaker>,
    last_error: Mutex<Option<Arc<LastError>>>,
}

/// A call that a breaker let through. Dropped without a verdict, it never was.
#[derive(Debug)]
#[must_use = "dropped, the call counts neither way"]
pub(crate) struct Call<'a> {
    breakers: &'a Breakers,
    named: &'a Named,
    pass: Option<Pass>,
}

impl Breakers {
    /// How many there are at most.
    pub const MAX: usize = 10_000;
    /// The name of the one breaker of [`BreakerScope::Global`].
    pub const GLOBAL: &'static str = "http-mediator";

    const SWEEP_EVERY: Duration = Duration::from_secs(1);

    /// No breakers yet.
    pub fn new(
        scope: BreakerScope,
        settings: BreakerSettings,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let known = RwLock::new(Known::default());
        Self { scope, settings, observer, origin: Instant::now(), known }
    }

    /// All of them, by name.
    #[must_use]
    pub fn list(&self) -> Vec<BreakerReport> {
        let now = self.now();
        let known = self.known.read();
        let report = |named: &Arc<Named>| {
            let view = named.breaker.lock().view(now);
            BreakerReport {
                name: Arc::clone(&named.name),
                state: view.state,
                rest: view.until.map(|until| until - now),
                calls: view.calls,
                failures: view.failures,
                last_error: named.last_error.lock().clone(),
            }
        };
        let mut reports: Vec<_> = known.by_name.values().map(report).collect();
        drop(known);
        reports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        reports
    }

    /// Closes the breaker of that name and forgets its calls. Says whether there is one.
    pub fn reset(&self, name: &str) -> bool {
        let Some(named) = self.known.read().by_name.get(name).map(Arc::clone) else {
            return false;
        };
        let change = named.breaker.lock().reset();
        *named.last_error.lock() = None;
        self.tell(&named, change);
        true
    }

    /// The breaker of a target; `None` where there is none for it.
    pub(crate) fn of(&self, target: &Target) -> Option<Arc<Named>> {
        let name: Cow<'_, str> = match self.scope {
            BreakerScope::Host => target.authority().into(),
            BreakerScope::Target => name_of(target).into(),
            BreakerScope::Global => Self::GLOBAL.into(),
            BreakerScope::Off => return None,
        };
        if let Some(named) = self.known.read().by_name.get(&*name) {
            return Some(Arc::clone(named));
        }
        self.add(&name)
    }

    /// Asks for a call that begins now.
    ///
    /// # Errors
    /// How long not.
    pub(crate) fn ask<'a>(&'a self, named: &'a Named, now: Instant) -> Result<Call<'a>, Duration> {
        let now = self.moment(now);
        match named.breaker.lock().ask(now) {
            Ok(pass) => Ok(Call { breakers: self, named, pass: Some(pass) }),
            Err(until) => Err(until - now),
        }
    }

    /// How much longer a breaker lets nothing through.
    pub(crate) fn rest(&self, named: &Named) -> Duration {
        let now = self.now();
        let until = named.breaker.lock().view(now).until;
        until.map_or(Duration::ZERO, |until| until - now)
    }

    fn add(&self, name: &str) -> Option<Arc<Named>> {
        let now = self.now();
        let mut known = self.known.write();
        if known.by_name.len() >= Self::MAX && !known.by_name.contains_key(name) {
            known.sweep(now);
            if known.by_name.len() >= Self::MAX {
                return None;
            }
        }
        let name: Arc<str> = name.into();
        let new = || Named {
            name: Arc::clone(&name),
            breaker: Breaker::new(self.settings).into(),
            last_error: Mutex::default(),
        };
        Some(Arc::clone(known.by_name.entry(Arc::clone(&name)).or_insert_with(|| new().into())))
    }

    fn tell(&self, named: &Named, change: Option<BreakerChange>) {
        if let Some(change) = change {
            let open = change == BreakerChange::Opened;
            self.observer.observe(&Fact::Breaker { name: &named.name, open });
        }
    }

    fn now(&self) -> Moment {
        self.moment(Instant::now())
    }

    fn moment(&self, at: Instant) -> Moment {
        Moment::ZERO + at.saturating_duration_since(self.origin)
    }
}

impl Known {
    /// Forgets closed breakers that nobody holds: all without a recent failure, and all others too
    /// if that makes little room.
    fn sweep(&mut self, now: Moment) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + Breakers::SWEEP_EVERY;
        self.by_name.retain(|_, named| !named.is_idle(now, 0));
        if self.by_name.len() > Breakers::MAX - Breakers::MAX / 10 {
            self.by_name.retain(|_, named| !named.is_idle(now, u32::MAX));
        }
    }
}

impl Named {
    /// Whether it is closed, counts at most that many failures, and is only in the map.
    fn is_idle(self: &Arc<Self>, now: Moment, failures: u32) -> bool {
        let view = self.breaker.lock().view(now);
        view.state == BreakerState::Closed
            && view.failures <= failures
            && Arc::strong_count(self) == 1
    }
}

impl Call<'_> {
    /// Says how and when it ended, and if it failed, what happened.
    pub(crate) fn ended(mut self, verdict: Verdict, error: Option<LastError>, now: Instant) {
        let now = self.breakers.moment(now);
        if let Some(error) = error {
            *self.named.last_error.lock() = Some(Arc::new(error));
        }
        if let Some(pass) = self.pass.take() {
            let change = self.named.breaker.lock().spend(pass, verdict, now);
            self.breakers.tell(self.named, change);
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.named.breaker.lock().give_back(pass);
        }
    }
}

impl fmt::Debug for Breakers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breakers")
            .field("scope", &self.scope)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A target in one spelling, without its query.
fn name_of(target: &Target) -> String {
    let scheme = if target.is_secure() { "https" } else { "http" };
    format!("{scheme}://{}{}", target.authority(), target.path_and_query().path())
}

/// A URL as far as it may be shown: queries carry secrets.
pub(crate) fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use sluicegate_dispatch::{BreakerSettings, Fact, Observer, Target, Verdict};
    use tokio::time::{Instant, advance};

    use super::{BreakerScope, Breakers};

    struct Nobody;

    impl Observer for Nobody {
        fn observe(&self, _: &Fact<'_>) {}
    }

    fn breakers(volume: u32) -> Breakers {
        let open_for = Duration::from_secs(3_600);
        let settings = BreakerSettings { volume, open_for, ..BreakerSettings::default() };
        Breakers::new(BreakerScope::Host, settings, Arc::new(Nobody))
    }

    fn host(number: usize) -> Target {
        Target::parse(&format!("http://host-{number}.test/")).expect("a target")
    }

    /// A breaker for each of so many hosts, each with one call that ended like this.
    fn fill(breakers: &Breakers, hosts: std::ops::Range<usize>, verdict: Verdict) {
        for number in hosts {
            let named = breakers.of(&host(number)).expect("there is room");
            let call = breakers.ask(&named, Instant::now()).expect("it is closed");
            call.ended(verdict, None, Instant::now());
        }
    }

    fn knows(breakers: &Breakers, number: usize) -> bool {
        breakers.known.read().by_name.contains_key(host(number).authority())
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_never_failed_are_forgotten_first() {
        let breakers = breakers(10);
        fill(&breakers, 0..10, Verdict::Failure);
        fill(&breakers, 10..Breakers::MAX, Verdict::Success);
        let held = breakers.of(&host(20)).expect("known");
        assert!(breakers.of(&host(Breakers::MAX)).is_some());
        assert!((0..10).all(|number| knows(&breakers, number)));
        assert!(knows(&breakers, 20) && !knows(&breakers, 21));
        assert_eq!(breakers.list().len(), 12);
        drop(held);
        // Where all have failed, these go too.
        fill(&breakers, 0..Breakers::MAX - 2, Verdict::Failure);
        advance(Duration::from_secs(2)).await;
        for number in 0..100 {
            assert!(breakers.of(&host(2 * Breakers::MAX + number)).is_some());
        }
        assert!(breakers.list().len() <= Breakers::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn open_ones_are_kept_and_a_new_host_has_none_then() {
        let breakers = breakers(1);
        fill(&breakers, 0..Breakers::MAX, Verdict::Failure);
        assert!(breakers.of(&host(Breakers::MAX)).is_none());
        assert!(breakers.of(&host(7)).is_some());
        assert_eq!(breakers.list().len(), Breakers::MAX);
        // One is closed by hand: there is room once it is looked for again.
        assert!(breakers.reset("host-7.test"));
        assert!(breakers.of(&host(Breakers::MAX)).is_none());
        advance(Duration::from_secs(2)).await;
        assert!(breakers.of(&host(Breakers::MAX)).is_some());
        assert_eq!(breakers.list().len(), Breakers::MAX);
    }
}
