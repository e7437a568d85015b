//! The breaker against a naive model, and the faults that others have had.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate_schedule::Moment;

use super::{Breaker, BreakerChange, BreakerSettings, BreakerState, Pass, Verdict};
use Verdict::{Failure, Success};

const SETTINGS: BreakerSettings = BreakerSettings {
    // In slices of one second.
    window: Duration::from_secs(20),
    volume: 4,
    failure_ratio: 0.5,
    open_for: Duration::from_secs(5),
    close_after: 3,
};

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

/// One call at a time, one a second.
fn call(breaker: &mut Breaker, second: u64, verdict: Verdict) -> Option<BreakerChange> {
    let pass = breaker.ask(at(second)).expect("it lets calls through");
    breaker.spend(pass, verdict, at(second))
}

/// A breaker that opened at second 3.
fn opened() -> Breaker {
    let mut breaker = Breaker::new(SETTINGS);
    for second in 0..3 {
        assert_eq!(call(&mut breaker, second, Failure), None);
    }
    assert_eq!(call(&mut breaker, 3, Failure), Some(BreakerChange::Opened));
    breaker
}

#[test]
fn it_opens_when_enough_of_enough_calls_failed() {
    let (s, f) = (Success, Failure);
    // Volume, ratio, calls: which call opens it.
    let cases: &[(u32, f64, &[Verdict], Option<usize>)] = &[
        (4, 0.5, &[f, f, f], None),
        (4, 0.5, &[f, f, f, f], Some(3)),
        // Four are put down to chance, and half of the others must fail.
        (4, 0.5, &[s, f, f, f, f], None),
        (4, 0.5, &[s, f, f, f, f, f], Some(5)),
        (4, 0.5, &[s, s, f, f, f, f, f, f], Some(7)),
        (4, 0.5, &[f, f, s, s, f, s, f, s, f, s, f, s], None),
        (4, 0.75, &[s, f, f, f, f, f, f], None),
        (4, 0.75, &[s, f, f, f, f, f, f, f], Some(7)),
        (4, 1.0, &[f, f, f, s, f, f, f, f], None),
        (1, 1.0, &[s, s, f], None),
        (1, 1.0, &[f], Some(0)),
        // A success does not open it, even where it makes the calls enough.
        (2, 0.1, &[f, s], None),
        // Settings that make no sense.
        (0, 0.5, &[f], Some(0)),
        (2, f64::NAN, &[s, f, f, f], None),
        (2, f64::NAN, &[f, f], Some(1)),
        (2, 0.0, &[s, f, f, f], None),
        (2, 7.0, &[f, f], Some(1)),
    ];
    for (volume, failure_ratio, calls, opens) in cases {
        let settings =
            BreakerSettings { volume: *volume, failure_ratio: *failure_ratio, ..SETTINGS };
        let mut breaker = Breaker::new(settings);
        let mut calls_made = calls.iter().enumerate();
        let opened = calls_made.find_map(|(index, verdict)| {
            call(&mut breaker, 0, *verdict).map(|change| (index, change))
        });
        let expected = opens.map(|index| (index, BreakerChange::Opened));
        assert_eq!(opened, expected, "{volume} {failure_ratio} {calls:?}");
    }
}

#[test]
fn calls_count_for_as_long_as_the_span() {
    let mut breaker = Breaker::new(SETTINGS);
    for (second, verdict) in [(0, Failure), (0, Failure), (5, Failure), (5, Success)] {
        assert_eq!(call(&mut breaker, second, verdict), None);
    }
    // When, and how many calls and failures it counts then.
    for (second, counts) in [(5, (4, 3)), (19, (4, 3)), (20, (2, 1)), (24, (2, 1)), (25, (0, 0))] {
        let view = breaker.view(at(second));
        assert_eq!((view.calls, view.failures), counts, "at {second} s");
    }
    // The fourth failure comes when two are forgotten.
    assert_eq!(call(&mut breaker, 20, Failure), None);
    let view = breaker.view(at(20));
    assert_eq!((view.calls, view.failures), (3, 2));
}

