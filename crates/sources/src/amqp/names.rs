//! Names for messages: one for each that is here, the same one when it comes again.
//!
//! Messages of the same id are numbered, each with the lowest number that is free. So of equal
//! messages each has a name of its own, and one that goes and comes back finds its number free.
//!
//! The name of a message that is done rests for a while before another one may have it: whoever settled
//! the first may not have heard the answer yet, and would take the other for it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

/// How long a name rests.
const REST: Duration = Duration::from_millis(250);

/// The names in use, and those that rest.
#[derive(Debug, Default)]
pub(crate) struct Names {
    by_id: HashMap<Arc<str>, Numbers, RandomState>,
    /// Those that rest, the longest first.
    resting: VecDeque<(Instant, Name)>,
}

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
    pub(crate) fn take(&mut self, id: Arc<str>, now: Instant) -> Name {
        while let Some((_, name)) = self.resting.pop_front_if(|(since, _)| now >= *since + REST) {
            self.free(&name);
        }
        let numbers = self.by_id.entry(Arc::clone(&id)).or_default();
        let number = numbers.free.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        });
        numbers.used += 1;
        Name { id, number }
    }

    /// Gives back the name of a message that may come again.
    pub(crate) fn free(&mut self, name: &Name) {
        let Some(numbers) = self.by_id.get_mut(&name.id) else { return };
        numbers.used -= 1;
        if numbers.used == 0 {
            self.by_id.remove(&name.id);
        } else {
            numbers.free.insert(name.number);
        }
    }

    /// Gives back the name of a message that is done.
    pub(crate) fn rest(&mut self, name: Name, now: Instant) {
        self.resting.push_back((now, name));
    }

    /// Forgets all but those that rest: what was here is the broker's again.
    pub(crate) fn forget_used(&mut self) {
        self.by_id.clear();
        for (_, Name { id, number }) in &self.resting {
            let numbers = self.by_id.entry(Arc::clone(id)).or_default();
            let known = numbers.next.max(number + 1);
            numbers.free.extend(numbers.next..known);
            (numbers.next, numbers.used) = (known, numbers.used + 1);
            numbers.free.remove(number);
        }
    }

    /// How many are in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let used: usize = self.by_id.values().map(|numbers| numbers.used as usize).sum();
        used - self.resting.len()
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

    fn texts(names: &[Name]) -> String {
        names.iter().map(Name::text).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test(start_paused = true)]
    async fn the_lowest_free_number_is_taken() {
        let (mut names, now) = (Names::default(), Instant::now());
        let all: Vec<Name> = (0..4).map(|_| names.take("a".into(), now)).collect();
        assert_eq!(texts(&all), "a a#1 a#2 a#3");
        for at in [2, 0] {
            names.free(&all[at]);
        }
        let again: Vec<Name> = (0..3).map(|_| names.take("a".into(), now)).collect();
        assert_eq!(texts(&again), "a a#2 a#4");
        assert_eq!((&*names.take("a#1".into(), now).text(), names.len()), ("a#1#0", 6));
    }

    #[tokio::test(start_paused = true)]
    async fn the_name_of_what_is_done_rests() {
        let (mut names, now) = (Names::default(), Instant::now());
        let done = names.take("a".into(), now);
        names.rest(done, now);
        let early = names.take("a".into(), now + REST / 2);
        assert_eq!(&*early.text(), "a#1");
        // It rests on though the channel ends, and what comes again then has its number again.
        names.forget_used();
        assert_eq!(texts(&[names.take("a".into(), now + REST / 2)]), "a#1");
        assert_eq!(texts(&[names.take("a".into(), now + REST)]), "a");
        names.forget_used();
        assert_eq!(names.len(), 0);
    }
}
