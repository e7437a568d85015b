//! Messages that go back to the embedded queue while others wait: nobody loses their turn, and nothing its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use sluicegate_dispatch::{
    Delivery, Demand, Depth, Discarded, Order, Publication, PutBack, Reason, Rest, Source,
};
use sluicegate_sources::sqlite::StoreSettings;
use sluicegate_testkit::conformance::source::{of_tenant, publication_in, publication_of};
use tempfile::TempDir;

use crate::stage::{Stage, again, ids};

const TENANTS: usize = 5_000;

/// A delivery that was settled goes back, as a replay does it.
fn back(delivery: &Delivery, publication: Publication, round: usize) -> PutBack {
    let name = format!("{}~{round}", publication.message.id).into();
    PutBack { broker_id: Arc::clone(&delivery.broker_id), name, publication }
}

/// A message for each of many tenants waits in POOL.
async fn many_tenants_wait(stage: &Stage, each: usize) {
    for round in 0..each {
        let of = |n: usize| publication_of(&format!("{n}/{round}"), "POOL", &format!("t{n}"));
        stage.queue.publish((0..TENANTS).map(of).collect()).await.unwrap();
    }
}

/// What is read ahead is there without a wait, whatever is replayed beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_ahead_stays_read_while_others_are_replayed() {
    let stage = Stage::open().await;
    let of = |n: usize| publication_of(&format!("r{n}"), "OTHER", &format!("t{n}"));
    stage.queue.publish((0..100).map(of).collect()).await.unwrap();
    let parked = stage.take(100).await;
    stage.all_done(parked.clone()).await;
    many_tenants_wait(&stage, 1).await;
    stage.done(&stage.take(1).await[0]).await;
    let (mut at_once, mut seen) = (0, BTreeSet::new());
    for (n, delivery) in parked.iter().enumerate() {
        stage.queue.put_back(vec![back(delivery, of(n), 1)]).await.unwrap();
        let received = stage.queue.receive(Demand::any(5)).now_or_never();
        let received = received.map_or_else(Vec::new, Result::unwrap);
        at_once += received.len();
        assert!(ids(&received).into_iter().all(|id| seen.insert(id)), "each once");
        stage.all_done(received).await;
    }
    assert!(at_once >= 250, "{at_once} of 500 came without a wait");
}

/// Those who were served do not come again before those who were not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_takes_nobodys_turn() {
    let stage = Stage::open().await;
    let of = |n: usize| publication_of(&format!("r{n}"), "POOL", "replayed");
    stage.queue.publish((0..100).map(of).collect()).await.unwrap();
    let parked = stage.take(100).await;
    stage.all_done(parked.clone()).await;
    many_tenants_wait(&stage, 2).await;
    let mut served = BTreeSet::new();
    for (n, delivery) in parked.iter().enumerate() {
        stage.queue.put_back(vec![back(delivery, of(n), 1)]).await.unwrap();
        let received = stage.take(10).await;
        let tenant = |id: String| id.split('/').next().unwrap_or_default().to_owned();
        served.extend(ids(&received).into_iter().map(tenant));
        stage.all_done(received).await;
    }
    assert_eq!(served.len(), 1000, "each of those who were served was served once");
}

/// One that was put back to the end, because nobody knows its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_place_comes_at_the_end_and_what_is_published_after_it_too() {
    for pool in ["POOL", "STRICT"] {
        let stage = Stage::open().await;
        stage.queue.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
        let of = |id: &str| publication_in(id, pool, Some("a"), false);
        stage.queue.publish(vec![of("m1"), of("m2")]).await.unwrap();
        let first = stage.take(1).await.remove(0);
        let strange = PutBack { broker_id: "x".into(), ..back(&first, of("strange"), 1) };
        stage.queue.put_back(vec![strange]).await.unwrap();
        stage.queue.publish(vec![of("m3")]).await.unwrap();
        let mut seen = ids(std::slice::from_ref(&first));
        stage.done(&first).await;
        for _ in 0..3 {
            let next = stage.take(1).await.remove(0);
            seen.extend(ids(std::slice::from_ref(&next)));
            stage.done(&next).await;
        }
        assert_eq!(seen, ["m1", "m2", "strange", "m3"], "{pool}");
        assert_eq!(stage.take(1).await, []);
    }
}

