//! Since when each head could start but for limits, by what the schedule says of it.

use sluicegate_schedule::Why;

use super::{Seen, Watched};

impl Watched {
    /// Notes, after a step, who became ready by it and who is not any more.
    pub(super) fn note_ready(&mut self) {
        self.steps += 1;
        let Self { schedule, items, now, steps, .. } = self;
        for seen in items.values_mut() {
            let ready = matches!(
                schedule.why(*now, seen.id),
                Some(
                    Why::Ready
                        | Why::Paused { .. }
                        | Why::TenantAtLimit { .. }
                        | Why::AtLimit { .. }
                        | Why::RateLimited { .. }
                )
            );
            seen.ready = ready.then_some(seen.ready.unwrap_or(*steps));
        }
    }

    /// None of its kind has been ready for longer. One that became ready as it was asked is the last.
    pub(super) fn check_longest_ready(&self, started: &Seen) {
        let its_like = |other: &&Seen| {
            (other.tenant, other.class, other.again)
                == (started.tenant, started.class, started.again)
        };
        let since = started.ready.unwrap_or(u64::MAX);
        for other in self.items.values().filter(its_like) {
            let longer = other.ready.is_some_and(|ready| ready < since);
            assert!(!longer, "{other:?} has been ready for longer than {started:?}");
        }
    }
}
