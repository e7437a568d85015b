//! Numbers, and the order in which rosters are left.

use super::*;

/// However many come and go: the thread that has the numbers of another would be taken for it.
#[test]
fn no_two_tasks_have_the_same_number() {
    let of_thread = || std::thread::spawn(|| [next().0, next().0]).join().unwrap();
    let mut seen = HashSet::new();
    for _ in 0..100 {
        of_thread().into_iter().for_each(|number| assert!(seen.insert(number)));
    }
    let first = next().0;
    assert!(first >= 1 << 63, "nor that of a sluice's turn");
    let mut last = first;
    for _ in 0..=2 * BLOCK_MASK {
        let (number, shard) = next();
        assert!(number > last && u64::from(shard) < SHARDS as u64, "{number} after {last}");
        last = number;
    }
    assert!(seen.iter().all(|number| *number < first));
    let blocks = (last >> BLOCK_BITS) - (first >> BLOCK_BITS);
    assert!(blocks >= 2, "a block that is over is followed by another: {blocks}");
}
struct Group {
    roster: Roster,
    name: &'static str,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl HasRoster for Group {
    fn roster(&self) -> &Roster {
        self.asked.lock().push(self.name);
        &self.roster
    }
}

/// With the result of its maker in hand, nobody finds a child's task in the group above.
#[test]
fn the_rosters_above_are_left_first() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let enter = |name| {
        let group = Arc::new(Group { roster: Roster::new(), name, asked: Arc::clone(&asked) });
        let label = Label::Site(Location::caller());
        RosterEntry::enter(group, label, Instant::now(), None, true, || false).unwrap()
    };
    let (mut child, group) = (enter("child"), enter("group"));
    child.outer = Some(Box::new(group));
    asked.lock().clear();
    drop(child);
    assert_eq!(*asked.lock(), ["group", "child"]);
}
