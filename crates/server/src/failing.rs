//! Messages that fail again and again, and the groups that wait behind them.
//!
//! Facts say which message failed and which is over. A look now and then says which groups and pools a person should
//! hear of. A message that waits in its queue between two attempts is known here, too.

mod told;

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

pub use told::{Change, Matter, Told};

/// A message that has failed for so long is told of.
pub const STUCK_AFTER: Duration = Duration::from_secs(5 * 60);
/// The same of one that was tried so often.
pub const STUCK_ATTEMPTS: u32 = 10;
/// One that holds nobody up was tried at least so often: it may be meant to wait for long.
pub const FAILING_ATTEMPTS: u32 = 3;
/// How many messages are known that fail: some 3 MB. Further ones are told of when there is room.
const MOST: usize = 10_000;
/// The same of one pool, so that a large backlog that fails hides nobody else's.
const MOST_OF_POOL: usize = 1_000;
/// How long a message is known that nobody can look for.
const KNOWN_FOR: Duration = Duration::from_secs(30 * 60);

/// The messages whose last attempt failed.
#[derive(Debug, Default)]
pub struct Failing {
    known: Mutex<Known>,
    /// How many there are: where nothing fails nobody takes the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    by_message: HashMap<Named, Failures>,
    /// How many of them each pool has.
    by_pool: HashMap<Arc<str>, usize>,
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

/// What a person should hear of, that which has failed for longest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The groups that wait behind a message that fails, each once.
    pub groups: Vec<Stuck>,
    /// The pools with messages that fail and hold nobody up, each once.
    pub pools: Vec<FailingPool>,
    /// What nobody needs to hear of and has not failed for so long that it need not be known: if it fails again it is
    /// known again.
    pub forgotten: Vec<FailingMessage>,
}

/// A group whose head fails again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Its pool.
    pub pool: Arc<str>,
    /// Its name.
    pub group: Arc<str>,
    /// Its head.
    pub head: FailingMessage,
}

/// A pool with messages that fail again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingPool {
    /// The pool.
    pub pool: Arc<str>,
    /// How many they are.
    pub count: usize,
    /// The one that has failed for longest.
    pub first: FailingMessage,
    /// Some of the others, in the same order.
    pub others: Vec<FailingMessage>,
}

/// A message that fails again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingMessage {
    /// Its queue.
    pub queue: Arc<str>,
    /// Its id.
    pub id: Arc<str>,
    /// Since when it has failed, as far as was seen.
    pub since: Timestamp,
    /// How often it was tried.
    pub attempts: u32,
    /// How it failed the last time.
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
        let mut known = self.known.lock();
        let before = known.remove(&named);
        if before.is_some() || known.has_room(&pool) {
            let (group, begun, since) = match before {
                Some(before) => (before.group, before.begun, before.since),
                None => (message.group.clone(), last, now()),
            };
            known.add(named, Failures { pool, group, begun, since, last, attempts, error });
        }
        self.count.store(known.by_message.len(), Memory::Relaxed);
    }

    /// A message is over, or gone.
    pub(crate) fn over(&self, queue: &Arc<str>, id: &Arc<str>) {
        if self.count.load(Memory::Relaxed) == 0 {
            return;
        }
        let mut known = self.known.lock();
        known.remove(&(Arc::clone(queue), Arc::clone(id)));
        self.count.store(known.by_message.len(), Memory::Relaxed);
    }

    /// What has failed for so long, or so often, that a person should hear of it.
    pub fn due(&self, now: Instant, pool: impl Fn(&str) -> Option<Arc<PoolSettings>>) -> Due {
        if self.count.load(Memory::Relaxed) == 0 {
            return Due::default();
        }
        let is_due = |failures: &Failures| {
            failures.attempts >= STUCK_ATTEMPTS || now - failures.begun >= STUCK_AFTER
        };
        let known = self.known.lock();
        let due = known.by_message.iter().filter(|(_, failures)| is_due(failures));
        let mut due: Vec<(Named, Failures)> =
            due.map(|(named, failures)| (named.clone(), failures.clone())).collect();
        drop(known);
        due.sort_by(|(a, of_a), (b, of_b)| (of_a.begun, a).cmp(&(of_b.begun, b)));
        sorted_out(now, due, pool)
    }
}

impl Known {
    fn has_room(&self, pool: &Arc<str>) -> bool {
        let of_pool = self.by_pool.get(pool).copied().unwrap_or_default();
        self.by_message.len() < MOST && of_pool < MOST_OF_POOL
    }

    fn add(&mut self, named: Named, failures: Failures) {
        *self.by_pool.entry(Arc::clone(&failures.pool)).or_default() += 1;
        self.by_message.insert(named, failures);
    }

