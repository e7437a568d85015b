//! Names for messages, by which whoever has them knows them again.
//!
//! Within a channel a message is its delivery tag. A name says across channels which message it is:
//! 1. A message with the sender's id is called by that, where no other one of that id is here or was
//!    settled just now. Otherwise, and without an id, its generation and tag are added, so that no
//!    two messages ever share a name by being equal.
//! 2. What is handed back, or was here when the channel ended, comes again marked as redelivered. It gets the
//!    name back that one of its id had: the first one first, since that is the order in which a queue
//!    hands out again.
//! 3. A name of a settled message is taken until whoever settled it has the answer, and a moment longer.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

/// How long a name stays taken after whoever settled its message was answered.
const REST: Duration = Duration::from_secs(1);
/// How many names are kept at most of messages that may come again.
const MOST_AWAY: usize = 65_536;

/// What a message is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The sender's id, or a hash of what the message says.
    pub(crate) id: Arc<str>,
    /// Whether it is the sender's, or our own in a copy.
    pub(crate) is_given: bool,
    /// Whether it may have been here before.
    pub(crate) is_redelivered: bool,
    /// Whether it is a copy of one that was here.
    pub(crate) is_copy: bool,
}

/// The names in use, and those that may come again.
#[derive(Debug, Default)]
pub(crate) struct Names {
    used: HashMap<Arc<str>, Use, RandomState>,
    /// Those that rest, the longest first.
    resting: VecDeque<(Instant, Arc<str>)>,
    /// Names of messages that are not here and may come again, by their ids.
    away: HashMap<Arc<str>, VecDeque<Arc<str>>, RandomState>,
    /// The ids of those, the oldest first, some of which came already.
    left: VecDeque<Arc<str>>,
    last_owner: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The message of this owner is here, or its settlement is not answered yet.
    Taken(u64),
    /// The same, but a copy of it is on its way, which may have it.
    Lent(u64),
    /// Until then.
    Rests(Instant),
}

/// A name in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    id: Arc<str>,
    text: Arc<str>,
    owner: u64,
}

impl Names {
    /// A name for the message of this delivery.
    pub(crate) fn take(
        &mut self,
        identity: Identity,
        generation: u64,
        tag: u64,
        now: Instant,
    ) -> Name {
        self.wake(now);
        let known = identity.is_redelivered.then(|| self.known(&identity.id)).flatten();
        let text = match known {
            Some(text) => text,
            None if self.is_free_for(&identity) => Arc::clone(&identity.id),
            None => format!("{}#{generation:x}-{tag}", identity.id).into(),
        };
        self.last_owner += 1;
        let name = Name { id: identity.id, text, owner: self.last_owner };
        self.used.insert(Arc::clone(&name.text), Use::Taken(name.owner));
        name
    }

    /// The name of one of this id that was here before.
    fn known(&mut self, id: &Arc<str>) -> Option<Arc<str>> {
        let names = self.away.get_mut(id)?;
        let text = names.pop_front();
        if names.is_empty() {
            self.away.remove(id);
        }
        text.filter(|text| !matches!(self.used.get(text), Some(Use::Taken(_))))
    }

    /// Whether a message may be called by its id alone.
    fn is_free_for(&self, identity: &Identity) -> bool {
        // It was here before, so that the name may be its own.
        let was_here = identity.is_redelivered || identity.is_copy;
        identity.is_given
            && match self.used.get(&identity.id) {
                None => was_here || !self.away.contains_key(&identity.id),
                // One that was settled and comes again though: it is the copy, or the ack was lost.
                Some(Use::Rests(_)) => was_here,
                Some(Use::Lent(_)) => identity.is_copy,
                Some(Use::Taken(_)) => false,
            }
    }

    /// Lets a copy of its message have a name.
    pub(crate) fn lend(&mut self, name: &Name) {
        self.change(name, Some(Use::Lent(name.owner)));
    }

    /// Takes a name back that no copy needs; `false` where one has it already.
    pub(crate) fn take_back(&mut self, name: &Name) -> bool {
        self.change(name, Some(Use::Taken(name.owner)))
    }

    /// Gives back the name of a message that comes again marked as redelivered.
    pub(crate) fn leave(&mut self, name: Name) {
        if !self.change(&name, None) {
            return;
        }
        self.left.push_back(Arc::clone(&name.id));
        self.away.entry(name.id).or_default().push_back(name.text);
        while self.left.len() > MOST_AWAY {
            let Some(oldest) = self.left.pop_front() else { break };
            self.known(&oldest);
        }
    }

    /// Gives back the name of a message that is done, when whoever settled it has the answer.
    pub(crate) fn rest(&mut self, name: Name, now: Instant) {
        let end = now + REST;
        if self.change(&name, Some(Use::Rests(end))) {
            self.resting.push_back((end, name.text));
        }
    }

    /// Changes how a name is used, unless it is another's by now.
    fn change(&mut self, name: &Name, to: Option<Use>) -> bool {
        let is_own = match self.used.get(&name.text) {
            Some(Use::Taken(owner) | Use::Lent(owner)) => *owner == name.owner,
            _ => false,
        };
        match to {
            _ if !is_own => {}
            Some(to) => drop(self.used.insert(Arc::clone(&name.text), to)),
            None => drop(self.used.remove(&name.text)),
        }
        is_own
    }