/// More than is read ahead goes back at once, and all of it comes, in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_go_back_and_none_is_forgotten() {
    for (pool, groups) in [("POOL", 1), ("STRICT", 1), ("STRICT", 500)] {
        let mut settings = StoreSettings::default();
        settings.read_ahead = Some(16);
        let stage = Stage::open_with(tempfile::tempdir().unwrap(), settings).await;
        stage.queue.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
        let of = |n: usize| {
            let group = format!("g{}", n % groups);
            publication_in(&format!("{}", n + 1), pool, Some(&group), false)
        };
        stage.queue.publish((0..500).map(of).collect()).await.unwrap();
        let mut parked = Vec::new();
        while parked.len() < 500 {
            let some = stage.queue.receive(Demand::any(50)).await.unwrap();
            stage.all_done(some.clone()).await;
            parked.extend(some);
        }
        let waiting = (500..520).map(of).collect();
        stage.queue.publish(waiting).await.unwrap();
        let first = stage.take(1).await;
        // The last first: whoever reads on finds none of them.
        for part in parked.chunks(50).rev() {
            let again = part.iter().map(|delivery| {
                let n: usize = delivery.broker_id.parse().unwrap();
                back(delivery, of(n - 1), 1)
            });
            stage.queue.put_back(again.collect()).await.unwrap();
        }
        stage.all_done(first).await;
        let mut seen = Vec::new();
        while seen.len() < 519 {
            let some = stage.queue.receive(Demand::any(50)).await.unwrap();
            assert!(!some.is_empty(), "nothing came after {} of {pool}", seen.len());
            seen.extend(ids(&some).into_iter().map(|id| id.parse::<usize>().unwrap()));
            stage.all_done(some).await;
        }
        assert_eq!(stage.take(1).await, []);
        let mut by_group: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for n in &seen {
            by_group.entry((n - 1) % groups).or_default().push(*n);
        }
        assert!(by_group.values().all(|group| group.is_sorted()), "{pool}: {seen:?}");
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 519);
    }
}

/// What is in the queue, by the rules: of each key of STRICT, where a regular one was handed back before, the first; else
/// the first of high priority, else the first; of all else each.
#[derive(Default)]
struct Expected {
    /// By number: its key, whether it is of high priority, and whether it was handed back.
    waiting: BTreeMap<u64, (Option<String>, bool, bool)>,
    /// Keys of which one is out.
    out: BTreeMap<u64, Option<String>>,
}

impl Expected {
    fn may_come(&self, number: u64) -> bool {
        match &self.waiting[&number].0 {
            None => true,
            Some(key) => {
                !self.out.values().flatten().any(|out| out == key)
                    && self.next_of(key) == Some(number)
            }
        }
    }

    fn next_of(&self, key: &str) -> Option<u64> {
        let of_key =
            |(_, (of, _, _)): &(&u64, &(Option<String>, bool, bool))| of.as_deref() == Some(key);
        let all = || self.waiting.iter().filter(of_key);
        let high = all().find(|(_, (_, high, _))| *high);
        let next = match all().find(|(_, (_, _, held))| *held) {
            Some((_, (_, true, _))) | None => high.or_else(|| all().next()),
            Some(_) => all().next(),
        };
        next.map(|(number, _)| *number)
    }

    fn can_come(&self) -> usize {
        self.waiting.keys().filter(|number| self.may_come(**number)).count()
    }
}

/// Numbers that look random, from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }
}

/// A queue that messages leave and come back to at random, and what is expected of it.
struct Walk {
    stage: Stage,
    dice: Dice,
    expected: Expected,
    out: Vec<Delivery>,
    parked: Vec<(Delivery, Publication)>,
    sent: BTreeMap<u64, Publication>,
    round: usize,
}

