//! Names for messages: one for each that is here, the same one when it comes again.
//!
//! Messages of the same id are numbered, each with the lowest number that is free. So of equal
//! messages each has a name of its own, and one that goes and comes back finds its number free.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The names in use.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<Arc<str>, Numbers>);

/// The numbers of one id.
#[derive(Debug, Default)]
struct Numbers {
    used: u32,
    /// All numbers from here on are free, and these below it.
    next: u32,
    free: BTreeSet<u32>,
}

/// A name in use.
#[derive(Debug)]
pub(crate) struct Name {
    id: Arc<str>,
    number: u32,
}

impl Names {
    /// A name that no other message here has.
    pub(crate) fn take(&mut self, id: Arc<str>) -> Name {
        let numbers = self.0.entry(Arc::clone(&id)).or_default();
        let number = numbers.free.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        numbers.used += 1;
        Name { id, number }
    }

    /// Gives a name back.
    pub(crate) fn free(&mut self, name: &Name) {
        let Some(numbers) = self.0.get_mut(&name.id) else { return };
        numbers.used -= 1;
        if numbers.used == 0 {
            self.0.remove(&name.id);
        } else {
            numbers.free.insert(name.number);
        }
    }

    /// How many are in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.values().map(|numbers| numbers.used as usize).sum()
    }
}

impl Name {
    /// The id it was made of.
    pub(crate) const fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The name itself. An id that could be taken for a numbered one always has its number.
    pub(crate) fn text(&self) -> Arc<str> {
        match self.number == 0 && !self.id.contains('#') {
            true => Arc::clone(&self.id),
            false => format!("{}#{}", self.id, self.number).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_taken() {
        let mut names = Names::default();
        let all: Vec<Name> = (0..4).map(|_| names.take("a".into())).collect();
        let texts = |names: &[Name]| names.iter().map(Name::text).collect::<Vec<_>>().join(" ");
        assert_eq!(texts(&all), "a a#1 a#2 a#3");
        for at in [2, 0] {
            names.free(&all[at]);
        }
        let again: Vec<Name> = (0..3).map(|_| names.take("a".into())).collect();
        assert_eq!(texts(&again), "a a#2 a#4");
        assert_eq!((&*names.take("a#1".into()).text(), names.len()), ("a#1#0", 6));
    }
}
