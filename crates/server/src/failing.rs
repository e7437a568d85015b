//! Messages that fail again and again, and the groups that wait behind them.
//!
//! Facts say which message failed and which is over. A look now and then says which groups a person should hear of.
//! A message that waits in its queue between two attempts is known here, too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Memory};
use std::time::Duration;

use parking_lot::Mutex;
use sluicegate_dispatch::{
    DEFAULT_GROUP, Fact, Message, Ordering, Outcome, PoolSettings, Ungrouped,
};
use tokio::time::Instant;

use crate::time::Timestamp;
use crate::warnings::speakable;

/// A head that has failed for so long holds its group up.
pub const STUCK_AFTER: Duration = Duration::from_secs(5 * 60);
/// The same of one that was tried so often.
pub const STUCK_ATTEMPTS: u32 = 10;
/// How many messages are known that fail: some 3 MB. Further ones are told of when there is room.
const MOST: usize = 10_000;
/// How long a message is known that nobody can look for.
const KNOWN_FOR: Duration = Duration::from_secs(30 * 60);

/// The messages whose last attempt failed.
#[derive(Debug, Default)]
pub struct Failing {
    by_message: Mutex<HashMap<Named, Failures>>,
    /// How many there are: where nothing fails nobody takes the lock.
    count: AtomicUsize,
}

/// A queue and a message of it.
type Named = (Arc<str>, Arc<str>);

#[derive(Clone, Debug)]
struct Failures {
    pool: Arc<str>,
    group: Option<Arc<str>>,
    begun: Instant,
    since: Timestamp,
    last: Instant,
    attempts: u32,
    error: Arc<str>,
}

/// A group whose head fails again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The queue of its head.
    pub queue: Arc<str>,
    /// Its head.
    pub head: Arc<str>,
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name.
    pub group: Arc<str>,
    /// Since when its head has failed, as far as was seen.
    pub since: Timestamp,
    /// How often its head was tried.
    pub attempts: u32,
    /// How its head failed the last time.
    pub error: Arc<str>,
    /// Whether that was so long ago that it is taken for gone, where nobody can look for it.
    pub is_forgotten: bool,
}

impl Failing {
    /// Hears which message failed, and which is over.
    pub fn hear(&self, fact: &Fact<'_>, now: impl FnOnce() -> Timestamp) {
        match *fact {
            Fact::Finished { queue, pool, message, attempt, outcome, .. } => match outcome {
                Outcome::Done => self.over(queue, &message.id),
                Outcome::RetryLater { why, .. } | Outcome::Unreachable { cause: why } => {
                    self.failed(queue, pool, message, attempt, why, now);
                }
                _ => {}
            },
            Fact::Settled { queue, id: Some(id), again: None, .. } => self.over(queue, id),
            _ => {}
        }
    }

    fn failed(
        &self,
        queue: &Arc<str>,
        pool: &Arc<str>,
        message: &Message,
        attempts: u32,
        why: &str,
        now: impl FnOnce() -> Timestamp,
    ) {
        let named = (Arc::clone(queue), Arc::clone(&message.id));
        let (pool, last) = (Arc::clone(pool), Instant::now());
        let error: Arc<str> = speakable(why, message).into();
        let mut all = self.by_message.lock();
        if let Some(known) = all.get_mut(&named) {
            *known = Failures { pool, last, attempts, error, ..known.clone() };
            return;
        }
        if all.len() < MOST {
            let (group, since) = (message.group.clone(), now());
            let failures = Failures { pool, group, begun: last, since, last, attempts, error };
            all.insert(named, failures);
            self.count.store(all.len(), Memory::Relaxed);
        }
    }

    /// A message is over, or gone.
    pub(crate) fn over(&self, queue: &Arc<str>, id: &Arc<str>) {
        if self.count.load(Memory::Relaxed) == 0 {
            return;
        }
        let mut all = self.by_message.lock();
        all.remove(&(Arc::clone(queue), Arc::clone(id)));
        self.count.store(all.len(), Memory::Relaxed);
    }