/// A folder on a disk that needs no time to sync, if there is one.
fn in_memory() -> TempDir {
    let shared_memory = std::path::Path::new("/dev/shm");
    let folder = match shared_memory.is_dir() {
        true => tempfile::tempdir_in(shared_memory),
        false => tempfile::tempdir(),
    };
    folder.unwrap()
}

impl Walk {
    async fn open(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut settings = StoreSettings::default();
        settings.read_ahead = Some([1, 2, 5, 1024][dice.below(4)]);
        let stage = Stage::open_with(in_memory(), settings).await;
        stage.queue.keep_order(&Arc::new(Order::of_pools(["STRICT"])));
        let (expected, sent) = (Expected::default(), BTreeMap::new());
        Self { stage, dice, expected, out: Vec::new(), parked: Vec::new(), sent, round: 0 }
    }

    fn waits(&mut self, number: u64, publication: Publication, held: bool) {
        let message = &publication.message;
        let group = message.group.as_deref().unwrap_or_default();
        let key = (&*message.pool == "STRICT").then(|| group.to_owned());
        self.expected.waiting.insert(number, (key, message.high_priority, held));
        self.sent.insert(number, publication);
    }

    async fn publish(&mut self) {
        let mut messages = Vec::new();
        for _ in 0..=self.dice.below(4) {
            let number = self.sent.len() as u64 + 1;
            let pool = ["STRICT", "STRICT", "PLAIN"][self.dice.below(3)];
            let group = ["a", "b"][self.dice.below(2)];
            let high = self.dice.below(5) == 0;
            let message = publication_in(&format!("m{number}"), pool, Some(group), high);
            let message = of_tenant(message, ["t", "u", "v"][self.dice.below(3)]);
            messages.push(message.clone());
            self.waits(number, message, false);
        }
        self.stage.queue.publish(messages).await.unwrap();
    }

    async fn receive(&mut self, most: usize) {
        let can_come = self.expected.can_come();
        // Without a wait, so that something happens while it is read; or all that there is.
        let received = match self.dice.below(3) {
            0 => match self.stage.queue.receive(Demand::any(most)).now_or_never() {
                Some(received) => received.unwrap(),
                None => return,
            },
            _ if can_come == 0 => return,
            _ => {
                let received = self.stage.queue.receive(Demand::any(most)).await.unwrap();
                assert!(!received.is_empty(), "nothing comes: {:?}", self.expected.waiting);
                received
            }
        };
        for delivery in received {
            let number = delivery.broker_id.parse().unwrap();
            let is_there = self.expected.waiting.contains_key(&number);
            assert!(is_there, "{number} is out or gone: {:?}", self.expected.waiting);
            assert!(self.expected.may_come(number), "{number}: {:?}", self.expected.waiting);
            let (key, _, _) = self.expected.waiting.remove(&number).unwrap();
            self.expected.out.insert(number, key);
            self.out.push(delivery);
        }
    }

    async fn settle(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let delivery = self.out.swap_remove(self.dice.below(self.out.len()));
        let number = delivery.broker_id.parse().unwrap();
        let publication = self.sent[&number].clone();
        self.expected.out.remove(&number);
        if self.dice.below(4) == 0 {
            self.stage.settle(&delivery, again(Duration::ZERO, 1)).await;
            self.waits(number, publication, true);
            return;
        }
        self.stage.done(&delivery).await;
        self.parked.push((delivery, publication));
    }

    async fn put_back(&mut self) {
        let mut messages = Vec::new();
        for _ in 0..=self.dice.below(4) {
            if self.parked.is_empty() {
                break;
            }
            let (delivery, publication) =
                self.parked.swap_remove(self.dice.below(self.parked.len()));
            self.round += 1;
            messages.push(back(&delivery, publication.clone(), self.round));
            self.waits(delivery.broker_id.parse().unwrap(), publication, false);
        }
        self.stage.queue.put_back(messages).await.unwrap();
    }

