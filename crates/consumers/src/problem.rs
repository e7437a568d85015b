//! What is wrong with declarations, all of it at once, with the places in the code.

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

use crate::{Consumer, LONGEST_DELAY};

/// Where something was declared.
pub type Place = &'static Location<'static>;

/// The longest name that AMQP can carry, in bytes.
const LONGEST_NAME: usize = 255;

/// One thing that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A name cannot be one.
    BadName {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
        /// Where.
        at: Place,
    },
    /// The same name twice.
    Duplicate {
        /// Of what.
        what: &'static str,
        /// The name.
        name: String,
        /// Where it was declared first.
        first: Place,
        /// Where it was declared again.
        second: Place,
    },
    /// Something that nobody declared.
    Unknown {
        /// A queue or an exchange.
        what: &'static str,
        /// Its name.
        name: String,
        /// Who needs it.
        wanted_by: String,
        /// Where that was declared.
        at: Place,
        /// The one that may have been meant, and where it was declared.
        nearest: Option<(String, Place)>,
    },
    /// Two consumers would take each other's messages: a queue gives each message to one of them.
    DividedQueue {
        /// The queue.
        queue: String,
        /// One consumer.
        first: (String, Place),
        /// The other one, which handles other event types.
        second: (String, Place),
    },
    /// An event type has two handlers in one consumer.
    TwoHandlers {
        /// The consumer.
        consumer: String,
        /// The event type; `None` for all.
        event_type: Option<String>,
        /// Where.
        at: Place,
    },
    /// Declarations for two brokers in one service.
    TwoBrokers {
        /// The one that was declared for first, and where.
        first: (String, Place),
        /// The other one.
        second: (String, Place),
    },
    /// A retry would come later than any source can promise.
    LongDelay {
        /// The consumer.
        consumer: String,
        /// Where.
        at: Place,
    },
}

/// All that cannot work, in the order of declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Fails if there are any.
    pub(crate) fn refuse(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self(problems)) }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName { what, name, why, at } => {
                write!(f, "{at}: the {what} `{name}`: its name {why}")
            }
            Self::Duplicate { what, name, first, second } => {
                write!(f, "{second}: the {what} `{name}` is declared already, at {first}")
            }
            Self::Unknown { what, name, wanted_by, at, nearest } => {
                write!(f, "{at}: {wanted_by} needs the {what} `{name}`, which nobody declares")?;
                match nearest {
                    Some((known, place)) => write!(f, "; did you mean `{known}` of {place}?"),
                    None => Ok(()),
                }
            }
            Self::DividedQueue { queue, first, second } => {
                let ((one, first), (other, second)) = (first, second);
                write!(
                    f,
                    "{second}: the consumer `{other}` and the consumer `{one}` of {first} handle \
                     different event types of the queue `{queue}` and would take each other's \
                     messages: give one consumer both handlers, with `on`"
                )
            }
            Self::TwoHandlers { consumer, event_type, at } => match event_type {
                Some(of) => write!(f, "{at}: the consumer `{consumer}` handles `{of}` twice"),
                None => {
                    write!(f, "{at}: the consumer `{consumer}` has two handlers for all events")
                }
            },
            Self::TwoBrokers { first: (one, first), second: (other, second) } => {
                write!(
                    f,
                    "{second}: these declarations are for the broker {other}, and those of {first} for \
                     {one} or another of its users or vhosts: make a service for each"
                )
            }
            Self::LongDelay { consumer, at } => {
                let most = LONGEST_DELAY.as_secs();
                write!(f, "{at}: the consumer `{consumer}` retries after more than {most} seconds")
            }
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            [only] => only.fmt(f),
            all => {
                write!(f, "{} problems:", all.len())?;
                all.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for Problems {}

/// Checks a name. The empty one and those of the broker itself are nobody's to declare.
pub(crate) fn check_name(what: &'static str, name: &str, at: Place) -> Option<Problem> {
    let why = if name.is_empty() {
        "is empty"
    } else if name.len() > LONGEST_NAME {
        "is longer than 255 bytes"
    } else if name.starts_with("amq.") {
        "begins with `amq.`, which belongs to the broker"
    } else {
        return None;
    };
    Some(Problem::BadName { what, name: name.to_owned(), why, at })
}

/// Finds the second places of names.
pub(crate) fn duplicates<'a>(
    what: &'static str,
    names: impl IntoIterator<Item = (&'a str, Place)>,
) -> Vec<Problem> {
    let mut seen: HashMap<&str, Place> = HashMap::new();
    let mut found = Vec::new();
    for (name, second) in names {
        match seen.get(name) {
            Some(first) => {
                let name = name.to_owned();
                found.push(Problem::Duplicate { what, name, first, second });
            }
            None => drop(seen.insert(name, second)),
        }
    }
    found
}

/// Finds consumers of one queue that handle different event types.
pub(crate) fn divided(consumers: &[(Consumer, Place)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, (second, second_at)) in consumers.iter().enumerate() {
        let divides = |(first, _): &&(Consumer, Place)| {
            first.queue() == second.queue() && event_types(first) != event_types(second)
        };
        if let Some((first, first_at)) = consumers[..index].iter().find(divides) {
            problems.push(Problem::DividedQueue {
                queue: second.queue().to_owned(),
                first: (first.name().to_owned(), first_at),
                second: (second.name().to_owned(), second_at),
            });
        }
    }
    problems
}

/// Checks a consumer by itself.
pub(crate) fn check_each(consumer: &Consumer, at: Place) -> Vec<Problem> {
    let mut problems: Vec<Problem> =
        check_name("consumer", consumer.name(), at).into_iter().collect();
    let types: Vec<_> = consumer.handlers.iter().map(|(event_type, _)| event_type).collect();
    for (index, event_type) in types.iter().enumerate() {
        if types[..index].contains(event_type) {
            let event_type = event_type.as_deref().map(str::to_owned);
            let consumer = consumer.name().to_owned();
            problems.push(Problem::TwoHandlers { consumer, event_type, at });
        }
    }
    if consumer.settings.retry.longest().is_some_and(|delay| delay > LONGEST_DELAY) {
        problems.push(Problem::LongDelay { consumer: consumer.name().to_owned(), at });
    }
    problems
}

fn event_types(consumer: &Consumer) -> Vec<Option<&str>> {
    let mut types: Vec<_> = consumer.handlers.iter().map(|(of, _)| of.as_deref()).collect();
    types.sort_unstable();
    types
}
