//! The embedded queue beside the source in memory: whatever is done to both, the same comes out.
//!
//! Time is paused and goes in ticks; windows and delays end between two ticks, so that both agree on
//! what has ended at a tick.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_dispatch::{
    Delivery, Demand, Order, Publication, Reason, Receipt, Rest, Room, Rooms, Settle, Settlement,
    Source,
};
use sluicegate_sources::sqlite::{Clock, SqliteSource, Store, StoreSettings};
use sluicegate_testkit::FakeSource;
use sluicegate_testkit::conformance::source::{of_tenant, publication_in};
use tempfile::TempDir;
use tokio::time::{Instant, sleep_until, timeout};

const TICK: Duration = Duration::from_millis(10);
const WINDOW: Duration = Duration::from_millis(205);

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<Sent>),
    /// At most so many, of all pools or of those with so many places.
    Receive(usize, Option<[u32; 3]>),
    Settle(Vec<(Index, How)>),
    Extend(Vec<Index>),
    /// They rest for so many ticks.
    Rest(Vec<(Index, u32)>),
    Wait(u32),
    KeepOrder(&'static [&'static str]),
    Crash,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    pool: &'static str,
    group: Option<&'static str>,
    tenant: &'static str,
    high: bool,
    late: u32,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Gone,
    Now,
    Later(u32),
}

fn sent() -> impl Strategy<Value = Sent> {
    let pool = prop_oneof![3 => Just("STRICT"), 1 => Just("PLAIN"), 1 => Just("OTHER")];
    let group = prop_oneof![4 => Just(Some("a")), 2 => Just(Some("b")), 1 => Just(None)];
    let late = prop_oneof![6 => Just(0), 1 => 1u32..15];
    let high = proptest::bool::weighted(0.2);
    let tenant = proptest::sample::select(&["t", "u", "v"][..]);
    (pool, group, tenant, high, late).prop_map(|(pool, group, tenant, high, late)| {
        // Which of two is first when both become the first at a time is not said.
        let late = if high { 0 } else { late };
        Sent { pool, group, tenant, high, late }
    })
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![4 => Just(How::Gone), 1 => Just(How::Now), 2 => (1u32..20).prop_map(How::Later)]
}

fn step() -> impl Strategy<Value = Step> {
    let some = |n| 1usize..n;
    const ORDERS: &[&[&str]] = &[&[], &["STRICT"], &["STRICT", "OTHER"], &["PLAIN"]];
    prop_oneof![
        4 => proptest::collection::vec(sent(), some(7)).prop_map(Step::Publish),
        4 => some(8).prop_map(|most| Step::Receive(most, None)),
        4 => (some(8), [0..4u32, 0..4, 0..4]).prop_map(|(most, rooms)| Step::Receive(most, Some(rooms))),
        8 => proptest::collection::vec((any::<Index>(), how()), some(5)).prop_map(Step::Settle),
        2 => proptest::collection::vec(any::<Index>(), some(4)).prop_map(Step::Extend),
        4 => proptest::collection::vec((any::<Index>(), 0..50u32), some(4)).prop_map(Step::Rest),
        4 => (1u32..25).prop_map(Step::Wait),
        1 => proptest::sample::select(ORDERS).prop_map(Step::KeepOrder),
        1 => Just(Step::Crash),
    ]
}

/// The two of them.
struct Pair {
    folder: TempDir,
    clock: Clock,
    ahead: usize,
    real: Option<SqliteSource>,
    fake: FakeSource,
    order: &'static [&'static str],
    sent: usize,
    begun: Instant,
    /// All receipts that were ever given, of both.
    receipts: Vec<(Receipt, Receipt)>,
}

impl Pair {
    async fn open(ahead: usize) -> Self {
        let shared_memory = std::path::Path::new("/dev/shm");
        let folder = match shared_memory.is_dir() {
            true => tempfile::tempdir_in(shared_memory),
            false => tempfile::tempdir(),
        };
        let mut pair = Self {
            folder: folder.unwrap(),
            clock: Clock::system(),
            ahead,
            real: None,
            fake: FakeSource::new(WINDOW),
            order: &[],
            sent: 0,
            begun: Instant::now(),
            receipts: Vec::new(),
        };
        pair.reopen().await;
        pair
    }

