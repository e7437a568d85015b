//! Declarations: exchanges, queues, bindings and consumers, collected and then checked together before
//! anything connects.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use sluicegate_sources::amqp::{Argument, Binding, Exchange, Queue, Topology};
use sluicegate_sources::nearest;

use crate::Consumer;
use crate::problem::{Place, Problem, Problems, check_each, check_name, divided, duplicates};

/// What a queue is called that keeps the dead letters of another.
const DEAD: &str = ".dead";

/// What a service needs at its broker: what must stand there, and what is consumed.
///
/// ```
/// use sluicegate_consumers::{Consumer, Declarations, Failure, Handler};
/// use sluicegate_consumers::amqp::{Exchange, ExchangeKind, Queue};
///
/// let handler = Handler::bytes(|_body, _about, _cx| async { Ok::<_, Failure>(()) });
/// let mut declared = Declarations::new();
/// declared.exchange(Exchange::new("shop", ExchangeKind::Topic));
/// declared.queue_with_dead_letters(Queue::new("orders"));
/// declared.bind("orders", "shop", "order.*");
/// declared.consumer(Consumer::of("orders").named("mailer").handler(handler.clone()));
/// assert!(declared.validate().is_ok());
///
/// declared.consumer(Consumer::of("oders").named("mailer").handler(handler));
/// let problems = declared.validate().unwrap_err().to_string(); // all of them, with their places
/// assert!(problems.contains("`mailer` is declared already, at"));
/// assert!(problems.contains("did you mean `orders` of"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    exchanges: Vec<(Exchange, Place)>,
    queues: Vec<(Queue, Place)>,
    bindings: Vec<(Binding, Place)>,
    consumers: Vec<(Consumer, Place)>,
    standing_exchanges: Vec<(String, Place)>,
    standing_queues: Vec<(String, Place)>,
}

impl Declarations {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An exchange.
    #[track_caller]
    pub fn exchange(&mut self, exchange: Exchange) {
        self.exchanges.push((exchange, Location::caller()));
    }

    /// An exchange that stands at the broker already and is somebody else's to declare.
    #[track_caller]
    pub fn standing_exchange(&mut self, name: impl Into<String>) {
        self.standing_exchanges.push((name.into(), Location::caller()));
    }

    /// A queue.
    #[track_caller]
    pub fn queue(&mut self, queue: Queue) {
        self.queues.push((queue, Location::caller()));
    }

    /// A queue that is somebody else's to declare. Where it is missing it is not made: its consumers wait for it
    /// and say so.
    #[track_caller]
    pub fn standing_queue(&mut self, name: impl Into<String>) {
        self.standing_queues.push((name.into(), Location::caller()));
    }

    /// A queue, and another one with `.dead` behind its name that keeps its dead letters.
    #[track_caller]
    pub fn queue_with_dead_letters(&mut self, queue: Queue) {
        let dead = format!("{}{DEAD}", queue.name);
        self.queue(queue.dead_letter("", dead.as_str()));
        self.queue(Queue::new(dead));
    }

    /// What comes to an exchange by this routing key or pattern goes to a queue.
    #[track_caller]
    pub fn bind(&mut self, queue: &str, exchange: &str, routing_key: &str) {
        self.binding(Binding::new(queue, exchange, routing_key));
    }

    /// A binding with arguments.
    #[track_caller]
    pub fn binding(&mut self, binding: Binding) {
        self.bindings.push((binding, Location::caller()));
    }

    /// A consumer.
    #[track_caller]
    pub fn consumer(&mut self, consumer: Consumer) {
        self.consumers.push((consumer, Location::caller()));
    }

    /// Checks all of it. A service does so too, before it connects.
    ///
    /// # Errors
    /// Everything that cannot work, with the places in the code.
    pub fn validate(&self) -> Result<(), Problems> {
        let mut problems = self.problems();
        problems.extend(duplicates("consumer", self.consumer_names()));
        Problems::refuse(problems)
    }

