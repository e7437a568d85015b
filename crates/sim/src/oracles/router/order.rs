//! The oracle of order: who may start now, and what a failure does to those behind it.

use std::sync::Arc;

use sluicegate_dispatch::{OnExhausted, Ordering, PoolSettings, Reason};
use sluicegate_schedule::Moment;

use super::hand::{Cause, Here, Place, Standing, Verdict, exhausted, key};
use super::{Broken, Letter, Oracles, again, gone, hold};

impl Oracles {
    /// It is the turn of a message that starts.
    pub(super) fn in_turn(
        &self,
        now: Moment,
        serial: usize,
        here: &Here,
        place: &Place,
    ) -> Result<(), Broken> {
        let letter = &self.letters[serial].letter;
        self.not_beside_its_twin(letter)?;
        let Some(key) = &place.key else { return Ok(()) };
        // Settings that change hold for those that wait.
        let settings = &self.pools.get(place.pool).settings;
        let is_batch =
            settings.ordering == Ordering::Batch && super::key(settings, letter).is_some();
        let failed = is_batch && self.has_failed(here);
        hold("order", !failed, || format!("m{serial} starts after a failure in its batch"))?;
        for (other, theirs) in self.hands() {
            if other.serial != serial && theirs.line() == Some((place.pool, key)) {
                self.before(now, letter, here, other, theirs)?;
            }
        }
        self.key_is_free(letter, place, key)?;
        self.alone_of_its_line(letter, place)?;
        self.strictly_in_turn(letter, place, key)
    }

    /// In a strict pool none runs beside another of its line, in whatever pool that is and however it came there.
    fn alone_of_its_line(&self, letter: &Letter, place: &Place) -> Result<(), Broken> {
        let settings = &self.pools.get(place.pool).settings;
        if settings.ordering != Ordering::Strict || super::key(settings, letter).is_none() {
            return Ok(());
        }
        let is_of_line = |other: &Letter| {
            let line = |letter: &Letter| (letter.queue, letter.pool.clone(), letter.group.clone());
            other.serial != letter.serial && line(other) == line(letter)
        };
        let beside = self.hands().find(|(other, here)| is_of_line(other) && here.is_running());
        hold("order", beside.is_none(), || format!("{letter} starts beside {beside:?}"))
    }

    fn not_beside_its_twin(&self, letter: &Letter) -> Result<(), Broken> {
        let twin = self.twins(letter.serial).find(|(_, here)| here.is_running());
        hold("twice", twin.is_none(), || format!("{letter} runs beside its copy {twin:?}"))
    }

    /// A message may start before another of its key in the same pool.
    fn before(
        &self,
        now: Moment,
        letter: &Letter,
        here: &Here,
        other: &Letter,
        theirs: &Here,
    ) -> Result<(), Broken> {
        let words = || format!("m{} starts beside or before {other}: {theirs:?}", letter.serial);
        hold("order", !theirs.is_running() && !theirs.holds_key, words)?;
        let is_head = |here: &Here| matches!(here.standing, Standing::Retrying { .. });
        let (Some(own), Some(their)) = (&here.place, &theirs.place) else {
            return hold("order", !is_head(theirs), words);
        };
        let same_line = (other.queue, &other.pool) == (letter.queue, &letter.pool);
        // It may wait for another of its own line, which is none of this one's.
        let is_out = self.may_be_out(theirs) && !same_line;
        // Several may have become one line while they waited to be tried again: first the first of them.
        let is_first = is_head(here) && own.number < their.number;
        hold("order", !is_head(theirs) || is_first || is_out, words)?;
        // One that somebody has given up is settled in its turn, and the next waits until its source knows.
        let gives_way = letter.is_high && !other.is_high || here.was_tried;
        // Where its pool was changed it may have been let in again since, and nobody sees that.
        let is_next = match self.pools.get(own.pool).is_steady {
            true => their.number < own.number,
            false => same_line && theirs.batch < here.batch,
        };
        let is_strict = self.pools.get(own.pool).settings.ordering == Ordering::Strict;
        let is_given_up = theirs.is_acked() && theirs.in_turn && is_next && is_strict;
        hold("order", !is_given_up || gives_way, words)?;
        let is_leaving = self.has_a_home(other.serial, theirs)
            || theirs.told.is_some()
            || theirs.before.is_some()
            || is_out
            // It may have gone back for its host's sake.
            || self.is_loose(own) && self.is_paused(theirs);
        let waits = theirs.is_waiting() && !self.has_failed(theirs) && !is_leaving;
        let pool = self.pools.get(own.pool);
        if !waits || pool.is_closed || self.phase != super::Phase::Living {
            return Ok(());
        }
        // Let in again while its pool shrank, it waits in its window: of a line then the first to be received is first.
        if self.may_be_out(theirs) && other.is_high == letter.is_high && !here.was_tried {
            return hold("order", here.batch <= theirs.batch, words);
        }
        // What is to be tried again goes first, in whatever pool that is.
        if here.was_tried != theirs.was_tried {
            return hold("order", here.was_tried, words);
        }
        if other.is_high == letter.is_high || here.was_tried {
            return hold("order", own.number < their.number, words);
        }
        // One that was put back for its host's sake keeps its place, and nobody sees that.
        // And so does one that waits in its window again.
        let is_first = here.is_waiting() && !pool.has_paused && !self.may_be_out(theirs);
        let overtakes = other.is_high && their.at < now && is_first;
        hold("order", !overtakes, || format!("m{} does not let {other} pass", letter.serial))
    }

