//! Who watches a router: from what reaches its ends, what must not be.
//!
//! | oracle | must not be |
//! |---|---|
//! | lost | a message that leaves its source unless it is done, parked or given up by will; one that stays for ever |
//! | twice | two executions of one message at once |
//! | order | two of a key at once; one before its turn; one after a failure in its batch; one of a parked key |
//! | settled | anything but what follows from the outcome told to a source, or told twice |
//! | attempts | an attempt that is counted wrongly, or one too many |
//! | delays | a start before the delay has passed |
//! | pauses | a call to a host that asked to be left alone |
//! | limits, rate | more running, waiting or starting than the pool allows |
//! | window | a message that is here and whose window ends |
//! | fairness | a tenant that gets less than its share while it waits |
//! | leaks | anything kept after the end |
//!
//! They look at the ends: what sources, executor and parked list see. From the router itself they
//! take only who was let into a pool and who was not.

mod fact;
mod hand;
mod order;
mod pools;
mod settling;
mod shares;

#[cfg(test)]
mod tests;

pub use fact::{Effect, Fact, Handed, KeyName, Letter};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_dispatch::{DEFAULT_GROUP, Ordering, Outcome, PoolSettings, Reason};
use sluicegate_schedule::Moment;

use super::{Broken, hold};
use hand::{Cause, Fate, Here, Place, Seen, Standing, Verdict, fate, key};
use pools::Pools;
use shares::Shares;

/// What the oracles know from the beginning.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// For each queue: whether its source keeps the order of strict keys.
    pub queues: Vec<bool>,
    /// Whether tenants do nothing but compete, so that their shares can be measured.
    pub fair: bool,
}

/// All oracles of a router together.
#[derive(Debug)]
pub struct Oracles {
    setup: Setup,
    letters: Vec<Seen>,
    numbers: BTreeMap<(usize, u64), usize>,
    queue_names: BTreeMap<Arc<str>, usize>,
    /// The messages of each group of a queue and pool, in the order of the source.
    lines: BTreeMap<(usize, Arc<str>, Arc<str>), Vec<usize>>,
    pools: Pools,
    /// What the router has in its hands.
    here: BTreeSet<usize>,
    /// What a dead router had in its hands: what it sent may still arrive.
    ghosts: BTreeMap<Delivery, Here>,
    /// Deliveries that are only to be removed: copies, and what is no message; or to be handed back,
    /// with so many attempts: what a queue that was removed still has.
    strays: BTreeMap<Delivery, Option<u32>>,
    /// Deliveries of which the router has heard that they are settled.
    heard: BTreeSet<Delivery>,
    /// Of which pool that it was received for, batch and key one has failed.
    failed: BTreeSet<(Arc<str>, u64, Arc<str>)>,
    parked_keys: BTreeMap<KeyName, BTreeSet<usize>>,
    disturbed_until: Vec<Moment>,
    stopped_queues: BTreeSet<usize>,
    shares: Option<Shares>,
    phase: Phase,
    batches: u64,
    admissions: u64,
}

/// One delivery: queue, number, generation.
type Delivery = (usize, u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Living,
    Stopping,
    Stopped,
}

