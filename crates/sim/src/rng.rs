//! Random numbers from a seed, the same on every machine: splitmix64.

/// A source of numbers that depends on nothing but its seed.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The numbers of that seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any number.
    pub const fn any(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `least..=most`, all as likely but for a rounding that no test of ours can see.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = u128::from(most - least) + 1;
        least + ((u128::from(self.any()) * span) >> 64) as u64
    }

    /// The same, for small numbers.
    pub fn between_u32(&mut self, least: u32, most: u32) -> u32 {
        self.between(u64::from(least), u64::from(most)) as u32
    }

    /// `true` so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.between(1, 100) <= chance
    }

    /// One of them.
    ///
    /// # Panics
    /// When there is none.
    pub fn one_of<'a, V>(&mut self, values: &'a [V]) -> &'a V {
        &values[self.between(0, values.len() as u64 - 1) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        // The published first numbers of splitmix64 for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(expected.map(|_| rng.any()), expected);
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.between(3, 6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        assert_eq!(rng.between(0, u64::MAX - 1).min(1), 1);
    }
}