    /// The groups that are held up by a head that fails, those that have been for longest first, and each once.
    pub fn stuck(
        &self,
        now: Instant,
        pool: impl Fn(&str) -> Option<Arc<PoolSettings>>,
    ) -> Vec<Stuck> {
        if self.count.load(Memory::Relaxed) == 0 {
            return Vec::new();
        }
        let is_due = |failures: &Failures| {
            failures.attempts >= STUCK_ATTEMPTS || now - failures.begun >= STUCK_AFTER
        };
        let all = self.by_message.lock();
        let due = all.iter().filter(|(_, failures)| is_due(failures));
        let mut due: Vec<(Named, Failures)> =
            due.map(|(named, failures)| (named.clone(), failures.clone())).collect();
        drop(all);
        due.sort_by(|(a, of_a), (b, of_b)| (of_a.begun, a).cmp(&(of_b.begun, b)));
        let mut pools: BTreeMap<Arc<str>, Option<Arc<PoolSettings>>> = BTreeMap::new();
        let mut known: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
        let mut stuck = Vec::new();
        for ((queue, head), Failures { pool: code, group, since, last, attempts, error, .. }) in due
        {
            let settings = pools.entry(Arc::clone(&code)).or_insert_with(|| pool(&code));
            let group = settings.as_ref().and_then(|settings| key(settings, group));
            let Some(group) = group else { continue };
            let is_forgotten = now.saturating_duration_since(last) >= KNOWN_FOR;
            if known.insert((Arc::clone(&code), Arc::clone(&group))) {
                let pool = code;
                stuck.push(Stuck {
                    queue,
                    head,
                    pool,
                    group,
                    since,
                    attempts,
                    error,
                    is_forgotten,
                });
            }
        }
        stuck
    }
}

/// What a message holds up in a pool, if anything.
fn key(settings: &PoolSettings, group: Option<Arc<str>>) -> Option<Arc<str>> {
    match (settings.ordering, group, settings.ungrouped) {
        (Ordering::Strict, Some(group), _) => Some(group),
        (Ordering::Strict, None, Ungrouped::Fifo) => Some(DEFAULT_GROUP.into()),
        _ => None,
    }
}

impl Stuck {
    /// What it is called among warnings.
    #[must_use]
    pub fn subject(&self) -> String {
        format!("{}/{}", self.pool, self.group)
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, pool, group, since, attempts, error, .. } = self;
        write!(
            f,
            "group {group} of pool {pool} waits for {head}, which has failed since {since:.0} \
             ({attempts} attempts): {error}"
        )
    }
}

/// Which stuck groups were warned of.
#[derive(Debug, Default)]
pub struct StuckGroups {
    /// By subject, the attempts that were told of.
    told: BTreeMap<String, u32>,
    more: usize,
}

/// What to say.
#[derive(Debug, PartialEq, Eq)]
pub enum StuckChange {
    /// A group is stuck, or its head was tried again.
    Stuck {
        /// Its name among warnings.
        subject: String,
        /// What to say of it.
        words: String,
    },
    /// It is not any more.
    Over {
        /// Its name among warnings.
        subject: String,
    },
}

impl StuckGroups {
    /// How many groups have a warning of their own.
    pub const MOST: usize = 100;
    /// What all further ones are called.
    pub const MORE: &'static str = "more groups";