    async fn reopen(&mut self) {
        self.real = None;
        let mut settings = StoreSettings::default();
        settings.clock = Some(self.clock.clone());
        settings.read_ahead = Some(self.ahead);
        let store = Store::open_with(self.folder.path().join("state.db"), settings).await.unwrap();
        self.real = Some(store.queue("orders", WINDOW).await.unwrap());
    }

    fn real(&self) -> &SqliteSource {
        self.real.as_ref().unwrap()
    }

    async fn tick(&self, ticks: u32) {
        let passed = self.begun.elapsed().as_millis() / TICK.as_millis();
        sleep_until(self.begun + TICK * (passed as u32 + ticks)).await;
    }

    async fn publish(&mut self, sent: &[Sent]) {
        let message = |(n, sent): (usize, &Sent)| {
            // Some ids come twice.
            let number = self.sent + n;
            let id = if number % 17 == 16 { number - 1 } else { number };
            let message = publication_in(&format!("m{id}"), sent.pool, sent.group, sent.high);
            let mut message = of_tenant(message, sent.tenant);
            message.delay = delay(sent.late);
            message
        };
        let messages: Vec<Publication> = sent.iter().enumerate().map(message).collect();
        self.sent += messages.len();
        let real = self.real().publish(messages.clone()).await.unwrap();
        assert_eq!(real, self.fake.publish(messages).await.unwrap());
    }

    /// Whatever order the two hand out in: what comes may come, and what does not come may not.
    async fn receive(&mut self, max: usize, rooms: Option<[u32; 3]>) -> usize {
        let places = rooms.map(|rooms| Arc::new(Places::of(rooms)));
        let demand = |max| match &places {
            None => Demand::any(max),
            Some(places) => Demand::of(max, Arc::clone(places) as _, Arc::default()),
        };
        let real = all(self.real(), max, demand).await;
        let received = real.len();
        if let Some(places) = &places {
            assert_eq!(places.taken(), received, "places that were taken");
        }
        for real in real {
            let fake = self.fake.receive_this(&real.broker_id);
            let fake = fake.unwrap_or_else(|| panic!("too early: {real:?}"));
            assert_eq!((&real.message, real.attempts), (&fake.message, fake.attempts));
            self.receipts.push((real.receipt, fake.receipt));
        }
        if received < max {
            let left = timeout(Duration::ZERO, self.fake.receive(demand(1))).await;
            assert!(left.is_err(), "too late: {left:?}");
        }
        received
    }

    async fn settle(&mut self, chosen: &[(Index, How)]) {
        if self.receipts.is_empty() {
            return;
        }
        let picked = chosen.iter().map(|(index, how)| (index.get(&self.receipts), ending(*how)));
        let (real, fake) = picked
            .map(|((real, fake), settlement)| {
                let settle = |receipt: &Receipt| Settle { receipt: receipt.clone(), settlement };
                (settle(real), settle(fake))
            })
            .unzip();
        let real = self.real().settle(real).await.unwrap();
        assert_eq!(real, self.fake.settle(fake).await.unwrap());
    }

    async fn extend(&self, chosen: &[Index]) {
        if self.receipts.is_empty() {
            return;
        }
        let picked = chosen.iter().map(|index| index.get(&self.receipts).clone());
        let (real, fake) = picked.unzip();
        let real = self.real().extend(real).await.unwrap();
        assert_eq!(real, self.fake.extend(fake).await.unwrap());
    }

    async fn rest(&self, chosen: &[(Index, u32)]) {
        if self.receipts.is_empty() {
            return;
        }
        let rest = |receipt: &Receipt, ticks: u32| {
            let (receipt, reason) = (receipt.clone(), Reason::Failed);
            Rest { receipt, after: delay(ticks), attempts: ticks, reason }
        };
        let picked = chosen.iter().map(|(index, ticks)| (index.get(&self.receipts), *ticks));
        let (real, fake) =
            picked.map(|((real, fake), ticks)| (rest(real, ticks), rest(fake, ticks))).unzip();
        let real = self.real().rest(real).await.unwrap();
        assert_eq!(real, self.fake.rest(fake).await.unwrap());
    }

