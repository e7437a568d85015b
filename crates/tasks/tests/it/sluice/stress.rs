//! Everything at once, on many threads: what was let in ends exactly once, and nobody is forgotten.
//!
//! `docs/rules.md#sluice-1`, `docs/rules.md#sluice-5`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sluicegate_tasks::{Class, Context, Entry, Overload, Rate, Sluice, Turn};
use tokio::time::Instant;

use crate::probe::{ByHand, Chance, ms};

const ITEMS: u32 = 6_000;

/// How often each item came to its end, whatever that was.
struct Ends {
    of: Vec<AtomicU32>,
    all_in: AtomicBool,
}

impl Ends {
    fn new() -> Arc<Self> {
        let of = (0..ITEMS).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { of, all_in: AtomicBool::new(false) })
    }

    fn end(&self, n: u32) {
        let before = self.of[n as usize].fetch_add(1, Ordering::SeqCst);
        assert_eq!(before, 0, "{n} ended twice");
    }

    fn count(&self) -> u32 {
        self.of.iter().map(|one| one.load(Ordering::SeqCst)).sum()
    }
}

fn entry(chance: &mut Chance) -> Entry {
    let entry = Entry::of(chance.below(5).to_string());
    let entry = match chance.below(3) {
        0 => entry,
        _ => entry.key(chance.below(9).to_string()),
    };
    match chance.below(8) {
        0 => entry.class(Class::System),
        1 => entry.class(Class::Low),
        _ => entry,
    }
}

/// Ends a turn in one of the ways there are. `None` when it waits again.
async fn end(turn: Turn<u32>, ends: &Ends, chance: &mut Chance) {
    if chance.below(4) == 0 {
        tokio::task::yield_now().await;
    }
    let soon = Instant::now() + Duration::from_micros(chance.below(2_000).into());
    match chance.below(12) {
        // Too late is an end too: then its value comes back.
        0 => drop(turn.retry_at(Some(soon)).map_err(|n| ends.end(n))),
        1 => drop(turn.postpone(soon).map_err(|n| ends.end(n))),
        // To `on_dropped`, which counts it.
        2 => drop(turn),
        3 => {
            let (n, hold) = turn.linger();
            ends.end(n);
            tokio::task::yield_now().await;
            drop(hold);
        }
        4 => {
            let (n, next) = turn.finish_and_next();
            ends.end(n);
            if let Some(next) = next {
                ends.end(next.finish());
            }
        }
        _ => ends.end(turn.finish()),
    }
}

async fn worker(sluice: Sluice<u32>, ends: Arc<Ends>, seed: u64) {
    let mut chance = Chance::new(seed);
    loop {
        if chance.below(3) == 0 {
            // Waits, and gives up, called or not.
            let mut waits = ByHand::new(sluice.next());
            let first = waits.poll();
            tokio::task::yield_now().await;
            let second = if first.is_none() && chance.below(2) == 0 { waits.poll() } else { None };
            drop(waits);
            if let Some(turn) = first.or(second).flatten() {
                end(turn, &ends, &mut chance).await;
            }
        }
        let Some(turn) = sluice.next().await else { return };
        end(turn, &ends, &mut chance).await;
    }
}

