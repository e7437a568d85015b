//! Every interleaving of ending a context with waiting for it, on it and below it.
//! Run by `cargo xtask test`.

use super::*;
use crate::lineage::HoldsPermits;
use loom::future::block_on;
use loom::thread;

/// Whoever has no permits to hold.
#[derive(Debug)]
struct NoPermits;

impl HoldsPermits for NoPermits {
    fn holds(&self, _: PermitId) -> bool {
        false
    }
}

#[test]
fn loom_a_context_that_is_cancelled_ends_its_children_and_those_who_wait_for_them() {
    loom::model(|| {
        let parent = Context::new();
        let canceller = thread::spawn({
            let parent = parent.clone();
            move || parent.cancel()
        });
        let child = parent.child();
        assert_eq!(block_on(child.hearing()), Interrupt::Cancelled);
        assert_eq!(child.check(), Err(Interrupt::Cancelled));
        canceller.join().unwrap();
    });
}

#[test]
fn loom_a_guard_that_is_dropped_is_heard() {
    loom::model(|| {
        let request = Context::new();
        let part = request.child();
        let guard = part.cancel_on_drop();
        let dropper = thread::spawn(move || drop(guard));
        assert_eq!(block_on(part.hearing()), Interrupt::Cancelled);
        assert_eq!(request.check(), Ok(()));
        dropper.join().unwrap();
    });
}

#[test]
fn loom_hearing_that_goes_away_does_not_keep_another_from_hearing() {
    loom::model(|| {
        let cx = Context::new();
        let mut gone = cx.hearing();
        let waker = std::task::Waker::noop();
        assert!(Pin::new(&mut gone).poll(&mut Poller::from_waker(waker)).is_pending());
        let canceller = thread::spawn({
            let cx = cx.clone();
            move || cx.cancel()
        });
        let stays = cx.hearing();
        drop(gone);
        assert_eq!(block_on(stays), Interrupt::Cancelled);
        canceller.join().unwrap();
    });
}

#[test]
fn loom_a_groups_kill_ends_the_contexts_inside_it() {
    loom::model(|| {
        let holder: std::sync::Weak<NoPermits> = std::sync::Weak::new();
        let lineage = Arc::new(Lineage::new(GroupId::next(), Flag::new(), holder));
        let killer = thread::spawn({
            let kill = Arc::clone(&lineage.kill);
            move || kill.raise()
        });
        let cx = Context::new().inside(&lineage);
        assert_eq!(block_on(cx.hearing()), Interrupt::Cancelled);
        killer.join().unwrap();
    });
}
