//! Which positions match a query, from sorted lists of positions alone: one list for each tag and each type.
//!
//! Pure: whoever has the lists says how to seek in them. Lists of an item are leapt over: each says where it goes on at or
//! after the furthest of the others, until all agree. So what is looked at grows with the shortest list, not with the log.

use crate::Query;

/// Sorted lists of positions, by the keys of events.
pub(crate) trait Lists {
    type Error;

    /// Puts the first positions of a key that are not before `from` into an empty vector, in order: at most `count`, and
    /// fewer only if the list ends.
    fn seek(
        &mut self,
        key: &str,
        from: i64,
        count: usize,
        into: &mut Vec<i64>,
    ) -> Result<(), Self::Error>;
}

/// How many positions of a list are taken at once at most.
const MOST: usize = 512;

/// The key of a tag: the tag.
pub(crate) fn tag_key(tag: &str) -> &str {
    tag
}

/// The key of a type. No tag begins with a colon.
pub(crate) fn type_key(event_type: &str) -> String {
    format!(":{event_type}")
}

/// A search for the positions that match a query that does not ask for everything, in order.
#[derive(Debug)]
pub(crate) struct Search {
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    tags: Vec<List>,
    types: Vec<List>,
    /// The first position that matches and is not before what was asked for last.
    found: Found,
}

#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    At(i64),
    /// No more will come.
    Over,
}

/// A list as far as it was read.
#[derive(Debug)]
struct List {
    key: String,
    block: Vec<i64>,
    /// What of the block is not behind.
    at: usize,
    /// How many of the block were asked for.
    used: usize,
    /// How many are asked for next.
    count: usize,
    /// The block ends with the list.
    is_last: bool,
}

impl Search {
    /// A search for a query. Where it asks for everything, there is nothing to search by: `None`.
    pub(crate) fn new(query: &Query) -> Option<Self> {
        if query.is_all() {
            return None;
        }
        let items = query.items().iter().map(|item| Item {
            tags: item.all_tags().iter().map(|tag| List::new(tag_key(tag).to_owned())).collect(),
            types: item.event_types().iter().map(|of| List::new(type_key(of))).collect(),
            found: Found::Nothing,
        });
        Some(Self { items: items.collect() })
    }

    /// The key of the one list that the query asks for, if it is one.
    pub(crate) fn only_key(&self) -> Option<&str> {
        let [Item { tags, types, .. }] = &*self.items else { return None };
        match (&**tags, &**types) {
            ([list], []) | ([], [list]) => Some(&list.key),
            _ => None,
        }
    }

    /// The first position that matches and is not before `from`, which never goes back.
    pub(crate) fn next<L: Lists>(
        &mut self,
        lists: &mut L,
        from: i64,
    ) -> Result<Option<i64>, L::Error> {
        let mut first = None;
        for item in &mut self.items {
            let is_behind = match item.found {
                Found::Nothing => true,
                Found::At(position) => position < from,
                Found::Over => false,
            };
            if is_behind {
                item.found = item.search(lists, from)?.map_or(Found::Over, Found::At);
            }
            if let Found::At(position) = item.found {
                first = Some(first.map_or(position, |first: i64| first.min(position)));
            }
        }
        Ok(first)
    }
}

impl Item {
    fn search<L: Lists>(&mut self, lists: &mut L, from: i64) -> Result<Option<i64>, L::Error> {
        let mut at = from;
        loop {
            let before = at;
            for list in &mut self.tags {
                let Some(position) = list.seek(lists, at)? else { return Ok(None) };
                at = position;
            }
            if !self.types.is_empty() {
                let Some(position) = first_of(&mut self.types, lists, at)? else { return Ok(None) };
                at = position;
            }
            // All of them agree; the last one does by itself.
            let is_agreed =
                at == before || self.tags.len() + usize::from(!self.types.is_empty()) == 1;
            if is_agreed {
                return Ok(Some(at));
            }
        }
    }
}

/// The first position of one of the lists that is not before `from`.
fn first_of<L: Lists>(of: &mut [List], lists: &mut L, from: i64) -> Result<Option<i64>, L::Error> {
    let mut first = None;
    for list in of {
        if let Some(position) = list.seek(lists, from)? {
            first = Some(first.map_or(position, |first: i64| first.min(position)));
        }
        if first == Some(from) {
            break;
        }
    }
    Ok(first)
}

impl List {
    fn new(key: String) -> Self {
        Self { key, block: Vec::new(), at: 0, used: 0, count: 1, is_last: false }
    }

    /// Its first position that is not before `from`, which never goes back.
    fn seek<L: Lists>(&mut self, lists: &mut L, from: i64) -> Result<Option<i64>, L::Error> {
        loop {
            let before = self.at;
            self.at += self.block[self.at..].partition_point(|position| *position < from);
            if let Some(position) = self.block.get(self.at) {
                self.used += usize::from(self.used == 0 || self.at > before);
                return Ok(Some(*position));
            }
            if self.is_last {
                return Ok(None);
            }
            // A list that is walked is read in growing blocks; one that is leapt over, in small ones.
            self.count = match self.used * 2 >= self.block.len() {
                true => (self.count * 2).min(MOST),
                false => self.used.max(1),
            };
            self.block.clear();
            (self.at, self.used) = (0, 0);
            lists.seek(&self.key, from, self.count, &mut self.block)?;
            self.is_last = self.block.len() < self.count;
        }
    }
}