impl Oracles {
    /// They have seen nothing yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            letters: Vec::new(),
            numbers: BTreeMap::new(),
            queue_names: BTreeMap::new(),
            lines: BTreeMap::new(),
            pools: Pools::default(),
            here: BTreeSet::new(),
            ghosts: BTreeMap::new(),
            strays: BTreeMap::new(),
            heard: BTreeSet::new(),
            failed: BTreeSet::new(),
            parked_keys: BTreeMap::new(),
            disturbed_until: vec![Moment::ZERO; setup.queues.len()],
            stopped_queues: BTreeSet::new(),
            shares: setup.fair.then(Shares::default),
            phase: Phase::Living,
            batches: 0,
            admissions: 0,
            setup,
        }
    }

    /// Looks at a fact.
    ///
    /// # Errors
    /// What it breaks.
    pub fn see(&mut self, now: Moment, fact: Fact) -> Result<(), Broken> {
        match fact {
            Fact::Published(letter) => self.publish(letter),
            Fact::Begun => self.begin(),
            Fact::Stopping => self.phase = Phase::Stopping,
            Fact::Stopped { unsettled, is_stuck, in_flight, is_healthy } => {
                self.phase = Phase::Stopped;
                return self.stop(unsettled, is_stuck, in_flight, is_healthy);
            }
            Fact::PoolSet(settings) => self.pools.set(now, settings),
            Fact::PoolRemoved(code) => self.pools.remove(now, &code),
            Fact::QueueStopped { queue } => {
                self.stopped_queues.insert(queue);
            }
            Fact::Disturbed { queue, until } => {
                let known = &mut self.disturbed_until[queue];
                *known = (*known).max(until);
            }
            Fact::HandedOver { queue, opening, taken, batch } => {
                self.batches += 1;
                let mut batch = batch.into_iter();
                return batch.try_for_each(|handed| self.hand(taken, queue, opening, handed));
            }
            Fact::Admitted { pool, serial } => return self.admit(now, &pool, serial),
            Fact::Refused { pool, count } => return self.refuse(now, &pool, count as u32),
            Fact::Started { serial, settings, attempt } => {
                return self.start(now, serial, settings, attempt);
            }
            Fact::Ended { serial, outcome } => return self.end(now, serial, outcome),
            Fact::Told { queue, number, generation, settlement, effect } => {
                return self.tell(now, (queue, number, generation), settlement, effect);
            }
            Fact::Rested { queue, number, attempts } => {
                let serial = self.serial(queue, number)?;
                self.letters[serial].noted = attempts;
            }
            Fact::Answered { queue, number, generation, settled } => {
                return self.answer((queue, number, generation), settled);
            }
            Fact::Parked { queue, number, code: _, key } => self.park(&queue, number, key),
            Fact::Freed(key) => {
                self.parked_keys.remove(&key);
            }
            Fact::Acked { id } => return self.ack(&id),
            Fact::Gauges { pool, queued, running } => {
                return self.pools.gauges(&pool, queued, running);
            }
            Fact::Stuck => return Err(Broken::new("lost", format!("for ever: {}", self.left()))),
            Fact::Over { queued, running, left } => return self.over(queued, running, left),
        }
        Ok(())
    }

    /// The most that a tenant was ahead of another that waited too.
    #[must_use]
    pub fn widest(&self) -> u64 {
        self.shares.as_ref().map_or(0, Shares::widest)
    }

    fn publish(&mut self, letter: Letter) {
        let Letter { serial, queue, number, .. } = letter;
        self.numbers.insert((queue, number), serial);
        self.queue_names.insert(Arc::clone(&letter.queue_name), queue);
        if !letter.is_malformed {
            let group = letter.group.clone().unwrap_or_else(|| DEFAULT_GROUP.into());
            self.lines.entry((queue, Arc::clone(&letter.pool), group)).or_default().push(serial);
        }
        self.letters.push(Seen {
            letter,
            in_source: true,
            is_finished: false,
            is_parked: false,
            not_before: Moment::ZERO,
            noted: 0,
            here: None,
        });
    }

    /// The memory of the router is gone.
    fn begin(&mut self) {
        for serial in std::mem::take(&mut self.here) {
            let seen = &mut self.letters[serial];
            if let Some(here) = seen.here.take() {
                let Letter { queue, number, .. } = seen.letter;
                self.ghosts.insert((queue, number, here.generation), here);
            }
        }
        self.pools.begin();
        self.failed.clear();
        self.stopped_queues.clear();
        self.phase = Phase::Living;
    }

    fn hand(
        &mut self,
        taken: Moment,
        queue: usize,
        opening: u64,
        handed: Handed,
    ) -> Result<(), Broken> {
        let Handed { number, generation, attempts } = handed;
        let serial = self.serial(queue, number)?;
        let disturbed = self.disturbed_until[queue];
        // What came by a queue that was removed since stays with it, until it has run.
        let keeps_order = self.setup.queues[queue];
        // What waited for room there goes back at its end, and nobody sees when.
        let is_going = |here: &Here| here.opening != opening && here.place.is_none();
        let is_over = |here: &Here| is_going(here) || self.is_over(keeps_order, here);
        let is_elsewhere = |here: &Here| here.opening != opening && !is_over(here);
        let own = self.letters[serial].here.as_ref();
        let is_known =
            own.is_some_and(is_elsewhere) || self.twins(serial).any(|(_, here)| is_elsewhere(here));
        let may_be_known =
            own.is_some_and(is_going) || self.twins(serial).any(|(_, here)| is_going(here));
        let is_twin = self.twins(serial).any(|(_, here)| here.opening == opening);
        let has_run = own.is_some_and(|here| here.opening != opening && is_over(here));
        if has_run && let Some(here) = self.letters[serial].here.take() {
            self.ghosts.insert((queue, number, here.generation), here);
            self.here.remove(&serial);
        }
        let batch = self.batches;
        let home = self.home(serial);
        let seen = &mut self.letters[serial];
        // One that was under way when the source was disturbed may come late.
        let may_come = seen.in_source || taken <= disturbed;
        hold("settled", may_come, || format!("m{serial} was gone"))?;
        let knows = attempts >= seen.noted;
        hold("attempts", knows, || format!("m{serial} was tried {} times", seen.noted))?;
        if is_known {
            self.strays.insert((queue, number, generation), Some(attempts));
            return Ok(());
        }
        if let Some(here) = &mut seen.here {
            // Here, too, one that was under way then may come after one that was taken later.
            let lapsed = here.delivered.min(taken) <= disturbed || here.told.is_some();
            here.before = here.told.take().or(here.before);
            (here.generation, here.delivered) = (generation, taken);
            return hold("window", lapsed, || format!("the window of m{serial} ended: {here:?}"));
        }
        if is_twin || seen.letter.is_malformed {
            self.strays.insert((queue, number, generation), None);
            return Ok(());
        }
        seen.here = Some(Here {
            generation,
            delivered: taken,
            opening,
            batch,
            home,
            attempts,
            place: None,
            standing: Standing::Waiting,
            holds_key: false,
            told: None,
            before: None,
            may_be_known,
            in_turn: false,
            was_tried: false,
        });
        self.here.insert(serial);
        Ok(())
    }

    /// The pool that a message goes to now.
    fn home(&self, serial: usize) -> Arc<str> {
        let own = &self.letters[serial].letter.pool;
        match self.pools.is_open(own) {
            true => Arc::clone(own),
            false => sluicegate_dispatch::DEFAULT_POOL.into(),
        }
    }

    /// Whether nothing is left to do with a message but to tell its source.
    fn is_over(&self, keeps_order: bool, here: &Here) -> bool {
        let is_out = match &here.place {
            // It waits for room.
            None => false,
            Some(place) => {
                let pool = self.pools.get(place.pool);
                // What would lose its place in its group stays for another pool.
                let stays = pool.settings.ordering == Ordering::Strict && !keeps_order;
                (pool.is_closed && !stays) || self.has_failed(here)
            }
        };
        let is_back = here.told.is_some() && !here.is_running();
        matches!(here.standing, Standing::Over(_)) || is_back || (is_out && !here.is_running())
    }

    fn admit(&mut self, now: Moment, code: &Arc<str>, serial: usize) -> Result<(), Broken> {
        let pool = self.pools.open(now, code)?;
        let settings = Arc::clone(&self.pools.get(pool).settings);
        self.admissions += 1;
        let number = self.admissions;
        let letter = &self.letters[serial].letter;
        let is_known = *letter.pool == **code || self.pools.open(now, &letter.pool).is_err();
        hold("pools", is_known, || format!("m{serial} asked for {} and got {code}", letter.pool))?;
        let key = key(&settings, letter);
        let may_move = self.may_move(serial);
        let known = self.letters[serial].here.as_ref();
        let gets_key = known.is_some_and(|here| self.may_be_out(here));
        let has_a_home = known.is_some_and(|here| self.has_a_home(serial, here));
        let here = self.hand_of(serial)?;
        let stays = here.place.as_ref().is_some_and(|place| place.pool == pool);
        let is_new = here.place.is_none() && (here.is_waiting() || here.is_acked());
        let is_acked_again = here.is_acked() && (here.in_turn || has_a_home);
        hold("twice", is_new || may_move || gets_key || is_acked_again, || {
            format!("m{serial} was let in twice: {here:?}")
        })?;
        match here.standing {
            // It is settled when it is its turn.
            Standing::Over(Verdict::Gone(Cause::Acked)) => here.in_turn = true,
            // With a key it waits on, as long as it was to.
            Standing::Retrying { .. } if gets_key && stays => {}
            // In its new pool it is tried at once.
            _ => here.standing = Standing::Waiting,
        }
        here.place = Some(Place { pool, key, number, at: now, settings });
        if let Some(shares) = &mut self.shares {
            shares.wait(self.letters[serial].letter.tenant.as_ref());
        }
        Ok(())
    }

    /// Whether a message goes from one pool to another without going by its source, which would not keep its order: its
    /// pool is gone, or its own has come.
    pub(super) fn may_move(&self, serial: usize) -> bool {
        let seen = &self.letters[serial];
        let keeps_order = self.setup.queues[seen.letter.queue];
        let waits = |here: &Here| {
            let is_tail = matches!(here.standing, Standing::Over(Verdict::Gone(Cause::Tail)));
            (is_tail || matches!(here.standing, Standing::Waiting | Standing::Retrying { .. }))
                && here.place.as_ref().is_some_and(|place| {
                    self.pools.get(place.pool).is_closed || self.has_a_home(serial, here)
                })
        };
        !keeps_order && seen.here.as_ref().is_some_and(waits)
    }

    /// Whether a message that was let in may wait in its window again: its pool kept order since, if only for a while, and
    /// it is to be let in with its key, and behind others of its line.
    fn may_be_out(&self, here: &Here) -> bool {
        let moves = |place: &Place| {
            let pool = self.pools.get(place.pool);
            !pool.is_steady && (place.key.is_none() || pool.was_strict)
        };
        // Those behind a parked one are parked when they are let in.
        let waits = matches!(
            here.standing,
            Standing::Waiting
                | Standing::Retrying { .. }
                | Standing::Over(Verdict::Gone(Cause::Tail))
        );
        waits && here.place.as_ref().is_some_and(moves)
    }

    fn refuse(&mut self, now: Moment, code: &Arc<str>, count: u32) -> Result<(), Broken> {
        let Ok(pool) = self.pools.open(now, code) else { return Ok(()) };
        let waits = |here: &Here| {
            here.place.as_ref().is_some_and(|place| place.pool == pool) && !here.is_running()
        };
        let waiting = self.hands().filter(|(_, here)| waits(here)).count() as u32;
        let in_pool = |here: &Here| here.place.as_ref().is_some_and(|place| place.pool == pool);
        // Those of a queue that was removed, too.
        let ghosts = self.ghosts.values().filter(|here| in_pool(here)).count() as u32;
        let unsettled = ghosts + self.hands().filter(|(_, here)| in_pool(here)).count() as u32;
        let is_free = self.pools.get(pool).has_room(now, waiting, unsettled, count);
        hold("limits", !is_free || self.phase != Phase::Living, || {
            format!("{code} refused {count} though only {waiting} wait")
        })
    }

    fn start(
        &mut self,
        now: Moment,
        serial: usize,
        settings: Arc<PoolSettings>,
        attempt: u32,
    ) -> Result<(), Broken> {
        hold("leaks", self.phase != Phase::Stopped, || format!("m{serial} starts after the end"))?;
        let not_before = self.letters[serial].not_before;
        let here = self.hand_of(serial)?.clone();
        match here.standing {
            Standing::Waiting | Standing::Retrying { until: Some(_), .. } => {}
            Standing::Running => {
                return Err(Broken::new("twice", format!("m{serial} runs already")));
            }
            _ => return Err(Broken::new("settled", format!("m{serial} starts: {here:?}"))),
        }
        hold("delays", not_before <= now, || format!("m{serial} was to wait: {not_before:?}"))?;
        if let Standing::Retrying { until: Some(until), .. } = here.standing {
            hold("delays", until <= now, || format!("m{serial} was to wait until {until:?}"))?;
        }
        hold("attempts", attempt == here.attempts + 1, || {
            format!("m{serial} starts attempt {attempt} after {}", here.attempts)
        })?;
        let Some(place) = &here.place else {
            return Err(Broken::new("limits", format!("m{serial} starts without a place")));
        };
        self.in_turn(now, serial, &here, place)?;
        let host = Arc::clone(&self.letters[serial].letter.host);
        self.pools.get_mut(place.pool).start(now, &settings, &host)?;
        let most = self.pools.most_concurrency();
        if let Some(shares) = &mut self.shares {
            shares.start(self.letters[serial].letter.tenant.as_ref(), most)?;
        }
        self.hand_of(serial)?.standing = Standing::Running;
        Ok(())
    }

    fn end(&mut self, now: Moment, serial: usize, outcome: Option<Outcome>) -> Result<(), Broken> {
        let here = self.hand_of(serial)?.clone();
        let (true, Some(place)) = (here.is_running(), &here.place) else {
            return Err(Broken::new("twice", format!("m{serial} ends and did not run")));
        };
        let pool = self.pools.get_mut(place.pool);
        // What follows is as its pool is now, whatever it began under.
        let settings = &Arc::clone(&pool.settings);
        pool.running -= 1;
        if let Some(Outcome::Throttled { after, .. }) = &outcome {
            let host = Arc::clone(&self.letters[serial].letter.host);
            pool.pause(&host, now + *after);
        }
        let is_closed = pool.is_closed;
        // It would lose its place in its group: it waits for another pool.
        let moves = is_closed && !self.setup.queues[self.letters[serial].letter.queue];
        let standing = match outcome.as_ref().map(fate) {
            None => again(Duration::from_secs(30), Reason::Failed),
            Some(Fate::Done) => gone(Cause::Done),
            Some(Fate::Rejected) if settings.parking => gone(Cause::Parked),
            Some(Fate::Rejected) => gone(Cause::Dropped),
            Some(Fate::Retry { after, reason, counts }) => {
                self.hand_of(serial)?.attempts += u32::from(counts);
                let attempts = here.attempts + u32::from(counts);
                let is_strict = settings.ordering == Ordering::Strict;
                if counts && settings.max_attempts > 0 && attempts >= settings.max_attempts {
                    self.exhaust(serial, settings, place, is_closed, moves)
                } else if !is_strict || outcome == Some(Outcome::Interrupted) {
                    self.fail(serial, &here, settings);
                    again(after, reason)
                } else if moves {
                    Standing::Waiting
                } else if is_closed {
                    again(after, reason)
                } else {
                    Standing::Retrying { until: Some(now + after), after, reason }
                }
            }
        };
        let seen = &mut self.letters[serial];
        if let Standing::Over(Verdict::Gone(Cause::Done | Cause::Dropped)) = standing {
            seen.is_finished = true;
        }
        let is_strict = settings.ordering == Ordering::Strict;
        let is_over = matches!(standing, Standing::Over(_));
        let here = self.hand_of(serial)?;
        here.holds_key = is_strict && is_over && outcome.is_some();
        here.was_tried = !is_over;
        here.standing = standing;
        Ok(())
    }

    fn stop(
        &self,
        unsettled: u64,
        is_stuck: bool,
        in_flight: usize,
        is_healthy: bool,
    ) -> Result<(), Broken> {
        let here: Vec<_> = self.here.iter().collect();
        let is_clean = unsettled == 0 && in_flight == 0;
        hold("leaks", here.is_empty() || !is_clean, || format!("not settled: {here:?}"))?;
        let most = here.len() + self.strays.len();
        hold("leaks", in_flight <= most, || format!("{in_flight} are in flight"))?;
        hold("leaks", is_clean || !is_healthy, || format!("{unsettled} unsettled: {here:?}"))?;
        let runs = self.hands().find(|(_, here)| here.is_running());
        hold("leaks", runs.is_none() || is_stuck, || format!("runs on: {runs:?}"))
    }

    fn over(&self, queued: u32, running: u32, left: usize) -> Result<(), Broken> {
        hold("lost", left == 0, || format!("{left} are left: {}", self.left()))?;
        for Seen { letter, in_source, is_finished, .. } in &self.letters {
            let is_well = !in_source && *is_finished;
            hold("lost", is_well, || format!("{letter}, in its source: {in_source}"))?;
        }
        hold("leaks", (queued, running) == (0, 0), || format!("{queued} wait, {running} run"))?;
        hold("leaks", self.here.is_empty(), || format!("not settled: {}", self.left()))
    }

    /// What is left, in words.
    fn left(&self) -> String {
        let left = self.letters.iter().filter(|seen| seen.in_source);
        let words = left.map(|seen| match &seen.here {
            Some(here) => format!("{}: {here:?}", seen.letter),
            None => format!("{}, not here", seen.letter),
        });
        words.collect::<Vec<_>>().join("; ")
    }

    fn serial(&self, queue: usize, number: u64) -> Result<usize, Broken> {
        let unknown = || Broken::new("settled", format!("q{} has no {number}", queue + 1));
        self.numbers.get(&(queue, number)).copied().ok_or_else(unknown)
    }

    fn hand_of(&mut self, serial: usize) -> Result<&mut Here, Broken> {
        let gone = || Broken::new("twice", format!("m{serial} is not here"));
        self.letters[serial].here.as_mut().ok_or_else(gone)
    }

    /// The copies of a message that are here.
    fn twins(&self, serial: usize) -> impl Iterator<Item = (&Letter, &Here)> {
        let own = &self.letters[serial].letter;
        let same = |other: &Letter| (other.queue, &other.id) == (own.queue, &own.id);
        self.hands().filter(move |(other, _)| other.serial != serial && same(other))
    }

    fn hands(&self) -> impl Iterator<Item = (&Letter, &Here)> {
        self.here.iter().filter_map(|serial| {
            let seen = &self.letters[*serial];
            Some((&seen.letter, seen.here.as_ref()?))
        })
    }
}

const fn gone(cause: Cause) -> Standing {
    Standing::Over(Verdict::Gone(cause))
}

const fn again(after: Duration, reason: Reason) -> Standing {
    Standing::Over(Verdict::Again { after, reason })
}