    fn wake(&mut self, now: Instant) {
        while let Some((end, text)) = self.resting.pop_front_if(|(end, _)| now >= *end) {
            if self.used.get(&text) == Some(&Use::Rests(end)) {
                self.used.remove(&text);
            }
        }
    }

    /// How many are taken.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.used.values().filter(|of| matches!(of, Use::Taken(_))).count()
    }
}

impl Name {
    /// The name itself.
    pub(crate) const fn text(&self) -> &Arc<str> {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(id: &str, is_given: bool) -> Identity {
        Identity { id: id.into(), is_given, is_redelivered: false, is_copy: false }
    }

    fn again(id: &str, is_given: bool) -> Identity {
        Identity { is_redelivered: true, ..fresh(id, is_given) }
    }

    fn texts(names: &[Name]) -> String {
        names.iter().map(|name| &**name.text()).collect::<Vec<_>>().join(" ")
    }

    #[tokio::test(start_paused = true)]
    async fn equal_messages_have_names_of_their_own() {
        let (mut names, now) = (Names::default(), Instant::now());
        let given: Vec<Name> =
            (1..4).map(|tag| names.take(fresh("a", true), 7, tag, now)).collect();
        assert_eq!(texts(&given), "a a#7-2 a#7-3");
        let other: Vec<Name> =
            (4..6).map(|tag| names.take(fresh("~1", false), 7, tag, now)).collect();
        assert_eq!(texts(&other), "~1#7-4 ~1#7-5");
        // Without an id nobody has a name twice.
        names.rest(other[0].clone(), now);
        let later = now + REST * 2;
        assert_eq!(texts(&[names.take(fresh("~1", false), 7, 6, later)]), "~1#7-6");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_again_has_its_name_again() {
        let (mut names, now) = (Names::default(), Instant::now());
        let mut first: Vec<Name> =
            (1..4).map(|tag| names.take(fresh("~1", false), 1, tag, now)).collect();
        first.push(names.take(fresh("a", true), 1, 4, now));
        let known = texts(&first);
        first.into_iter().for_each(|name| names.leave(name));
        assert_eq!(names.len(), 0);
        // What is new takes the name of none that may come again.
        assert_eq!(texts(&[names.take(fresh("a", true), 2, 1, now)]), "a#2-1");
        let mut second: Vec<Name> =
            (2..5).map(|tag| names.take(again("~1", false), 2, tag, now)).collect();
        second.push(names.take(again("a", true), 2, 5, now));
        assert_eq!(texts(&second), known);
        // One more than there were is a stranger.
        assert_eq!(texts(&[names.take(again("~1", false), 2, 6, now)]), "~1#2-6");
    }

    #[tokio::test(start_paused = true)]
    async fn the_name_of_what_is_done_rests() {
        let (mut names, now) = (Names::default(), Instant::now());
        let done = names.take(fresh("a", true), 1, 1, now);
        names.rest(done, now);
        assert_eq!(texts(&[names.take(fresh("a", true), 1, 2, now + REST / 2)]), "a#1-2");
        // Its ack was lost.
        let lost = names.take(again("a", true), 2, 1, now + REST / 2);
        assert_eq!(texts(std::slice::from_ref(&lost)), "a");
        assert_eq!(texts(&[names.take(fresh("a", true), 2, 2, now + REST * 2)]), "a#2-2");
        names.rest(lost, now + REST);
        assert_eq!(texts(&[names.take(fresh("a", true), 2, 3, now + REST * 2)]), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_lent_to_a_copy_alone() {
        let (mut names, now) = (Names::default(), Instant::now());
        let copy = |id: &str| Identity { is_copy: true, ..fresh(id, true) };
        let first = names.take(fresh("a", true), 1, 1, now);
        assert_eq!(texts(&[names.take(copy("a"), 1, 2, now)]), "a#1-2");
        names.lend(&first);
        assert_eq!(texts(&[names.take(fresh("a", true), 1, 3, now)]), "a#1-3");
        assert!(names.take_back(&first));
        names.lend(&first);
        let copied = names.take(copy("a"), 1, 4, now);
        assert_eq!(texts(std::slice::from_ref(&copied)), "a");
        // It is the copy's from now on, whatever becomes of the first one.
        assert!(!names.take_back(&first));
        names.rest(first.clone(), now);
        names.leave(first);
        assert_eq!(texts(&[names.take(fresh("a", true), 1, 5, now + REST * 2)]), "a#1-5");
        names.rest(copied, now);
        assert_eq!(texts(&[names.take(copy("a"), 1, 6, now)]), "a");
    }

    #[tokio::test(start_paused = true)]
    async fn names_of_what_never_comes_are_forgotten() {
        let (mut names, now) = (Names::default(), Instant::now());
        for tag in 0..MOST_AWAY as u64 + 10 {
            let name = names.take(fresh(&format!("m{tag}"), true), 1, tag, now);
            names.leave(name);
        }
        assert!(names.away.len() <= MOST_AWAY && names.left.len() <= MOST_AWAY);
        assert_eq!(names.len(), 0);
    }
}
