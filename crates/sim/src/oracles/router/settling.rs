//! The oracle of settling: what sources are told, once, and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{Reason, Settled, Settlement};
use sluicegate_schedule::Moment;

use super::hand::{Cause, Here, Seen, Standing, Verdict};
use super::{Broken, Delivery, Effect, KeyName, Letter, Oracles, Phase, gone, hold};

/// How long those wait that came with a failure.
const CASCADE: Duration = Duration::from_secs(10);
/// How long those wait for whom there was no room, or who are still here from before.
const POOL_FULL: Duration = Duration::from_secs(30);
/// How long one waits that came again before the router heard that it was handed back.
const BEFORE_HEARD: Duration = Duration::from_secs(1);

impl Oracles {
    /// Whether a copy goes back because its twin is being parked: it may be its replay, and must not be lost.
    fn is_replay(&self, serial: usize, settlement: Settlement) -> bool {
        let Settlement::Retry { after, reason: Reason::Draining, .. } = settlement else {
            return false;
        };
        let own = &self.letters[serial].letter;
        let is_parked = |here: &Here| {
            matches!(here.standing, Standing::Over(Verdict::Gone(Cause::Parked | Cause::Tail)))
        };
        let is_twin = |twin: &&Seen| {
            let other = &twin.letter;
            other.serial != serial && other.queue == own.queue && other.id == own.id
        };
        // It follows another of its key, and nobody has seen yet that it is parked too.
        let follows = |letter: &Letter, here: &Here| {
            let key = here.place.as_ref().and_then(|place| {
                Some((Arc::clone(&letter.queue_name), Arc::clone(&letter.pool), place.key.clone()?))
            });
            key.is_some_and(|key| self.parked_keys.get(&key).is_some_and(|those| !those.is_empty()))
        };
        let is_parking = |twin: &Seen| {
            let of = |here: &Here| is_parked(here) || follows(&twin.letter, here);
            twin.is_parked || twin.here.as_ref().is_some_and(of)
        };
        let mut twins = self.letters.iter().filter(is_twin);
        after == BEFORE_HEARD && twins.any(is_parking)
    }

    pub(super) fn tell(
        &mut self,
        now: Moment,
        delivery: Delivery,
        settlement: Settlement,
        effect: Effect,
    ) -> Result<(), Broken> {
        let (queue, number, generation) = delivery;
        let serial = self.serial(queue, number)?;
        let is_heard = self.heard.contains(&delivery);
        hold("settled", !is_heard, || format!("m{serial} was settled already"))?;
        if let Some(Some(attempts)) = self.strays.get(&delivery) {
            let (after, reason) = (POOL_FULL, Reason::Draining);
            let returns = settlement == Settlement::Retry { after, attempts: *attempts, reason };
            return hold("settled", returns, || format!("m{serial} is still here: {settlement:?}"));
        } else if self.strays.contains_key(&delivery) {
            let seen = &self.letters[serial];
            // Told again, for the answer was lost, it changes nothing.
            if effect == Effect::Stale || self.is_replay(serial, settlement) {
                return Ok(());
            }
            let is_kept = !seen.letter.is_malformed || seen.is_parked;
            let is_late = self.phase != Phase::Living;
            let is_gone = settlement == Settlement::Ack && is_kept;
            hold("lost", is_gone || is_late, || format!("{}: {settlement:?}", seen.letter))?;
        } else {
            let seen = &self.letters[serial];
            match (self.ghosts.get(&delivery), &seen.here) {
                (Some(ghost), _) => self.ghost_fits(serial, ghost, settlement)?,
                (None, Some(here)) => self.fits(now, serial, here, settlement)?,
                (None, None) => {
                    return Err(Broken::new("settled", format!("m{serial} is not here")));
                }
            }
        }
        let seen = &mut self.letters[serial];
        let own = seen.here.as_mut().filter(|here| here.generation == generation);
        if let (Settlement::Retry { reason, .. }, Some(here)) = (settlement, own) {
            // Also where it is lost or stale: the router believes that it is the source's again.
            here.told = Some(reason);
        }
        if effect == Effect::Stale {
            return Ok(());
        }
        match settlement {
            _ if effect == Effect::Lost => {}
            Settlement::Ack | Settlement::Park => {
                (seen.in_source, seen.is_finished) = (false, true)
            }
            Settlement::Retry { after, attempts, .. } => {
                (seen.not_before, seen.noted) = (now + after, attempts);
            }
        }
        Ok(())
    }

