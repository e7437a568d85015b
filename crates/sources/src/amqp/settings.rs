//! What a source of this kind is opened with.

use std::time::Duration;

use super::address::AmqpAddress;
use super::topology::Topology;
use crate::OpenError;

/// How many deliveries the broker sends ahead where nobody says otherwise: the router's window, and some to run
/// meanwhile. With fewer, what waits for one pool would hide what another could run.
const PREFETCH: u16 = 2_500;
/// The visibility window where nobody says otherwise.
const VISIBILITY: Duration = Duration::from_secs(30);

/// One queue at one broker, over a connection of its own: what [`AmqpSource::open`] takes.
///
/// [`AmqpSource::open`]: super::AmqpSource::open
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmqpSettings {
    pub(crate) address: AmqpAddress,
    pub(crate) topology: Topology,
    pub(crate) consume: AmqpConsume,
    /// Whether somebody has said what the prefetch is.
    says_prefetch: bool,
}

/// What one source consumes of a [`Connection`](super::Connection).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmqpConsume {
    pub(crate) queue: String,
    pub(crate) tag: String,
    pub(crate) prefetch: u16,
    pub(crate) is_exclusive: bool,
    pub(crate) visibility: Option<Duration>,
    pub(crate) hold: Duration,
    pub(crate) delays: Option<Delays>,
    /// Somebody else declares the queue.
    pub(crate) is_standing: bool,
}

/// In which kind of queue messages wait for their delays to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delays {
    /// Classic queues. The broker moves a message out of one without waiting for a confirmation.
    Classic,
    /// Quorum queues, of which a message goes only when the queue it goes back to has confirmed it.
    /// They take RabbitMQ 3.10 or later, and cost it more.
    Quorum,
}

impl AmqpSettings {
    /// Reads `amqp://USER:PASS@HOST:PORT/VHOST?queue=NAME`; see [`AmqpAddress`] for its parameters.
    /// Here there are also `prefetch` (1 to 65535, 2500), `tag` (the consumer tag), `exclusive`
    /// (`true` or `false`) and `delays` (`classic` or `quorum`, see [`Delays`]).
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn parse(uri: &str) -> Result<Self, OpenError> {
        let names = ["queue", "prefetch", "tag", "exclusive", "delays"];
        let (address, values) = AmqpAddress::parse_with(uri, &names)?;
        let wrong = |what: String| OpenError::Address(what);
        let [queue, prefetch, tag, exclusive, delays] = &values[..] else {
            unreachable!("as many values as names");
        };
        let queue = queue.as_deref().unwrap_or_default();
        if queue.is_empty() || queue.len() > 255 {
            return Err(wrong("queue: a name of 1 to 255 bytes is needed".into()));
        }
        let mut consume = AmqpConsume::new(queue).with_visibility(VISIBILITY);
        consume.hold = Duration::ZERO;
        if let Some(prefetch) = prefetch {
            let number = prefetch.parse().ok().filter(|number| *number > 0);
            let why = || wrong(format!("prefetch: {prefetch:?} is no number from 1 to 65535"));
            consume.prefetch = number.ok_or_else(why)?;
        }
        if let Some(tag) = tag {
            if tag.len() > 255 {
                return Err(wrong("tag: it is longer than 255 bytes".into()));
            }
            consume.tag.clone_from(tag);
        }
        if let Some(exclusive) = exclusive {
            let why = |_| wrong(format!("exclusive: {exclusive:?} is neither true nor false"));
            consume.is_exclusive = exclusive.parse().map_err(why)?;
        }
        consume.delays = match delays.as_deref() {
            None => None,
            Some("classic") => Some(Delays::Classic),
            Some("quorum") => Some(Delays::Quorum),
            Some(other) => {
                return Err(wrong(format!("delays: {other:?} is neither classic nor quorum")));
            }
        };
        let says_prefetch = prefetch.is_some();
        Ok(Self { address, topology: Topology::default(), consume, says_prefetch })
    }

    /// What is declared at every connect.
    #[must_use]
    pub fn with_topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// See [`AmqpConsume::with_tag`].
    #[must_use]
    pub fn with_consumer_tag(mut self, tag: impl Into<String>) -> Self {
        self.consume = self.consume.with_tag(tag);
        self
    }

    /// See [`AmqpConsume::with_prefetch`].
    #[must_use]
    pub fn with_prefetch(mut self, prefetch: u16) -> Self {
        self.consume = self.consume.with_prefetch(prefetch);
        self.says_prefetch = true;
        self
    }

    /// The prefetch, or the largest below it, where nobody has said one.
    #[must_use]
    pub fn with_usual_prefetch(self, prefetch: u32) -> Self {
        if self.says_prefetch {
            return self;
        }
        let prefetch = u16::try_from(prefetch).unwrap_or(u16::MAX);
        Self { consume: self.consume.with_prefetch(prefetch), ..self }
    }

    /// See [`AmqpConsume::with_exclusive`].
    #[must_use]
    pub fn with_exclusive(mut self, is_exclusive: bool) -> Self {
        self.consume = self.consume.with_exclusive(is_exclusive);
        self
    }

