//! The tail: whatever is filed, taken back, or loaded again, what is found is the same.

use proptest::prelude::*;
use rusqlite::Connection;

use super::lists::{Patience, StoredLists};
use super::schema;
use super::search::Search;
use super::statements::{FILED, INSERT_EVENT};
use super::tail::{Tail, View};
use crate::Query;

/// A file in memory, its tail, and what should be in it.
struct Rig {
    connection: Connection,
    tail: Tail,
    /// Which tag each event has, in order.
    events: Vec<u8>,
}

const SIZE: usize = 10;

fn filed(connection: &Connection) -> i64 {
    connection.query_row(FILED, (), |row| row.get(0)).unwrap()
}

impl Rig {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        schema::migrate(&connection).unwrap().unwrap();
        let tail = Tail::of_size(&connection, 0, SIZE).unwrap();
        Self { connection, tail, events: Vec::new() }
    }

    /// Appends in a transaction, which is committed or taken back.
    fn append(&mut self, tags: &[u8], commits: bool) {
        self.connection.execute_batch("BEGIN").unwrap();
        for tag in tags {
            let tag = format!("k:{tag}");
            let row = ("T", tag.as_bytes(), "{}", 0);
            self.connection.execute(INSERT_EVENT, row).unwrap();
            self.tail.add(self.connection.last_insert_rowid(), "T", [&*tag].into_iter());
        }
        // As if many more had been appended: filing is due.
        self.tail.file(&self.connection, tags.len() * 20).unwrap();
        match commits {
            true => {
                self.connection.execute_batch("COMMIT").unwrap();
                self.tail.commit();
                self.events.extend(tags);
            }
            false => {
                self.connection.execute_batch("ROLLBACK").unwrap();
                self.tail.undo();
            }
        }
    }

    fn open_again(&mut self) {
        self.tail = Tail::of_size(&self.connection, filed(&self.connection), SIZE).unwrap();
    }

    fn found(&self, view: &View, tag: u8) -> Vec<i64> {
        let mut search = Search::new(&Query::types(["T"]).tag("k", tag)).unwrap();
        let mut lists =
            StoredLists::new(&self.connection, view, Patience::Steps(usize::MAX)).unwrap();
        let (mut found, mut from) = (Vec::new(), 1);
        while let Some(at) = search.next(&mut lists, from).unwrap() {
            found.push(at);
            from = at + 1;
        }
        found
    }

    fn expected(&self, tag: u8, up_to: usize) -> Vec<i64> {
        let events = self.events.iter().take(up_to).zip(1..);
        events.filter_map(|(of, at)| (*of == tag).then_some(at)).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append {
        tags: Vec<u8>,
        commits: bool,
    },
    OpenAgain,
    /// Somebody begins to read, and goes on to do so.
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    let tags = prop::collection::vec(0u8..4, 1..8);
    prop_oneof![
        6 => (tags, prop::bool::weighted(0.8)).prop_map(|(tags, commits)| Step::Append { tags, commits }),
        1 => Just(Step::OpenAgain),
        2 => Just(Step::Look),
    ]
}

proptest! {
    // Each looks at all views after every step.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_view_finds_what_was_committed_when_it_was_taken(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut rig = Rig::new();
        let mut views = vec![(rig.tail.view(), 0)];
        for step in steps {
            match step {
                Step::Append { tags, commits } => rig.append(&tags, commits),
                Step::OpenAgain => rig.open_again(),
                Step::Look => views.push((rig.tail.view(), rig.events.len())),
            }
            let now = rig.tail.writers_view();
            for tag in 0..4 {
                prop_assert_eq!(rig.found(&now, tag), rig.expected(tag, usize::MAX));
                for (view, up_to) in &views {
                    prop_assert_eq!(rig.found(view, tag), rig.expected(tag, *up_to));
                }
            }
            // A view of before belongs to the tail of before.
            prop_assert_eq!(rig.tail.committed() as usize, rig.events.len());
        }
    }
}

#[test]
fn keys_are_filed_as_the_log_grows_and_memory_does_not_keep_them() {
    let mut rig = Rig::new();
    for round in 0..100u8 {
        rig.append(&[round % 4, 3], true);
    }
    let filed = filed(&rig.connection);
    assert!(filed >= 200 - 3 * SIZE as i64, "{filed}");
    let rows: i64 =
        rig.connection.query_row("SELECT count(*) FROM event_keys", (), |row| row.get(0)).unwrap();
    assert!(rows >= 2 * filed, "{rows}");
    assert_eq!(rig.tail.view().filed, filed);
}
