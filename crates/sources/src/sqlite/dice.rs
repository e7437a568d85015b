//! The embedded queue under thrown dice: whoever writes is between the disk and the memory, and whoever reads between
//! the memory and the file, at every moment there is; beside it a model that knows only what is promised.
//!
//! There is one thread and no clock: each step of a write (made, on the disk, told) and of a read (asked, read, brought) is
//! a throw. `DICE_WALKS=100000` throws for longer, `DICE_SEED=7` shows one walk, both together go on from there.

mod model;
mod world;

use world::World;

/// Numbers that look random, from a seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D);
        dice.below(2);
        dice
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most
    }

    fn one_in(&mut self, most: usize) -> bool {
        self.below(most) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|value| value.parse().ok())
}

/// docs/rules.md#fifo-1, docs/rules.md#park-2: nothing is lost, handed out twice at once, out of order or stands still.
#[test]
fn whatever_falls_together_each_comes_once_in_its_place_and_none_stands_still() {
    let first = number("DICE_SEED");
    let walks = number("DICE_WALKS").unwrap_or(if first.is_some() { 1 } else { 120 });
    let first = first.unwrap_or(0);
    for seed in first..first + walks {
        let mut world = World::new(seed, walks == 1);
        let walk = std::panic::AssertUnwindSafe(|| {
            for _ in 0..150 {
                world.step();
            }
            world.empty();
        });
        if let Err(cause) = std::panic::catch_unwind(walk) {
            let words = cause.downcast_ref::<String>().cloned().unwrap_or_default();
            let (log, rows) = (world.log.join("\n"), world.rows().join("\n"));
            panic!("DICE_SEED={seed}: {words}\n{rows}\n{log}");
        }
    }
}