    /// What is wrong with it, but for the names of consumers, which are unique in a whole service.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let exchanges = || names(&self.exchanges, |one| &one.name);
        let queues = || names(&self.queues, |one| &one.name);
        problems.extend(exchanges().filter_map(|(name, at)| check_name("exchange", name, at)));
        problems.extend(queues().filter_map(|(name, at)| check_name("queue", name, at)));
        let standing = names(&self.standing_exchanges, |name| name);
        problems.extend(duplicates("exchange", exchanges().chain(standing)));
        let standing = names(&self.standing_queues, |name| name);
        problems.extend(duplicates("queue", queues().chain(standing)));
        problems.extend(self.unknown());
        for (consumer, at) in &self.consumers {
            problems.extend(check_each(consumer, at));
        }
        problems.extend(divided(&self.consumers));
        problems
    }

    pub(crate) fn consumer_names(&self) -> impl Iterator<Item = (&str, Place)> {
        self.consumers.iter().map(|(consumer, at)| (consumer.name(), *at))
    }

    /// Finds what is needed and not declared.
    fn unknown(&self) -> Vec<Problem> {
        let known_queues: Known<'_> = names(&self.queues, |one| &one.name)
            .chain(names(&self.standing_queues, |name| name))
            .collect();
        let known_exchanges: Known<'_> = names(&self.exchanges, |one| &one.name)
            .chain(names(&self.standing_exchanges, |name| name))
            .collect();
        let mut problems = Vec::new();
        for (binding, at) in &self.bindings {
            let Binding { queue, exchange, routing_key, .. } = binding;
            let wanted_by = format!("the binding of `{queue}` to `{exchange}` by `{routing_key}`");
            problems.extend(find_exchange(&known_exchanges, exchange, &wanted_by, at));
            problems.extend(find("queue", &known_queues, queue, &wanted_by, at));
        }
        for (queue, at) in &self.queues {
            let Some(exchange) = text(queue, "x-dead-letter-exchange") else { continue };
            let wanted_by = format!("the dead letters of the queue `{}`", queue.name);
            problems.extend(find_exchange(&known_exchanges, exchange, &wanted_by, at));
            // The default exchange goes by the names of queues.
            let to = text(queue, "x-dead-letter-routing-key").filter(|_| exchange.is_empty());
            problems.extend(to.and_then(|to| find("queue", &known_queues, to, &wanted_by, at)));
        }
        for (consumer, at) in &self.consumers {
            let wanted_by = format!("the consumer `{}`", consumer.name());
            problems.extend(find("queue", &known_queues, consumer.queue(), &wanted_by, at));
        }
        problems
    }

    /// All of this and all of the other.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.exchanges.extend(other.exchanges);
        self.queues.extend(other.queues);
        self.bindings.extend(other.bindings);
        self.consumers.extend(other.consumers);
        self.standing_exchanges.extend(other.standing_exchanges);
        self.standing_queues.extend(other.standing_queues);
        self
    }

    /// The queues that are somebody else's to declare.
    pub(crate) fn standing_queues(&self) -> BTreeSet<String> {
        self.standing_queues.iter().map(|(name, _)| name.clone()).collect()
    }

    /// What is declared at every connect, and what is consumed then.
    pub(crate) fn into_parts(self) -> (Topology, Vec<(Consumer, Place)>) {
        let topology = Topology {
            exchanges: self.exchanges.into_iter().map(|(one, _)| one).collect(),
            queues: self.queues.into_iter().map(|(one, _)| one).collect(),
            bindings: self.bindings.into_iter().map(|(one, _)| one).collect(),
        };
        (topology, self.consumers)
    }
}

/// In order, so that of two names that are as near to a third it is always the same that is offered.
type Known<'a> = BTreeMap<&'a str, Place>;

fn names<T>(
    declared: &[(T, Place)],
    name: impl Fn(&T) -> &str,
) -> impl Iterator<Item = (&str, Place)> {
    declared.iter().map(move |(one, at)| (name(one), *at))
}

/// The default exchange and those of the broker's own are always there.
fn find_exchange(known: &Known<'_>, name: &str, wanted_by: &str, at: Place) -> Option<Problem> {
    if name.is_empty() || name.starts_with("amq.") {
        return None;
    }
    find("exchange", known, name, wanted_by, at)
}

fn find(
    what: &'static str,
    known: &Known<'_>,
    name: &str,
    wanted_by: &str,
    at: Place,
) -> Option<Problem> {
    if known.contains_key(name) {
        return None;
    }
    let nearest = nearest(name, known.keys().copied());
    let nearest = nearest.and_then(|near| Some((near.to_owned(), *known.get(near)?)));
    let (name, wanted_by) = (name.to_owned(), wanted_by.to_owned());
    Some(Problem::Unknown { what, name, wanted_by, at, nearest })
}

/// The last argument of a name counts.
fn text<'a>(queue: &'a Queue, name: &str) -> Option<&'a str> {
    let mut of_name = queue.arguments.iter().rev().filter(|(known, _)| known == name);
    match of_name.next() {
        Some((_, Argument::Text(text))) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_with_dead_letters_is_two_queues_in_one_call() {
        let mut declared = Declarations::new();
        declared.queue_with_dead_letters(Queue::new("orders"));
        let (topology, _) = declared.into_parts();
        let orders = topology.queue("orders").expect("the queue");
        assert_eq!(text(orders, "x-dead-letter-exchange"), Some(""));
        assert_eq!(text(orders, "x-dead-letter-routing-key"), Some("orders.dead"));
        assert!(topology.queue("orders.dead").is_some_and(|dead| !dead.has_dead_letter()));
    }
}