/// Callers wait for as long as they feel like, at the door and in the queue.
async fn caller(sluice: Sluice<u32>, ends: Arc<Ends>, numbers: std::ops::Range<u32>) {
    let mut chance = Chance::new(u64::from(numbers.start) + 7_000);
    for n in numbers {
        let cx = match chance.below(6) {
            0 => Context::new().with_timeout(Duration::from_micros(chance.below(3_000).into())),
            _ => Context::new(),
        };
        let mut waits = ByHand::new(sluice.turn(&cx, entry(&mut chance), n));
        if chance.below(5) == 0 {
            // Dropped at the door, in the queue, or just after it was told.
            let polls = chance.below(4);
            let mut heard = None;
            for _ in 0..polls {
                heard = waits.poll();
                if heard.is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            match heard {
                Some(Ok(turn)) => end(turn, &ends, &mut chance).await,
                // Its value is the caller's: gone with it, or handed back.
                Some(Err(_)) | None => ends.end(n),
            }
            continue;
        }
        drop(waits);
        match sluice.turn(&cx, entry(&mut chance), n).await {
            Err(refused) => ends.end(refused.work),
            Ok(turn) if chance.below(9) == 0 => {
                let again = turn.wait_again(Instant::now() + Duration::from_micros(300));
                match again.turn().await {
                    Ok(turn) => end(turn, &ends, &mut chance).await,
                    Err(refused) => ends.end(refused.work),
                }
            }
            Ok(turn) => end(turn, &ends, &mut chance).await,
        }
    }
}

async fn source(sluice: Sluice<u32>, ends: Arc<Ends>, numbers: std::ops::Range<u32>) {
    let mut chance = Chance::new(u64::from(numbers.start) + 3);
    for n in numbers {
        let mut value = n;
        loop {
            match sluice.admit(entry(&mut chance), value) {
                Ok(id) if chance.below(20) == 0 => {
                    if let Some(n) = sluice.withdraw(id) {
                        ends.end(n);
                    }
                }
                Ok(_) => {}
                Err(refused) => {
                    value = refused.work;
                    sluice.room_for(1).await;
                    // Those at the door go first.
                    tokio::task::yield_now().await;
                    continue;
                }
            }
            break;
        }
    }
}

/// Resizes, pauses and changes the rate until all is in, and leaves it open.
async fn meddler(sluice: Sluice<u32>, ends: Arc<Ends>) {
    let mut chance = Chance::new(11);
    while !ends.all_in.load(Ordering::SeqCst) {
        match chance.below(4) {
            0 => sluice.resize(1 + chance.below(8), 1 + chance.below(30)).unwrap(),
            1 => sluice.set_rate(Some(Rate::per_second(20_000 + chance.below(90_000)).unwrap())),
            2 => sluice.set_rate(None),
            _ => {
                let pause = sluice.pause("a while");
                tokio::task::yield_now().await;
                drop(pause);
            }
        }
        tokio::time::sleep(Duration::from_micros(chance.below(500).into())).await;
    }
    sluice.set_rate(None);
    sluice.resize(4, 30).unwrap();
}

async fn everything_at_once(overload: Overload) {
    let ends = Ends::new();
    let counted = Arc::clone(&ends);
    let builder = Sluice::builder("sluice", 4, 30).overload(overload);
    let sluice = builder.on_dropped(move |n| counted.end(n)).build().unwrap();
    let workers = [1, 2, 3].map(|n| tokio::spawn(worker(sluice.clone(), Arc::clone(&ends), n)));
    let meddler = tokio::spawn(meddler(sluice.clone(), Arc::clone(&ends)));
    let mut feeders = Vec::new();
    for part in 0..8 {
        let numbers = part * ITEMS / 8..(part + 1) * ITEMS / 8;
        feeders.push(if part % 2 == 0 {
            tokio::spawn(caller(sluice.clone(), Arc::clone(&ends), numbers))
        } else {
            tokio::spawn(source(sluice.clone(), Arc::clone(&ends), numbers))
        });
    }
    for feeder in feeders {
        feeder.await.unwrap();
    }
    ends.all_in.store(true, Ordering::SeqCst);
    meddler.await.unwrap();
    while ends.count() < ITEMS {
        tokio::time::sleep(ms(1)).await;
    }
    let report = sluice.drain(Instant::now() + ms(10_000)).await;
    assert!(report.is_clean() && report.handed_back == 0, "{report}");
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(ends.count(), ITEMS);
    let stats = sluice.stats();
    assert_eq!((stats.gauges.queued, stats.gauges.running), (0, 0));
    assert!(sluice.tenants().is_empty() && sluice.running().is_empty());
    assert_eq!(stats.panicked, 0);
}

/// A lost call would be waited for without end.
async fn in_time(what: impl Future<Output = ()>) {
    tokio::time::timeout(ms(60_000), what).await.expect("nobody waits for what never comes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_let_in_ends_once_while_callers_wait_at_the_door() {
    in_time(everything_at_once(Overload::Wait)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everything_let_in_ends_once_while_what_does_not_fit_is_refused() {
    in_time(everything_at_once(Overload::Queue)).await;
}