    /// Nothing of a parked key runs.
    fn key_is_free(&self, letter: &Letter, place: &Place, key: &Arc<str>) -> Result<(), Broken> {
        let pool = self.pools.get(place.pool);
        let parks = |settings: &PoolSettings| {
            settings.ordering == Ordering::Strict && settings.on_exhausted == OnExhausted::Park
        };
        let name = (Arc::clone(&letter.queue_name), Arc::clone(&letter.pool), Arc::clone(key));
        let is_parked = self.parked_keys.get(&name).is_some_and(|those| !those.is_empty());
        let counts = pool.is_steady && parks(&place.settings) && parks(&pool.settings);
        hold("order", !(is_parked && counts), || format!("{letter} starts, its key is parked"))
    }

    /// Strict order holds over all deliveries and all lives, where the source can tell.
    fn strictly_in_turn(
        &self,
        letter: &Letter,
        place: &Place,
        key: &Arc<str>,
    ) -> Result<(), Broken> {
        let code = &self.pools.get(place.pool).settings.code;
        let Some(ungrouped) = self.pools.always_strict(code) else { return Ok(()) };
        if !self.setup.queues[letter.queue] || letter.pool != *code {
            return Ok(());
        }
        let line = self.lines.get(&(letter.queue, Arc::clone(code), Arc::clone(key)));
        let earlier = line.into_iter().flatten().take_while(|other| **other < letter.serial);
        for other in earlier {
            let seen = &self.letters[*other];
            let is_none = seen.letter.group.is_none();
            let has_key = !is_none || ungrouped == sluicegate_dispatch::Ungrouped::Fifo;
            let only_waits = seen.here.as_ref().is_none_or(Here::is_waiting);
            // One that asked to be late holds up nobody who is urgent, however urgent it is itself.
            let gives_way = !seen.letter.is_high || !seen.letter.delay.is_zero();
            let overtakes = letter.is_high && gives_way && only_waits;
            let is_waiting = seen.in_source && !seen.is_finished && has_key && !overtakes;
            hold("order", !is_waiting, || format!("{letter} starts before {}", seen.letter))?;
        }
        Ok(())
    }

    /// Whether nothing of a key waits here for one that goes back.
    fn is_loose(&self, place: &Place) -> bool {
        self.pools.get(place.pool).settings.ordering != Ordering::Strict
    }

    pub(super) fn has_failed(&self, here: &Here) -> bool {
        here.line().is_some_and(|(_, key)| {
            self.failed.contains(&(Arc::clone(&here.home), here.batch, Arc::clone(key)))
        })
    }

    /// One failed: those of its batch and key do not run.
    pub(super) fn fail(&mut self, serial: usize, here: &Here, settings: &PoolSettings) {
        // By the settings that it ran under: it may have come under others.
        if settings.ordering == Ordering::Batch
            && let Some(key) = key(settings, &self.letters[serial].letter)
        {
            self.failed.insert((Arc::clone(&here.home), here.batch, key));
        }
    }

    /// Its attempts are used up. What becomes of it, and of those behind it.
    pub(super) fn exhaust(
        &mut self,
        serial: usize,
        settings: &Arc<PoolSettings>,
        place: &Place,
        is_closed: bool,
        moves: bool,
    ) -> Standing {
        let own = key(settings, &self.letters[serial].letter);
        let (cause, parks_key) = match exhausted(settings, own.as_ref()) {
            Ok(end) => end,
            Err(()) if moves => return Standing::Waiting,
            Err(()) if is_closed => return again(std::time::Duration::ZERO, Reason::Draining),
            Err(()) => {
                let after = std::time::Duration::ZERO;
                return Standing::Retrying { until: None, after, reason: Reason::Draining };
            }
        };
        if parks_key {
            self.park_behind(serial, settings, place);
        }
        gone(cause)
    }

    fn park_behind(&mut self, serial: usize, settings: &PoolSettings, place: &Place) {
        if place.key.is_none() {
            return;
        }
        let letter = &self.letters[serial].letter;
        let (queue, code) = (letter.queue, Arc::clone(&letter.pool));
        for other in self.here.clone() {
            let seen = &mut self.letters[other];
            // What is parked holds up its own queue only, and what was published for the same pool.
            if seen.letter.queue != queue || seen.letter.pool != code {
                continue;
            }
            let same = key(settings, &seen.letter);
            let Some(theirs) = &mut seen.here else { continue };
            let is_behind = other != serial
                && theirs.is_waiting()
                && theirs.line() == place.key.as_ref().map(|key| (place.pool, key))
                && same == place.key;
            if is_behind {
                theirs.standing = Standing::Over(Verdict::Gone(Cause::Tail));
            }
        }
    }
}
