//! A pure schedule of work: what may run next, bounded, fair between tenants, in order per key,
//! within a rate.
//!
//! No I/O, no clock, no randomness, no dependency: the owner passes the time in and does what the
//! schedule says. `sluicegate-tasks` is such an owner; a simulation is another.
//!
//! | question | answer |
//! |---|---|
//! | may it enter? | [`Schedule::admit`]: room in the queue, in all and for the tenant |
//! | what is next? | [`Schedule::next`]: class, then tenant, then key, then order |
//! | how often? | [`Rate`], [`RateLimit`]: a token bucket, or a sliding window, that can change while others wait |
//! | why not yet? | [`Schedule::why`] |
//!
//! ```
//! use sluicegate_schedule::{Entry, Limits, Moment, Next, Schedule, TenantLimits};
//!
//! let limits = Limits::new::<&str>(1, 100)
//!     .tenant("gold", TenantLimits::new().weight(2))
//!     .build()?;
//! let mut schedule: Schedule<u32, (), &str> = Schedule::new(limits, Moment::ZERO);
//! for n in 0..30 {
//!     schedule.admit(Moment::ZERO, Entry::of("gold"), n)?;
//!     schedule.admit(Moment::ZERO, Entry::of("silver"), n)?;
//! }
//! let mut gold = 0;
//! for _ in 0..30 {
//!     let Next::Start(id) = schedule.next(Moment::ZERO) else { break };
//!     let golden = schedule.tenants().any(|t| t.tenant == "gold" && t.running == 1);
//!     gold += u32::from(golden);
//!     schedule.complete(id, None);
//! }
//! assert_eq!(gold, 20); // twice as many as silver's 10
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adjust;
mod admission;
mod admission_rate;
mod admit;
mod arena;
mod back;
mod class;
mod heap;
mod invalid;
mod item;
mod key;
mod lanes;
mod limits;
mod map;
mod moment;
mod pause;
mod rate;
mod recent;
mod recently_idle;
mod schedule;
mod tenants;
mod view;

pub use admission::{Entry, ItemId, Refusal, Refused};
pub use class::Class;
pub use invalid::{Fault, Invalid};
pub use limits::{Limits, LimitsBuilder, TenantLimits};
pub use moment::Moment;
pub use rate::{NotUntil, Rate, RateLimit};
pub use schedule::{Next, Schedule};
pub use view::{ItemView, Snapshot, TenantView, Why};

/// Gives back a map's memory once it is mostly empty.
fn shrink<K: std::hash::Hash + Eq>(map: &mut map::Map<K, u32>) {
    const SMALL: usize = 1024;
    if map.capacity() > SMALL && map.len() * 8 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}
