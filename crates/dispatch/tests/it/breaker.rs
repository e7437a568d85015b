//! The breaker in simulated time, between workers and an endpoint that fails by chance or for good.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use sluicegate_dispatch::{
    Breaker, BreakerChange, BreakerSettings, BreakerState, Pass, Verdict, Verdict::Failure,
};
use sluicegate_schedule::Moment;

const WORKERS: usize = 32;
const MESSAGES: usize = 2_000;
/// How long an attempt waits before its second and its third call.
const REPEATS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];
const AGAIN: Duration = Duration::from_secs(30);

/// Random numbers from a seed: splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fails(&mut self, percent: u64) -> Verdict {
        if self.next() % 100 < percent { Verdict::Failure } else { Verdict::Success }
    }

    /// Half of `mean` to one and a half of it.
    fn about(&mut self, mean: Duration) -> Duration {
        let nanos = u64::try_from(mean.as_nanos()).expect("short");
        Duration::from_nanos(nanos / 2 + self.next() % (nanos + 1))
    }
}

/// What 2,000 messages at 32 at once came to.
#[derive(Debug, Default, PartialEq)]
struct Run {
    took: Duration,
    openings: usize,
}

/// What a worker does next with its message.
enum Step {
    Call { calls_made: usize },
    End { calls_made: usize, pass: Option<Pass> },
}

/// Delivers as the router does: up to three calls for each attempt, 30 s between attempts, and
/// what meets an open breaker comes back when that may close, after a second at the earliest.
fn deliver(mut breaker: Option<Breaker>, percent: u64, call: Duration, seed: u64) -> Run {
    let mut dice = Dice(seed);
    let mut run = Run::default();
    // By time, and then by number, which keeps it the same each time.
    let mut agenda: BinaryHeap<Reverse<(Moment, usize)>> = BinaryHeap::new();
    let mut steps: Vec<Option<Step>> = Vec::new();
    // When messages may be tried, beside those that were never tried.
    let mut delayed: BinaryHeap<Reverse<Moment>> = BinaryHeap::new();
    let (mut fresh, mut left) = (MESSAGES, MESSAGES);
    for worker in 0..WORKERS {
        agenda.push(Reverse((Moment::ZERO, worker)));
        steps.push(None);
    }
    while let Some(Reverse((now, worker))) = agenda.pop() {
        if left == 0 {
            break;
        }
        let (at, step) = match steps[worker].take() {
            None if delayed.peek().is_some_and(|Reverse(at)| *at <= now) => {
                delayed.pop();
                (now, Some(Step::Call { calls_made: 0 }))
            }
            None if fresh > 0 => {
                fresh -= 1;
                (now, Some(Step::Call { calls_made: 0 }))
            }
            // Nothing comes back sooner than after a second, but for what is known already.
            None => {
                let soon = now + Duration::from_secs(1);
                (delayed.peek().map_or(soon, |Reverse(at)| soon.min(*at)), None)
            }
            Some(Step::Call { calls_made }) => match breaker.as_mut().map(|it| it.ask(now)) {
                Some(Err(until)) => {
                    let after = if calls_made > 0 { AGAIN } else { until - now };
                    delayed.push(Reverse(now + after.max(Duration::from_secs(1))));
                    (now, None)
                }
                pass => {
                    let pass = pass.map(|pass| pass.expect("it lets it through"));
                    (now + dice.about(call), Some(Step::End { calls_made: calls_made + 1, pass }))
                }
            },
            Some(Step::End { calls_made, pass }) => {
                let verdict = dice.fails(percent);
                if let (Some(breaker), Some(pass)) = (breaker.as_mut(), pass) {
                    let change = breaker.spend(pass, verdict, now);
                    run.openings += usize::from(change == Some(BreakerChange::Opened));
                }
                match (verdict, REPEATS.get(calls_made - 1)) {
                    (Verdict::Success, _) => {
                        left -= 1;
                        run.took = now - Moment::ZERO;
                        (now, None)
                    }
                    (Verdict::Failure, Some(delay)) => {
                        (now + *delay, Some(Step::Call { calls_made }))
                    }
                    (Verdict::Failure, None) => {
                        delayed.push(Reverse(now + AGAIN));
                        (now, None)
                    }
                }
            }
        };
        steps[worker] = step;
        agenda.push(Reverse((at, worker)));
    }
    assert_eq!(left, 0, "all are delivered");
    run
}