    async fn step(&mut self) {
        match self.dice.below(8) {
            0 => self.publish().await,
            1..4 => {
                let most = self.dice.below(4) + 1;
                self.receive(most).await;
            }
            4 | 5 => self.settle().await,
            _ => self.put_back().await,
        }
    }

    async fn empty(&mut self) {
        while !self.expected.waiting.is_empty() || !self.out.is_empty() {
            self.receive(5).await;
            for delivery in std::mem::take(&mut self.out) {
                self.expected.out.remove(&delivery.broker_id.parse().unwrap());
                self.stage.done(&delivery).await;
            }
        }
        assert_eq!(self.stage.queue.depth().await.unwrap(), Depth::default());
    }
}

/// Whenever messages go back, also while someone reads: each comes, once, and in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_goes_back_comes_in_its_place() {
    let walks = std::env::var("MODEL_WALKS").ok().and_then(|walks| walks.parse().ok());
    for seed in 0..walks.unwrap_or(30) {
        let mut walk = Walk::open(seed).await;
        for _ in 0..120 {
            walk.step().await;
        }
        walk.empty().await;
    }
}

/// docs/rules.md#fifo-1: high priority never goes before one that is to be tried again, whatever is replayed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn high_priority_stays_behind_a_head_that_was_tried_though_an_earlier_one_is_replayed() {
    for (crashes, comes_last) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut stage = Stage::open().await;
        let order = Arc::new(Order::of_pools(["STRICT"]));
        stage.queue.keep_order(&order);
        let of = |id: &str, high: bool| publication_in(id, "STRICT", Some("a"), high);
        stage.queue.publish(vec![of("a1", false), of("a2", false)]).await.unwrap();
        let parked = stage.take(1).await;
        stage.all_done(parked.clone()).await;
        let head = stage.take(1).await;
        assert_eq!(ids(&head), ["a2"]);
        let (receipt, reason) = (head[0].receipt.clone(), Reason::Failed);
        let rest = Rest { receipt, after: Duration::ZERO, attempts: 1, reason };
        stage.queue.rest(vec![rest]).await.unwrap();
        if !comes_last {
            stage.queue.publish(vec![of("h1", true)]).await.unwrap();
        }
        stage.queue.put_back(vec![back(&parked[0], of("a1", false), 1)]).await.unwrap();
        if crashes {
            stage = stage.crash().await;
            stage.queue.keep_order(&order);
        } else {
            stage.settle(&head[0], again(Duration::ZERO, 1)).await;
        }
        if comes_last {
            stage.queue.publish(vec![of("h1", true)]).await.unwrap();
        }
        let mut came = Vec::new();
        while came.len() < 3 {
            let next = stage.take(1).await;
            came.extend(ids(&next));
            stage.all_done(next).await;
        }
        assert_eq!(came, ["a1", "a2", "h1"], "crashes: {crashes}, comes last: {comes_last}");
    }
}

/// A message that came from elsewhere may get the number of one that is over: whoever asks for that one does not get it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_has_the_number_of_another_is_not_taken_for_it() {
    let stage = Stage::open().await;
    let of = |id: &str| publication_in(id, "POOL", Some("a"), false);
    stage.queue.publish(vec![of("m1")]).await.unwrap();
    let first = stage.take(1).await;
    stage.all_done(first.clone()).await;
    stage.queue.put_back(vec![back(&first[0], of("other"), 1)]).await.unwrap();
    assert_eq!(stage.queue.find("m1").await.unwrap(), None);
    assert_eq!(stage.queue.discard("m1").await.unwrap(), Discarded::NotFound);
    assert_eq!(stage.store.stored_in_any("m1").await.unwrap().len(), 0);
    assert_eq!(stage.queue.discard("none").await.unwrap(), Discarded::NotFound);
    assert_eq!(stage.take_ids(1).await, ["other"]);
}
