//! Permits under many threads at once: whatever happens, it ends at zero.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluicegate_tasks::{Context, Permits};

use crate::probe::{ByHand, Chance};

const MOST: u32 = 5;

/// How many hold a permit, by their own count.
#[derive(Default)]
struct Inside(AtomicU32);

impl Inside {
    async fn stay(&self, rounds: u32) {
        let inside = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(inside <= MOST, "{inside} at once");
        for _ in 0..rounds {
            tokio::task::yield_now().await;
        }
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    async fn stay_if(&self, held: bool) {
        if held {
            self.stay(1).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

async fn one_of_many(permits: Arc<Permits>, inside: Arc<Inside>, seed: u64) {
    let mut chance = Chance::new(seed);
    for _ in 0..400 {
        match chance.below(6) {
            0 => {
                if let Ok(_permit) = permits.try_acquire() {
                    inside.stay(chance.below(3)).await;
                }
            }
            1 | 2 => {
                let _permit = permits.acquire(&Context::new()).await.unwrap();
                inside.stay(chance.below(3)).await;
            }
            3 => {
                // Polled once, left alone for a while, and dropped, handed a permit or not.
                let cx = Context::new();
                let mut wait = ByHand::new(permits.acquire(&cx));
                let permit = wait.poll();
                inside.stay_if(permit.is_some()).await;
            }
            4 => {
                let cx = Context::new();
                let cancels = cx.clone();
                let canceller = tokio::spawn(async move { cancels.cancel() });
                if let Ok(_permit) = permits.acquire_owned(&cx).await {
                    inside.stay(1).await;
                }
                canceller.await.unwrap();
            }
            _ => permits.resize(1 + chance.below(MOST)).unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_acquires_cancels_and_resizes_on_many_threads_end_at_zero() {
    let permits = Arc::new(Permits::new(2).unwrap());
    let inside = Arc::<Inside>::default();
    let crowd: Vec<_> = (1..=16)
        .map(|seed| tokio::spawn(one_of_many(Arc::clone(&permits), Arc::clone(&inside), seed)))
        .collect();
    for one in crowd {
        one.await.unwrap();
    }
    assert_eq!((permits.in_use(), permits.waiting()), (0, 0));
    permits.resize(1).unwrap();
    assert!(permits.try_acquire().is_ok());
}

#[test]
fn threads_without_a_runtime_can_try_and_drop() {
    let permits = Permits::new(3).unwrap();
    let inside = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    match permits.try_acquire() {
                        Ok(_permit) => {
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                        Err(at_limit) => assert_eq!((at_limit.limit, at_limit.in_use), (3, 3)),
                    }
                }
            });
        }
    });
    assert_eq!(permits.in_use(), 0);
}
