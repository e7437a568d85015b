//! What a waiting value costs beyond itself, and that nothing of it stays.
//!
//! `docs/rules.md#sluice-1`.

use std::sync::Arc;

use allocation_counter::measure;
use sluicegate_tasks::{Entry, Sluice};

use super::{pull, sluice};
use crate::probe::ByHand;

const COUNT: usize = 1 << 17;

type Key = fn(usize) -> Option<usize>;

/// Bytes for each value that waits, beyond the value and the text of its key, at their most.
#[tokio::test]
async fn a_waiting_value_costs_little() {
    let cases: [(&str, Key, usize); 4] = [
        // Of these, 24 are the room for a caller's waker, which an item of the one queue may need; and
        // a key is larger by where it stands among those that are ready, and for how long.
        ("all of one key", |_| Some(0), 96),
        ("sixteen of a key", |n| Some(n / 16), 108),
        ("without a key", |_| None, 200),
        ("each of its own key", |n| Some(n), 300),
    ];
    let (tenant, keys) = (Arc::<str>::from("alice"), keys());
    for (what, key, most) in cases {
        let sluice: Sluice<Box<()>> = sluice(1, u32::MAX);
        let held = measure(|| {
            for n in 0..COUNT {
                let entry = Entry::of(Arc::clone(&tenant));
                let entry = match key(n) {
                    Some(key) => entry.key(Arc::clone(&keys[key])),
                    None => entry,
                };
                assert!(sluice.admit(entry, Box::new(())).is_ok());
            }
        });
        let each = held.bytes_max as usize / COUNT - size_of::<Box<()>>();
        assert!(each <= most, "{what}: {each} bytes");
        let left = measure(|| drop(sluice.close())).bytes_current + held.bytes_current;
        // Its tables keep room for a thousand items.
        assert!(left < 140_000, "{what}: {left} bytes are left of it");
    }
}

/// Once it has had its size, values come and go without an allocation.
#[tokio::test]
async fn passing_through_allocates_nothing() {
    let (tenant, keys) = (Arc::<str>::from("alice"), keys());
    let sluice = sluice(4, 1_000);
    let entry = |n: usize| Entry::of(Arc::clone(&tenant)).key(Arc::clone(&keys[n % 100]));
    (0..50).for_each(|n| assert!(sluice.admit(entry(n), n).is_ok()));
    let pass = |n: usize| {
        assert!(sluice.admit(entry(n), n).is_ok());
        let now = tokio::time::Instant::now();
        match n % 5 {
            0 => assert!(pull(&sluice).retry_at(Some(now)).is_ok()),
            1 => assert!(pull(&sluice).postpone(now).is_ok()),
            2 => return drop(pull(&sluice).linger()),
            3 => {
                let blocked = pull(&sluice).retry_at(None).expect("open");
                return assert!(sluice.withdraw(blocked).is_some());
            }
            _ => {}
        }
        if n.is_multiple_of(2) {
            pull(&sluice).finish();
        } else {
            drop(pull(&sluice));
        }
    };
    (0..2_000).for_each(pass);
    assert_eq!(measure(|| (0..1_000).for_each(pass)).count_total, 0);
}

/// Whoever gives up waiting leaves nothing behind.
#[tokio::test]
async fn giving_up_leaves_nothing_behind() {
    let sluice = sluice(1, 1);
    assert!(sluice.admit(Entry::of("alice"), 0).is_ok());
    let _out = pull(&sluice);
    assert!(sluice.admit(Entry::of("alice"), 1).is_ok());
    let give_up = || {
        assert!(ByHand::new(sluice.next()).poll().is_none());
        assert!(ByHand::new(sluice.room_for(1)).poll().is_none());
        assert!(ByHand::new(sluice.emptied()).poll().is_none());
    };
    give_up();
    let left = measure(|| (0..1_000).for_each(|_| give_up())).bytes_current;
    assert!(left <= 0, "{left} bytes");
}

fn keys() -> Vec<Arc<str>> {
    (0..COUNT).map(|n| n.to_string().into()).collect()
}
