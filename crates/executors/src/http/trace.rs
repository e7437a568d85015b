//! The W3C `traceparent`: carried on, or begun.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

/// Begins traces. Their ids are distinct, and not secret.
#[derive(Debug)]
pub(crate) struct Traces {
    next: AtomicU64,
}

/// A trace that calls belong to.
pub(crate) enum Trace<'a> {
    Carried(&'a str),
    Begun([u8; 55]),
}

impl Trace<'_> {
    pub(crate) fn header(&self) -> HeaderValue {
        let text = match self {
            Self::Carried(text) => text.as_bytes(),
            Self::Begun(text) => text,
        };
        HeaderValue::from_bytes(text).expect("what is valid is visible ASCII")
    }
}

impl Traces {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) fn new() -> Self {
        // The standard library's random keys are the nearest source of chance.
        Self { next: AtomicU64::new(RandomState::new().hash_one(0u8)) }
    }

    /// The trace to send: the one a message came with, if it is valid, else a new one.
    pub(crate) fn follow<'a>(&self, came_with: Option<&'a str>) -> Trace<'a> {
        let carried = came_with.filter(|text| is_valid(text));
        carried.map_or_else(|| self.begin(), Trace::Carried)
    }

    /// Marked as sampled: endpoints that follow their caller would else record none of these calls.
    fn begin<'a>(&self) -> Trace<'a> {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-01";
        // Three steps at once: the counter goes from core to core.
        let first = self.next.fetch_add(Self::STEP.wrapping_mul(3), Ordering::Relaxed);
        let [second, third] = [1, 2].map(|step| first.wrapping_add(Self::STEP.wrapping_mul(step)));
        for (place, id) in [(3, stir(first)), (19, stir(second) | 1), (36, stir(third) | 1)] {
            write_hex(id, &mut text[place..place + 16]);
        }
        Trace::Begun(text)
    }
}

/// SplitMix64: a counter, well stirred.
const fn stir(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every byte in hexadecimal.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut hex = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        hex[byte] = [digits[byte >> 4], digits[byte & 0xf]];
        byte += 1;
    }
    hex
};

fn write_hex(id: u64, digits: &mut [u8]) {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(id.to_be_bytes()) {
        pair.copy_from_slice(&HEX[usize::from(byte)]);
    }
}

/// Whether a text is a `traceparent` of version 00, or one of a later version that begins like it.
fn is_valid(text: &str) -> bool {
    let mut parts = text.splitn(5, '-');
    let mut hex = |digits: usize| {
        parts.next().filter(|part| {
            part.len() == digits
                && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    let (version, trace, parent, flags) = (hex(2), hex(32), hex(16), hex(2));
    let is_set = |id: Option<&str>| id.is_some_and(|id| id.bytes().any(|byte| byte != b'0'));
    let more = parts.next();
    // A header must be able to carry it.
    let is_shown = more.is_none_or(|more| more.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    version.is_some_and(|version| version != "ff" && !(version == "00" && more.is_some()))
        && is_shown
        && is_set(trace)
        && is_set(parent)
        && flags.is_some()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Traces, is_valid};

    #[test]
    fn valid_ones_are_told_from_others() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let cases = [
            (format!("00-{trace}-{parent}-01"), true),
            (format!("00-{trace}-{parent}-00"), true),
            (format!("01-{trace}-{parent}-01-more"), true),
            (format!("01-{trace}-{parent}-01"), true),
            (format!("00-{trace}-{parent}-01-more"), false),
            (format!("ff-{trace}-{parent}-01"), false),
            (format!("00-{}-{parent}-01", "0".repeat(32)), false),
            (format!("00-{trace}-{}-01", "0".repeat(16)), false),
            (format!("00-{}-{parent}-01", trace.to_uppercase()), false),
            (format!("00-{trace}-{parent}"), false),
            (format!("00-{trace}-{parent}-1"), false),
            (format!("0-{trace}-{parent}-01"), false),
            (format!("00-{trace}-{parent}-01\r\nx: y"), false),
            (format!("01-{trace}-{parent}-01-\r\nx: y"), false),
            (format!("01-{trace}-{parent}-01-m\u{f6}re"), false),
            (format!("00-{}g-{parent}-01", &trace[1..]), false),
            (String::new(), false),
        ];
        for (text, valid) in cases {
            assert_eq!(is_valid(&text), valid, "{text}");
        }
    }

    #[test]
    fn a_message_without_a_valid_one_begins_a_trace_of_its_own() {
        let traces = Traces::new();
        let new = |came_with| traces.follow(came_with).header().to_str().unwrap().to_owned();
        let begun: HashSet<String> =
            (0..1000).map(|n| new([None, Some(""), Some("x")][n % 3])).collect();
        assert_eq!(begun.len(), 1000);
        assert!(begun.iter().all(|text| is_valid(text)));
        let carried = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        assert_eq!(new(Some(carried)), carried);
    }
}
