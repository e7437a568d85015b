//! No waker is called or dropped under the lock: one that asks the permits itself would wait for
//! ever. One that panics loses no permit, and keeps nobody else from being woken.
//!
//! `docs/rules.md#permit-1`, `docs/rules.md#permit-3`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context as Poller, Wake, Waker};

use sluicegate_tasks::{Context, Permits};

use super::{permits, waiter};
use crate::probe::{PanicsWhenDropped, PanicsWhenWoken};

/// Asks the permits when it is called, and when it is dropped.
struct Asks(Arc<Permits>);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        assert!(self.0.waiting() <= 2);
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        assert!(self.0.waiting() <= 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_may_ask_the_permits_whenever_it_is_called_or_dropped() {
    for ends in ["granted", "left", "turned away"] {
        let permits = permits(2);
        let held = permits.try_acquire_many(2).unwrap();
        let cx = Context::new();
        let mut waits = Box::pin(permits.acquire_many(&cx, 2));
        for _ in 0..3 {
            // Each poll has a waker of its own, and the one before is dropped.
            let waker = Waker::from(Arc::new(Asks(Arc::clone(&permits))));
            assert!(waits.as_mut().poll(&mut Poller::from_waker(&waker)).is_pending());
        }
        match ends {
            "granted" => drop(held),
            "turned away" => permits.resize(1).unwrap(),
            _ => {}
        }
        drop(waits);
        assert_eq!(permits.waiting(), 0, "{ends}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_when_it_is_dropped_loses_no_permit() {
    for ends in ["granted", "left", "turned away"] {
        let permits = permits(2);
        let held = permits.try_acquire().unwrap();
        let (cx, waker) = (Context::new(), PanicsWhenDropped::waker());
        let mut waits = Box::pin(permits.acquire_many(&cx, 2));
        assert!(waits.as_mut().poll(&mut Poller::from_waker(&waker)).is_pending());
        assert_eq!(permits.in_use(), 2, "one is set aside");
        drop(waker);
        let panics = catch_unwind(AssertUnwindSafe(|| {
            match ends {
                "granted" => drop(held),
                "turned away" => permits.resize(1).unwrap(),
                _ => {}
            }
            drop(waits);
        }));
        assert!(panics.is_err(), "{ends}");
        assert_eq!((permits.in_use(), permits.waiting()), (0, 0), "{ends}");
    }
}

#[test]
fn a_waker_that_panics_when_it_is_woken_keeps_no_other_asleep() {
    let permits = permits(1);
    let held = permits.try_acquire().unwrap();
    let (cx, waker) = (Context::new(), PanicsWhenWoken::waker());
    let mut bad = Box::pin(permits.acquire(&cx));
    assert!(bad.as_mut().poll(&mut Poller::from_waker(&waker)).is_pending());
    let mut good = waiter(&permits, &cx);
    permits.resize(3).unwrap();
    assert_eq!(good.wakes(), 1);
    assert!(good.poll().is_some());
    drop((bad, held));
    assert_eq!((permits.in_use(), permits.waiting()), (0, 0));
}
