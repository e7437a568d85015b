//! Drain against many callers on many threads, round after round.
//!
//! `docs/rules.md#drain-3`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluicegate_tasks::{Context, Entry};
use tokio::sync::Barrier;
use tokio::time::{Duration, Instant};

use super::{ROOM, enter};
use crate::probe::Count;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_drained_sluice_lets_nothing_through() {
    for n in 0..300_u32 {
        let sluice = super::sluice(2, ROOM);
        let (over, ran) = (Arc::<AtomicBool>::default(), Arc::<Count>::default());
        let start = Arc::new(Barrier::new(4));
        let mut submitters = Vec::new();
        for key in 0..3 {
            let (sluice, start) = (sluice.clone(), Arc::clone(&start));
            let (over, ran) = (Arc::clone(&over), Arc::clone(&ran));
            submitters.push(tokio::spawn(async move {
                start.wait().await;
                loop {
                    let entry = Entry::of("alice").key(format!("{key}"));
                    let Ok(admitted) = enter(&sluice, &Context::new(), entry, ()) else { break };
                    let Ok(turn) = admitted.turn().await else { break };
                    assert!(!over.load(Ordering::SeqCst), "ran after the drain");
                    ran.add();
                    tokio::task::yield_now().await;
                    turn.finish();
                }
            }));
        }
        start.wait().await;
        for _ in 0..n % 5 {
            tokio::task::yield_now().await;
        }
        let report = sluice.drain(Instant::now() + Duration::from_secs(60)).await;
        over.store(true, Ordering::SeqCst);
        assert!(report.is_clean(), "{report}");
        for submitter in submitters {
            submitter.await.unwrap();
        }
        let stats = sluice.stats();
        assert_eq!((stats.gauges.running, stats.gauges.queued), (0, 0), "round {n}");
        assert_eq!(stats.completed, u64::from(ran.get()));
        assert_eq!(stats.admitted, stats.completed + stats.handed_back);
    }
}