#[test]
fn the_latest_calls_are_judged_for_themselves() {
    let mut breaker = Breaker::new(SETTINGS);
    (0..1_000).for_each(|number| assert_eq!(call(&mut breaker, number / 100, Success), None));
    for second in [10, 11, 11] {
        assert_eq!(call(&mut breaker, second, Failure), None);
    }
    // It shows those that opened it.
    assert_eq!(call(&mut breaker, 11, Failure), Some(BreakerChange::Opened));
    let view = breaker.view(at(11));
    assert_eq!((view.calls, view.failures), (4, 4));
}

#[test]
fn time_that_goes_back_or_jumps_does_no_harm() {
    let far = u64::MAX / 1_000_000_000;
    // A little back: counted as now.
    let mut breaker = Breaker::new(SETTINGS);
    for second in [19, 18, 1] {
        assert_eq!(call(&mut breaker, second, Failure), None);
    }
    assert_eq!(breaker.view(at(0)).calls, 3);
    assert_eq!(call(&mut breaker, 0, Failure), Some(BreakerChange::Opened));
    // It opened at 0 by its word. Back by much, open or not, it lets calls through as soon.
    for (opened, then) in [(0, 0), (far, 3), (far, far), (1_000, 0), (1_000, 999), (3, far)] {
        let mut breaker = Breaker::new(SETTINGS);
        let last = (0..4).filter_map(|_| call(&mut breaker, opened, Failure)).last();
        assert_eq!(last, Some(BreakerChange::Opened));
        if let Err(until) = breaker.ask(at(then)) {
            assert!(until - at(then) <= SETTINGS.open_for, "{opened} {then}");
            assert!(breaker.view(at(then)).until.is_some_and(|shown| shown <= until));
        }
        let again = Moment::ZERO + Duration::from_secs(then) + SETTINGS.open_for;
        assert!(breaker.ask(again).is_ok(), "{opened} {then}");
    }
    // Closed, it forgets what was far ahead, and slides on.
    let mut breaker = Breaker::new(SETTINGS);
    for second in [far, far, 5, 6, far, 7] {
        assert_eq!(call(&mut breaker, second, Failure), None);
    }
    assert_eq!(breaker.view(at(7)).calls, 1);
    assert_eq!(breaker.view(at(far)).calls, 0);
    assert_eq!(breaker.view(at(27)).calls, 0);
    assert_eq!(call(&mut breaker, 27, Failure), None);
    assert_eq!(breaker.view(Moment::FAR).calls, 0);
}

#[test]
fn it_stays_open_as_long_as_it_was_told() {
    let mut breaker = opened();
    assert_eq!(breaker.ask(at(3)), Err(at(8)));
    assert_eq!(breaker.ask(at(7)), Err(at(8)));
    assert_eq!(breaker.view(at(7)).state, BreakerState::Open);
    assert_eq!(breaker.view(at(7)).until, Some(at(8)));
    assert_eq!((breaker.view(at(7)).calls, breaker.view(at(7)).failures), (4, 4));
    assert_eq!(breaker.view(at(8)).state, BreakerState::HalfOpen);
    assert_eq!(breaker.view(at(8)).until, None);
    assert!(breaker.ask(at(8)).is_ok());
}

#[test]
fn three_probes_at_once_and_three_successes_close_it() {
    let mut breaker = opened();
    let probes: Vec<Pass> = (0..3).map(|_| breaker.ask(at(8)).expect("a probe")).collect();
    assert_eq!(breaker.ask(at(8)), Err(at(8)));
    let changes: Vec<_> =
        probes.into_iter().map(|probe| breaker.spend(probe, Success, at(9))).collect();
    assert_eq!(changes, [None, None, Some(BreakerChange::Closed)]);
    let view = breaker.view(at(9));
    assert_eq!((view.state, view.calls, view.failures), (BreakerState::Closed, 0, 0));
}

#[test]
fn one_failed_probe_opens_it_again() {
    let mut breaker = opened();
    assert_eq!(call(&mut breaker, 8, Success), None);
    assert_eq!(call(&mut breaker, 8, Success), None);
    assert_eq!(call(&mut breaker, 9, Failure), Some(BreakerChange::Opened));
    assert_eq!(breaker.ask(at(10)), Err(at(14)));
}

