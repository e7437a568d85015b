//! What follows from an attempt: the whole policy as one pure function.

use std::time::Duration;

use crate::Class;

/// The longest delay before a retry: what every source can carry.
pub const LONGEST_DELAY: Duration = sluicegate_dispatch::MAX_DELAY;

/// How often a message is tried again, and after what time.
///
/// ```
/// use sluicegate_consumers::Retry;
/// use std::time::Duration;
///
/// let twice = Retry::after([Duration::from_secs(1), Duration::from_secs(60)]);
/// assert_eq!(twice.delay(2), Some(Duration::from_secs(60)));
/// assert_eq!(twice.delay(3), None); // then the dead letters
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    delays: Vec<Duration>,
}

impl Retry {
    /// Once after each of these delays.
    pub fn after(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self { delays: delays.into_iter().collect() }
    }

    /// Never: what fails once is dead.
    #[must_use]
    pub const fn never() -> Self {
        Self { delays: Vec::new() }
    }

    /// The delay after this many failed attempts; `None` once there are no more.
    #[must_use]
    pub fn delay(&self, failed: u32) -> Option<Duration> {
        let index = usize::try_from(failed.checked_sub(1)?).unwrap_or(usize::MAX);
        self.delays.get(index).copied()
    }

    pub(crate) fn longest(&self) -> Option<Duration> {
        self.delays.iter().copied().max()
    }
}

/// Three times: after 1, 5 and 30 seconds.
impl Default for Retry {
    fn default() -> Self {
        Self::after([1, 5, 30].map(Duration::from_secs))
    }
}

/// What a consumer does with a message of an event type that it has no handler for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmatched {
    /// To the dead letters: somebody sent it to the wrong queue.
    #[default]
    Bury,
    /// Acknowledged and forgotten: the queue carries more than this consumer wants.
    Ignore,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attempted {
    Done,
    /// The handler said so, or panicked.
    Failed {
        class: Class,
        why: String,
    },
    /// It never reached the handler, and never will.
    Poison {
        why: String,
    },
    /// The handler gave up because its context had ended.
    Interrupted,
    /// Nobody here wants it.
    Ignored,
}

/// What is to be done with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Ignore,
    Retry { after: Duration, why: String },
    Dead { why: String, poison: bool },
    HandBack,
}

/// What follows from an attempt, after `failed` attempts including this one if it failed.
pub(crate) fn verdict(retry: &Retry, failed: u32, attempted: Attempted) -> Verdict {
    match attempted {
        Attempted::Done => Verdict::Done,
        Attempted::Ignored => Verdict::Ignore,
        Attempted::Interrupted => Verdict::HandBack,
        Attempted::Poison { why } => Verdict::Dead { why, poison: true },
        Attempted::Failed { class: Class::Dead, why } => Verdict::Dead { why, poison: false },
        Attempted::Failed { class, why } => match (retry.delay(failed), class) {
            (None, _) => {
                let plural = if failed == 1 { "" } else { "s" };
                let why = format!("{failed} attempt{plural}: {why}");
                Verdict::Dead { why, poison: false }
            }
            (Some(_), Class::RetryAfter(after)) => {
                Verdict::Retry { after: after.min(LONGEST_DELAY), why }
            }
            (Some(after), _) => Verdict::Retry { after, why },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(class: Class) -> Attempted {
        Attempted::Failed { class, why: "no".to_owned() }
    }

    fn check(retry: &Retry, count: u32, attempted: Attempted, expected: Verdict) {
        assert_eq!(
            verdict(retry, count, attempted.clone()),
            expected,
            "{attempted:?} after {count}"
        );
    }

    #[test]
    fn an_attempt_is_followed_by_what_the_policy_says() {
        let (default, never) = (Retry::default(), Retry::never());
        let seconds = Duration::from_secs;
        let again = |after| Verdict::Retry { after: seconds(after), why: "no".to_owned() };
        let dead = |why: &str, poison| Verdict::Dead { why: why.to_owned(), poison };
        let later = Class::RetryAfter(seconds(7));
        let ages = Class::RetryAfter(seconds(100_000));
        let poison = Attempted::Poison { why: "no".to_owned() };
        check(&default, 1, Attempted::Done, Verdict::Done);
        check(&default, 1, failed(Class::Retry), again(1));
        check(&default, 2, failed(Class::Retry), again(5));
        check(&default, 3, failed(Class::Retry), again(30));
        check(&default, 4, failed(Class::Retry), dead("4 attempts: no", false));
        check(&default, 1, failed(Class::Dead), dead("no", false));
        check(&default, 2, failed(later), again(7));
        check(&default, 2, failed(ages), again(43_200));
        check(&default, 4, failed(later), dead("4 attempts: no", false));
        check(&never, 1, failed(Class::Retry), dead("1 attempt: no", false));
        check(&default, 1, poison, dead("no", true));
        check(&default, 9, Attempted::Interrupted, Verdict::HandBack);
        check(&default, 1, Attempted::Ignored, Verdict::Ignore);
    }
}
