//! What was said of that which fails: begun, going on, over.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{FailingPool, Stuck};

/// Something that is warned of while it lasts.
pub trait Matter: fmt::Display {
    /// What all are called that have no warning of their own.
    const MORE: &'static str;
    /// What those do, behind their number.
    const DO: &'static str;

    /// What it is called among warnings.
    fn subject(&self) -> String;

    /// What differs when there is something new to say: a message, and how often it was tried.
    fn mark(&self) -> (Arc<str>, u32);
}

/// Which of them were warned of.
#[derive(Debug, Default)]
pub struct Told {
    /// By subject.
    marks: BTreeMap<String, (Arc<str>, u32)>,
    more: usize,
}

/// What to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// It has begun, or goes on and was tried again.
    On {
        /// Its name among warnings.
        subject: String,
        /// What to say of it.
        words: String,
    },
    /// It is over.
    Over {
        /// Its name among warnings.
        subject: String,
    },
}

impl Told {
    /// How many have a warning of their own.
    pub const MOST: usize = 100;

    /// Looks at all that there are, those first that are to be named.
    pub fn look<M: Matter>(&mut self, all: &[M]) -> Vec<Change> {
        let (named, more) = all.split_at(all.len().min(Self::MOST));
        let mut before = std::mem::take(&mut self.marks);
        let mut changes = Vec::new();
        for one in named {
            let (subject, mark) = (one.subject(), one.mark());
            if before.remove(&subject).as_ref() != Some(&mark) {
                changes.push(Change::On { subject: subject.clone(), words: one.to_string() });
            }
            self.marks.insert(subject, mark);
        }
        changes.extend(before.into_keys().map(|subject| Change::Over { subject }));
        let before = std::mem::replace(&mut self.more, more.len());
        let subject = M::MORE.to_owned();
        match (before, more.len()) {
            (before, now) if before == now => {}
            (_, 0) => changes.push(Change::Over { subject }),
            (_, count) => {
                let words = format!("{count} {} {}", M::MORE, M::DO);
                changes.push(Change::On { subject, words });
            }
        }
        changes
    }
}

impl Matter for Stuck {
    const MORE: &'static str = "more groups";
    const DO: &'static str = "wait for heads that fail again and again";

    fn subject(&self) -> String {
        format!("{}/{}", self.pool, self.group)
    }

    fn mark(&self) -> (Arc<str>, u32) {
        (Arc::clone(&self.head.id), self.head.attempts)
    }
}

impl Matter for FailingPool {
    const MORE: &'static str = "more pools";
    const DO: &'static str = "have messages that fail again and again";

    fn subject(&self) -> String {
        self.pool.to_string()
    }

    fn mark(&self) -> (Arc<str>, u32) {
        (Arc::clone(&self.first.id), self.first.attempts)
    }
}
