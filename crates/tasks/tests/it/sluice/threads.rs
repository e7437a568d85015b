//! On real threads, and without a runtime.

use std::collections::HashMap;
use std::sync::Mutex;

use sluicegate_tasks::{Admitted, Entry, KeyHold, Pause, Sluice, Turn};
use tokio::time::Instant;

use super::{batch, cart, pull, run_all, sluice};
use crate::probe::{ByHand, Chance, ms};

const VALUES: u32 = 4_000;
const KEYS: u32 = 7;

/// Sources that wait for room, a crew that finishes, retries, postpones and gives up: every value
/// comes to its end exactly once, and in order within its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_value_ends_once_and_in_order() {
    // A lost call would be waited for without end.
    let in_time = tokio::time::timeout(ms(60_000), all_values_end());
    in_time.await.expect("nobody waits for what never comes");
}

async fn all_values_end() {
    let sluice = sluice(5, 40);
    let ended: &'static Mutex<HashMap<u32, Vec<u32>>> = Box::leak(Box::default());
    let mut crew = Vec::new();
    for seed in 0..8 {
        let sluice = sluice.clone();
        crew.push(tokio::spawn(async move {
            let mut chance = Chance::new(seed + 1);
            loop {
                if chance.below(4) == 0 {
                    // One that gives up now and then, called or not.
                    let mut waits = ByHand::new(sluice.next());
                    if let Some(Some(turn)) = waits.poll() {
                        turn.postpone(Instant::now()).unwrap();
                    }
                    tokio::task::yield_now().await;
                }
                let Some(turn) = sluice.next().await else { return };
                if chance.below(8) == 0 {
                    tokio::task::yield_now().await;
                }
                match chance.below(16) {
                    0 => {
                        turn.retry_at(Some(Instant::now())).unwrap();
                    }
                    1 => {
                        let id = turn.retry_at(None).unwrap();
                        assert!(sluice.release(id));
                    }
                    end => {
                        let (key, n) = *turn.value();
                        ended.lock().unwrap().entry(key).or_default().push(n);
                        if end == 2 {
                            let (_, hold) = turn.linger();
                            tokio::task::yield_now().await;
                            drop(hold);
                        } else {
                            turn.finish();
                        }
                    }
                }
            }
        }));
    }
    feed(&sluice).await;
    sluice.room_for(40).await;
    while sluice.stats().gauges.queued > 0 {
        tokio::task::yield_now().await;
    }
    while ended.lock().unwrap().values().map(Vec::len).sum::<usize>() < VALUES as usize {
        tokio::task::yield_now().await;
    }
    assert!(sluice.close().is_empty());
    for puller in crew {
        puller.await.unwrap();
    }
    sluice.emptied().await;
    let ended = ended.lock().unwrap();
    for key in 0..KEYS {
        let expected: Vec<u32> = (0..VALUES).filter(|n| n % KEYS == key).collect();
        assert_eq!(ended[&key], expected, "key {key}");
    }
    assert_eq!((sluice.stats().gauges.running, sluice.tenants().len()), (0, 0));
}

/// One source, since order within a key is the order of admission.
async fn feed(sluice: &Sluice<(u32, u32)>) {
    let mut chance = Chance::new(99);
    let mut next = 0;
    while next < VALUES {
        let count = (1 + chance.below(9)).min(VALUES - next);
        let item = |n: u32| {
            let entry = Entry::of((n % 3).to_string()).key((n % KEYS).to_string());
            (entry, (n % KEYS, n))
        };
        let mut batch: Vec<_> = (next..next + count).map(item).collect();
        while let Err(refused) = sluice.admit_all(batch) {
            batch = refused.work;
            sluice.room_for(count).await;
        }
        next += count;
    }
}

/// Values need not be shared between threads, only sent to others; so it is with what holds them.
#[test]
fn everything_of_it_can_be_sent() {
    type Value = std::cell::Cell<u32>;
    const fn sent<T: Send>() {}
    const fn shared<T: Send + Sync>() {}
    fn future<F: Future + Send>(_: fn(&'static Sluice<Value>) -> F) {}
    shared::<Sluice<Value>>();
    sent::<Turn<Value>>();
    sent::<Admitted<Value>>();
    shared::<Pause<Value>>();
    shared::<KeyHold<Value>>();
    future(Sluice::next);
    future(Sluice::emptied);
    future(|sluice: &'static Sluice<Value>| sluice.room_for(1));
}

#[test]
fn but_for_its_timer_it_needs_no_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let sluice: Sluice<u32> = runtime.block_on(async { sluice(1, 10) });
    sluice.admit_all(batch(cart, 0..4)).unwrap();
    let first = pull(&sluice);
    let mut next = ByHand::new(sluice.next());
    assert!(next.poll().is_none());
    assert_eq!(first.finish(), 0);
    let again = next.poll().unwrap().unwrap();
    again.retry_at(Some(Instant::now() + ms(1))).unwrap();
    std::thread::sleep(ms(2));
    let (value, hold) = pull(&sluice).linger();
    assert_eq!(value, 1);
    let mut room = ByHand::new(sluice.room_for(10));
    assert!(room.poll().is_none());
    drop(hold);
    assert_eq!(run_all(&sluice), [2, 3]);
    assert!(room.poll().is_some() && ByHand::new(sluice.emptied()).poll().is_some());
    sluice.resize(2, 5).unwrap();
    sluice.set_rate(None);
    assert!(sluice.close().is_empty());
    drop(runtime);
    assert!(sluice.try_next().is_none());
}