    /// What a source is told is what follows.
    fn fits(
        &self,
        now: Moment,
        serial: usize,
        here: &Here,
        settlement: Settlement,
    ) -> Result<(), Broken> {
        let words = || format!("m{serial}: {settlement:?}, though {here:?}");
        match settlement {
            Settlement::Park => hold("settled", false, words),
            Settlement::Ack => {
                let oracle = if self.letters[serial].is_parked { "settled" } else { "lost" };
                hold(oracle, self.may_go(serial, here), words)
            }
            Settlement::Retry { after, attempts, reason } => {
                hold("attempts", attempts == here.attempts, words)?;
                hold("settled", self.may_return(now, serial, here, (after, reason)), words)
            }
        }
    }

    /// What a dead router had sent. Of its pools nothing is known any more.
    fn ghost_fits(
        &self,
        serial: usize,
        ghost: &Here,
        settlement: Settlement,
    ) -> Result<(), Broken> {
        let fits = match (settlement, &ghost.standing) {
            (Settlement::Park, _) => false,
            (Settlement::Ack, _) => self.may_go(serial, ghost),
            (Settlement::Retry { after, reason, .. }, Standing::Over(verdict)) => {
                *verdict == Verdict::Again { after, reason } || reason == Reason::Draining
            }
            (Settlement::Retry { .. }, standing) => !matches!(standing, Standing::Running),
        };
        hold("settled", fits, || format!("m{serial}: {settlement:?}, though {ghost:?} was here"))
    }

    fn may_go(&self, serial: usize, here: &Here) -> bool {
        let is_parked = self.letters[serial].is_parked;
        match here.standing {
            Standing::Over(Verdict::Gone(Cause::Parked | Cause::Tail)) => is_parked,
            Standing::Over(Verdict::Gone(_)) => true,
            // Behind a key that is parked, or was when it came.
            Standing::Waiting | Standing::Retrying { .. } => is_parked,
            Standing::Over(Verdict::Again { .. }) | Standing::Running => false,
        }
    }

    fn may_return(
        &self,
        now: Moment,
        serial: usize,
        here: &Here,
        (after, reason): (Duration, Reason),
    ) -> bool {
        let is_stopping = self.phase != Phase::Living;
        let place = here.place.as_ref();
        let is_closed = place.is_some_and(|place| self.pools.get(place.pool).is_closed);
        if here.before == Some(reason) && after == BEFORE_HEARD {
            return true;
        }
        if here.may_be_known && (after, reason) == (POOL_FULL, Reason::Draining) {
            return true;
        }
        let drains = (after, reason) == (Duration::ZERO, Reason::Draining);
        let told = |verdict: Verdict| Verdict::Again { after, reason } == verdict;
        match here.standing {
            Standing::Over(Verdict::Gone(Cause::Parked)) => drains && is_stopping,
            // It waited for its turn to be parked.
            Standing::Over(Verdict::Gone(Cause::Tail)) => drains && (is_stopping || is_closed),
            Standing::Over(Verdict::Gone(_)) | Standing::Running => false,
            Standing::Over(verdict) => told(verdict),
            Standing::Retrying { until, after: delay, reason: why } => {
                let is_told = told(Verdict::Again { after: delay, reason: why });
                let keeps_order = self.setup.queues[self.letters[serial].letter.queue];
                // Where too many rest in a pool, one goes back to a source that keeps its order.
                let rests_there = is_told && keeps_order;
                // And at the end of its pool with the rest of its own delay.
                let rest =
                    until.filter(|until| keeps_order && why == Reason::Failed && *until > now);
                let drains = match rest {
                    Some(until) => {
                        reason == Reason::Draining && now + after >= until && after <= delay
                    }
                    None => drains || (reason == Reason::Draining && keeps_order && after <= delay),
                };
                // Its time has come, and its host is to be left alone.
                let is_due = until.is_some_and(|until| until <= now);
                let is_put_off = is_due && reason == Reason::Throttled && self.is_paused(here);
                (is_stopping || is_closed) && (drains || is_told) || rests_there || is_put_off
            }
            Standing::Waiting => match reason {
                Reason::Cascade => {
                    after == CASCADE
                        && (self.has_failed(here)
                            || self.fails_now(serial, here)
                            || self.is_paused(here))
                }
                // Its host is to be left alone, and too many rest in its pool.
                Reason::Throttled => self.is_paused(here),
                Reason::PoolFull => {
                    after == POOL_FULL && (here.place.is_none() || self.may_move(serial))
                }
                Reason::Draining => {
                    let queue = self.letters[serial].letter.queue;
                    let is_out = here.place.is_none() || self.may_be_out(here);
                    let is_cut = is_out && self.stopped_queues.contains(&queue);
                    let is_again = here.before == Some(Reason::Draining);
                    // It may not have been let in since it was tried: then it goes with the rest of its delay.
                    let rests = here.was_tried && self.setup.queues[queue] && after <= POOL_FULL;
                    (drains || rests)
                        && (is_again
                            || is_stopping
                            || is_closed
                            || is_cut
                            || self.has_a_home(serial, here))
                }
                _ => false,
            },
        }
    }

