//! Delays as queues: what is to come back later waits in a queue whose messages all live equally
//! long, and dies from there back into its own queue.
//!
//! 1. One queue for each delay, never one for several: a broker looks only at the head of a queue,
//!    so a long delay in front would hold up a short one behind it.
//! 2. So the delays are few. A delay is rounded up to the next step, at most half as long again.
//! 3. A delay queue goes when it is not used. Messages inside do not count as use, only declaring
//!    does; so it lives far longer than its messages, and is declared again while it is published to.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

use super::topology::short;

/// The steps, in milliseconds.
const STEPS: [u32; 40] = [
    100,
    200,
    300,
    500,
    750,
    1_000,
    1_500,
    2_000,
    3_000,
    4_000,
    5_000,
    7_000,
    10_000,
    15_000,
    20_000,
    30_000,
    45_000,
    60_000,
    90_000,
    2 * MINUTE,
    3 * MINUTE,
    4 * MINUTE,
    5 * MINUTE,
    7 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    45 * MINUTE,
    HOUR,
    90 * MINUTE,
    2 * HOUR,
    3 * HOUR,
    4 * HOUR,
    6 * HOUR,
    8 * HOUR,
    12 * HOUR,
    24 * HOUR,
    7 * 24 * HOUR,
    30 * 24 * HOUR,
];
const MINUTE: u32 = 60_000;
const HOUR: u32 = 60 * MINUTE;

/// What the names of delay queues begin with.
pub(crate) const WAITING: &str = "sluicegate.wait.";
/// The exchange and the queue by which it is known which delay queues there are: each of them is a routing
/// key by which the exchange leads to the queue, which keeps nothing.
pub(crate) const KNOWN: &str = "sluicegate.wait.known";
/// How much longer than its messages a delay queue lives.
const REST: u32 = 2 * HOUR;
/// How long after it was declared a delay queue is published to without declaring it again.
pub(crate) const RENEW: Duration = Duration::from_secs(600);
/// What a name has at most, of a queue whose delay queues carry it.
const LONGEST: usize = 255 - WAITING.len() - ".2592000000q".len();

/// One delay there is, and the kind of queue in which it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DelayStep {
    ms: u32,
    is_quorum: bool,
}

impl DelayStep {
    /// The shortest one that is not shorter than this. What is longer than all gets the longest.
    pub(crate) fn of(delay: Duration, is_quorum: bool) -> Self {
        let at = STEPS.partition_point(|step| Duration::from_millis((*step).into()) < delay);
        Self { ms: STEPS[at.min(STEPS.len() - 1)], is_quorum }
    }

    pub(crate) fn all(is_quorum: bool) -> impl Iterator<Item = Self> {
        STEPS.into_iter().map(move |ms| Self { ms, is_quorum })
    }

    /// How long messages wait.
    pub(crate) const fn delay(self) -> Duration {
        Duration::from_millis(self.ms as u64)
    }

    /// The queue in which messages of this queue wait so long.
    pub(crate) fn queue(self, origin: &str) -> ShortString {
        let (ms, kind) = (self.ms, if self.is_quorum { "q" } else { "" });
        if origin.len() <= LONGEST {
            return short(&format!("{WAITING}{origin}.{ms}{kind}"));
        }
        let start = &origin[..origin.floor_char_boundary(LONGEST - 17)];
        short(&format!("{WAITING}{start}~{:016x}.{ms}{kind}", fingerprint(origin)))
    }

    pub(crate) fn arguments(self, origin: &str) -> FieldTable {
        let mut arguments = FieldTable::default();
        let number = |number: u32| AMQPValue::LongLongInt(number.into());
        let text = |text: &str| AMQPValue::LongString(text.into());
        arguments.insert("x-message-ttl".into(), number(self.ms));
        arguments.insert("x-expires".into(), number(self.ms.saturating_add(REST)));
        arguments.insert("x-dead-letter-exchange".into(), text(""));
        arguments.insert("x-dead-letter-routing-key".into(), text(origin));
        let kind = if self.is_quorum { "quorum" } else { "classic" };
        arguments.insert("x-queue-type".into(), text(kind));
        if self.is_quorum {
            // It keeps a message until the queue that it goes back to has confirmed it.
            arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
            arguments.insert("x-overflow".into(), text("reject-publish"));
        }
        arguments
    }
}

/// Notes a delay queue for those who count what waits.
pub(crate) async fn register(channel: &Channel, queue: ShortString) -> Result<(), lapin::Error> {
    declare_known(channel).await?;
    let options = QueueDeclareOptions { durable: true, ..Default::default() };
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongLongInt(0));
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("classic".into()));
    channel.queue_declare(KNOWN.into(), options, arguments).await?;
    let options = QueueBindOptions::default();
    channel.queue_bind(KNOWN.into(), KNOWN.into(), queue, options, FieldTable::default()).await
}

/// Forgets a delay queue that is gone.
pub(crate) async fn unregister(channel: &Channel, queue: ShortString) -> Result<(), lapin::Error> {
    channel.queue_unbind(KNOWN.into(), KNOWN.into(), queue, FieldTable::default()).await
}

/// Makes the exchange by which delay queues are known.
pub(crate) async fn declare_known(channel: &Channel) -> Result<(), lapin::Error> {
    let options = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let kind = ExchangeKind::Direct;
    channel.exchange_declare(KNOWN.into(), kind, options, FieldTable::default()).await
}

/// The same for the same text in every process: FNV-1a.
fn fingerprint(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_rounded_up_to_a_step() {
        let cases = [
            (0, 100),
            (1, 100),
            (100, 100),
            (101, 200),
            (10_000, 10_000),
            (30_000, 30_000),
            (31_000, 45_000),
            (43_200_000, 43_200_000),
            (43_200_001, 86_400_000),
            (u64::MAX, 2_592_000_000),
        ];
        for (delay, step) in cases {
            let of = DelayStep::of(Duration::from_millis(delay), false);
            assert_eq!(of, DelayStep { ms: step, is_quorum: false }, "{delay}");
        }
        // Up to twelve hours nothing waits half as long again as it should, below a second twice.
        for pair in STEPS.windows(2).filter(|pair| pair[1] <= 12 * HOUR) {
            let most = if pair[0] < 1_000 { 2.0 } else { 1.5 };
            assert!(f64::from(pair[1]) <= f64::from(pair[0]) * most, "{pair:?}");
        }
    }

    #[test]
    fn names_of_delay_queues_fit_and_differ() {
        let (one, other) = ("q".repeat(254) + "1", "q".repeat(254) + "2");
        for step in DelayStep::all(false).chain(DelayStep::all(true)) {
            let names = [&one, &other].map(|origin| step.queue(origin));
            assert_ne!(names[0], names[1]);
            assert!(names[0].as_str().len() <= 255);
            let end = format!(".{}{}", step.ms, if step.is_quorum { "q" } else { "" });
            assert!(names[0].as_str().ends_with(&end));
        }
        let soon = DelayStep::of(Duration::ZERO, false);
        assert_eq!(soon.queue("orders").as_str(), "sluicegate.wait.orders.100");
    }
}
