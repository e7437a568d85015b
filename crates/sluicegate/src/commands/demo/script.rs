//! How the demo's endpoint behaves: the same in every run, and without a pattern.

use std::time::Duration;

/// What is answered to each call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    /// The message that makes the endpoint ask everybody to pause.
    throttled: u32,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Taken, after a few milliseconds.
    Quick(Duration),
    /// Taken, after a while.
    Slow(Duration),
    /// 503, as of an endpoint that is being restarted.
    Broken,
    /// `{"ack":false,"delaySeconds":1}`, as of one that is not ready for this message.
    PutOff,
    /// 429 with `Retry-After: 1`, as of one that is asked too much.
    Throttled,
}

impl Script {
    pub(super) const fn new(messages: u32) -> Self {
        Self { throttled: messages / 2 }
    }

    /// The answer to a message that came this often before. What fails succeeds the next time.
    pub(super) fn answer(self, number: u32, earlier: u8) -> Answer {
        let dice = mixed(number);
        let millis = |least: u32, more: u32| Duration::from_millis(u64::from(least + dice % more));
        match dice % 1_000 {
            _ if earlier == 0 && number == self.throttled => Answer::Throttled,
            0..10 if earlier == 0 => Answer::Broken,
            10..20 if earlier == 0 => Answer::PutOff,
            20..40 => Answer::Slow(millis(50, 100)),
            _ => Answer::Quick(millis(1, 4)),
        }
    }
}

impl Answer {
    /// Whether the message is taken.
    pub(super) const fn takes(self) -> bool {
        matches!(self, Self::Quick(_) | Self::Slow(_))
    }
}

const fn mixed(number: u32) -> u32 {
    let n = (number ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
    let n = (n ^ n >> 13).wrapping_mul(0xc2b2_ae35);
    (n ^ n >> 16) >> 3
}

#[cfg(test)]
mod tests {
    use super::{Answer, Script};

    #[test]
    fn some_fail_at_first_and_none_twice() {
        let script = Script::new(5_000);
        let answers = |earlier| (0..5_000).map(move |n| script.answer(n, earlier));
        let count = |wanted: Answer| answers(0).filter(|answer| *answer == wanted).count();
        assert!((20..100).contains(&count(Answer::Broken)), "{}", count(Answer::Broken));
        assert!((20..100).contains(&count(Answer::PutOff)), "{}", count(Answer::PutOff));
        assert_eq!(count(Answer::Throttled), 1);
        assert!(answers(1).all(Answer::takes));
    }
}