#[test]
fn a_probe_that_is_given_back_makes_room() {
    let mut breaker = opened();
    let mut probes: Vec<Pass> = (0..3).map(|_| breaker.ask(at(8)).expect("a probe")).collect();
    breaker.give_back(probes.pop().expect("three"));
    let another = breaker.ask(at(8)).expect("the room of the one that was given back");
    assert_eq!(breaker.ask(at(8)), Err(at(8)));
    for probe in probes.into_iter().chain([another]) {
        breaker.give_back(probe);
    }
    assert_eq!(breaker.view(at(8)).calls, 0);
}

#[test]
fn what_comes_late_changes_nothing() {
    // A call of before it opened neither opens nor closes it, nor takes a probe's place.
    let mut breaker = Breaker::new(SETTINGS);
    let mut late: Vec<Pass> = (0..8).map(|_| breaker.ask(at(0)).expect("closed")).collect();
    for second in 0..4 {
        let told = call(&mut breaker, second, Failure);
        assert_eq!(told.is_some(), second == 3);
    }
    let mut next = || late.pop().expect("eight");
    assert_eq!(breaker.spend(next(), Success, at(4)), None);
    assert_eq!(breaker.spend(next(), Failure, at(4)), None);
    assert_eq!(breaker.ask(at(7)), Err(at(8)));
    let probes: Vec<Pass> = (0..3).map(|_| breaker.ask(at(8)).expect("a probe")).collect();
    assert_eq!(breaker.spend(next(), Success, at(8)), None);
    breaker.give_back(next());
    assert_eq!(breaker.ask(at(8)), Err(at(8)));
    assert_eq!(breaker.spend(next(), Failure, at(8)), None);
    assert_eq!(breaker.view(at(8)).state, BreakerState::HalfOpen);
    let told = probes.into_iter().filter_map(|probe| breaker.spend(probe, Success, at(9))).last();
    assert_eq!(told, Some(BreakerChange::Closed));
    assert_eq!(breaker.spend(next(), Failure, at(9)), None);
    assert_eq!(breaker.view(at(9)).calls, 0);
}

#[test]
fn a_reset_closes_it_and_forgets() {
    let mut breaker = opened();
    assert_eq!(breaker.reset(), Some(BreakerChange::Closed));
    let of_before = breaker.ask(at(3)).expect("closed");
    assert_eq!(breaker.reset(), None);
    assert_eq!(breaker.spend(of_before, Failure, at(3)), None);
    assert_eq!(breaker.view(at(3)).calls, 0);
}

/// The same by the book: all that was ever said, searched anew for every question.
struct Model {
    settings: BreakerSettings,
    state: BreakerState,
    until: u64,
    /// How calls ended in this state, and in which second.
    verdicts: Vec<(u64, Verdict)>,
    /// The passes that are out, by the era in which they were given.
    out: Vec<u64>,
    era: u64,
}

impl Model {
    fn change(&mut self, state: BreakerState, now: u64) {
        self.state = state;
        self.until = now + self.settings.open_for.as_secs();
        self.verdicts.clear();
        self.era += 1;
    }

    fn ask(&mut self, now: u64) -> bool {
        if self.state == BreakerState::Open && now >= self.until {
            self.change(BreakerState::HalfOpen, now);
        }
        let probes = self.out.iter().filter(|era| **era == self.era).count();
        let lets = match self.state {
            BreakerState::Closed => true,
            BreakerState::Open => false,
            BreakerState::HalfOpen => probes < self.settings.close_after as usize,
        };
        if lets {
            self.out.push(self.era);
        }
        lets
    }

