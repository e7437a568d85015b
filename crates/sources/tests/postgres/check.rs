//! Many daemons at once, with everything that can happen to a message: none is lost or done twice, of a key one
//! is out at most, and they come in order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use sluicegate_dispatch::{
    Delivery, Demand, Depth, Order, Ordered, Publication, Settle, Settled, Source,
};
use sluicegate_sources::postgres::PostgresSource;
use sluicegate_testkit::conformance::source::publication_in;
use tokio::time::{Instant, sleep};

use crate::stage::{PATIENCE, again, database, gone, id, lent, open};

const WINDOW: Duration = Duration::from_secs(6);
const DAEMONS: usize = 4;
const WORKERS: usize = 8;
const PUBLISHERS: usize = 4;
const MESSAGES: usize = 20_000;
const GROUPS: usize = 400;
const BATCH: usize = 100;

/// Chance that is the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// What those who receive see of a key that is kept in order.
#[derive(Default)]
struct Key {
    out: Option<String>,
    /// The head comes again, and not before this.
    head: Option<(String, Instant)>,
    /// The numbers that are next, of high priority and regular.
    next: [usize; 2],
}

#[derive(Default)]
struct Watch {
    keys: HashMap<String, Key>,
    done: HashSet<String>,
    again: usize,
    abandoned: usize,
}

/// The key of a message that is kept in order, whether it is of high priority, and its number there.
fn place(id: &str) -> Option<(&str, usize, usize)> {
    let (key, rest) = id.split_once('!')?;
    let (class, number) = rest.split_once('/').unwrap();
    Some((key, usize::from(class == "r"), number.parse().unwrap()))
}

impl Watch {
    fn came(&mut self, delivery: &Delivery) {
        let id = id(delivery);
        assert!(!self.done.contains(&id), "{id} came after it was done");
        let Some((key, class, number)) = place(&id) else { return };
        let key = self.keys.entry(key.to_owned()).or_default();
        assert_eq!(key.out, None, "{id} came beside another of its key");
        match key.head.take() {
            Some((head, from)) => {
                assert_eq!(head, id, "it overtook the head of its key");
                assert!(Instant::now() >= from, "{id} came too early");
            }
            None => assert_eq!(number, key.next[class], "{id} is not the next of its key"),
        }
        key.out = Some(id);
    }

    /// It is about to be done, or comes again after so long.
    fn goes(&mut self, delivery: &Delivery, again: Option<Duration>) {
        let id = id(delivery);
        let place = place(&id).map(|(key, class, number)| (key.to_owned(), class, number));
        if let Some((key, class, _)) = place {
            let key = self.keys.get_mut(&key).unwrap();
            assert_eq!(key.out.take().as_ref(), Some(&id));
            match again {
                Some(after) => key.head = Some((id.clone(), Instant::now() + after)),
                None => key.next[class] += 1,
            }
        }
        if again.is_none() {
            assert!(self.done.insert(id), "done twice");
        }
    }
}

/// The messages of one who publishes: their groups are its own, so that their order is known.
fn messages(publisher: usize) -> Vec<Publication> {
    let mut chance = Chance(publisher as u64 * 7919 + 1);
    let mut next: HashMap<(String, bool), usize> = HashMap::new();
    let mut sent = Vec::new();
    for n in 0..MESSAGES / PUBLISHERS {
        let pool = ["STRICT", "GROUPS", "FREE"][chance.below(3) as usize];
        let group = format!("{publisher}-{}", chance.below((GROUPS / PUBLISHERS) as u64));
        let group = (chance.below(20) > 0).then_some(group);
        let high = chance.below(10) == 0;
        let is_ordered = pool != "FREE" && group.is_some();
        let id = if is_ordered {
            let key = format!("{pool}:{}", group.as_deref().unwrap());
            let number = next.entry((key.clone(), high)).or_default();
            *number += 1;
            format!("{key}!{}/{}", if high { "h" } else { "r" }, *number - 1)
        } else {
            format!("{publisher}.{n}")
        };
        let mut message = publication_in(&id, pool, group.as_deref(), high);
        message.message.tenant = Some(format!("t{}", chance.below(50)).into());
        // Late ones of high priority are out of order among themselves.
        if !(is_ordered && high) && chance.below(30) == 0 {
            message.delay = Duration::from_millis(chance.below(400));
        }
        sent.push(message);
    }
    sent
}

async fn publish(source: &PostgresSource, publisher: usize) {
    for batch in messages(publisher).chunks(BATCH) {
        source.publish(batch.to_vec()).await.unwrap();
    }
}

async fn work(source: &PostgresSource, watch: &Mutex<Watch>, seed: usize) {
    let mut chance = Chance(seed as u64 * 104_729 + 1);
    let end = Instant::now() + PATIENCE * 3;
    while watch.lock().done.len() < MESSAGES {
        let done = watch.lock().done.len();
        assert!(Instant::now() < end, "{done} of {MESSAGES} were done");
        let most = 1 + chance.below(40) as usize;
        let received = source.receive(Demand::any(most)).await.unwrap();
        let begun = Instant::now();
        received.iter().for_each(|delivery| watch.lock().came(delivery));
        if chance.below(4) == 0 {
            sleep(Duration::from_millis(chance.below(20))).await;
        }
        let mut settle = Vec::new();
        for delivery in &received {
            match chance.below(200) {
                0 => {
                    // It is forgotten, and its window ends.
                    let rest = WINDOW.saturating_sub(begun.elapsed());
                    let mut watch = watch.lock();
                    watch.abandoned += 1;
                    watch.goes(delivery, Some(rest.saturating_sub(Duration::from_millis(50))));
                }
                1..=12 => {
                    let after = Duration::from_millis([0, 0, 20, 300][chance.below(4) as usize]);
                    let mut watch = watch.lock();
                    watch.again += 1;
                    watch.goes(delivery, Some(after));
                    let settlement = again(after, delivery.attempts + 1);
                    settle.push(Settle { receipt: delivery.receipt.clone(), settlement });
                }
                _ => {
                    watch.lock().goes(delivery, None);
                    settle.push(gone(delivery));
                }
            }
        }
        let settled = source.settle(settle).await.unwrap();
        assert!(settled.iter().all(|it| *it == Settled::Done), "after {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_out_of_order() {
    let Some(server) = lent() else { return };
    let url = database(server.url()).await;
    let order = Order::default().with("STRICT", Ordered::Groups).with("GROUPS", Ordered::Groups);
    let order = Arc::new(order);
    let mut sources = Vec::new();
    for _ in 0..DAEMONS {
        let source = open(&url, WINDOW).await;
        source.keep_order(&order);
        sources.push(source);
    }
    let begun = Instant::now();
    let watch = Mutex::new(Watch::default());
    let publishing = (0..PUBLISHERS).map(|n| publish(&sources[n % DAEMONS], n));
    let working = (0..WORKERS).map(|n| work(&sources[n % DAEMONS], &watch, n + 1));
    tokio::join!(join_all(publishing), join_all(working));
    let took = begun.elapsed();
    let watch = watch.into_inner();
    println!(
        "{MESSAGES} messages in {took:?}, {} came again, {} were forgotten",
        watch.again, watch.abandoned
    );
    assert!(watch.again > MESSAGES / 50 && watch.abandoned > MESSAGES / 1000);
    assert_eq!(sources[0].depth().await.unwrap(), Depth::default());
}