    /// See [`AmqpConsume::with_visibility`].
    #[must_use]
    pub fn with_visibility(mut self, visibility: Duration) -> Self {
        self.consume = self.consume.with_visibility(visibility);
        self
    }

    /// See [`AmqpConsume::with_hold`].
    #[must_use]
    pub fn with_hold(mut self, hold: Duration) -> Self {
        self.consume = self.consume.with_hold(hold);
        self
    }

    /// See [`AmqpConsume::with_delays`].
    #[must_use]
    pub fn with_delays(mut self, delays: Delays) -> Self {
        self.consume = self.consume.with_delays(delays);
        self
    }

    /// Where the broker is.
    #[must_use]
    pub const fn address(&self) -> &AmqpAddress {
        &self.address
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.consume.queue
    }
}

impl AmqpConsume {
    /// A queue, with 2,500 deliveries ahead, without a visibility window, and with acks held back
    /// for at most 5 ms.
    #[must_use]
    pub fn new(queue: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            tag: String::new(),
            prefetch: PREFETCH,
            is_exclusive: false,
            visibility: None,
            hold: Duration::from_millis(5),
            delays: None,
            is_standing: false,
        }
    }

    /// The queue is somebody else's to declare: where it is missing it is not made but waited for, and
    /// [`health`](sluicegate_dispatch::Source::health) names it meanwhile.
    #[must_use]
    pub fn with_standing_queue(mut self) -> Self {
        self.is_standing = true;
        self
    }

    /// The name under which the broker lists the consumer; it makes one up where there is none.
    #[must_use]
    pub fn with_tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// How many deliveries may be here unsettled, waiting or out; at least 1. It bounds the memory.
    #[must_use]
    pub fn with_prefetch(mut self, prefetch: u16) -> Self {
        self.prefetch = prefetch.max(1);
        self
    }

    /// No other consumer beside this one. While there is another one, this one waits for its end.
    #[must_use]
    pub fn with_exclusive(mut self, is_exclusive: bool) -> Self {
        self.is_exclusive = is_exclusive;
        self
    }

    /// What is neither settled nor extended for so long is handed back to the queue.
    #[must_use]
    pub fn with_visibility(mut self, visibility: Duration) -> Self {
        self.visibility = Some(visibility);
        self
    }

    /// Deliveries stay out until they are settled, however long that takes: right for whoever
    /// cannot lose them, such as a handler in this very program. The broker's own consumer timeout
    /// (30 minutes) still holds.
    #[must_use]
    pub fn without_visibility(mut self) -> Self {
        self.visibility = None;
        self
    }

    /// How long an ack above one that is still missing may wait for it, so that one frame tells
    /// both: it waits while the missing delivery is out for less than this. Zero never waits.
    ///
    /// It is for callers whose calls of `settle` overlap. One that awaits each call before the next
    /// would only be held up.
    #[must_use]
    pub fn with_hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// In which kind of queue messages wait. Where nobody says, it is that of the queue itself as the
    /// topology declares it, and else classic.
    #[must_use]
    pub fn with_delays(mut self, delays: Delays) -> Self {
        self.delays = Some(delays);
        self
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |what: &str| Err(OpenError::Address(what.to_owned()));
        if self.queue.is_empty() || self.queue.len() > 255 {
            return wrong("queue: a name of 1 to 255 bytes is needed");
        }
        if self.tag.len() > 255 {
            return wrong("tag: it is longer than 255 bytes");
        }
        if self.visibility.is_some_and(|window| window.is_zero()) {
            return wrong("visibility: it must be longer than nothing");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_or_refused_by_field() {
        let settings = AmqpSettings::parse(
            "amqp://h/?queue=orders&prefetch=7&tag=one&exclusive=true&heartbeat=5",
        )
        .unwrap();
        let expected = AmqpConsume::new("orders").with_prefetch(7).with_tag("one");
        let expected = expected.with_exclusive(true).with_visibility(VISIBILITY);
        assert_eq!(settings.consume, expected.with_hold(Duration::ZERO));
        assert_eq!(settings.with_usual_prefetch(700).consume.prefetch, 7);
        let unsaid = AmqpSettings::parse("amqp://h/?queue=orders").unwrap();
        for (usual, expected) in [(700, 700), (0, 1), (70_000, u16::MAX)] {
            assert_eq!(unsaid.clone().with_usual_prefetch(usual).consume.prefetch, expected);
        }
        let cases = [
            ("amqp://h/", "queue: a name"),
            ("amqp://h/?queue=", "queue: a name"),
            ("amqp://h/?queue=q&prefetch=0", "prefetch: \"0\""),
            ("amqp://h/?queue=q&prefetch=65536", "prefetch: \"65536\""),
            ("amqp://h/?queue=q&exclusive=yes", "exclusive: \"yes\""),
            ("amqp://h/?queue=q&prefech=1", "did you mean `prefetch`?"),
            ("amqp://h/?queue=q&delays=no", "delays: \"no\" is neither"),
        ];
        for (uri, expected) in cases {
            let error = AmqpSettings::parse(uri).unwrap_err().to_string();
            assert!(error.contains(expected), "{uri}: {error}");
        }
    }
}