    fn spend(&mut self, index: usize, verdict: Option<Verdict>, now: u64) {
        let era = self.out.remove(index);
        let Some(verdict) = verdict.filter(|_| era == self.era) else { return };
        self.verdicts.push((now, verdict));
        let reached = |seconds: u64, ratio: f64| {
            let within = || self.verdicts.iter().filter(|(at, _)| at + seconds > now);
            let calls = within().count() as f64;
            let failed = within().filter(|(_, verdict)| *verdict == Failure).count() as f64;
            let chance = f64::from(self.settings.volume);
            failed >= chance && failed - chance >= ratio * (calls - chance)
        };
        let ratio = self.settings.failure_ratio;
        match self.state {
            BreakerState::Closed
                if verdict == Failure
                    && (reached(20, ratio) || reached(2, (1.0 + ratio) / 2.0)) =>
            {
                self.change(BreakerState::Open, now);
            }
            BreakerState::HalfOpen if verdict == Failure => self.change(BreakerState::Open, now),
            BreakerState::HalfOpen if self.verdicts.len() == self.settings.close_after as usize => {
                self.change(BreakerState::Closed, now);
            }
            _ => {}
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    Spend(prop::sample::Index, Option<Verdict>),
    Wait(u64),
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let verdict = prop_oneof![
        3 => Just(Some(Success)),
        4 => Just(Some(Failure)),
        1 => Just(None),
    ];
    let step = prop_oneof![
        8 => Just(Step::Ask),
        8 => (any::<prop::sample::Index>(), verdict).prop_map(|(which, how)| Step::Spend(which, how)),
        3 => (0..4u64).prop_map(Step::Wait),
        1 => Just(Step::Reset),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn it_agrees_with_the_model(
        steps in steps(),
        volume in 1..6u32,
        // Eighths are exact, so that both sides round alike.
        eighths in 1..=8u32,
        close_after in 1..4u32,
    ) {
        let failure_ratio = f64::from(eighths) / 8.0;
        let settings = BreakerSettings { volume, failure_ratio, close_after, ..SETTINGS };
        let mut breaker = Breaker::new(settings);
        let (verdicts, out) = (Vec::new(), Vec::new());
        let mut model =
            Model { settings, state: BreakerState::Closed, until: 0, verdicts, out, era: 0 };
        let mut passes: Vec<Pass> = Vec::new();
        let mut now = 0;
        for step in steps {
            let was_open = model.state != BreakerState::Closed;
            let mut told = None;
            match step {
                Step::Ask => {
                    let pass = breaker.ask(at(now));
                    prop_assert_eq!(pass.is_ok(), model.ask(now));
                    passes.extend(pass.ok());
                }
                Step::Spend(..) if passes.is_empty() => {}
                Step::Spend(which, verdict) => {
                    let index = which.index(passes.len());
                    model.spend(index, verdict, now);
                    match (passes.remove(index), verdict) {
                        (pass, Some(verdict)) => told = breaker.spend(pass, verdict, at(now)),
                        (pass, None) => breaker.give_back(pass),
                    }
                }
                Step::Wait(seconds) => now += seconds,
                Step::Reset => {
                    told = breaker.reset();
                    model.change(BreakerState::Closed, now);
                }
            }
            let view = breaker.view(at(now));
            let shown = match model.state {
                BreakerState::Open if now >= model.until => BreakerState::HalfOpen,
                state => state,
            };
            prop_assert_eq!(view.state, shown);
            if model.state == BreakerState::Closed {
                let counted = model.verdicts.iter().filter(|(at, _)| at + 20 > now).count();
                prop_assert_eq!(view.calls as usize, counted);
            }
            prop_assert_eq!(told == Some(BreakerChange::Closed), was_open && model.state == BreakerState::Closed);
            let reopened = model.state == BreakerState::Open && told.is_some();
            prop_assert_eq!(told == Some(BreakerChange::Opened), reopened);
        }
        // Whatever happened: once nobody holds a pass, waiting is enough to be let through.
        passes.drain(..).for_each(|pass| breaker.give_back(pass));
        prop_assert!(breaker.ask(at(now + 5)).is_ok());
    }

    #[test]
    fn no_clock_breaks_it(
        steps in prop::collection::vec((any::<u64>(), 0..64u32, any::<bool>()), 0..200),
        window in any::<Duration>(),
        open_for in any::<Duration>(),
    ) {
        let mut breaker = Breaker::new(BreakerSettings { window, open_for, ..SETTINGS });
        let mut last = Moment::ZERO;
        for (nanos, shift, fails) in steps {
            // Of all magnitudes.
            last = Moment::from_nanos(nanos >> shift);
            let view = breaker.view(last);
            prop_assert!(view.failures <= view.calls);
            prop_assert!(view.until.is_none_or(|until| until - last <= open_for));
            match breaker.ask(last) {
                Ok(pass) => {
                    let verdict = if fails { Failure } else { Success };
                    let told = breaker.spend(pass, verdict, last);
                    prop_assert!(fails || told != Some(BreakerChange::Opened));
                }
                Err(until) => prop_assert!(until - last <= open_for),
            }
        }
        prop_assert!(breaker.ask(last + open_for).is_ok() || last + open_for == Moment::FAR);
    }
}
