//! Random numbers from a seed, the same on every machine: splitmix64.

/// A source of numbers that depends on nothing but its seed.
#[derive(Clone, Debug)]
pub(super) struct Rng {
    state: u64,
}

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) const fn any(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the numbers below.
    pub(super) const fn below(&mut self, count: u64) -> u64 {
        self.any() % count
    }

    /// `true` so many times in a hundred.
    pub(super) const fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Another source, for somebody else.
    pub(super) const fn split(&mut self) -> Self {
        Self::new(self.any())
    }
}
