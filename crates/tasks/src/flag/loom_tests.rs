//! Every interleaving of raising a flag with waiting for it, leaving it, and making one below it.
//! Run by `cargo xtask test`.

use super::*;
use loom::future::block_on;
use loom::thread;

#[test]
fn loom_a_raise_is_never_missed_by_whoever_begins_to_wait() {
    loom::model(|| {
        let flag = Arc::new(Flag::new());
        let raiser = thread::spawn({
            let flag = Arc::clone(&flag);
            move || flag.raise()
        });
        // A wake that is lost is a deadlock, which the model reports.
        block_on(flag.raised());
        assert!(flag.is_raised());
        raiser.join().unwrap();
    });
}

#[test]
fn loom_a_raise_above_reaches_whoever_waits_below() {
    loom::model(|| {
        let above = Arc::new(Flag::new());
        let raiser = thread::spawn({
            let above = Arc::clone(&above);
            move || above.raise()
        });
        // Made before, during or after the raise.
        let below = above.below();
        block_on(below.raised());
        assert!(below.is_raised());
        raiser.join().unwrap();
    });
}

#[test]
fn loom_all_who_wait_are_woken() {
    loom::model(|| {
        let flag = Arc::new(Flag::new());
        let woken = [(); 2].map(|()| Arc::new(Woken::default()));
        let mut waits = [flag.raised(), flag.raised()];
        let raiser = thread::spawn({
            let flag = Arc::clone(&flag);
            move || flag.raise()
        });
        let seen = [0, 1].map(|n| {
            let waker = Waker::from(Arc::clone(&woken[n]));
            Pin::new(&mut waits[n]).poll(&mut Poller::from_waker(&waker)).is_ready()
        });
        raiser.join().unwrap();
        for (seen, woken) in seen.into_iter().zip(&woken) {
            assert!(seen || woken.0.load(std::sync::atomic::Ordering::SeqCst));
        }
    });
}

/// A waker that notes its call.
#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn loom_leaving_while_it_is_raised_leaves_nothing_behind() {
    loom::model(|| {
        let flag = Arc::new(Flag::new());
        let mut waits = Raised::new(Arc::clone(&flag));
        let waker = Waker::noop();
        let polled = Pin::new(&mut waits).poll(&mut Poller::from_waker(waker));
        assert_eq!(polled, Poll::Pending);
        let raiser = thread::spawn({
            let flag = Arc::clone(&flag);
            move || flag.raise()
        });
        drop(waits);
        raiser.join().unwrap();
        assert!(flag.waiting.lock().is_empty());
        block_on(flag.raised());
    });
}
