//! How often something may start, or enter: a token bucket in exact integers (one token is `period`
//! units, `count` units flow in each nanosecond), or the moments of the last period.

use std::time::Duration;

use sluicegate_schedule::Moment;

use crate::history::Flow;

#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// Tells this limit from those before it: a token goes back only to where it came from.
    pub(super) number: u64,
    flow: Flow,
    used: Used,
}

#[derive(Clone, Debug)]
enum Used {
    Bucket {
        units: u128,
        at: Moment,
    },
    /// When tokens were taken, in order. So many that were taken while it was a bucket count as taken
    /// at `since`, when it became a sliding one.
    Sliding {
        taken: Vec<Moment>,
        since: Moment,
        assumed: u32,
    },
}

impl Limit {
    /// Nothing is taken yet.
    pub(super) fn untouched(now: Moment, flow: Flow, number: u64) -> Self {
        let used = if flow.sliding {
            Used::Sliding { taken: Vec::new(), since: Moment::ZERO, assumed: 0 }
        } else {
            Used::Bucket { units: depth(flow), at: now }
        };
        Self { number, flow, used }
    }

    /// The most that can be taken at once.
    const fn most(&self) -> u32 {
        if self.flow.sliding { self.flow.count } else { self.flow.burst }
    }

    pub(super) fn take(&mut self, now: Moment) -> Result<(), Moment> {
        let ready_at = self.ready_for(1, now);
        if ready_at > now {
            return Err(ready_at);
        }
        let units = self.units(now);
        match &mut self.used {
            Used::Bucket { units: left, at } => {
                *left = units - token(self.flow);
                *at = now;
            }
            Used::Sliding { taken, .. } => taken.push(now),
        }
        Ok(())
    }

    /// What was taken at a moment was not used.
    pub(super) fn put_back(&mut self, taken_at: Moment) {
        match &mut self.used {
            Used::Bucket { units, .. } => {
                *units = (*units + token(self.flow)).min(depth(self.flow));
            }
            Used::Sliding { taken, since, assumed } => {
                let under_bucket = taken_at < *since;
                let stands_at = if under_bucket { *since } else { taken_at };
                if under_bucket && *assumed == 0 {
                    return;
                }
                *assumed -= u32::from(under_bucket);
                if let Some(place) = taken.iter().rposition(|at| *at == stands_at) {
                    taken.remove(place);
                }
            }
        }
    }

    /// What is there stays, as tokens and fractions of one, up to the new depth. A sliding rate has
    /// as many free as the bucket had tokens, and the other way round.
    pub(super) fn change(&mut self, now: Moment, flow: Flow) {
        let (units, free) = (self.units(now), self.free(now));
        let period = Duration::from_millis(self.flow.period_ms);
        let was = std::mem::replace(&mut self.flow, flow);
        match &mut self.used {
            Used::Sliding { taken, .. } if flow.sliding => taken.retain(|at| *at + period > now),
            _ if flow.sliding => {
                let assumed = flow.count.saturating_sub(free);
                let taken = vec![now; assumed as usize];
                self.used = Used::Sliding { taken, since: now, assumed };
            }
            Used::Sliding { .. } => {
                let units = (u128::from(free) * token(flow)).min(depth(flow));
                self.used = Used::Bucket { units, at: now };
            }
            Used::Bucket { .. } => {
                let units = (units * token(flow) / token(was)).min(depth(flow));
                self.used = Used::Bucket { units, at: now };
            }
        }
    }

    /// Whole tokens that are there.
    fn free(&self, now: Moment) -> u32 {
        match &self.used {
            Used::Bucket { .. } => (self.units(now) / token(self.flow)) as u32,
            Used::Sliding { .. } => self.flow.count.saturating_sub(self.live(now).len() as u32),
        }
    }

    pub(super) fn is_untouched(&self, now: Moment) -> bool {
        match &self.used {
            Used::Bucket { .. } => self.units(now) == depth(self.flow),
            Used::Sliding { .. } => self.live(now).is_empty(),
        }
    }

    /// When so many can be taken at once.
    pub(super) fn ready_for(&self, tokens: u32, now: Moment) -> Moment {
        if tokens > self.most() {
            return Moment::FAR;
        }
        match &self.used {
            Used::Bucket { .. } => {
                let wanted = token(self.flow) * u128::from(tokens);
                let missing = wanted.saturating_sub(self.units(now));
                now + Duration::from_nanos(missing.div_ceil(u128::from(self.flow.count)) as u64)
            }
            Used::Sliding { .. } => {
                let live = self.live(now);
                let too_many = (live.len() + tokens as usize).saturating_sub(self.most() as usize);
                let last = too_many.checked_sub(1).map(|last| live[last]);
                last.map_or(now, |at| at + Duration::from_millis(self.flow.period_ms))
            }
        }
    }

    /// What was taken less than a period ago.
    fn live(&self, now: Moment) -> Vec<Moment> {
        let period = Duration::from_millis(self.flow.period_ms);
        match &self.used {
            Used::Bucket { .. } => Vec::new(),
            Used::Sliding { taken, .. } => {
                taken.iter().copied().filter(|at| *at + period > now).collect()
            }
        }
    }

    fn units(&self, now: Moment) -> u128 {
        match &self.used {
            Used::Bucket { units, at } => {
                let flowed = (now - *at).as_nanos() * u128::from(self.flow.count);
                (units + flowed).min(depth(self.flow))
            }
            Used::Sliding { .. } => 0,
        }
    }
}

fn token(flow: Flow) -> u128 {
    u128::from(flow.period_ms) * 1_000_000
}

fn depth(flow: Flow) -> u128 {
    u128::from(flow.burst) * token(flow)
}
