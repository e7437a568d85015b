//! What must stand at the broker before anything is consumed: exchanges, queues and bindings.

use lapin::ExchangeKind as LapinKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};

/// Exchanges, queues and bindings, as plain data. They are declared at every connect, before
/// anything is consumed, so that they stand again after a broker lost them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The exchanges.
    pub exchanges: Vec<Exchange>,
    /// The queues.
    pub queues: Vec<Queue>,
    /// What goes from exchanges to queues.
    pub bindings: Vec<Binding>,
}

/// An exchange. Its name has at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its name.
    pub name: String,
    /// How it routes.
    pub kind: ExchangeKind,
    /// Whether it outlives a restart of the broker.
    pub is_durable: bool,
    /// Further arguments, such as `alternate-exchange`.
    pub arguments: Vec<(String, Argument)>,
}

/// How an exchange routes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExchangeKind {
    /// By the whole routing key.
    Direct,
    /// To every queue bound to it.
    Fanout,
    /// By patterns of the routing key.
    Topic,
    /// By headers.
    Headers,
    /// A kind that a plugin brings.
    Other(String),
}

/// A queue. Its name has at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether it outlives a restart of the broker.
    pub is_durable: bool,
    /// Its arguments, such as `x-queue-type`.
    pub arguments: Vec<(String, Argument)>,
}

/// What goes from an exchange to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// To where.
    pub queue: String,
    /// From where.
    pub exchange: String,
    /// By which routing key or pattern.
    pub routing_key: String,
    /// Further arguments, for exchanges that route by headers.
    pub arguments: Vec<(String, Argument)>,
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Argument {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl Topology {
    /// Nothing at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more exchange.
    #[must_use]
    pub fn with_exchange(mut self, exchange: Exchange) -> Self {
        self.exchanges.push(exchange);
        self
    }

    /// With one more queue.
    #[must_use]
    pub fn with_queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// With one more binding.
    #[must_use]
    pub fn with_binding(mut self, binding: Binding) -> Self {
        self.bindings.push(binding);
        self
    }

    /// The queue of this name, where it is declared here.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.name == name)
    }

    /// Declares all of it. A channel that the broker closes over one of them is no use any more.
    pub(crate) async fn declare(&self, channel: &lapin::Channel) -> Result<(), lapin::Error> {
        for exchange in &self.exchanges {
            let durable = exchange.is_durable;
            let options = ExchangeDeclareOptions { durable, ..Default::default() };
            let arguments = table(&exchange.arguments);
            let kind = exchange.kind.lapin();
            channel.exchange_declare(short(&exchange.name), kind, options, arguments).await?;
        }
        for queue in &self.queues {
            queue.declare(channel).await?;
        }
        for binding in &self.bindings {
            let (queue, exchange) = (short(&binding.queue), short(&binding.exchange));
            let (key, arguments) = (short(&binding.routing_key), table(&binding.arguments));
            let options = QueueBindOptions::default();
            channel.queue_bind(queue, exchange, key, options, arguments).await?;
        }
        Ok(())
    }
}

impl Exchange {
    /// A durable exchange.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: ExchangeKind) -> Self {
        Self { name: name.into(), kind, is_durable: true, arguments: Vec::new() }
    }

    /// One that a restart of the broker ends.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.is_durable = false;
        self
    }

    /// With one more argument.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.arguments.push((name.into(), value.into()));
        self
    }
}

impl ExchangeKind {
    fn lapin(&self) -> LapinKind {
        match self {
            Self::Direct => LapinKind::Direct,
            Self::Fanout => LapinKind::Fanout,
            Self::Topic => LapinKind::Topic,
            Self::Headers => LapinKind::Headers,
            Self::Other(name) => LapinKind::Custom(name.clone()),
        }
    }
}

impl Queue {
    /// A durable queue of the broker's default type.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_durable: true, arguments: Vec::new() }
    }

    /// One that a restart of the broker ends.
    #[must_use]
    pub fn transient(mut self) -> Self {
        self.is_durable = false;
        self
    }

    /// With one more argument. The last one of a name counts.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.arguments.push((name.into(), value.into()));
        self
    }

    /// A queue that several nodes keep.
    #[must_use]
    pub fn quorum(self) -> Self {
        self.argument("x-queue-type", "quorum")
    }

    /// A classic queue, whatever the broker's default type is.
    #[must_use]
    pub fn classic(self) -> Self {
        self.argument("x-queue-type", "classic")
    }

    /// What is buried or expires goes to this exchange, by this routing key. The empty name is the
    /// default exchange, whose routing keys are the names of queues.
    #[must_use]
    pub fn dead_letter(self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        let queue = self.argument(DEAD_LETTER_EXCHANGE, exchange.into());
        queue.argument("x-dead-letter-routing-key", routing_key.into())
    }

    /// At most so many messages.
    #[must_use]
    pub fn max_length(self, messages: u32) -> Self {
        self.argument("x-max-length", i64::from(messages))
    }

    /// Only one consumer at a time gets messages; another one takes over when it goes.
    #[must_use]
    pub fn single_active_consumer(self) -> Self {
        self.argument("x-single-active-consumer", true)
    }

    /// Whether what is rejected is kept somewhere.
    #[must_use]
    pub fn has_dead_letter(&self) -> bool {
        self.arguments.iter().any(|(name, _)| name == DEAD_LETTER_EXCHANGE)
    }

    /// Whether several nodes keep it.
    #[must_use]
    pub fn is_quorum(&self) -> bool {
        let kind = self.arguments.iter().rev().find(|(name, _)| name == "x-queue-type");
        kind.is_some_and(|(_, kind)| *kind == Argument::from("quorum"))
    }

    async fn declare(&self, channel: &lapin::Channel) -> Result<lapin::Queue, lapin::Error> {
        let options = QueueDeclareOptions { durable: self.is_durable, ..Default::default() };
        channel.queue_declare(short(&self.name), options, table(&self.arguments)).await
    }
}

const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";

impl Binding {
    /// What comes to the exchange by this routing key or pattern goes to the queue.
    #[must_use]
    pub fn new(
        queue: impl Into<String>,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        Self {
            queue: queue.into(),
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            arguments: Vec::new(),
        }
    }

    /// With one more argument.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.arguments.push((name.into(), value.into()));
        self
    }
}

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Argument {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Argument {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

pub(crate) fn table(arguments: &[(String, Argument)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        let value = match value {
            Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
            Argument::Number(number) => AMQPValue::LongLongInt(*number),
            Argument::Flag(flag) => AMQPValue::Boolean(*flag),
        };
        table.insert(short(name), value);
    }
    table
}

/// A name for the wire, which holds 255 bytes: what is longer is cut at a character.
pub(crate) fn short(name: &str) -> ShortString {
    let end = name.floor_char_boundary(name.len().min(255));
    name[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_says_whether_it_keeps_what_is_rejected() {
        let topology = Topology::new()
            .with_queue(Queue::new("a").quorum().dead_letter("", "a.dead"))
            .with_queue(Queue::new("b").max_length(7).single_active_consumer());
        let keeps = |name| topology.queue(name).map(Queue::has_dead_letter);
        assert_eq!([keeps("a"), keeps("b"), keeps("c")], [Some(true), Some(false), None]);
    }

    #[test]
    fn long_names_are_cut_at_a_character() {
        let name = "é".repeat(200);
        assert_eq!(short(&name).as_str(), "é".repeat(127));
        assert_eq!(short("a").as_str(), "a");
    }
}