    fn remove(&mut self, named: &Named) -> Option<Failures> {
        let failures = self.by_message.remove(named)?;
        if let Some(count) = self.by_pool.get_mut(&failures.pool) {
            *count -= 1;
            if *count == 0 {
                self.by_pool.remove(&failures.pool);
            }
        }
        Some(failures)
    }
}

/// Which groups and pools messages stand for. Those of a pool that is not there are told of when it is, or when they
/// have failed in another.
fn sorted_out(
    now: Instant,
    due: Vec<(Named, Failures)>,
    pool: impl Fn(&str) -> Option<Arc<PoolSettings>>,
) -> Due {
    let mut settings: BTreeMap<Arc<str>, Option<Arc<PoolSettings>>> = BTreeMap::new();
    let mut known: BTreeSet<(Arc<str>, Arc<str>)> = BTreeSet::new();
    let mut places: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let mut found = Due::default();
    for ((queue, id), Failures { pool: code, group, since, last, attempts, error, .. }) in due {
        let settings = settings.entry(Arc::clone(&code)).or_insert_with(|| pool(&code));
        let is_forgotten = now.saturating_duration_since(last) >= KNOWN_FOR;
        let message = FailingMessage { queue, id, since, attempts, error, is_forgotten };
        let key = settings.as_ref().map(|settings| key(settings, group));
        let Some(key) = key.filter(|key| key.is_some() || attempts >= FAILING_ATTEMPTS) else {
            found.forgotten.extend(is_forgotten.then_some(message));
            continue;
        };
        match key {
            Some(group) if known.insert((Arc::clone(&code), Arc::clone(&group))) => {
                found.groups.push(Stuck { pool: code, group, head: message });
            }
            Some(_) => {}
            None => match places.get(&code) {
                Some(place) => found.pools[*place].add(message),
                None => {
                    places.insert(Arc::clone(&code), found.pools.len());
                    found.pools.push(FailingPool::new(code, message));
                }
            },
        }
    }
    found
}

/// What a message holds up in a pool, if anything.
fn key(settings: &PoolSettings, group: Option<Arc<str>>) -> Option<Arc<str>> {
    match (settings.ordering, group, settings.ungrouped) {
        (Ordering::Strict, Some(group), _) => Some(group),
        (Ordering::Strict, None, Ungrouped::Fifo) => Some(DEFAULT_GROUP.into()),
        _ => None,
    }
}

impl FailingPool {
    const fn new(pool: Arc<str>, first: FailingMessage) -> Self {
        Self { pool, count: 1, first, others: Vec::new() }
    }

    fn add(&mut self, other: FailingMessage) {
        self.count += 1;
        if self.count <= Told::MOST {
            self.others.push(other);
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, group, head } = self;
        let FailingMessage { id, since, attempts, error, .. } = head;
        write!(
            f,
            "group {group} of pool {pool} waits for {id}, which has failed since {since:.0} \
             ({attempts} attempts): {error}"
        )
    }
}