    /// Whether one of its batch has failed, by the settings of now: it may have come under others.
    fn fails_now(&self, serial: usize, here: &Here) -> bool {
        let Some(place) = &here.place else { return false };
        let settings = &self.pools.get(place.pool).settings;
        super::key(settings, &self.letters[serial].letter)
            .is_some_and(|key| self.failed.contains(&(Arc::clone(&here.home), here.batch, key)))
    }

    /// Whether a host is to be left alone by the pool of a message.
    pub(super) fn is_paused(&self, here: &Here) -> bool {
        here.place.as_ref().is_some_and(|place| self.pools.get(place.pool).has_paused)
    }

    /// Whether a message is in the default pool, and its own has come.
    pub(super) fn has_a_home(&self, serial: usize, here: &Here) -> bool {
        let own = &self.letters[serial].letter.pool;
        let is_away = |place: &super::Place| self.pools.get(place.pool).settings.code != *own;
        // It may have gone again since.
        here.place.as_ref().is_some_and(is_away) && self.pools.has_been(own)
    }

    pub(super) fn answer(&mut self, delivery: Delivery, settled: Settled) -> Result<(), Broken> {
        let (queue, number, generation) = delivery;
        if settled == Settled::Done {
            self.heard.insert(delivery);
        }
        if self.strays.remove(&delivery).is_some() {
            return Ok(());
        }
        let serial = self.serial(queue, number)?;
        let seen = &mut self.letters[serial];
        let Some(here) = &seen.here else { return Ok(()) };
        if here.generation != generation {
            // It was handed out again before the router heard, and is to be settled again.
            return Ok(());
        }
        seen.here = None;
        self.here.remove(&serial);
        Ok(())
    }

    pub(super) fn park(&mut self, queue: &Arc<str>, number: u64, key: Option<KeyName>) {
        let Some(queue) = self.queue_names.get(queue) else { return };
        let Some(serial) = self.numbers.get(&(*queue, number)) else { return };
        let seen = &mut self.letters[*serial];
        (seen.is_parked, seen.is_finished) = (true, true);
        if let Some(key) = key {
            self.parked_keys.entry(key).or_default().insert(*serial);
        }
    }

    pub(super) fn ack(&mut self, id: &Arc<str>) -> Result<(), Broken> {
        let find = |serial: &&usize| self.letters[**serial].letter.id == *id;
        let Some(serial) = self.here.iter().find(find).copied() else {
            return Err(Broken::new("settled", format!("{id} was acknowledged and is not here")));
        };
        // Whoever says so again hears the same.
        if self.letters[serial].here.as_ref().is_some_and(Here::is_acked) {
            return Ok(());
        }
        self.letters[serial].is_finished = true;
        let place = self.letters[serial].here.as_ref().and_then(|here| here.place.as_ref());
        let is_strict = |place: &super::Place| {
            self.pools.get(place.pool).settings.ordering == sluicegate_dispatch::Ordering::Strict
        };
        let in_turn = place.is_some_and(is_strict);
        let here = self.hand_of(serial)?;
        here.in_turn = in_turn;
        // What is to be parked behind another waits until it is its turn.
        let is_tail = matches!(here.standing, Standing::Over(Verdict::Gone(Cause::Tail)));
        let waits =
            matches!(here.standing, Standing::Waiting | Standing::Retrying { .. }) || is_tail;
        hold("settled", waits, || format!("{id} was acknowledged: {here:?}"))?;
        here.standing = gone(Cause::Acked);
        Ok(())
    }
}
