//! Maps by names that come from outside: quick to look into, and not to be steered from there.
//!
//! The standard library's hash is made to withstand more than a table of names needs, and was a
//! twentieth of what a message costs. This one folds the halves of a product into each other, with
//! secrets that are drawn anew for every map: without them, names that collide cannot be chosen.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map by names.
pub(crate) type Map<K, V> = HashMap<K, V, Secrets>;

/// The secrets of one map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secrets {
    seed: u64,
    factor: u64,
}

pub(crate) struct Folding {
    state: u64,
    factor: u64,
}

impl Default for Secrets {
    fn default() -> Self {
        let chance = RandomState::new();
        // An even factor would lose a bit at every step.
        Self { seed: chance.hash_one(0u8), factor: chance.hash_one(1u8) | 1 }
    }
}

impl BuildHasher for Secrets {
    type Hasher = Folding;

    fn build_hasher(&self) -> Folding {
        Folding { state: self.seed, factor: self.factor }
    }
}

/// The whole product of two numbers, folded to half its length.
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Folding {
    fn take(&mut self, word: u64) {
        self.state = fold(self.state ^ word, self.factor);
    }
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.take(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.take(u64::from_le_bytes(last));
        }
        // What is padded is told from what is not by its length.
        self.take(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.take(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.take(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.take(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.take(number as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.state, self.factor.rotate_left(32))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// How many of 65,536 names share the low 16 bits of their hash with another: for numbers that
    /// are drawn, 37 in a hundred find their place taken.
    fn taken(names: impl Iterator<Item = String>, secrets: Secrets) -> usize {
        let mut places = HashSet::new();
        names.filter(|name| !places.insert(secrets.hash_one(name) as u16)).count()
    }

    #[test]
    fn names_that_are_alike_are_spread_as_if_they_were_drawn() {
        const NAMES: usize = 65_536;
        type Named = fn(usize) -> String;
        let kinds: [Named; 5] = [
            |n| n.to_string(),
            |n| format!("customer-{n:011}"),
            |n| format!("{n:08x}-0000-0000-0000-000000000000"),
            |n| "x".repeat(n % 200) + &n.to_string(),
            |n| format!("{:016}", n << 40),
        ];
        for (number, named) in kinds.into_iter().enumerate() {
            let taken = taken((0..NAMES).map(named), Secrets::default());
            let part = taken as f64 / NAMES as f64;
            assert!((0.36..0.38).contains(&part), "kind {number}: {part}");
        }
    }

    #[test]
    fn lengths_and_zeros_count() {
        let secrets = Secrets::default();
        let texts = ["", "\0", "\0\0", "\0\0\0\0\0\0\0", "\0\0\0\0\0\0\0\0", "\0\0\0\0\0\0\0\0\0"];
        let hashes: HashSet<u64> = texts.iter().map(|text| secrets.hash_one(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }

    #[test]
    fn every_map_has_secrets_of_its_own() {
        let hashes: HashSet<u64> = (0..100).map(|_| Secrets::default().hash_one("name")).collect();
        assert_eq!(hashes.len(), 100);
    }
}