impl fmt::Display for FailingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, count, first, .. } = self;
        let FailingMessage { id, since, attempts, error, .. } = first;
        match count {
            1 => write!(f, "{id} of pool {pool} has failed")?,
            _ => {
                let more = if *count < MOST_OF_POOL { "" } else { " or more" };
                write!(f, "{count}{more} messages of pool {pool} fail again and again, {id}")?;
            }
        }
        write!(f, " since {since:.0} ({attempts} attempts): {error}")
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

        fn due(&self, ordering: Ordering) -> Due {
            let settings = |code: &str| {
                let settings = PoolSettings { ordering, ..PoolSettings::new(code, 1) };
                Some(Arc::new(settings))
            };
            self.failing.due(Instant::now(), settings)
        }

        fn stuck(&self) -> Vec<Stuck> {
            let due = self.due(Ordering::Strict);
            assert_eq!(due.pools, [], "they all have groups");
            due.groups
        }

        fn heads(&self) -> Vec<String> {
            let stuck = self.stuck().into_iter();
            stuck.map(|stuck| format!("{} {}", stuck.head.id, stuck.subject())).collect()
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
        assert_eq!(scene.due(Ordering::None).groups, [], "nobody waits for it");
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
        let mut groups = Told::default();
        let all = Told::MOST + 20;
        for number in 0..all {
            scene.fails(&format!("m{number:03}"), Some(&format!("{number:03}")), 10);
        }
        let changes = groups.look(&scene.stuck());
        assert_eq!(changes.len(), Told::MOST + 1);
        let more = |change: &Change| match change {
            Change::On { subject, words } if subject == Stuck::MORE => words.clone(),
            other => panic!("{other:?}"),
        };
        assert!(more(changes.last().unwrap()).starts_with("20 more groups"));
        assert_eq!(groups.look(&scene.stuck()), []);
        scene.attempt("m000", Some("000"), 11, &Outcome::Done);
        let changes = groups.look(&scene.stuck());
        assert!(matches!(&changes[0], Change::On { subject, .. } if subject == "P/100"));
        assert_eq!(changes[1], Change::Over { subject: "P/000".to_owned() });
        assert!(more(&changes[2]).starts_with("19 more groups"));
        scene.fails("m001", Some("001"), 11);
        let changes = groups.look(&scene.stuck());
        assert!(matches!(&changes[..], [Change::On { words, .. }] if words.contains("(11 ")));
        let changes = groups.look::<Stuck>(&[]);
        assert_eq!(changes.len(), Told::MOST + 1);
        assert!(changes.iter().all(|change| matches!(change, Change::Over { .. })));
    }

    /// Where nobody waits for them, they are told by their pool.
    #[tokio::test(start_paused = true)]
    async fn messages_that_hold_up_nobody_are_told_for_their_pool() {
        let scene = Scene::new();
        let mut told = Told::default();
        let words = |changes: Vec<Change>| match &changes[..] {
            [Change::On { subject, words }] if subject == "P" => words.clone(),
            other => panic!("{other:?}"),
        };
        scene.fails("a", Some("g"), 10);
        scene.fails("b", None, 9);
        scene.fails("later", None, FAILING_ATTEMPTS - 1);
        for ordering in [Ordering::Batch, Ordering::None] {
            let due = scene.due(ordering);
            assert_eq!((due.groups.len(), due.pools.len()), (0, 1), "{ordering:?}");
        }
        let one = words(told.look(&scene.due(Ordering::Batch).pools));
        assert!(one.starts_with("a of pool P has failed since 20"), "{one:?}");
        assert!(one.ends_with(" (10 attempts): refused"), "{one:?}");
        assert_eq!(told.look(&scene.due(Ordering::Batch).pools), [], "once");
        tokio::time::advance(STUCK_AFTER).await;
        scene.fails("a", Some("g"), 11);
        let both = words(told.look(&scene.due(Ordering::Batch).pools));
        assert!(both.starts_with("2 messages of pool P fail again and again, a since"), "{both:?}");
        for id in ["a", "b"] {
            scene.attempt(id, None, 12, &Outcome::Done);
        }
        let over = told.look(&scene.due(Ordering::Batch).pools);
        assert_eq!(over, [Change::Over { subject: "P".to_owned() }]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_bounded() {
        let mut scene = Scene::new();
        let known = |scene: &Scene| scene.failing.known.lock().by_message.len();
        for number in 0..MOST_OF_POOL + 5 {
            scene.fails(&number.to_string(), None, 10);
        }
        assert_eq!(known(&scene), MOST_OF_POOL);
        let words = scene.due(Ordering::None).pools[0].to_string();
        assert!(words.starts_with("1000 or more messages of pool P "), "{words:?}");
        for pool in 1..15 {
            scene.pool = format!("P{pool}").into();
            for number in 0..MOST_OF_POOL {
                scene.fails(&format!("{pool} {number}"), None, 10);
            }
        }
        assert_eq!(known(&scene), MOST);
        // There is room again, also where a message has come to another pool.
        scene.fails("0", None, 11);
        scene.attempt("1", None, 11, &Outcome::Done);
        scene.pool = "P".into();
        scene.fails("again", None, 1);
        assert_eq!(known(&scene), MOST);
        let of_pools: usize = scene.failing.known.lock().by_pool.values().sum();
        assert_eq!(of_pools, MOST);
    }

    /// It may have left its queue without a word.
    #[tokio::test(start_paused = true)]
    async fn what_failed_once_and_long_ago_is_forgotten() {
        let scene = Scene::new();
        scene.fails("once", None, 1);
        scene.fails("often", None, FAILING_ATTEMPTS);
        tokio::time::advance(KNOWN_FOR).await;
        let due = scene.due(Ordering::Batch);
        assert_eq!((due.pools[0].count, due.forgotten.len()), (1, 1), "{due:?}");
        assert_eq!(*due.forgotten[0].id, *"once");
        // The pool is not there: nobody is told, and nothing is kept for it.
        let due = scene.failing.due(Instant::now(), |_| None);
        assert_eq!((due.groups.len(), due.pools.len(), due.forgotten.len()), (0, 0, 2));
        // In order, it holds up its group.
        let due = scene.due(Ordering::Strict);
        assert_eq!((due.groups.len(), due.forgotten.len()), (1, 0), "{due:?}");
    }
}