    fn keep_order(&mut self, pools: &'static [&'static str]) {
        self.order = pools;
        let order = Arc::new(Order::of_pools(pools.iter().copied()));
        self.real().keep_order(&order);
        self.fake.keep_order(&order);
    }

    async fn walk(&mut self, step: &Step) {
        self.tick(1).await;
        match step {
            Step::Publish(sent) => self.publish(sent).await,
            Step::Receive(max, rooms) => drop(self.receive(*max, *rooms).await),
            Step::Settle(chosen) => self.settle(chosen).await,
            Step::Extend(chosen) => self.extend(chosen).await,
            Step::Rest(chosen) => self.rest(chosen).await,
            Step::Wait(ticks) => self.tick(*ticks).await,
            Step::KeepOrder(pools) => self.keep_order(pools),
            Step::Crash => {
                self.fake = self.fake.restarted();
                self.reopen().await;
                self.keep_order(self.order);
            }
        }
        let real = self.real().depth().await.unwrap();
        assert_eq!(real, self.fake.depth().await.unwrap(), "after {step:?}");
    }

    /// Takes all that is left, until both are empty.
    async fn empty(&mut self) {
        for _ in 0..1000 {
            if self.fake.is_empty() {
                break;
            }
            self.tick(3).await;
            let from = self.receipts.len();
            self.receive(5, None).await;
            for n in from..self.receipts.len() {
                let (real, fake) = self.receipts[n].clone();
                let gone = |receipt| vec![Settle { receipt, settlement: Settlement::Ack }];
                let real = self.real().settle(gone(real)).await.unwrap();
                assert_eq!(real, self.fake.settle(gone(fake)).await.unwrap());
            }
        }
        assert!(self.fake.is_empty(), "it cannot be emptied");
        assert_eq!(self.real().depth().await.unwrap(), sluicegate_dispatch::Depth::default());
    }
}

/// A delay that ends between two ticks.
fn delay(ticks: u32) -> Duration {
    if ticks == 0 { Duration::ZERO } else { TICK * ticks + TICK / 2 }
}

fn ending(how: How) -> Settlement {
    let again = |after, attempts| Settlement::Retry { after, attempts, reason: Reason::Failed };
    match how {
        How::Gone => Settlement::Ack,
        How::Now => again(Duration::ZERO, 0),
        How::Later(ticks) => again(delay(ticks), ticks),
    }
}

/// So many places in each pool.
struct Places {
    free: Mutex<BTreeMap<&'static str, u32>>,
    all: u32,
}

impl Places {
    fn of(rooms: [u32; 3]) -> Self {
        let free = ["STRICT", "PLAIN", "OTHER"].into_iter().zip(rooms).collect();
        Self { free: Mutex::new(free), all: rooms.iter().sum() }
    }

    fn taken(&self) -> usize {
        (self.all - self.free.lock().values().sum::<u32>()) as usize
    }
}

impl Rooms for Places {
    fn take(&self, pool: &str) -> bool {
        let mut free = self.free.lock();
        let free = free.get_mut(pool).filter(|free| **free > 0);
        free.map(|free| *free -= 1).is_some()
    }

    fn room(&self) -> Room {
        Room::default()
    }
}

/// What can be received now.
async fn all(source: &dyn Source, max: usize, demand: impl Fn(usize) -> Demand) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < max {
        match timeout(Duration::from_millis(1), source.receive(demand(max - all.len()))).await {
            Ok(some) => all.extend(some.unwrap()),
            Err(_) => break,
        }
    }
    all
}

fn check(steps: &[Step], ahead: usize) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut pair = Pair::open(ahead).await;
        pair.keep_order(&["STRICT"]);
        for step in steps {
            pair.walk(step).await;
        }
        pair.empty().await;
    });
}

/// How many random walks: a few for everybody, more for who asks.
fn walks() -> u32 {
    std::env::var("MODEL_WALKS").ok().and_then(|walks| walks.parse().ok()).unwrap_or(60)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: walks(),
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_do_the_same(
        steps in proptest::collection::vec(step(), 1..60),
        ahead in prop_oneof![Just(1024usize), 1usize..6],
    ) {
        check(&steps, ahead);
    }
}