    /// Looks at all that are stuck, those first that are to be named.
    pub fn look(&mut self, stuck: &[Stuck]) -> Vec<StuckChange> {
        let (named, more) = stuck.split_at(stuck.len().min(Self::MOST));
        let mut before = std::mem::take(&mut self.told);
        let mut changes = Vec::new();
        for one in named {
            let subject = one.subject();
            if before.remove(&subject) != Some(one.attempts) {
                let words = one.to_string();
                changes.push(StuckChange::Stuck { subject: subject.clone(), words });
            }
            self.told.insert(subject, one.attempts);
        }
        changes.extend(before.into_keys().map(|subject| StuckChange::Over { subject }));
        let before = std::mem::replace(&mut self.more, more.len());
        let subject = Self::MORE.to_owned();
        match (before, more.len()) {
            (before, now) if before == now => {}
            (_, 0) => changes.push(StuckChange::Over { subject }),
            (_, count) => {
                let words = format!("{count} more groups wait for heads that fail again and again");
                changes.push(StuckChange::Stuck { subject, words });
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_dispatch::Target;
    use sluicegate_testkit::scripted;

    use super::*;

    fn message(id: &str, group: Option<&str>) -> Message {
        let target = Target::parse("http://a.test/in").unwrap();
        Message { group: group.map(Into::into), target, ..scripted::message(id, "P") }
    }

    struct Scene {
        failing: Failing,
        queue: Arc<str>,
        pool: Arc<str>,
    }

    impl Scene {
        fn new() -> Self {
            Self { failing: Failing::default(), queue: "q".into(), pool: "P".into() }
        }

        fn attempt(&self, id: &str, group: Option<&str>, attempt: u32, outcome: &Outcome) {
            let (queue, pool, message) = (&self.queue, &self.pool, &message(id, group));
            let took = Duration::ZERO;
            let fact = Fact::Finished { queue, pool, message, attempt, outcome, took };
            self.failing.hear(&fact, Timestamp::now);
        }

        fn fails(&self, id: &str, group: Option<&str>, attempt: u32) {
            let cause = "refused".to_owned();
            self.attempt(id, group, attempt, &Outcome::Unreachable { cause });
        }

        fn stuck(&self, ordering: Ordering) -> Vec<Stuck> {
            let settings = |code: &str| {
                let settings = PoolSettings { ordering, ..PoolSettings::new(code, 1) };
                Some(Arc::new(settings))
            };
            self.failing.stuck(Instant::now(), settings)
        }

        fn heads(&self) -> Vec<String> {
            let stuck = self.stuck(Ordering::Strict).into_iter();
            stuck.map(|stuck| format!("{} {}", stuck.head, stuck.subject())).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_fails_for_long_or_often_holds_its_group_up() {
        let scene = Scene::new();
        scene.fails("long", Some("a"), 1);
        scene.fails("often", Some("b"), 9);
        assert_eq!(scene.heads(), <[&str; 0]>::default());
        scene.fails("often", Some("b"), 10);
        assert_eq!(scene.heads(), ["often P/b"]);
        tokio::time::advance(STUCK_AFTER).await;
        scene.fails("new", Some("c"), 1);
        scene.fails("another", Some("a"), 10);
        assert_eq!(scene.heads(), ["long P/a", "often P/b"], "the longest first, and each once");
        assert_eq!(scene.stuck(Ordering::None), [], "nobody waits for it");
        scene.attempt("long", Some("a"), 2, &Outcome::Interrupted);
        assert_eq!(scene.heads().len(), 2, "that is no end");
        scene.attempt("long", Some("a"), 2, &Outcome::Done);
        let (queue, id) = (&scene.queue, &"often".into());
        let settled = |again| Fact::Settled { queue, id: Some(id), again, stale: false };
        let again = Some(sluicegate_dispatch::Reason::Failed);
        scene.failing.hear(&settled(again), Timestamp::now);
        assert_eq!(scene.heads(), ["often P/b", "another P/a"], "it waits in its queue");
        scene.failing.hear(&settled(None), Timestamp::now);
        assert_eq!(scene.heads(), ["another P/a"]);
        scene.fails("alone", None, 10);
        assert_eq!(scene.heads().len(), 2, "those without a group wait for each other");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_named_and_the_rest_is_counted() {
        let scene = Scene::new();
        let mut groups = StuckGroups::default();
        let all = StuckGroups::MOST + 20;
        for number in 0..all {
            scene.fails(&format!("m{number:03}"), Some(&format!("{number:03}")), 10);
        }
        let changes = groups.look(&scene.stuck(Ordering::Strict));
        assert_eq!(changes.len(), StuckGroups::MOST + 1);
        let more = |change: &StuckChange| match change {
            StuckChange::Stuck { subject, words } if subject == StuckGroups::MORE => words.clone(),
            other => panic!("{other:?}"),
        };
        assert!(more(changes.last().unwrap()).starts_with("20 more groups"));
        assert_eq!(groups.look(&scene.stuck(Ordering::Strict)), []);
        scene.attempt("m000", Some("000"), 11, &Outcome::Done);
        let changes = groups.look(&scene.stuck(Ordering::Strict));
        assert!(matches!(&changes[0], StuckChange::Stuck { subject, .. } if subject == "P/100"));
        assert_eq!(changes[1], StuckChange::Over { subject: "P/000".to_owned() });
        assert!(more(&changes[2]).starts_with("19 more groups"));
        scene.fails("m001", Some("001"), 11);
        let changes = groups.look(&scene.stuck(Ordering::Strict));
        assert!(
            matches!(&changes[..], [StuckChange::Stuck { words, .. }] if words.contains("(11 "))
        );
        let changes = groups.look(&[]);
        assert_eq!(changes.len(), StuckGroups::MOST + 1);
        assert!(changes.iter().all(|change| matches!(change, StuckChange::Over { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_bounded() {
        let scene = Scene::new();
        for number in 0..MOST + 5 {
            scene.fails(&number.to_string(), None, 1);
        }
        assert_eq!(scene.failing.by_message.lock().len(), MOST);
    }
}
