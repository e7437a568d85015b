//! Every interleaving of a drain that closes and looks, and a task that enters and looks: the drain
//! waits for every task that was let in. Run by `cargo xtask test`.

use super::*;
use loom::sync::Arc as Shared;
use loom::thread;

struct Group {
    roster: Roster,
    closing: AtomicBool,
    ran: AtomicBool,
}

impl HasRoster for Group {
    fn roster(&self) -> &Roster {
        &self.roster
    }
}

#[test]
fn loom_a_drain_waits_for_everyone_that_was_let_in() {
    loom::model(|| {
        let roster = Roster::new();
        let (closing, ran) = (AtomicBool::new(false), AtomicBool::new(false));
        let group = Shared::new(Arc::new(Group { roster, closing, ran }));
        let task = thread::spawn({
            let group = Shared::clone(&group);
            move || {
                let now = Instant::now();
                let label = Label::Site(std::panic::Location::caller());
                let closed = || group.closing.load(Ordering::SeqCst);
                let entry = RosterEntry::enter(Arc::clone(&group), label, now, None, true, closed);
                if entry.is_some() {
                    group.ran.store(true, Ordering::Relaxed);
                }
                drop(entry);
            }
        });
        group.closing.store(true, Ordering::SeqCst);
        if group.roster.is_empty(&[]) {
            // Empty after closing: whatever was let in has run and left, nothing runs from now on.
            let before = group.ran.load(Ordering::Relaxed);
            task.join().unwrap();
            assert_eq!(group.ran.load(Ordering::Relaxed), before);
        } else {
            task.join().unwrap();
        }
        assert!(group.roster.is_empty(&[]));
    });
}