/// (rate, runs that opened it, openings, the longest run beside the same one without a breaker)
fn by_chance(percent: u64, seeds: u64) -> (u64, usize, usize, f64) {
    let (mut runs, mut openings, mut slowest) = (0, 0, 1.0_f64);
    for seed in 0..seeds {
        for call in [Duration::from_millis(2), Duration::from_millis(30), Duration::from_secs(1)] {
            let settings = BreakerSettings::default();
            let with = deliver(Some(Breaker::new(settings)), percent, call, seed);
            let without = deliver(None, percent, call, seed);
            runs += usize::from(with.openings > 0);
            openings += with.openings;
            slowest = slowest.max(with.took.as_secs_f64() / without.took.as_secs_f64());
        }
    }
    (percent, runs, openings, slowest)
}

#[test]
fn chance_does_not_open_it() {
    let seen = [5, 10, 20, 30].map(|percent| by_chance(percent, 20));
    let calm = |(_, runs, openings, slowest): &(u64, usize, usize, f64)| {
        *runs == 0 && *openings == 0 && *slowest <= 1.1
    };
    assert!(seen.iter().all(calm), "rate, runs, openings, slowest: {seen:?}");
}

/// A breaker under so many calls in a second, one after the other, failing by chance.
struct Traffic {
    breaker: Breaker,
    now: Moment,
    every: Duration,
    dice: Dice,
}

impl Traffic {
    fn new(settings: BreakerSettings, per_second: u32, seed: u64) -> Self {
        let every = Duration::from_secs(1) / per_second;
        // The slices of the span begin at other times for each seed.
        let now = Moment::ZERO + Duration::from_millis(37) * (seed as u32);
        Self { breaker: Breaker::new(settings), now, every, dice: Dice(seed) }
    }

    /// Goes on for so long; how long it took to open, if it did.
    fn go_on(&mut self, lasts: Duration, percent: u64) -> Option<Duration> {
        let begun = self.now;
        while self.now - begun < lasts {
            self.now += self.every;
            let pass = self.breaker.ask(self.now).expect("it is closed");
            let verdict = self.dice.fails(percent);
            if self.breaker.spend(pass, verdict, self.now).is_some() {
                return Some(self.now - begun);
            }
        }
        None
    }
}

#[test]
fn ten_failures_open_it_and_calls_in_flight_do_not_keep_it_open() {
    let mut breaker = Breaker::new(BreakerSettings::default());
    let at = |millis| Moment::ZERO + Duration::from_millis(millis);
    let mut passes: Vec<Pass> =
        (0..WORKERS).map(|_| breaker.ask(at(0)).expect("it is closed")).collect();
    for number in 1..=10 {
        let told = breaker.spend(passes.pop().expect("32"), Failure, at(number));
        assert_eq!(told.is_some(), number == 10, "{number}");
    }
    let until = at(10) + Duration::from_secs(5);
    assert_eq!(breaker.ask(at(10)), Err(until));
    // The rest ends later, while it is open and while it is half-open.
    for (number, pass) in passes.into_iter().enumerate() {
        let now = at(1_000 + 500 * number as u64);
        assert_eq!(breaker.spend(pass, Failure, now), None);
        if now < until {
            assert_eq!(breaker.view(now).until, Some(until));
        } else {
            assert_eq!(breaker.view(now).state, BreakerState::HalfOpen);
        }
    }
    assert!(breaker.ask(until).is_ok());
}

#[test]
fn a_healthy_endpoint_that_fails_from_now_on_opens_it_soon() {
    for seed in 0..20 {
        // Calls in a second, percent that fail, how long it may take.
        let cases = [
            (1_000, 100, Duration::from_secs(1)),
            (100, 100, Duration::from_secs(1)),
            (1_000, 90, Duration::from_millis(1_500)),
            (1_000, 60, Duration::from_secs(10)),
            (100, 70, Duration::from_secs(10)),
            (5, 100, Duration::from_secs(10)),
        ];
        for (per_second, percent, limit) in cases {
            let mut traffic = Traffic::new(BreakerSettings::default(), per_second, seed);
            assert_eq!(traffic.go_on(Duration::from_mins(2), 1), None);
            let opened = traffic.go_on(Duration::from_mins(1), percent);
            assert!(
                opened.is_some_and(|after| after <= limit),
                "{per_second} a second, {percent} %: {opened:?}, {limit:?} allowed"
            );
        }
    }
}

#[test]
fn it_opens_where_failing_slows_the_calls_down() {
    // A thousand a second while all is well; then each of 32 workers fails, waits, and fails again.
    for seed in 0..20 {
        let mut traffic = Traffic::new(BreakerSettings::default(), 1_000, seed);
        assert_eq!(traffic.go_on(Duration::from_mins(2), 0), None);
        traffic.every = Duration::from_secs(1) / 32;
        let opened = traffic.go_on(Duration::from_mins(1), 100).expect("it opens");
        assert!(opened <= Duration::from_millis(1_100), "{opened:?}");
    }
}
